// SPDX-License-Identifier: Apache-2.0
#include "fs/gdd_leases.h"

#include "fs/handles.h"

#include <stdatomic.h>
#include <string.h>

#define PAGES_MAX ((uint64_t)UINT32_MAX) // of OS2G_GDD_ALIGN bytes: 16 TiB of memory

// Two copies, written in turns; the one with the higher number counts.
struct copy {
    _Atomic uint32_t number; // 0 while it is being written; stored last
    uint32_t host, epoch, n;
    uint64_t unique;
    struct {
        uint32_t page, pages;
    } lease[OS2G_GDD_LEASES];
};
_Static_assert(sizeof(struct copy) * 2 == HANDLE_ROOM, "kept in memory that outlives a worker");

static const struct copy *newest(const struct copy *copies)
{
    return &copies[copies[1].number > copies[0].number];
}

void gdd_leases_store(void *room, const struct gdd_leases *l)
{
    struct copy *copies = room, *to = &copies[newest(copies) == copies];
    uint32_t number = newest(copies)->number + 1;

    atomic_store_explicit(&to->number, 0, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst); // the rest after the zero, also for the compiler
    to->host = l->host;
    to->epoch = l->epoch;
    to->unique = l->unique;
    to->n = l->n;
    for (unsigned i = 0; i < l->n; i++) {
        to->lease[i].page = (uint32_t)(l->lease[i].offset / OS2G_GDD_ALIGN);
        to->lease[i].pages = (uint32_t)(l->lease[i].size / OS2G_GDD_ALIGN);
    }
    atomic_store_explicit(&to->number, number, memory_order_release);
}

void gdd_leases_load(const void *room, struct gdd_leases *ret)
{
    const struct copy *from = newest(room);

    *ret = (struct gdd_leases){.host = from->host, .epoch = from->epoch, .unique = from->unique};
    for (unsigned i = 0; i < MIN(from->n, (uint32_t)OS2G_GDD_LEASES); i++) {
        uint64_t offset = (uint64_t)from->lease[i].page * OS2G_GDD_ALIGN,
                 size = (uint64_t)from->lease[i].pages * OS2G_GDD_ALIGN;

        if (gdd_lease_valid(offset, size) && !gdd_leases_overlap(ret, offset, size))
            ret->lease[ret->n++] = (struct gdd_lease){.offset = offset, .size = size};
    }
}

bool gdd_lease_valid(uint64_t offset, uint64_t size)
{
    return size && offset % OS2G_GDD_ALIGN == 0 && size % OS2G_GDD_ALIGN == 0 &&
           offset / OS2G_GDD_ALIGN <= PAGES_MAX && size / OS2G_GDD_ALIGN <= PAGES_MAX;
}

struct gdd_lease *gdd_leases_holding(struct gdd_leases *l, uint64_t offset, uint64_t len)
{
    for (unsigned i = 0; i < l->n; i++) {
        const struct gdd_lease *one = &l->lease[i];

        if (offset >= one->offset && offset - one->offset <= one->size &&
            len <= one->size - (offset - one->offset))
            return &l->lease[i];
    }
    return NULL;
}

struct gdd_lease *gdd_leases_at(struct gdd_leases *l, uint64_t offset)
{
    for (unsigned i = 0; i < l->n; i++)
        if (l->lease[i].offset == offset)
            return &l->lease[i];
    return NULL;
}

uint64_t gdd_leases_overlap(const struct gdd_leases *l, uint64_t offset, uint64_t size)
{
    for (unsigned i = 0; i < l->n; i++) {
        const struct gdd_lease *one = &l->lease[i];

        if (offset < one->offset + one->size && one->offset < offset + size)
            return one->offset + one->size;
    }
    return 0;
}

void gdd_leases_remove(struct gdd_leases *l, struct gdd_lease *one)
{
    unsigned i = (unsigned)(one - l->lease);

    l->n--;
    memmove(one, one + 1, (l->n - i) * sizeof(*one));
}
