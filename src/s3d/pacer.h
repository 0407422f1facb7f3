// SPDX-License-Identifier: Apache-2.0
// A limit of bytes per second: whoever wants to send reserves, and is told when. Any thread; first
// come, first served. Who comes late, because its timer did, makes up for PACER_SLACK_NS at most.
#pragma once

#include "base/base.h"

#include <stdatomic.h>

#define PACER_SLACK_NS ((uint64_t)20000000)

struct pacer {
    uint64_t bytes_per_s; // 0: no limit
    _Atomic uint64_t free_at_ns;
};

// Reserves n bytes; the time from which on they may be sent.
static inline uint64_t pacer_reserve_ns(struct pacer *p, uint64_t now_ns, uint64_t n)
{
    uint64_t cost, start, seen;

    if (!p->bytes_per_s)
        return now_ns;
    cost = (uint64_t)((double)n * 1e9 / (double)p->bytes_per_s);
    seen = atomic_load_explicit(&p->free_at_ns, memory_order_relaxed);
    do
        start = MAX(seen, now_ns - PACER_SLACK_NS);
    while (!atomic_compare_exchange_weak_explicit(&p->free_at_ns, &seen, start + cost,
                                                  memory_order_relaxed, memory_order_relaxed));
    return start;
}

// How much to reserve at a time: what 5 ms carry, at least a packet or two, at most 1 MiB.
static inline uint64_t pacer_step(uint64_t bytes_per_s)
{
    return MIN(MAX(bytes_per_s / 200, (uint64_t)2920), MIB);
}
