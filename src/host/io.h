// SPDX-License-Identifier: Apache-2.0
// One read or fetch to any destination, from its parameters to its end, asynchronous: what
// os2g_read and os2g_fetch wait for, and what batches are made of. Cuts reads where the device
// likes it, waits in a queue (not on the caller's thread) when all slots are taken, bounces what
// cannot land in place, and opens files anew in a new session.
#pragma once

#include "host/buffer.h"

struct io_piece;

// Memory that one io needs and the next can use again.
struct io_memory {
    struct io_piece *pieces;
    unsigned n_pieces;
    char *key;
    size_t key_size;
};

struct io {
    struct io_memory memory; // zero at first; io_fini
    // set by the caller, zero beyond; it stays until done
    struct os2g *client;
    enum os2g_io_kind kind;
    struct os2g_file *file;    // READ
    uint64_t file_offset;      // READ
    const char *key;           // FETCH; copied
    size_t key_len;            // FETCH
    struct destination to;     // found; io ends it
    uint64_t size;             // room there
    void (*done)(struct io *); // once, on a thread that collects, never inside io_start

    // set when done is called
    int64_t result;       // bytes, or -errno
    uint64_t object_size; // FETCH, also with -EFBIG

    // private; under client->locked.lock where threads meet
    struct list link;         // client's pending
    struct list idle;         // pieces that are not under way
    unsigned n_pieces;        // of memory's, while it is under way
    bool parked;              // goes on when a piece is idle again
    uint64_t next, end;       // READ: what of [0, size) is to be submitted
    uint64_t stop;            // where the first piece (in order) that is not whole ended
    int error;                // and why
    uint64_t room;            // FETCH: asked for again with so much
    bool over;                // no more is to be submitted
    _Atomic unsigned open;    // pieces under way, and one while more are to be submitted
    _Atomic unsigned copying; // copies to the destination at this moment
    _Atomic bool cancelled, abandoned;
};

// 0, or -errno and done is not called (to is not ended, then): -EINVAL, with a sentence.
int io_start(struct io *io);
// Gives its memory back; it has ended, or was never started.
void io_fini(struct io *io);
// done follows in any case, most likely with -ECANCELED. io must not have been freed, but may have
// ended.
void io_cancel(struct io *io);
// The destination, if bytes do not land in it, is not written to any more when this returns.
void io_abandon(struct io *io);
// Submits what waits for slots or staging memory; called when some may have become free.
void io_pump(struct os2g *c);
