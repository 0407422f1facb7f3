// SPDX-License-Identifier: Apache-2.0
// AWS Signature Version 4 for S3 (paths are encoded once, payload hash in a header). Pure
// functions; used to sign, and by the development server to verify.
// Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API Reference.
#pragma once

#include "base/buf.h"

#define SIGV4_EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SIGV4_UNSIGNED     "UNSIGNED-PAYLOAD"

// The signing key of one day, region and service; worth keeping: deriving it takes four HMACs.
struct sigv4_key {
    char date[9]; // 20261129
    char region[64];
    char service[16];
    uint8_t key[32];
};

void sigv4_key_derive(struct sigv4_key *k, const char *secret, const char *date, const char *region,
                      const char *service);

struct sigv4_header {
    const char *name;  // lower case
    const char *value; // as sent, without white space around it
};

struct sigv4_request {
    const char *method;
    const char *path;  // absolute, percent-encoded once: "/bucket/a%20b"
    const char *query; // canonical (sigv4_canonical_query); "" if none; no X-Amz-Signature
    const struct sigv4_header *headers; // those to sign, sorted by name; host among them
    size_t n_headers;
    const char *payload_hash; // hex SHA-256, or SIGV4_UNSIGNED
    const char *amz_date;     // 20261129T182903Z
};

// "a;b;c" of the headers' names.
void sigv4_signed_headers(const struct sigv4_request *r, struct buf *out);
// The scope: "20261129/us-east-1/s3/aws4_request".
void sigv4_scope(const struct sigv4_key *k, struct buf *out);
// Lower-case hexadecimal signature.
void sigv4_signature(const struct sigv4_key *k, const struct sigv4_request *r,
                     char out_hex[static 65]);
// The value of the Authorization header.
void sigv4_authorization(const struct sigv4_key *k, const char *access_key,
                         const struct sigv4_request *r, struct buf *out);
// Sorts (by encoded name, then value) the pairs of a raw query ("b=2&a=x%20y&list"), encoding
// each anew as SigV4 wants it; pairs without '=' get an empty value. -EINVAL on a broken escape.
int sigv4_canonical_query(const char *query, struct buf *out);
