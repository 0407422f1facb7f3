// SPDX-License-Identifier: Apache-2.0
// An exchange that collects what it gets, on a loop that the test itself turns.
#pragma once

#include "base/buf.h"
#include "net/http_client.h"

struct fetch {
    struct http_exchange x;
    char request_text[256];
    struct iovec iov[2];

    // what its call-backs do
    size_t room;  // bytes offered at a time, in two iovecs; 0: 100
    bool no_room; // until fetch_resume
    int head_error, room_error, body_error;
    bool cancel_in_head, cancel_in_room, cancel_in_body;

    // what came of it
    int heads, dones, error;
    int status;
    char etag[32];
    struct buf body;
    char *landing;
    unsigned pauses;
};

extern struct loop *test_loop;
extern struct http_client *test_client;

// config may be NULL: 8 connections, generous time-outs.
void fetch_client_new(const struct http_client_config *config);
void fetch_client_free(void);

// GET target from 127.0.0.1:port, to be changed before fetch_start.
void fetch_init(struct fetch *f, uint16_t port, const char *target);
void fetch_start(struct fetch *f);
void fetch_cancel(struct fetch *f);
void fetch_resume(struct fetch *f);
void fetch_wait(struct fetch *f); // until it is done; fails after some seconds
void fetch_run(struct fetch *f);  // start and wait
void fetch_free(struct fetch *f);
// Start, wait, and expect that answer.
void fetch_expect(uint16_t port, const char *target, const char *body);

// Turns the loop for ms, or until *flag if that comes first.
void turn(unsigned ms, const bool *flag);
#define turn_until(condition)                                                                      \
    do {                                                                                           \
        for (int turns_ = 0; turns_ < 5000 && !(condition); turns_++)                              \
            turn(1, NULL);                                                                         \
        assert_true(condition);                                                                    \
    } while (0)
