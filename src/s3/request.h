// SPDX-License-Identifier: Apache-2.0
// Inside s3/: one attempt. Waits for its turn and for credentials, signs, sends, and says what the
// answer means; what the answer teaches about region, endpoint, clock or credentials is put to
// use at once. Whether to try again is its owner's business (op.h).
#pragma once

#include "s3/client.h"
#include "s3/error.h"
#include "s3/xml.h"

struct s3_op;

struct s3_outcome {
    enum s3_class class; // OK, FATAL, RETRY, THROTTLED or LEARNED
    int error;           // 0 or -errno, should this be the last attempt
};

struct s3_request;

struct s3_request_ops {
    void (*on_sent)(struct s3_request *r); // it has had its turn; may be NULL
    // As in http_exchange, for answers of 200 and 206 only.
    int (*on_head)(struct s3_request *r, const struct http_head *head);
    int (*on_room)(struct s3_request *r, struct iovec *iov, int max);
    int (*on_body)(struct s3_request *r, size_t n);
    // Exactly once for each start, not within start.
    void (*on_done)(struct s3_request *r, struct s3_outcome o);
};

struct s3_request {
    // --- set by the owner before start; all stays valid until on_done ---
    const struct s3_request_ops *ops;
    struct s3_op *op;
    struct s3_client *client;
    enum s3_kind kind;
    enum http_priority priority;
    const char *method;
    const char *key; // NULL: the bucket itself
    size_t key_len;
    const char *query; // canonical, or ""
    bool ranged;
    uint64_t first, last;     // of the range; last UINT64_MAX: to the end
    const char *if_match;     // NULL: none
    struct s3_target *target; // where a redirect of this one object leads; NULL: the bucket's
    uint64_t patience_ns;     // for the first byte
    bool again;               // has waited for its turn before: goes ahead of others

    // --- to be read by the owner ---
    struct http_exchange x;
    uint64_t queued_ns;         // when it began to wait for its turn; 0: it did not
    uint64_t sent_ns;           // 0: it never was
    int status;                 // of an answer that was not good; else 0
    uint64_t retry_after_ns;    // as that asks for, with 429 and 503; else 0
    char *why;                  // after a failure, a sentence for people; the owner may take it
    struct s3_target *redirect; // after LEARNED: what target should be; the owner may take it

    // --- private ---
    enum { S3_REQUEST_IDLE, S3_REQUEST_QUEUED, S3_REQUEST_UNSIGNED, S3_REQUEST_SENT } state;
    struct list link;
    struct s3_target *sent_to;
    struct credentials *sent_by; // NULL: anonymous
    int64_t clock_offset_s;      // it was signed with
    struct buf head;
    struct iovec iov;
    struct s3_refusal *refusal; // an answer that was not good
    bool failed, cancelled;
    struct s3_outcome outcome; // when failed
};

void s3_request_start(struct s3_request *r);
// True: nothing is under way (any more), on_done will not come. False: on_done follows, with
// -ECANCELED.
bool s3_request_cancel(struct s3_request *r);
void s3_request_raise(struct s3_request *r); // to HTTP_DEMAND
void s3_request_fini(struct s3_request *r);

static inline bool s3_request_active(const struct s3_request *r)
{
    return r->state != S3_REQUEST_IDLE;
}

// For use in on_head, on_room and on_body, as "return s3_request_fail(...)": what on_done will say.
int s3_request_fail(struct s3_request *r, enum s3_class class, int error, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

// The path of its request line, percent-encoded, with the base path; until the next call for the
// client.
const char *s3_request_path(struct s3_request *r);

// Called by the client.
void s3_request_admitted(struct s3_request *r);
void s3_request_signable(struct s3_request *r);
void s3_request_unsignable(struct s3_request *r, int error, const char *text);
