// SPDX-License-Identifier: Apache-2.0
// One version of an object: what a response needs to know of it.
#pragma once

#include "s3d/blob.h"
#include "s3d/synthetic.h"

// What the uploader said about it. Immutable and shared.
struct meta {
    atomic_uint refs;
    char *content_type;  // NULL: binary/octet-stream
    char *storage_class; // NULL: STANDARD
    // Header lines to repeat, each "name: value\r\n": x-amz-meta-*, Content-Encoding, ...
    char *headers;
};

struct meta *meta_new(const char *content_type, const char *storage_class, const char *headers);
struct meta *meta_ref(struct meta *m); // NULL is allowed
void meta_unref(struct meta *m);       // NULL is allowed

struct object {
    uint64_t size;
    int64_t mtime_s;
    char etag[48];     // without quotes
    struct meta *meta; // NULL: all defaults
    struct blob *blob; // NULL: the bytes are synthetic, from
    uint64_t start;    // this place in the table on
};

void object_copy(struct object *to, const struct object *from); // takes references
void object_fini(struct object *o);

// In the archive: not to be read before it is restored.
bool object_is_archived(const struct object *o);
struct piece object_piece(const struct object *o, const struct s3d_table *t, uint64_t off);
