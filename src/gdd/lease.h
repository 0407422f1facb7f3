// SPDX-License-Identifier: Apache-2.0
// Landings into leased pieces of the GPU memory that the operator has declared (a guest's BAR). Who
// holds which lease is fs/'s (wire/gdd.h); this is the bytes' way there. Pieces are named by their
// offset in the memory, wherever the guest has mapped it, and whether or not it is there.
// On the namespace loop.
#pragma once

#include "gdd/landing.h"
#include "gdd/region.h"

struct leases;

struct leases *leases_new(const struct region_map *map);
// The map goes. Every landing has been cut and a fence has passed; those that were not freed yet
// may be until their users have let go of them. NULL is allowed.
void leases_free(struct leases *l);

// -ENXIO: the memory is not there; -EFAULT: beyond its end.
int leases_landing_new(struct leases *l, uint64_t offset, uint64_t len, struct cache_dest **ret);
void leases_landing_free(struct cache_dest *d);
// Nothing more may land in this region (0: in any); a fence makes sure of it.
void leases_cut(struct leases *l, uint64_t region_id);
