// SPDX-License-Identifier: Apache-2.0
// How long at least one of many waits was under way. They are told of when they end, in about that
// order; a wait that covers earlier ones takes their place.
#pragma once

#include "base/base.h"

#define STALL_SPANS 64

struct stall_spans {
    uint64_t done_ns, done_to; // of spans that were folded, and where they end
    struct {
        uint64_t from, to;
    } span[STALL_SPANS]; // apart from each other, in order
    unsigned n;
};

// What began before the folded ones ended is cut there: it may have been counted.
void stall_spans_add(struct stall_spans *s, uint64_t from, uint64_t to);
uint64_t stall_spans_sum(const struct stall_spans *s);
