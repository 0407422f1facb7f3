// SPDX-License-Identifier: Apache-2.0
// Landing: a cache_dest over pieces of a host's regions. Both kinds: addressable (copied into
// under guard, or received into when all is sealed) and engine (a helper process's copy engine).
#pragma once

#include "cache/dest.h"
#include "gdd/region.h"

struct engine_memory;

struct landing {
    struct cache_dest dest; // first
    // private
    struct engine_memory *engine; // all of it lies in this window, at engine_offset
    uint64_t engine_offset;
    unsigned n_regions;
    uint64_t regions[4]; // ids
};

// pieces: what descriptors name, in order; iov: room for n of them, which the landing then uses
// (neighbours are merged). Engine memory must be one piece, and all of it. allow_direct: bodies may
// be received into sealed memory. -EFAULT: a mixture, or more than 4 regions.
int landing_init(struct landing *l, const struct region_piece *pieces, struct iovec *iov, int n,
                 bool allow_direct);
bool landing_touches(const struct landing *l, uint64_t region_id);
