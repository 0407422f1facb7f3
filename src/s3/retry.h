// SPDX-License-Identifier: Apache-2.0
// When to ask again: exponential back-off with full jitter, until a time has passed without
// progress. A pure policy: time and randomness are inputs.
#pragma once

#include "base/rand.h"
#include "s3/error.h"

#define RETRY_STOP         UINT64_MAX
#define RETRY_ASKED_MAX_NS (30 * NS_PER_S) // of Retry-After: more is no hint of load, but a mistake

struct retry {
    uint64_t timeout_ns; // without progress
    uint64_t since_ns;   // when the last progress ended
    unsigned failures;   // in a row, since the last progress
    unsigned learned;    // attempts that failed but taught us something, since the start
};

void retry_init(struct retry *r, uint64_t timeout_ns);

// Bytes have landed: patience starts anew.
static inline void retry_progress(struct retry *r)
{
    r->failures = 0;
}

// An attempt has waited for its turn, which is not the store's failure.
static inline void retry_waited(struct retry *r, uint64_t ns)
{
    r->since_ns += ns;
}

// An attempt that was good until since_ns has failed in this way, and whoever answered wants to be
// left alone for asked_ns (Retry-After; 0: did not say); returns how long to wait before the next
// one, or RETRY_STOP.
uint64_t retry_failed(struct retry *r, enum s3_class class, uint64_t asked_ns, uint64_t since_ns,
                      uint64_t now_ns, struct rand *rand);

// How long from now an attempt may take until the time without progress is over; at least a
// second, so that the last attempt is a fair one.
uint64_t retry_patience_ns(const struct retry *r, uint64_t now_ns);
