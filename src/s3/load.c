// SPDX-License-Identifier: Apache-2.0
#include "s3/load.h"

#include "base/clock.h"

#define BURST_S         0.1 // so much of a second may come at once
#define MIN_BYTES_BURST (256.0 * 1024)
#define GROWTH_ROUNDS   16.0 // from nothing to the maximum

static void bucket_init(struct load_bucket *b, double rate, double min_burst, uint64_t now_ns)
{
    double burst = MAX(rate * BURST_S, min_burst);

    *b = (struct load_bucket){.rate = rate, .burst = burst, .tokens = burst, .filled_ns = now_ns};
}

// How long until there are more than floor tokens.
static uint64_t bucket_wait(struct load_bucket *b, double floor, uint64_t now_ns)
{
    if (b->rate == 0)
        return 0;
    if (now_ns > b->filled_ns) {
        b->tokens += (double)(now_ns - b->filled_ns) * b->rate / 1e9;
        b->tokens = MIN(b->tokens, b->burst);
        b->filled_ns = now_ns;
    }
    if (b->tokens >= floor)
        return 0;
    return (uint64_t)((floor - b->tokens) / b->rate * 1e9) + 1;
}

void load_init(struct load *l, const struct load_config *c, uint64_t now_ns)
{
    *l = (struct load){.max_in_flight = MAX(c->max_in_flight, 1u)};
    l->limit = l->max_in_flight;
    l->step = MAX(l->max_in_flight / GROWTH_ROUNDS, 1.0);
    bucket_init(&l->requests, c->max_requests_per_s, 1, now_ns);
    bucket_init(&l->bytes, (double)c->max_bytes_per_s, MIN_BYTES_BURST, now_ns);
}

bool load_has_room(const struct load *l, bool demand)
{
    unsigned limit = (unsigned)l->limit;

    if (!demand && limit >= 4)
        limit -= MAX(limit / 16, 1u);
    return l->in_flight < limit;
}

uint64_t load_enter(struct load *l, bool demand, uint64_t now_ns)
{
    uint64_t wait;

    if (!load_has_room(l, demand))
        return LOAD_FULL;
    wait = bucket_wait(&l->requests, 1, now_ns);
    if (wait)
        return wait;
    l->requests.tokens -= 1;
    l->in_flight++;
    return 0;
}

void load_leave(struct load *l, enum load_answer a, uint64_t sent_ns, uint64_t now_ns)
{
    assert(l->in_flight > 0);
    l->in_flight--;
    switch (a) {
    case LOAD_GOOD:
        l->limit = MIN(l->limit + l->step / l->limit, (double)l->max_in_flight);
        break;
    case LOAD_TOO_MUCH:
        // requests sent before the last cut tell nothing about how it works
        if (sent_ns >= l->halved_ns) {
            l->limit = MAX(l->limit / 2, 1.0);
            l->halved_ns = now_ns;
        }
        break;
    case LOAD_SAYS_NOTHING:
        break;
    }
}

uint64_t load_bytes_wait(struct load *l, bool demand, uint64_t now_ns)
{
    // half of the burst is demand's alone
    return bucket_wait(&l->bytes, demand ? 0 : l->bytes.burst / 2, now_ns);
}

void load_bytes_take(struct load *l, uint64_t n)
{
    if (l->bytes.rate != 0)
        l->bytes.tokens -= (double)n;
}
