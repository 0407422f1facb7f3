// SPDX-License-Identifier: Apache-2.0
// Scripted misbehaviour. A file of rules, one a line, the first that fires counts:
//
//   OPERATION  KEY-PATTERN  WHEN  ACTION [ARGUMENT]...
//
// and "seed N". '#' begins a comment. os2g-s3d(1) lists operations, times and actions.
//
// Whether a rule fires depends on the seed, the rule's number and how many requests it has matched,
// and on nothing else.
#pragma once

#include "base/base.h"
#include "s3d/ops.h"

#include <stdatomic.h>

#define S3D_FAULTS(X)                                                                              \
    X(NONE, "none")                                                                                \
    X(STATUS, "status")               /* CODE [S3CODE] [retry-after=S] */                          \
    X(RESET, "reset")                 /* [AT]: TCP reset before the head, or in the body */        \
    X(CLOSE, "close")                 /* [AT]: orderly close: the body is too short */             \
    X(STALL, "stall")                 /* head|AT [DURATION]: no byte from there on */              \
    X(DELAY, "delay")                 /* DURATION: the first byte comes late */                    \
    X(SHORT, "short")                 /* N: Content-Length and body N bytes less than asked */     \
    X(LONG, "long")                   /* N: Content-Length and body N bytes more */                \
    X(GARBAGE, "garbage")             /* N: N bytes beyond Content-Length, then close */           \
    X(XML200, "xml200")               /* an error's XML with status 200 (206) */                   \
    X(CONTENT_RANGE, "content-range") /* [SHIFT]: Content-Range shifted, or left out with 0 */     \
    X(ETAG, "etag")                   /* wrong|changing */                                         \
    X(REDIRECT, "redirect")           /* CODE [URL] */                                             \
    X(RATE, "rate")                   /* BYTES a second for this body */                           \
    X(HANGUP, "hangup")               /* whole answer, keep-alive promised, then closed */         \
    X(REGION, "region")               /* NAME: 400 AuthorizationHeaderMalformed with this region */

enum fault_action {
#define X(id, name) FAULT_##id,
    S3D_FAULTS(X)
#undef X
        FAULT_COUNT
};

const char *fault_action_name(enum fault_action a);

// A place in a body.
struct fault_at {
    enum { FAULT_AT_HEAD, FAULT_AT_BYTE, FAULT_AT_FRACTION } kind;
    uint64_t byte;
    double fraction;
};

// One that fires: valid as long as the set is (hold a reference).
struct fault {
    enum fault_action action;
    struct fault_at at;
    uint64_t ns;      // stall (UINT64_MAX: until the client gives up), delay
    int64_t number;   // status, short, long, garbage, shift, redirect, rate, retry-after
    uint64_t serial;  // which firing of its rule this is, for changing ETags
    const char *text; // S3 code, URL, region, wrong|changing
    int64_t retry_after_s;
    struct fault_set *set;
};

struct fault_set;

// -EINVAL and a message in *ret_why, which the caller frees.
int fault_set_parse(struct fault_set **ret, const char *text, char **ret_why);
struct fault_set *fault_set_ref(struct fault_set *s);
void fault_set_unref(struct fault_set *s); // NULL is allowed
// Decides on one request; f->action is FAULT_NONE when nothing fires, else f holds a reference.
void fault_set_decide(struct fault_set *s, enum op op, const char *bucket, const char *key,
                      struct fault *f);
void fault_release(struct fault *f);
// What was parsed, for the admin.
const char *fault_set_text(const struct fault_set *s);
