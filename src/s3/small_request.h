// SPDX-License-Identifier: Apache-2.0
// A request whose whole answer fits into memory, tried again when the server is at fault, after the
// time that it asks for: what the sources of credentials need. Used within s3/ only.
#pragma once

#include "base/rand.h"
#include "net/http_client.h"
#include "s3/url.h"

#define SMALL_ANSWER_MAX ((size_t)1 << 20)

// Zero-initialise, then small_request_init. One request after the other may be made with it.
struct small_request {
    // --- set by small_request_begin and the caller, before _send ---
    const char *method;
    struct url url;
    struct buf headers; // "Name: value\r\n"…; Host and Content-Length are added
    struct buf body;
    // The end of what was sent; never within _send. error: 0 when there is an answer (any
    // status), -ETIMEDOUT when none came, -ECANCELED, or another of http_exchange's.
    void (*done)(struct small_request *r, int error);

    // --- to be read in done ---
    int status;
    struct buf answer;
    char error_text[256]; // "127.0.0.1: connection refused"

    // --- private ---
    struct loop *loop;
    struct http_client *client;
    uint64_t timeout_ns; // of each try
    unsigned tries, tried;
    uint64_t retry_after_ns; // as the last answer asks for; 0: it does not
    struct http_exchange exchange;
    bool in_flight, too_late, cancelled;
    struct buf head;
    struct iovec request;
    struct loop_timer timer; // the try's time-out, or the pause before the next
    struct rand rand;
};

void small_request_init(struct small_request *r, struct loop *l);
void small_request_fini(struct small_request *r); // not while one is in flight
// Forgets the request before.
void small_request_begin(struct small_request *r, const char *method, const struct url *url);
void small_request_send(struct small_request *r, struct http_client *c, uint64_t timeout_ns,
                        unsigned tries, void (*done)(struct small_request *r, int error));
// true: done(-ECANCELED) follows; false: nothing was in flight, and done will not be called.
bool small_request_cancel(struct small_request *r);
