// SPDX-License-Identifier: Apache-2.0
// Where requests lie in the memory that is shared with the device: a table of descriptors, room for
// the message and room for its answer, for each. Small ones for most, a few large ones for ioctls
// and lists of names. No locks, no I/O.
//
//   small   table 128 · in 1536 · out 384
//   large   table 128 · in 20 KiB + 512 · out 64 KiB + 512
#pragma once

#include "base/base.h"
#include "host/vhost_ring.h"

#include <linux/fuse.h>
#include <sys/uio.h>

struct slots {
    uint8_t *memory;
    uint64_t address; // of memory, as the device knows it
    unsigned n_small, n_large;
};

static inline unsigned slots_count(const struct slots *s)
{
    return s->n_small + s->n_large;
}

size_t slots_bytes(unsigned n_small, unsigned n_large);
// Does a message of in_len bytes (header included) with out_len (header included) need a large one?
bool slots_is_large(size_t in_len, size_t out_len);

struct slot_message {
    struct fuse_in_header head; // len is filled in
    const struct iovec *in;
    unsigned n_in;
    size_t out_len;        // behind fuse_out_header; no answer is wanted when no_answer
    bool no_answer;        // FORGET
    uint64_t data_address; // as the device knows it
    uint64_t data_len;     // 0: none
};
// Writes the message into slot i, and the ring's descriptor i for it.
void slots_fill(struct slots *s, unsigned i, struct ring *r, const struct slot_message *m);

struct slot_answer {
    int error;         // 0 or -errno
    const void *out;   // what follows fuse_out_header; the device can change it still
    uint32_t out_got;  // at most the message's out_len
    uint64_t data_got; // at most its data_len
};
// Reads and checks the answer. 0; -EBADMSG: it is none.
int slots_answer(const struct slots *s, unsigned i, uint64_t unique, size_t out_len,
                 uint64_t data_len, struct slot_answer *ret);
