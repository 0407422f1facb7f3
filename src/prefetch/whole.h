// SPDX-License-Identifier: Apache-2.0
// whole: an object of at most one extent is fetched by one GET from OPEN on, before the first
// READ, unless the kernel still holds this version's pages. No HEAD: the GET's head tells whether
// the version is still there.
#pragma once

#include "base/base.h"

#define WHOLE_MAX (8 * MIB)

// Embedded in a handle.
struct whole {
    bool applies; // else the handle is the business of stream.h
    bool asked;
};

// true: cache_load_start now and answer OPEN when its head is good; false: answer OPEN at once.
// kernel_has_pages: OPEN will be answered with keep_cache, pages of this version may be there.
static inline bool whole_open(struct whole *w, uint64_t size, bool kernel_has_pages)
{
    w->applies = size > 0 && size <= WHOLE_MAX;
    w->asked = w->applies && !kernel_has_pages;
    return w->asked;
}

// A READ of a handle that applies: true once, when nothing has been asked for at OPEN (the kernel
// has lost pages): cache_prefetch the whole object, then read. Not while the pool is full.
static inline bool whole_read(struct whole *w, unsigned pressure)
{
    if (w->asked || pressure >= 90)
        return false;
    w->asked = true;
    return true;
}
