// SPDX-License-Identifier: Apache-2.0
// Memory that objects land in before they become bytes: so that costs the one copy that there has
// to be. A connection keeps a few. With the GIL.
#pragma once

#include "core.h"

#define SCRATCH_SIZE ((size_t)8 << 20) // what is not touched costs nothing

struct scratch {
    struct scratch *next;
    struct os2g_buffer *b;
    pid_t pid; // after fork() the memory is the parent's, too
};

struct scratches {
    struct scratch *idle;
    unsigned n;
};

// NULL with an exception.
struct scratch *scratch_take(struct scratches *all, struct os2g *c);
// clean: nothing is under way into it.
void scratch_give(struct scratches *all, struct scratch *s, bool clean);
void scratches_free(struct scratches *all);
