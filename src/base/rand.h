// SPDX-License-Identifier: Apache-2.0
// A small fast generator (xoshiro256**, Blackman and Vigna 2018) for jitter and tests; not for
// secrets.
#pragma once

#include "base/base.h"

struct rand {
    uint64_t s[4];
};

void rand_seed(struct rand *r, uint64_t seed);
void rand_seed_from_system(struct rand *r);
uint64_t rand_u64(struct rand *r);
uint64_t rand_below(struct rand *r, uint64_t n); // uniform in [0, n), n > 0
double rand_unit(struct rand *r);                // uniform in [0, 1)
