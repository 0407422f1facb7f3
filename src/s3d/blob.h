// SPDX-License-Identifier: Apache-2.0
// The stored bytes of an object or of an uploaded part: in memory while small, then in a memfd or
// file, or a row of other blobs. Written by one owner, immutable and shared afterwards.
#pragma once

#include "base/base.h"

#include <stdatomic.h>
#include <sys/types.h>

struct blob {
    atomic_uint refs;
    uint64_t len;
    uint8_t *mem; // this, or
    int fd;       // this, or
    size_t room;  // allocated at mem
    struct blob **parts;
    uint64_t *ends; // where each part ends
    size_t n_parts;
};

struct blob *blob_new(void);                       // empty; grows in memory, then in a memfd
struct blob *blob_new_file(int fd);                // empty; grows in the file, which it owns
struct blob *blob_from_file(int fd, uint64_t len); // whole; owns fd
struct blob *blob_join(struct blob *const *parts, size_t n); // takes a reference to each
struct blob *blob_ref(struct blob *b);
void blob_unref(struct blob *b); // NULL is allowed

int blob_append(struct blob *b, const void *data, size_t len); // 0 or -errno
// Copies out n bytes at off; 0, or -errno (-EIO when the file has shrunk).
int blob_read(const struct blob *b, uint64_t off, void *out, size_t n);
// Writes n bytes at off into fd at its position; 0 or -errno.
int blob_copy_to_file(const struct blob *b, uint64_t off, uint64_t n, int fd);

// A run of bytes that can be sent in one call: in memory, or in a file.
struct piece {
    const uint8_t *mem; // or NULL
    int fd;             // or -1
    uint64_t file_off;
    uint64_t len;
};
struct piece blob_piece(const struct blob *b, uint64_t off); // off < len
