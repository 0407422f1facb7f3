// SPDX-License-Identifier: Apache-2.0
// Taking over the table of a worker before: the records are checked, and what lies beside them in
// private memory is made again.
#include "fs/node_index.h"

#include "base/log.h"
#include "wire/control.h"
#include "wire/gdd.h"

#include <stdlib.h>
#include <string.h>

#define NODES_MAX ((uint32_t)1 << 29) // 48 GiB of address space

// A new table: the nodes that are always there, then the magic number.
static void make_fixed(struct nodes *n, int64_t now_s)
{
    struct node_header *h = table_at(&n->table, 0);

    *nodes_at(n, NODE_ROOT) = (struct node_record){0};
    nodes_set_state(n, NODE_ROOT, NODE_DIR);
    *nodes_at(n, NODE_CONTROL_DIR) = (struct node_record){0};
    nodes_fill(n, NODE_CONTROL_DIR, NODE_ROOT, OS2G_CONTROL_DIR, strlen(OS2G_CONTROL_DIR), NULL);
    *nodes_at(n, NODE_CONTROL_FILE) = (struct node_record){0};
    nodes_fill(n, NODE_CONTROL_FILE, NODE_CONTROL_DIR, OS2G_CONTROL_FILE, strlen(OS2G_CONTROL_FILE),
               NULL);
    *nodes_at(n, NODE_GDD_FILE) = (struct node_record){0};
    nodes_fill(n, NODE_GDD_FILE, NODE_CONTROL_DIR, OS2G_GDD_FILE, strlen(OS2G_GDD_FILE), NULL);
    *nodes_at(n, NODE_STALLS_FILE) = (struct node_record){0};
    nodes_fill(n, NODE_STALLS_FILE, NODE_CONTROL_DIR, OS2G_STALLS_FILE, strlen(OS2G_STALLS_FILE),
               NULL);
    for (uint32_t slot = NODE_CONTROL_DIR; slot <= NODE_FIXED_LAST; slot++) {
        nodes_at(n, slot)->generation = 0;
        nodes_set_state(n, slot, slot == NODE_CONTROL_DIR ? NODE_DIR : NODE_FILE);
    }
    h->created_s = now_s;
    atomic_store_explicit(&h->magic, NODE_MAGIC, memory_order_release);
}

// Frees the heads that cannot be used, until no more are found: a child goes with its parent.
static void drop_invalid(struct nodes *n)
{
    uint32_t dropped = 0, before;

    do {
        before = dropped;
        for (uint32_t slot = NODE_FIXED_LAST + 1; slot < n->table.n; slot++) {
            if (!nodes_is_head(n, slot))
                continue;
            if (node_record_valid(&n->table, slot) &&
                nodes_state(n, nodes_at(n, slot)->parent) == NODE_DIR)
                continue;
            nodes_set_state(n, slot, NODE_FREE);
            dropped++;
        }
    } while (dropped != before);
    if (dropped)
        log_warning("fs", "%u nodes of the worker before could not be used", dropped);
}

// Makes the private half from the records.
static void rebuild(struct nodes *n)
{
    bool *kept = xcalloc(n->table.n, sizeof(*kept));

    drop_invalid(n);
    for (uint32_t slot = NODE_CONTROL_DIR; slot < n->table.n; slot++) {
        const struct node_record *r = nodes_at(n, slot);
        uint32_t more = r->more;

        if (!nodes_is_head(n, slot))
            continue;
        kept[slot] = true;
        for (uint32_t i = node_more_records((size_t)r->name_len + r->etag_len); i; i--) {
            kept[more] = true;
            more = nodes_at(n, more)->more;
        }
        n->priv[r->parent].holds++;
        node_index_add(n, slot);
    }
    n->used = n->table.n;
    while (n->used > NODE_FIXED_LAST + 1 && !kept[n->used - 1] &&
           !nodes_at(n, n->used - 1)->generation)
        n->used--;
    for (uint32_t slot = n->used; slot-- > NODE_CONTROL_DIR;)
        if (!kept[slot])
            nodes_give_free(n, slot);
    free(kept);
}

void nodes_sweep(struct nodes *n)
{
    for (uint32_t slot = NODE_FIXED_LAST + 1; slot < n->table.n; slot++)
        if (nodes_is_head(n, slot))
            nodes_settle(n, slot);
}

int nodes_open(struct nodes **ret, int fd, int64_t now_s)
{
    struct nodes *n = xcalloc(1, sizeof(*n));
    uint64_t magic = 0;
    int rc = table_open(&n->table, fd, "os2g-nodes", sizeof(struct node_record), NODES_MAX);

    if (rc == 0 && n->table.n == 0)
        rc = table_grow(&n->table);
    if (rc == 0) {
        n->n_priv = n->table.n;
        n->priv = calloc(n->n_priv, sizeof(*n->priv));
        rc = n->priv ? 0 : -ENOMEM;
    }
    if (rc == 0) {
        magic = atomic_load(&((struct node_header *)table_at(&n->table, 0))->magic);
        // another version's table: the version before goes on with it
        rc = magic && magic != NODE_MAGIC ? -EPROTO : 0;
    }
    if (rc < 0) {
        nodes_close(n);
        return rc;
    }
    node_index_init(n);
    if (!magic)
        make_fixed(n, now_s);
    rebuild(n);
    *ret = n;
    return 0;
}

void nodes_close(struct nodes *n)
{
    if (!n)
        return;
    table_close(&n->table);
    free(n->priv);
    free(n->buckets);
    free(n);
}
