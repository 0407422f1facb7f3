// SPDX-License-Identifier: Apache-2.0
#include "fs/stall_spans.h"

#include <string.h>

static void fold_half(struct stall_spans *s)
{
    unsigned half = STALL_SPANS / 2;

    for (unsigned i = 0; i < half; i++)
        s->done_ns += s->span[i].to - s->span[i].from;
    s->done_to = s->span[half - 1].to;
    s->n -= half;
    memmove(s->span, s->span + half, s->n * sizeof(s->span[0]));
}

void stall_spans_add(struct stall_spans *s, uint64_t from, uint64_t to)
{
    unsigned first, end;

    from = MAX(from, s->done_to);
    if (from >= to)
        return;
    // the spans that it touches become one
    for (end = s->n; end > 0 && s->span[end - 1].from > to; end--)
        ;
    for (first = end; first > 0 && s->span[first - 1].to >= from; first--) {
        from = MIN(from, s->span[first - 1].from);
        to = MAX(to, s->span[first - 1].to);
    }
    if (first == end && s->n == STALL_SPANS) {
        fold_half(s);
        stall_spans_add(s, from, to);
        return;
    }
    memmove(s->span + first + 1, s->span + end, (s->n - end) * sizeof(s->span[0]));
    s->span[first].from = from;
    s->span[first].to = to;
    s->n = s->n - (end - first) + 1;
}

uint64_t stall_spans_sum(const struct stall_spans *s)
{
    uint64_t sum = s->done_ns;

    for (unsigned i = 0; i < s->n; i++)
        sum += s->span[i].to - s->span[i].from;
    return sum;
}
