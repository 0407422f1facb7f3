// SPDX-License-Identifier: Apache-2.0
// A host's memory for tests of landing: shared memory in odd pieces, filled with a pattern, as a
// destination of either kind.
#pragma once

#include "cache/dest.h"
#include "s3d/synthetic.h"

struct host_memory {
    struct cache_dest dest; // first
    int fd;
    uint8_t *base;
    uint64_t size;
    struct iovec iov[64];
    // An engine: a put is copied when the loop has come round again, and counted.
    bool engine;
    atomic_uint puts;
};

#define HOST_PATTERN 0x5a

// len bytes in so many pieces (up to 64), with gaps of a page between them.
void host_memory_new(struct host_memory *m, uint64_t len, int pieces, bool direct);
void host_memory_free(struct host_memory *m);
// Bytes [at, at + len) of the destination are those of the object from offset on.
bool host_memory_holds(const struct host_memory *m, uint64_t at, const struct s3d_table *t,
                       uint64_t object_start, uint64_t offset, uint64_t len);
// Every byte of [at, at + len), and of the gaps, is as it was at first.
bool host_memory_untouched(const struct host_memory *m, uint64_t at, uint64_t len);
void host_memory_wipe(struct host_memory *m); // the pattern again
