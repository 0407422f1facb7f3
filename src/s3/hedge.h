// SPDX-License-Identifier: Apache-2.0
// When a small GET is late enough to be sent a second time. A pure policy, one per loop.
//
// It follows the 99th percentile of the time to the first byte, and keeps hedges under 2 % of the
// requests, so that a store that becomes slow as a whole is not asked twice for everything.
#pragma once

#include "base/base.h"

#define HEDGE_MAX_LEN MIB // a GET is small up to here

struct hedge {
    unsigned samples; // until there are enough
    double p99_ns;
    double budget;
};

void hedge_sample(struct hedge *h, uint64_t first_byte_ns);
void hedge_sent(struct hedge *h); // a request that may be hedged was sent
// How long to wait for the first byte before asking again; 0: too little is known yet.
uint64_t hedge_delay_ns(const struct hedge *h);
bool hedge_take(struct hedge *h);      // true: one hedge may be sent, and is counted
void hedge_give_back(struct hedge *h); // it was not
