// SPDX-License-Identifier: Apache-2.0
// A binary heap of timers by due time; each timer knows its place, so that it can leave.
#pragma once

#include "loop/loop.h"

struct timer_heap {
    struct loop_timer **items;
    size_t len, size;
};

void timer_heap_fini(struct timer_heap *h);
void timer_heap_add(struct timer_heap *h, struct loop_timer *t);
void timer_heap_remove(struct timer_heap *h, struct loop_timer *t);
struct loop_timer *timer_heap_first(const struct timer_heap *h); // NULL when empty
