// SPDX-License-Identifier: Apache-2.0
// How far ahead a stream reads: as far as it pays. Bytes that wait long for their reader leave the
// processor's caches and cost memory, so the window is larger than WINDOW_EASY only where a larger
// one makes the reader faster, as the store's latency does. It finds out by trying both ways.
#pragma once

#include "base/base.h"

#define WINDOW_MIN  (1 * MIB)
#define WINDOW_EASY (16 * MIB) // up to here it just doubles as bytes are read

enum window_trial { WINDOW_STEADY, WINDOW_LARGER, WINDOW_SMALLER };

struct window {
    uint64_t bytes; // the window
    uint64_t run;   // bytes read so far
    // the stretch of reads that is being measured
    uint64_t stretch_bytes, stretch_start_ns;
    enum window_trial trial; // what the stretch is to show
    double rate_before;      // of the stretch before the trial, bytes/ns
    uint64_t next_trial;     // not before so many bytes were read
    bool next_larger;        // which way it goes, where both ways are open
};

void window_init(struct window *w);
// len bytes were read, at this time; max: the limit. Returns the window.
uint64_t window_read(struct window *w, uint64_t len, uint64_t now_ns, uint64_t max);
