// SPDX-License-Identifier: Apache-2.0
// What the head of an answer says about an object, read in one pass and checked.
#pragma once

#include "s3/s3.h"

struct s3_answer {
    struct s3_object_info info; // size: of the whole object where the head tells it
    bool has_size;
    bool has_range; // a well-formed "Content-Range: bytes first-last/size"
    uint64_t first, last;
    struct http_header metadata[HTTP_MAX_HEADERS];
};

// Strings point into head. -EBADMSG when a Content-Range is there and makes no sense.
int s3_answer_read(struct s3_answer *a, const struct http_head *head);

// ETags with and without quotes are the same (some listings leave them out).
bool s3_etag_equal(const char *a, const char *b);
