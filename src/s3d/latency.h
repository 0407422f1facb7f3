// SPDX-License-Identifier: Apache-2.0
// How long a request takes before the first byte of its answer: fixed, or drawn.
//   10ms    uniform:5ms-20ms    lognormal:MEDIAN,SIGMA    10ms,p99=200ms (1 % take 200 ms)
#pragma once

#include "base/base.h"
#include "base/rand.h"

struct latency {
    enum { LATENCY_FIXED, LATENCY_UNIFORM, LATENCY_LOGNORMAL, LATENCY_TAIL } kind;
    uint64_t a_ns, b_ns; // fixed: a; uniform: a..b; lognormal: median a; tail: a, rarely b
    double sigma;        // lognormal
    double tail;         // tail: the share that takes b
};

int latency_parse(struct latency *l, const char *spec); // 0 or -EINVAL
uint64_t latency_draw_ns(const struct latency *l, struct rand *r);
