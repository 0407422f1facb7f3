// SPDX-License-Identifier: Apache-2.0
// Where requests are read into: a fixed number of slots in a memory that the supervisor holds too.
//
//              take                request arrived               answered
//     FREE ───────────► READING ───────────────────► BUSY ─────────────────► FREE
//
// READING with a length in the message's header is a request too: the worker died between the
// kernel's copy and the next step. Taken on the namespace loop, given back on any.
#pragma once

#include "fuse/fuse_session.h"

#include <stdatomic.h>

#define SLOTS 1024
// The largest message is an ioctl's: 40 + 32 + 16,383 bytes.
#define SLOT_BYTES   (20 * 1024)
#define SLOT_MESSAGE (SLOT_BYTES - 64)

enum slot_state { SLOT_FREE, SLOT_READING, SLOT_BUSY };

struct slot_shared {
    _Atomic uint32_t state;
    uint32_t pad[15];
    _Alignas(64) unsigned char message[SLOT_MESSAGE];
};
_Static_assert(sizeof(struct slot_shared) == SLOT_BYTES, "one behind the other");

// The part of a slot that dies with the worker.
struct slot {
    struct fuse_request request; // first
    struct devfuse *devfuse;
    struct slot_shared *shared;
    struct slot *next; // in free or freed
    bool touched;      // this process has the slot's pages
};

struct slots_head;

struct slots {
    struct slots_head *head;
    struct slot *slot; // [SLOTS]
    struct slot *free;
    _Atomic(struct slot *) freed; // pushed by any loop
};

// fd: -1 for memory of our own. 0, -EINVAL if it holds something else, or -errno.
int slots_init(struct slots *s, int fd, struct devfuse *d);
void slots_fini(struct slots *s);

// What INIT agreed on; all zero at first.
struct fuse_negotiated *slots_negotiated(struct slots *s);

struct slot *slots_take(struct slots *s); // READING, or NULL when all are busy
void slots_empty_message(struct slot *slot);
void slots_busy(struct slot *slot);
void slots_give_back(struct slots *s, struct slot *slot);  // any loop
struct slot *slots_find(struct slots *s, uint64_t unique); // among the busy ones
unsigned slots_in_use(struct slots *s);

// For each request that a worker before us left, oldest first: fn gets its slot, now BUSY. Once,
// before the first slots_take.
void slots_recover(struct slots *s, void (*fn)(void *arg, struct slot *slot, size_t len),
                   void *arg);
