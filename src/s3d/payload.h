// SPDX-License-Identifier: Apache-2.0
// A request's body on its way in: aws-chunked framing taken off and its signatures checked, digests
// computed, bytes put into a blob or a text.
#pragma once

#include "s3d/aws_chunked.h"
#include "s3d/blob.h"
#include "s3d/checksum.h"
#include "s3d/errors.h"

enum payload_kind {
    PAYLOAD_DISCARD, // it is read so that the connection can go on
    PAYLOAD_TEXT,    // into text, up to PAYLOAD_TEXT_MAX
    PAYLOAD_BLOB     // into blob
};

#define PAYLOAD_TEXT_MAX (4 * MIB)

struct payload {
    enum payload_kind kind;
    struct buf text;
    struct blob *blob;
    uint64_t len; // decoded bytes so far
    struct checksum *checksum;
    unsigned checksum_kinds;
    bool is_aws_chunked;
    struct aws_chunked chunked;
    enum s3_error error; // the first; the rest is discarded then
};

struct request;

void payload_init(struct payload *p);
void payload_fini(struct payload *p);
void payload_reset(struct payload *p);

// Looks at the head for what the body is and which digests it needs. The operation has said the
// kind (with blob, for PAYLOAD_BLOB). md5: its ETag needs one. S3_OK, or what is wrong.
enum s3_error payload_begin(struct request *r, bool md5);
void payload_feed(struct request *r, const void *data, size_t len);
// The body is complete: checks all digests. S3_OK, or what does not fit.
enum s3_error payload_end(struct request *r);
void payload_md5_hex(struct payload *p, char out[static 33]);
