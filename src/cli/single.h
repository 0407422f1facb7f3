// SPDX-License-Identifier: Apache-2.0
// os2gd for one export without a mount, said on the command line: what libos2g starts for itself
// when there is no daemon.
#pragma once

#include "daemon/export_options.h"

struct single {
    const char *source; // of --export, or NULL
    struct export_options options;
    struct buf words; // values of -o, each ended by a zero byte
    uint64_t linger_ns;
    int ready_fd; // where "ready", or what is wrong, is written
    size_t given; // before the command line was read
};

void single_init(struct single *s);
void single_fini(struct single *s);

// Whether options were given that are for it alone.
bool single_was_meant(const struct single *s);
// Until it ends. The exit status.
int single_run(struct single *s);
