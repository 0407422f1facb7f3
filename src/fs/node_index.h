// SPDX-License-Identifier: Apache-2.0
// The private half of the table of nodes, and its index by (parent, name). For nodes.c,
// node_index.c and node_start.c.
#pragma once

#include "fs/node_record.h"

struct node_private {
    uint32_t holds; // children, and whoever in fs/ goes on using it
    uint32_t next;  // in its bucket
};

struct nodes {
    struct table table;
    struct node_private *priv; // n_priv of them, as many as the table has records or more
    uint32_t n_priv;
    uint32_t free; // first free record, linked by more
    uint32_t used; // records from here on have never been used, and take no memory yet

    // The index is a linear hash: each node that is added splits one bucket, so that it grows with
    // the table and never stops to be made anew.
    uint32_t *buckets;
    uint32_t n_buckets, buckets_size;
    uint32_t level; // power of two: n_buckets - level of its buckets have been split
    uint64_t count;
    char text[ETAG_TEXT_MAX + 1]; // of the latest nodes_version
};

static inline struct node_record *nodes_at(const struct nodes *n, uint32_t slot)
{
    return node_at(&n->table, slot);
}

static inline uint8_t nodes_state(const struct nodes *n, uint32_t slot)
{
    return atomic_load_explicit(&nodes_at(n, slot)->state, memory_order_relaxed);
}

static inline void nodes_set_state(struct nodes *n, uint32_t slot, uint8_t state)
{
    atomic_store_explicit(&nodes_at(n, slot)->state, state, memory_order_release);
}

static inline bool nodes_is_head(const struct nodes *n, uint32_t slot)
{
    uint8_t state = nodes_state(n, slot);

    return state == NODE_FILE || state == NODE_DIR;
}

void node_index_init(struct nodes *n);
void node_index_add(struct nodes *n, uint32_t slot);
void node_index_remove(struct nodes *n, uint32_t slot);
// The nodes of a name, of any kind and version: NODE_NONE at the end.
uint32_t node_index_first(const struct nodes *n, uint32_t parent, const char *name, size_t len);
uint32_t node_index_next(const struct nodes *n, uint32_t slot, uint32_t parent, const char *name,
                         size_t len);

// --- nodes.c ---

void nodes_fill(struct nodes *n, uint32_t slot, uint32_t parent, const char *name, size_t len,
                const struct node_version *v);
void nodes_give_free(struct nodes *n, uint32_t slot);
