// SPDX-License-Identifier: Apache-2.0
// A chained hash table whose links are members of the hashed structs. The caller brings the hash
// (fs_hash) and compares keys himself, walking hmap_first / hmap_next.
#pragma once

#include "base/base.h"

#include <stdlib.h>

#include <xxhash.h>

struct hmap_link {
    struct hmap_link *next;
    uint64_t hash;
};

struct hmap {
    struct hmap_link **buckets; // NULL while nothing was ever added
    size_t n, size;             // size: a power of two
};

static inline uint64_t fs_hash(const void *data, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, len, seed);
}

static inline void hmap_fini(struct hmap *m)
{
    free(m->buckets);
    *m = (struct hmap){0};
}

static inline struct hmap_link *hmap_match(struct hmap_link *l, uint64_t hash)
{
    while (l && l->hash != hash)
        l = l->next;
    return l;
}

static inline struct hmap_link *hmap_first(const struct hmap *m, uint64_t hash)
{
    return m->n ? hmap_match(m->buckets[hash & (m->size - 1)], hash) : NULL;
}

static inline struct hmap_link *hmap_next(const struct hmap_link *l)
{
    return hmap_match(l->next, l->hash);
}

static inline void hmap_grow(struct hmap *m)
{
    size_t size = m->size ? m->size * 2 : 64;
    struct hmap_link **buckets = xcalloc(size, sizeof(struct hmap_link *));

    for (size_t i = 0; i < m->size; i++) {
        for (struct hmap_link *l = m->buckets[i], *next; l; l = next) {
            struct hmap_link **to = &buckets[l->hash & (size - 1)];

            next = l->next;
            l->next = *to;
            *to = l;
        }
    }
    free(m->buckets);
    m->buckets = buckets;
    m->size = size;
}

static inline void hmap_add(struct hmap *m, struct hmap_link *l, uint64_t hash)
{
    struct hmap_link **to;

    if (m->n >= m->size)
        hmap_grow(m);
    to = &m->buckets[hash & (m->size - 1)];
    l->hash = hash;
    l->next = *to;
    *to = l;
    m->n++;
}

static inline void hmap_remove(struct hmap *m, struct hmap_link *l)
{
    struct hmap_link **at = &m->buckets[l->hash & (m->size - 1)];

    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    m->n--;
}
