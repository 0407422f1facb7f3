// SPDX-License-Identifier: Apache-2.0
// Counters and histograms that one thread writes and any thread reads, for metrics.
//
// Each loop has its own; a reader sums them up. Relaxed order: a reader sees each value some time
// after it was written, and no two values need to fit together.
#pragma once

#include "base/base.h"

#include <stdatomic.h>

struct counter {
    _Atomic uint64_t value;
};

// By the owning thread only: no locked instruction.
static inline void counter_add(struct counter *c, uint64_t n)
{
    uint64_t v = atomic_load_explicit(&c->value, memory_order_relaxed);

    atomic_store_explicit(&c->value, v + n, memory_order_relaxed);
}

static inline void counter_sub(struct counter *c, uint64_t n)
{
    counter_add(c, (uint64_t)0 - n);
}

static inline uint64_t counter_read(const struct counter *c)
{
    return atomic_load_explicit(&c->value, memory_order_relaxed);
}

// Log-linear: 8 buckets to each power of two of nanoseconds, from 1 us to 64 s and above; a
// quantile is right to within 12.5 %.
#define HISTOGRAM_BUCKETS 216

struct histogram {
    struct counter buckets[HISTOGRAM_BUCKETS];
    struct counter sum_ns;
};

void histogram_add(struct histogram *h, uint64_t ns); // by the owning thread only
uint64_t histogram_count(const struct histogram *h);
uint64_t histogram_sum_ns(const struct histogram *h);
// The upper bound of the bucket that holds quantile q (0..1); 0 when there is nothing.
uint64_t histogram_quantile_ns(const struct histogram *h, double q);
// Adds all of from to to, which nobody else may be using.
void histogram_merge(struct histogram *to, const struct histogram *from);
