// SPDX-License-Identifier: Apache-2.0
// Inside s3/: an answer that was not good. What is kept of it, what it means, and what it teaches.
#pragma once

#include "s3/request.h"

struct s3_refusal {
    int64_t date_s; // of the answer; 0: not given
    char region[64];
    char location[2048]; // of a redirect
    size_t len;
    char body[S3_XML_MAX_ERROR];
};

// Keeps of the head what may be of use; the body is the caller's to fill in.
struct s3_refusal *s3_refusal_new(const struct http_head *head);

// What Retry-After of a 429 or 503 says (RFC 9110 §10.2.3), in seconds or as a date; 0: nothing, or
// nonsense. now_s is for answers without a date of their own: their clock may be another.
uint64_t s3_retry_after_ns(const struct http_head *head, int64_t now_s);

// The outcome of a request that was answered with r->refusal. Puts what is learned to use; sets
// why.
struct s3_outcome s3_refusal_read(struct s3_request *r);
