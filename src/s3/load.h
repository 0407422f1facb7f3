// SPDX-License-Identifier: Apache-2.0
// How much is asked of an endpoint at a time: a limit on requests in flight that grows by a fixed
// step per round of good answers and halves when the store says it is too much (AIMD), and token
// buckets for requests and bytes per second. A pure policy; whoever shares it between threads locks
// it.
#pragma once

#include "base/base.h"

struct load_config {
    unsigned max_in_flight;
    unsigned max_requests_per_s; // 0: no limit
    uint64_t max_bytes_per_s;    // 0: no limit
};

struct load_bucket {
    double rate, burst, tokens; // rate 0: no limit
    uint64_t filled_ns;
};

struct load {
    unsigned max_in_flight, in_flight;
    double limit; // 1..max_in_flight
    double step;  // added per round
    uint64_t halved_ns;
    struct load_bucket requests, bytes;
};

#define LOAD_FULL UINT64_MAX

void load_init(struct load *l, const struct load_config *c, uint64_t now_ns);

// Asks to send one request: 0, and it counts as in flight; a time to wait; or LOAD_FULL: try again
// when something has left. Some room is kept for demand.
uint64_t load_enter(struct load *l, bool demand, uint64_t now_ns);

enum load_answer { LOAD_GOOD, LOAD_TOO_MUCH, LOAD_SAYS_NOTHING };

// The request that was sent at sent_ns has ended.
void load_leave(struct load *l, enum load_answer a, uint64_t sent_ns, uint64_t now_ns);
bool load_has_room(const struct load *l, bool demand);

// Whether body bytes may be received: 0 or a time to wait. Bytes are paid for after they came.
uint64_t load_bytes_wait(struct load *l, bool demand, uint64_t now_ns);
void load_bytes_take(struct load *l, uint64_t n);
