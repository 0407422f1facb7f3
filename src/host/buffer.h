// SPDX-License-Identifier: Apache-2.0
// Memory that reads can go to, and how their destinations are found in it.
#pragma once

#include "host/client.h"

struct os2g_buffer;

struct buffer_kind {
    // Without landing: takes len bytes out of a staging area to where offset is in the buffer; has
    // ended with them when it returns. On any thread, several at once. 0 or -errno.
    int (*copy)(struct os2g_buffer *b, uint64_t offset, const void *from, uint64_t len);
    // Gives back the memory and what else is the kind's; landing has been removed.
    void (*release)(struct os2g_buffer *b);
};

// Kinds with more of their own to remember embed it.
struct os2g_buffer {
    struct os2g *client;
    const struct buffer_kind *kind;
    enum os2g_memory memory;
    void *base;
    size_t size;
    bool registered;                  // by os2g_buf_register
    struct transport_memory *landing; // bytes land in place; NULL: they are copied
    struct staging *staging;          // without landing: where from; NULL: the client's bounce
    unsigned forks;                   // fork_count() when it was made
    _Atomic unsigned refs;
    _Atomic bool gone;        // nothing is copied there any more
    _Atomic unsigned copying; // copies at this moment
};

// b (refs 1, the caller's) can be found from now on. -EEXIST: overlaps another.
int buffer_insert(struct os2g_buffer *b);
// Its end, from os2g_buffer_free: it is not found any more, nothing can land in it, the caller's
// reference is dropped.
void buffer_remove(struct os2g_buffer *b);
void buffer_unref(struct os2g_buffer *b); // the last one releases it; NULL is allowed
// Into a buffer without landing, as its kind does it. 0 or -errno; -ECANCELED: it has been removed.
int buffer_copy(struct os2g_buffer *b, uint64_t offset, const void *from, uint64_t len);

struct destination {
    struct os2g_buffer *buffer; // a reference; NULL: plain memory that is nobody's
    uint64_t offset;            // in the buffer
    void *address;
};
// Where a read of size bytes to base + offset goes. -EINVAL: partly in a buffer. -EPERM: a parent
// process's. With sentences.
int destination_find(struct os2g *c, void *base, size_t size, off_t offset,
                     struct destination *ret);
// The same for memory in the buffer in which d was found, whose base d is; -ECANCELED: the buffer
// has been removed meanwhile.
int destination_within(const struct destination *d, size_t size, off_t offset,
                       struct destination *ret);
void destination_end(struct destination *d);
