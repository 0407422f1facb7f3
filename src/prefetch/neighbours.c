// SPDX-License-Identifier: Apache-2.0
#include "prefetch/neighbours.h"

#include "prefetch/pressure.h"

#include <string.h>

#define SCORE_MAX      32
#define SCORE_ENOUGH   4  // opens in order before anything is fetched
#define SCORE_JUMP     8  // what an open elsewhere costs
#define SKIP_MAX       16 // files left out between two opens in order
#define AHEAD_UNKNOWN  8  // while a fetch's latency is not known
#define INTERVAL_MAX   1000000000
#define SMOOTH(old, x) ((old) ? (old) - (old) / 8 + (x) / 8 : (x))

void neighbours_init(struct neighbours *n)
{
    memset(n, 0, sizeof(*n));
}

static void begin(struct neighbours *n, uint32_t position, uint64_t now_ns)
{
    n->any = true;
    n->head = position;
    n->asked = position + 1;
    n->recent = 1;
    n->score = 1;
    n->ahead = 1;
    n->last_ns = now_ns;
    n->interval_ns = 0;
}

// Enters the open; false if it is not in order.
static bool in_order(struct neighbours *n, uint32_t position)
{
    if (position > n->head) {
        uint32_t step = position - n->head;

        if (step > SKIP_MAX)
            return false;
        n->recent = n->recent << step | 1;
        n->head = position;
        return true;
    }
    if (n->head - position >= NEIGHBOURS_BEHIND)
        return false;
    n->recent |= (uint64_t)1 << (n->head - position);
    return true;
}

// At least half of the files passed by were opened.
static bool dense(const struct neighbours *n)
{
    int opened = __builtin_popcountll(n->recent);
    int passed = 64 - __builtin_clzll(n->recent);

    return 2 * opened >= passed;
}

static uint32_t files_needed(const struct neighbours *n)
{
    uint64_t interval = MAX(n->interval_ns, 1);

    if (!n->latency_ns)
        return AHEAD_UNKNOWN;
    return (uint32_t)MIN(2 * n->latency_ns / interval + 2, NEIGHBOURS_AHEAD_MAX);
}

uint32_t neighbours_open(struct neighbours *n, uint32_t position, uint32_t count, uint64_t now_ns,
                         unsigned pressure, uint32_t *ret_first)
{
    uint64_t interval;
    uint32_t first, end;

    if (!n->any) {
        begin(n, position, now_ns);
        return 0;
    }
    if (!in_order(n, position)) {
        n->score = n->score > SCORE_JUMP ? (uint16_t)(n->score - SCORE_JUMP) : 0;
        if (!n->score)
            begin(n, position, now_ns);
        return 0;
    }
    interval = MIN(now_ns - n->last_ns, INTERVAL_MAX);
    n->last_ns = now_ns;
    n->interval_ns = SMOOTH(n->interval_ns, interval);
    n->score = MIN(n->score + 1, SCORE_MAX);
    if (n->score < SCORE_ENOUGH || !dense(n) || pressure >= 100)
        return 0;

    n->ahead = MIN(2 * n->ahead, files_needed(n));
    first = MAX(n->asked, n->head + 1);
    end = MIN(count, n->head + 1 + (uint32_t)pressure_shrink(n->ahead, pressure));
    if (end <= first)
        return 0;
    n->asked = end;
    *ret_first = first;
    return end - first;
}

void neighbours_fetched(struct neighbours *n, uint64_t latency_ns)
{
    n->latency_ns = SMOOTH(n->latency_ns, latency_ns);
}
