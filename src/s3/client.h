// SPDX-License-Identifier: Apache-2.0
// Inside s3/: one loop's share of a bucket. Connections, the signing key of the day, requests
// waiting for their turn or for credentials. All on the loop's thread.
#pragma once

#include "base/clock.h"
#include "base/rand.h"
#include "s3/bucket.h"
#include "s3/hedge.h"
#include "s3/sigv4.h"

struct s3_request;

struct s3_client {
    struct loop *loop;
    struct s3_bucket *bucket;
    struct http_client *http;
    uint64_t stall_ns; // no byte for so long: the connection is given up
    struct s3_client_stats stats;
    struct rand rand;
    struct hedge hedge;

    struct s3_target *target;
    unsigned generation; // of target

    // What the last request was signed with, good for the next one in most cases.
    struct credentials *signed_by;
    struct sigv4_key key;
    int64_t second;
    char amz_date[17];
    struct buf path, authorization; // scratch

    // requests that wait for their turn; those that wait for credentials
    struct list queued[HTTP_PRIORITIES];
    struct s3_bucket_waiter waiter;
    struct loop_timer rate_timer;
    struct list unsigned_requests;
    struct s3_credentials_wait *wait; // NULL: not waiting

    struct credentials *refused; // by the store, the last time
    uint64_t refused_ns;
    uint64_t denied_logged_ns;
    bool answered; // by somebody, once
    bool dispatching;
    bool freed; // once the waiter's message has come
};

// The current target; the client's reference.
struct s3_target *s3_client_target(struct s3_client *c);

// Asks for r's turn: true, or s3_request_admitted(r) follows later on (not within the call).
bool s3_client_admit(struct s3_client *c, struct s3_request *r);
// r's turn is over; others may be admitted within the call.
void s3_client_leave(struct s3_client *c, enum load_answer a, uint64_t sent_ns);

// s3_request_signable or s3_request_unsignable follows.
void s3_client_wait_for_credentials(struct s3_client *c, struct s3_request *r);

// The store does not take cr (any more). True when others may be had; false when these are what the
// source gave after the same keys had been refused a moment ago.
bool s3_client_credentials_refused(struct s3_client *c, struct credentials *cr);

// Date and key for signing as cr at now_s, the store's time. The text in c->amz_date lives until
// the next call.
const struct sigv4_key *s3_client_signing_key(struct s3_client *c, struct credentials *cr,
                                              const char *region, int64_t now_s);
