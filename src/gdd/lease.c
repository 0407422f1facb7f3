// SPDX-License-Identifier: Apache-2.0
#include "gdd/lease.h"

#include "base/list.h"

#include <stdlib.h>

struct leases {
    const struct region_map *map; // NULL: gone
    struct list landings;
};

struct lease_landing {
    struct landing landing; // first
    struct iovec iov;
    struct leases *leases;
    struct list link;
};

struct leases *leases_new(const struct region_map *map)
{
    struct leases *l = xcalloc(1, sizeof(*l));

    l->map = map;
    list_init(&l->landings);
    return l;
}

static void free_if_done(struct leases *l)
{
    if (!l->map && list_empty(&l->landings))
        free(l);
}

void leases_free(struct leases *l)
{
    if (!l)
        return;
    l->map = NULL;
    free_if_done(l);
}

int leases_landing_new(struct leases *l, uint64_t offset, uint64_t len, struct cache_dest **ret)
{
    struct region_piece piece;
    struct lease_landing *one;
    int rc = l->map ? region_translate_bar(l->map, offset, len, &piece) : -ENXIO;

    if (rc < 0)
        return rc;
    one = xcalloc(1, sizeof(*one));
    rc = landing_init(&one->landing, &piece, &one->iov, 1, true);
    if (rc < 0) {
        free(one);
        return rc;
    }
    one->leases = l;
    list_push_back(&l->landings, &one->link);
    *ret = &one->landing.dest;
    return 0;
}

void leases_landing_free(struct cache_dest *d)
{
    struct lease_landing *one = container_of(d, struct lease_landing, landing.dest);
    struct leases *l = one->leases;

    list_remove(&one->link);
    free(one);
    free_if_done(l);
}

void leases_cut(struct leases *l, uint64_t region_id)
{
    list_for_each (it, &l->landings) {
        struct landing *one = &list_entry(it, struct lease_landing, link)->landing;

        if (!region_id || landing_touches(one, region_id))
            atomic_store(&one->dest.cut, true);
    }
}
