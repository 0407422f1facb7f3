// SPDX-License-Identifier: Apache-2.0
#include "loop/timer_heap.h"

#include <stdlib.h>

void timer_heap_fini(struct timer_heap *h)
{
    free(h->items);
    *h = (struct timer_heap){0};
}

static void put(struct timer_heap *h, size_t i, struct loop_timer *t)
{
    h->items[i] = t;
    t->slot = i + 1;
}

static void sift_up(struct timer_heap *h, size_t i, struct loop_timer *t)
{
    while (i > 0) {
        size_t parent = (i - 1) / 2;

        if (h->items[parent]->due_ns <= t->due_ns)
            break;
        put(h, i, h->items[parent]);
        i = parent;
    }
    put(h, i, t);
}

static void sift_down(struct timer_heap *h, size_t i, struct loop_timer *t)
{
    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= h->len)
            break;
        if (child + 1 < h->len && h->items[child + 1]->due_ns < h->items[child]->due_ns)
            child++;
        if (h->items[child]->due_ns >= t->due_ns)
            break;
        put(h, i, h->items[child]);
        i = child;
    }
    put(h, i, t);
}

void timer_heap_add(struct timer_heap *h, struct loop_timer *t)
{
    if (h->len == h->size) {
        h->size = h->size ? 2 * h->size : 64;
        h->items = xrealloc(h->items, h->size * sizeof(struct loop_timer *));
    }
    sift_up(h, h->len++, t);
}

void timer_heap_remove(struct timer_heap *h, struct loop_timer *t)
{
    size_t i = t->slot - 1;
    struct loop_timer *last = h->items[--h->len];

    assert(h->items[i] == t);
    t->slot = 0;
    if (last == t)
        return;
    if (i > 0 && h->items[(i - 1) / 2]->due_ns > last->due_ns)
        sift_up(h, i, last);
    else
        sift_down(h, i, last);
}

struct loop_timer *timer_heap_first(const struct timer_heap *h)
{
    return h->len ? h->items[0] : NULL;
}
