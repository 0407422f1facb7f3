// SPDX-License-Identifier: Apache-2.0
// Landing a range of an object that may lie in many extents: each its own cache_land, some at a
// time.
#pragma once

#include "fs/impl.h"

#define RANGE_AT_ONCE 8

struct range_land;

struct range_piece {
    struct range_land *range; // NULL: not in use
    struct cache_land land;
    struct loop_msg msg;
    int error;
};

struct range_land {
    // set by the caller
    struct fs *fs;
    struct cache_object *object; // a reference that stays the caller's until done
    uint64_t offset, len;        // in it; len > 0
    struct cache_dest *dest;
    uint64_t dest_at;
    void (*done)(struct range_land *r, int error); // on the namespace loop, once; as cache_land

    // result
    struct cache_waited waited;

    // private
    uint64_t next; // how much of len has been asked for
    unsigned running;
    int error;
    struct range_piece pieces[RANGE_AT_ONCE];
};

// Both on the namespace loop; done is not called from within.
void range_land_start(struct range_land *r);
void range_land_cancel(struct range_land *r); // done(-ECANCELED) follows, unless all had landed
