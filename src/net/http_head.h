// SPDX-License-Identifier: Apache-2.0
// The head of an HTTP/1.1 message (RFC 9112) and the chunked transfer coding. No I/O: bytes in,
// a parsed head out. Shared by the client (responses) and the development server (requests).
#pragma once

#include "base/base.h"

#include <sys/types.h>

#define HTTP_MAX_HEADERS    128
#define HTTP_MAX_HEAD_BYTES (64 * 1024)

// Name and value point into the bytes that were parsed; both end with a zero byte (the parser
// writes it), white space around the value is gone.
struct http_header {
    const char *name;
    const char *value;
};

struct http_head {
    // response
    int status; // 100..599
    // request
    const char *method;
    const char *target; // as sent: path and query, still percent-encoded

    int minor_version; // of HTTP/1.x
    bool keep_alive;   // by version and Connection
    bool chunked;
    int64_t content_length; // -1 when absent
    size_t n_headers;
    struct http_header headers[HTTP_MAX_HEADERS];
};

enum http_kind { HTTP_REQUEST, HTTP_RESPONSE };

// Parses in place. Returns the head's length in bytes once it is complete, 0 while more is needed
// (data is untouched then), -EBADMSG when it is not HTTP/1.x, is contradictory (two different
// lengths, length with chunked: request smuggling) or larger than the limits above.
// *head is valid as long as data is.
ssize_t http_head_parse(struct http_head *head, enum http_kind kind, char *data, size_t len);

// The value of the first such header, any case, or NULL.
const char *http_head_find(const struct http_head *head, const char *name);

// --- chunked transfer coding ---

// Zero-initialise. The owner feeds framing bytes through http_chunked_feed and moves the data
// bytes itself: while data_left > 0 the next data_left bytes of the stream are body.
struct http_chunked {
    int state;
    uint64_t data_left;
    size_t line_len;
    uint64_t size;
    bool done; // the last chunk and the trailer were seen
};

// Takes framing bytes from data until body bytes are next, the body has ended, or data is used
// up; returns how many it took, or -EBADMSG. Call only while data_left == 0 and !done.
ssize_t http_chunked_feed(struct http_chunked *c, const char *data, size_t len);
// n bytes of the body were moved.
void http_chunked_took(struct http_chunked *c, uint64_t n);
