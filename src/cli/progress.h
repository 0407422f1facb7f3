// SPDX-License-Identifier: Apache-2.0
// A progress bar on stderr: drawn when that is a terminal, at most ten times a second; silent
// otherwise. Any one thread at a time.
#pragma once

#include "base/base.h"

struct progress {
    const char *what; // "copying"
    uint64_t total_bytes, bytes;
    uint64_t total_items, items;
    uint64_t start_ns, drawn_ns;
    bool terminal;
};

// quiet: never draws. total_bytes 0: the bar is over items; total_items 0, too: there is no bar.
void progress_init(struct progress *p, const char *what, uint64_t total_bytes, uint64_t total_items,
                   bool quiet);
void progress_update(struct progress *p, uint64_t bytes, uint64_t items); // so far
void progress_finish(struct progress *p);                                 // clears the line

// "1.5 MiB" and the like; out of 16 bytes.
void progress_format_bytes(uint64_t bytes, char out[static 16]);
