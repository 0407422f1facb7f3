// SPDX-License-Identifier: Apache-2.0
// The aws-chunked content coding: "SIZE[;chunk-signature=HEX]\r\n DATA \r\n" ... and after the last
// chunk, of size 0, trailers. Source: "Signature Calculations for the Authorization Header:
// Transferring Payload in Multiple Chunks", Amazon S3 API Reference.
#pragma once

#include "base/buf.h"
#include "s3/sigv4.h"

#include <openssl/evp.h>

struct aws_chunked {
    int state;
    char line[512];
    size_t line_len;
    uint64_t left; // of the chunk's data
    bool is_signed;
    struct sigv4_key key;
    char amz_date[17];
    char previous[65], claimed[65]; // signatures
    EVP_MD_CTX *sha256;             // of the chunk's data
    struct buf trailers;            // "name:value\n" lines, without the signature
};

// key: for signed chunks, else NULL; seed: the signature of the request.
void aws_chunked_init(struct aws_chunked *c, const struct sigv4_key *key, const char *amz_date,
                      const char *seed);
void aws_chunked_fini(struct aws_chunked *c);
// Takes all of data and calls on_data for decoded bytes. 0; -EBADMSG when it is malformed, -EACCES
// when a signature is wrong.
int aws_chunked_feed(struct aws_chunked *c, const char *data, size_t len,
                     void (*on_data)(void *arg, const void *data, size_t len), void *arg);
bool aws_chunked_is_done(const struct aws_chunked *c);
