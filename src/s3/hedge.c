// SPDX-License-Identifier: Apache-2.0
#include "s3/hedge.h"

#include "base/clock.h"

#define MIN_SAMPLES  100
#define MIN_DELAY_NS (2 * NS_PER_MS)
#define SHARE        0.0195
#define MAX_BUDGET   8.0

// The estimate moves by a fixed fraction per sample: 99 steps down balance one step up, so it
// rests where one sample in a hundred is above it, and follows when the store changes.
#define STEP 0.05

void hedge_sample(struct hedge *h, uint64_t first_byte_ns)
{
    double x = (double)first_byte_ns;

    if (h->samples < MIN_SAMPLES) {
        h->samples++;
        h->p99_ns = MAX(h->p99_ns, x);
    } else if (x > h->p99_ns) {
        h->p99_ns *= 1 + 0.99 * STEP;
    } else {
        h->p99_ns *= 1 - 0.01 * STEP;
    }
}

void hedge_sent(struct hedge *h)
{
    h->budget = MIN(h->budget + SHARE, MAX_BUDGET);
}

uint64_t hedge_delay_ns(const struct hedge *h)
{
    if (h->samples < MIN_SAMPLES)
        return 0;
    return MAX((uint64_t)h->p99_ns, MIN_DELAY_NS);
}

bool hedge_take(struct hedge *h)
{
    if (h->budget < 1)
        return false;
    h->budget -= 1;
    return true;
}

void hedge_give_back(struct hedge *h)
{
    h->budget += 1;
}
