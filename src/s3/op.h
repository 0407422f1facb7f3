// SPDX-License-Identifier: Apache-2.0
// Inside s3/: what all operations have in common. An operation makes attempts (request.h) until
// one succeeds or its retry policy says stop; between two attempts it waits on a timer.
//
//   start ──> attempt ──> on_done ──> s3_op_settle ──> finish
//                ^                        │
//                └──── back-off timer ────┘
#pragma once

#include "s3/request.h"
#include "s3/retry.h"

struct s3_op {
    struct s3_client *client;
    enum s3_kind kind;
    void (*attempt)(struct s3_op *op);           // starts a request, set up with s3_op_prepare
    void (*finish)(struct s3_op *op, int error); // tells the user; frees
    struct retry retry;
    struct loop_timer timer;
    struct loop_msg end;
    struct s3_target *target; // of a temporary redirect
    char *why;                // the last attempt failed
    bool cancelled;
};

// retry_timeout_ns 0: the bucket's.
void s3_op_init(struct s3_op *op, struct s3_client *c, enum s3_kind kind, uint64_t retry_timeout_ns,
                void (*attempt)(struct s3_op *op), void (*finish)(struct s3_op *op, int error));
void s3_op_fini(struct s3_op *op);

// The parts of r that are the same for every attempt of op.
void s3_op_prepare(struct s3_op *op, struct s3_request *r);
// The attempt has ended like this: the next one, at once or later, or finish.
void s3_op_settle(struct s3_op *op, struct s3_request *r, struct s3_outcome o);

// finish(-ECANCELED) follows, now that nothing is under way.
void s3_op_end_cancelled(struct s3_op *op);
// Cancels an operation that has one request.
void s3_op_cancel(struct s3_op *op, struct s3_request *r);

// Fills the user's error_text, and counts.
void s3_op_report(struct s3_op *op, int error, const char *name, size_t name_len,
                  char text[static S3_ERROR_TEXT]);
