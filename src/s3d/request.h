// SPDX-License-Identifier: Apache-2.0
// One request and its response. A connection embeds it and uses it again for the next request.
#pragma once

#include "net/http_head.h"
#include "s3/sigv4.h"
#include "s3d/credentials.h"
#include "s3d/errors.h"
#include "s3d/faults.h"
#include "s3d/ops.h"
#include "s3d/payload.h"
#include "s3d/query.h"
#include "s3d/store.h"

struct response {
    int status;         // 0: not decided yet
    struct buf headers; // lines, each with CRLF
    struct buf text;    // the body, or
    bool has_object;
    struct object object; // body_len bytes of it from body_off on
    uint64_t body_off, body_len;
    bool close; // the connection, afterwards
};

// What the verified signature is made of; chunk signatures of the body go on from it.
struct request_signature {
    bool present;
    struct sigv4_key key;
    char amz_date[17];
    char hex[65];
};

struct request {
    struct worker *worker;
    uint64_t id;
    struct http_head head;
    const char *raw_query; // behind the '?' of the target; ""
    struct buf path;       // decoded, with its bucket cut off
    struct query query;
    char bucket_name[256]; // "" when there is none
    const char *key;       // ""
    enum op op;
    struct bucket *bucket;        // with a reference; NULL until an operation asks for it
    const struct credential *who; // NULL: anonymous
    struct request_signature signature;
    struct fault fault;
    struct payload payload;
    struct response response;
};

void request_init(struct request *r, struct worker *w);
void request_reset(struct request *r); // before the next one
void request_fini(struct request *r);

// Splits target and Host into bucket, key and query, and decides the operation. S3_OK, or why not.
enum s3_error request_route(struct request *r);

// Finds the request's bucket, or answers NoSuchBucket (also requester-pays refusals): false.
bool request_find_bucket(struct request *r);
const char *request_header(const struct request *r, const char *name); // NULL when absent
const char *request_query(const struct request *r, const char *name);  // NULL when absent
