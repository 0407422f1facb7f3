// SPDX-License-Identifier: Apache-2.0
// neighbours: files of one directory that are opened in the order of its listing. The next ones
// are fetched, as many as the observed rate of opening needs to cover a fetch's latency; several
// readers that take turns, or run a few files apart, still count as in order.
#pragma once

#include "base/base.h"

#define NEIGHBOURS_AHEAD_MAX 256
#define NEIGHBOURS_BEHIND    64 // how far behind the furthest open a reader may be

// Embedded in a directory snapshot. Positions count the files of the listing, in its order.
struct neighbours {
    uint64_t recent;      // bit i: position head - i was opened
    uint64_t last_ns;     // of the latest open in order
    uint64_t interval_ns; // between opens in order, smoothed; 0: not known yet
    uint64_t latency_ns;  // of fetching a file, smoothed; 0: not known yet
    uint32_t head;        // furthest position opened in order
    uint32_t asked;       // everything below was asked for or opened
    uint32_t ahead;       // files; grows as the window of a stream does
    uint16_t score;       // opens in order of late, 0 .. 32
    bool any;
};

void neighbours_init(struct neighbours *n);

// The file at position (< count) was opened: returns how many files to fetch, from *ret_first on.
// The caller leaves out files that need no fetching (empty, too large for one GET, no memory).
uint32_t neighbours_open(struct neighbours *n, uint32_t position, uint32_t count, uint64_t now_ns,
                         unsigned pressure, uint32_t *ret_first);

// A small file of this directory was fetched (on demand or ahead) and took so long.
void neighbours_fetched(struct neighbours *n, uint64_t latency_ns);
