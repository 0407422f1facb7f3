// SPDX-License-Identifier: Apache-2.0
// What one open .os2g/gdd has leased: in private memory, and in its handle's room, where the next
// worker finds it. No I/O, no knowledge of others' leases.
#pragma once

#include "base/base.h"
#include "wire/gdd.h"

struct gdd_lease {
    uint64_t offset, size;
    bool leaving; // not kept: nothing new may land there
};

struct gdd_leases {
    uint32_t host;   // that opened the file
    uint32_t epoch;  // one more with each worker
    uint64_t unique; // of the request that made the last lease
    unsigned n;
    struct gdd_lease lease[OS2G_GDD_LEASES];
};

// room: HANDLE_ROOM bytes, zeroes at first. A crash in store leaves what was stored before.
void gdd_leases_store(void *room, const struct gdd_leases *l);
// Whatever is there: what makes no sense is left out.
void gdd_leases_load(const void *room, struct gdd_leases *ret);

// A lease as LEASE has it: aligned, not empty, within what can be remembered.
bool gdd_lease_valid(uint64_t offset, uint64_t size);
// The one that holds all of [offset, offset + len), or NULL.
struct gdd_lease *gdd_leases_holding(struct gdd_leases *l, uint64_t offset, uint64_t len);
struct gdd_lease *gdd_leases_at(struct gdd_leases *l, uint64_t offset);
// The end of the first one that overlaps [offset, offset + size), 0 if none does.
uint64_t gdd_leases_overlap(const struct gdd_leases *l, uint64_t offset, uint64_t size);
void gdd_leases_remove(struct gdd_leases *l, struct gdd_lease *one);
