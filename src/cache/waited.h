// SPDX-License-Identifier: Apache-2.0
// How long an operation waited for bytes that were not here, and for what: the raw material of the
// stall report (fs/stalls.h). Pure: every time is an input.
#pragma once

#include "base/base.h"

// What there was to wait for, in the order in which it comes.
enum cache_wait_for {
    CACHE_WAIT_MEMORY,     // pages of the pool
    CACHE_WAIT_CONNECTION, // a turn at the endpoint: connections, rates, load control
    CACHE_WAIT_FIRST_BYTE, // from sending the request: connecting, retries and hedges included
    CACHE_WAIT_BODY,       // the rest
    CACHE_WAITS,
};

struct cache_waited {
    uint64_t begun_ns, ended_ns; // of the first and the last wait; 0: it never waited
    uint64_t ns[CACHE_WAITS];    // parts of an operation may wait at the same time: a sum
    // Of these, for requests that were sent because somebody waited, or not long before: less
    // than they were then waited for. Asked for that much sooner, they would not have been.
    uint64_t late_ns[CACHE_WAITS];
};

// What is known of a request whose bytes were waited for.
struct cache_asked {
    uint64_t sent_ns, first_byte_ns; // 0: not so far
    bool on_demand;                  // somebody waited when it was made
};

void cache_waited_memory(struct cache_waited *w, uint64_t from_ns, uint64_t to_ns);
void cache_waited_bytes(struct cache_waited *w, const struct cache_asked *a, uint64_t from_ns,
                        uint64_t to_ns);
void cache_waited_merge(struct cache_waited *to, const struct cache_waited *from);
