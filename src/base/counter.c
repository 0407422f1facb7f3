// SPDX-License-Identifier: Apache-2.0
#include "base/counter.h"

#define MIN_SHIFT 10 // 2^10 ns: about 1 us
#define PER_POWER 8

static size_t bucket_of(uint64_t ns)
{
    unsigned power;
    size_t i;

    if (ns < (uint64_t)1 << MIN_SHIFT)
        return 0;
    power = 63u - (unsigned)__builtin_clzll(ns);
    i = (power - MIN_SHIFT) * PER_POWER + (ns >> (power - 3) & (PER_POWER - 1));
    return MIN(i, (size_t)HISTOGRAM_BUCKETS - 1);
}

static uint64_t upper_bound(size_t bucket)
{
    unsigned power = (unsigned)(bucket / PER_POWER) + MIN_SHIFT;

    return ((uint64_t)PER_POWER + bucket % PER_POWER + 1) << (power - 3);
}

void histogram_add(struct histogram *h, uint64_t ns)
{
    counter_add(&h->buckets[bucket_of(ns)], 1);
    counter_add(&h->sum_ns, ns);
}

uint64_t histogram_count(const struct histogram *h)
{
    uint64_t n = 0;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        n += counter_read(&h->buckets[i]);
    return n;
}

uint64_t histogram_sum_ns(const struct histogram *h)
{
    return counter_read(&h->sum_ns);
}

uint64_t histogram_quantile_ns(const struct histogram *h, double q)
{
    uint64_t n = histogram_count(h), seen = 0;
    uint64_t rank = (uint64_t)(q * (double)n);

    if (n == 0)
        return 0;
    rank = MIN(rank, n - 1);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += counter_read(&h->buckets[i]);
        if (seen > rank)
            return upper_bound(i);
    }
    return upper_bound(HISTOGRAM_BUCKETS - 1);
}

void histogram_merge(struct histogram *to, const struct histogram *from)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        counter_add(&to->buckets[i], counter_read(&from->buckets[i]));
    counter_add(&to->sum_ns, counter_read(&from->sum_ns));
}
