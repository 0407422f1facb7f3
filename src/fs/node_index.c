// SPDX-License-Identifier: Apache-2.0
#include "fs/node_index.h"

#include "fs/hmap.h"

#define BUCKETS_MIN 1024

static uint32_t name_hash(uint32_t parent, const char *name, size_t len)
{
    return (uint32_t)fs_hash(name, len, parent);
}

static uint32_t hash_of(const struct nodes *n, uint32_t slot)
{
    char name[256];

    return name_hash(nodes_at(n, slot)->parent, name, nodes_name(n, slot, name));
}

static uint32_t bucket_of(const struct nodes *n, uint32_t hash)
{
    uint32_t b = hash & (n->level * 2 - 1);

    return b < n->n_buckets ? b : hash & (n->level - 1);
}

// Moves what belongs there from the oldest unsplit bucket to a new one.
static void split_bucket(struct nodes *n)
{
    uint32_t old = n->n_buckets - n->level, slot = n->buckets[old];

    if (n->n_buckets == n->buckets_size) {
        n->buckets_size *= 2;
        n->buckets = xrealloc(n->buckets, sizeof(*n->buckets) * n->buckets_size);
    }
    n->buckets[old] = NODE_NONE;
    n->buckets[n->n_buckets++] = NODE_NONE;
    while (slot) {
        uint32_t next = n->priv[slot].next, *to = &n->buckets[bucket_of(n, hash_of(n, slot))];

        n->priv[slot].next = *to;
        *to = slot;
        slot = next;
    }
    if (n->n_buckets == n->level * 2)
        n->level *= 2;
}

void node_index_add(struct nodes *n, uint32_t slot)
{
    uint32_t *to;

    if (++n->count > n->n_buckets)
        split_bucket(n);
    to = &n->buckets[bucket_of(n, hash_of(n, slot))];
    n->priv[slot].next = *to;
    *to = slot;
}

void node_index_remove(struct nodes *n, uint32_t slot)
{
    uint32_t *link = &n->buckets[bucket_of(n, hash_of(n, slot))];

    while (*link != slot)
        link = &n->priv[*link].next;
    *link = n->priv[slot].next;
    n->count--;
}

static bool is_name(const struct nodes *n, uint32_t slot, uint32_t parent, const char *name,
                    size_t len)
{
    const struct node_record *r = nodes_at(n, slot);

    return r->parent == parent && r->name_len == len &&
           node_payload_equal(&n->table, slot, 0, name, len);
}

// The first in the chain from slot on with this parent and name.
static uint32_t match(const struct nodes *n, uint32_t slot, uint32_t parent, const char *name,
                      size_t len)
{
    while (slot && !is_name(n, slot, parent, name, len))
        slot = n->priv[slot].next;
    return slot;
}

uint32_t node_index_first(const struct nodes *n, uint32_t parent, const char *name, size_t len)
{
    return match(n, n->buckets[bucket_of(n, name_hash(parent, name, len))], parent, name, len);
}

uint32_t node_index_next(const struct nodes *n, uint32_t slot, uint32_t parent, const char *name,
                         size_t len)
{
    return match(n, n->priv[slot].next, parent, name, len);
}

void node_index_init(struct nodes *n)
{
    n->n_buckets = n->buckets_size = n->level = BUCKETS_MIN;
    n->buckets = xcalloc(n->buckets_size, sizeof(*n->buckets));
}
