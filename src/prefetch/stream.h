// SPDX-License-Identifier: Apache-2.0
// prefetch/: what to read before it is asked for. Pure policy: events, time and the pool's
// pressure (cache_pressure) in, actions out; no I/O, no clock, no threads. fs/ feeds it and carries
// the actions out. Uses base/ only. One header for each strategy of docs/design/prefetch.md.
//
// stream: the reads of one handle. Sequential ones are run ahead of by a window (window.h) from
// 1 MiB to a limit; scattered ones are left alone, so that exactly the bytes asked for are
// fetched. The kernel's asynchronous read-ahead and programs with several threads send reads out
// of order and from several places at once: each place is a track of its own.
#pragma once

#include "prefetch/window.h"

#define STREAM_WINDOW_MIN WINDOW_MIN
#define STREAM_WINDOW_MAX (64 * MIB) // the default limit
#define STREAM_SEEK_MAX   (16 * MIB) // a seek forward of up to this keeps a stream
#define STREAM_TRACKS     8

struct prefetch_range {
    uint64_t offset, len; // len == 0: none
};

// Carried out in this order, before the read that caused it is started: fetch[0] may hold the
// read's own bytes, so that one GET serves both.
struct stream_action {
    struct prefetch_range unwant;   // cache_unwant
    struct prefetch_range fetch[2]; // cache_prefetch
    int n_fetch;
};

struct stream_track {
    uint64_t start, end;    // what the reads so far span
    uint64_t ahead;         // asked for up to here
    uint64_t kept;          // below this nothing unread is kept
    uint64_t run;           // bytes read
    uint64_t covered, span; // bytes read and passed of late: their ratio tells reading from jumping
    uint32_t reads;
    uint32_t used; // when, in reads of the handle; 0: free
    bool streaming;
    struct window window;
};

// Embedded in a handle.
struct stream {
    uint64_t size, window_max;
    uint64_t patience; // bytes a track must have read before it is taken for a stream
    uint32_t reads;
    struct stream_track tracks[STREAM_TRACKS];
};

// size: of the object; window_max 0: the default.
void stream_init(struct stream *s, uint64_t size, uint64_t window_max);

// A READ has come: offset < size, len > 0, offset + len <= size. Fills *ret.
void stream_read(struct stream *s, uint64_t offset, uint64_t len, uint64_t now_ns,
                 unsigned pressure, struct stream_action *ret);

// The handle closes: call until ret->len is 0; each is a range not wanted any more.
void stream_close(struct stream *s, struct prefetch_range *ret);
