// SPDX-License-Identifier: Apache-2.0
#include "fs/nodes.h"

#include "base/log.h"
#include "fs/control.h"
#include "fs/hmap.h"
#include "fs/node_record.h"

#include <string.h>

#define NODES_MAX      ((uint32_t)1 << 29) // 48 GiB of address space
#define BUCKETS_MIN    1024
#define LOOKUPS_PINNED UINT32_MAX

// The private half.
struct private
{
    uint32_t holds; // children, and whoever in fs/ goes on using it
    uint32_t next;  // in its bucket
};

struct nodes {
    struct table table;
    struct private *priv; // table.n of them
    uint32_t n_priv;
    uint32_t free; // first free record, linked by more

    // The index by (parent, name) is a linear hash: each node that is added splits one bucket, so
    // that it grows with the table and never stops to be made anew.
    uint32_t *buckets;
    uint32_t n_buckets, buckets_size;
    uint32_t level; // power of two: n_buckets - level of its buckets have been split
    uint64_t count;
    char text[ETAG_TEXT_MAX + 1]; // of the latest nodes_version
};

static struct node_record *at(const struct nodes *n, uint32_t slot)
{
    return node_at(&n->table, slot);
}

static uint8_t state_of(const struct nodes *n, uint32_t slot)
{
    return atomic_load_explicit(&at(n, slot)->state, memory_order_relaxed);
}

static void set_state(struct nodes *n, uint32_t slot, uint8_t state)
{
    atomic_store_explicit(&at(n, slot)->state, state, memory_order_release);
}

bool node_version_equal(const struct node_version *a, const struct node_version *b)
{
    return a->size == b->size && etag_equal(&a->etag, &b->etag) &&
           (a->etag.kind != ETAG_NONE || a->mtime_s == b->mtime_s);
}

// --- the index ---

static uint32_t name_hash(uint32_t parent, const char *name, size_t len)
{
    return (uint32_t)fs_hash(name, len, parent);
}

static uint32_t hash_of(const struct nodes *n, uint32_t slot)
{
    char name[256];

    return name_hash(at(n, slot)->parent, name, nodes_name(n, slot, name));
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

static void index_add(struct nodes *n, uint32_t slot)
{
    uint32_t *to;

    if (++n->count > n->n_buckets)
        split_bucket(n);
    to = &n->buckets[bucket_of(n, hash_of(n, slot))];
    n->priv[slot].next = *to;
    *to = slot;
}

static void index_remove(struct nodes *n, uint32_t slot)
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
    const struct node_record *r = at(n, slot);

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

static uint32_t first_match(const struct nodes *n, uint32_t parent, const char *name, size_t len)
{
    return match(n, n->buckets[bucket_of(n, name_hash(parent, name, len))], parent, name, len);
}

static bool is_version(const struct nodes *n, uint32_t slot, enum node_kind kind,
                       const struct node_version *version)
{
    const struct node_record *r = at(n, slot);

    if (state_of(n, slot) != kind)
        return false;
    if (kind == NODE_DIR)
        return true;
    if (r->size != version->size || r->etag_kind != version->etag.kind)
        return false;
    switch (r->etag_kind) {
    case ETAG_MD5:
        return r->etag_parts == version->etag.parts &&
               !memcmp(r->md5, version->etag.md5, sizeof(r->md5));
    case ETAG_TEXT:
        return r->etag_len == version->etag.text_len &&
               node_payload_equal(&n->table, slot, r->name_len, version->etag.text, r->etag_len);
    default:
        return r->mtime_s == version->mtime_s;
    }
}

uint32_t nodes_find(const struct nodes *n, uint32_t parent, const char *name, size_t len,
                    enum node_kind kind, const struct node_version *version)
{
    uint32_t slot = first_match(n, parent, name, len);

    while (slot && !is_version(n, slot, kind, version))
        slot = match(n, n->priv[slot].next, parent, name, len);
    return slot;
}

void nodes_set_current(struct nodes *n, uint32_t parent, const char *name, size_t len,
                       enum node_kind kind, const struct node_version *version)
{
    uint32_t slot = first_match(n, parent, name, len);

    for (; slot; slot = match(n, n->priv[slot].next, parent, name, len))
        if (state_of(n, slot) == NODE_FILE)
            nodes_set_flags(n, slot, is_version(n, slot, kind, version) ? 0 : NODE_STALE, 0);
}

bool nodes_is_stale_version(const struct nodes *n, uint32_t parent, const char *name, size_t len,
                            const struct node_version *version)
{
    uint32_t slot = nodes_find(n, parent, name, len, NODE_FILE, version);

    return slot && nodes_flags(n, slot) & NODE_STALE;
}

// --- making and freeing ---

static int grow(struct nodes *n)
{
    uint32_t first = n->table.n;
    struct private *priv;
    int rc = table_grow(&n->table);

    if (rc < 0)
        return rc;
    if (n->n_priv < n->table.n) {
        uint32_t size = MAX(n->table.n, n->n_priv + n->n_priv / 4);

        priv = realloc(n->priv, sizeof(*priv) * size);
        if (!priv) {
            n->table.n = first;
            return -ENOMEM;
        }
        n->priv = priv;
        n->n_priv = size;
    }
    for (uint32_t slot = n->table.n; slot-- > first;) {
        at(n, slot)->more = n->free;
        n->free = slot;
    }
    return 0;
}

static int take_free(struct nodes *n, uint32_t *ret)
{
    uint32_t slot = n->free;

    if (!slot) {
        int rc = grow(n);

        if (rc < 0)
            return rc;
        slot = n->free;
    }
    n->free = at(n, slot)->more;
    n->priv[slot] = (struct private){0};
    *ret = slot;
    return 0;
}

static void give_free(struct nodes *n, uint32_t slot)
{
    set_state(n, slot, NODE_FREE);
    at(n, slot)->more = n->free;
    n->free = slot;
}

static void free_chain(struct nodes *n, uint32_t more, uint32_t records)
{
    while (records--) {
        uint32_t next = at(n, more)->more;

        give_free(n, more);
        more = next;
    }
}

// A head with records records chained behind it; none of it counts until the head's state is set.
static int take_chain(struct nodes *n, uint32_t records, uint32_t *ret)
{
    uint32_t head, more;
    int rc = take_free(n, &head);

    if (rc < 0)
        return rc;
    at(n, head)->more = 0;
    for (uint32_t i = 0; i < records; i++) {
        rc = take_free(n, &more);
        if (rc < 0) {
            free_chain(n, at(n, head)->more, i);
            give_free(n, head);
            return rc;
        }
        at(n, more)->more = at(n, head)->more;
        set_state(n, more, NODE_MORE);
        at(n, head)->more = more;
    }
    *ret = head;
    return 0;
}

static void fill(struct nodes *n, uint32_t slot, uint32_t parent, const char *name, size_t len,
                 const struct node_version *v)
{
    struct node_record *r = at(n, slot);

    r->generation++;
    r->flags = v && v->archived ? NODE_ARCHIVED : 0;
    r->name_len = (uint8_t)len;
    r->parent = parent;
    r->lookups = 0;
    r->etag_kind = v ? v->etag.kind : ETAG_NONE;
    r->etag_len = 0;
    r->etag_parts = v ? v->etag.parts : 0;
    r->size = v ? v->size : 0;
    r->mtime_s = v ? v->mtime_s : 0;
    memset(r->md5, 0, sizeof(r->md5));
    if (v && v->etag.kind == ETAG_MD5)
        memcpy(r->md5, v->etag.md5, sizeof(r->md5));
    if (v && v->etag.kind == ETAG_TEXT)
        r->etag_len = v->etag.text_len;
    node_payload_write(&n->table, slot, name, len, v ? v->etag.text : NULL, r->etag_len);
}

int nodes_get(struct nodes *n, uint32_t parent, const char *name, size_t len, enum node_kind kind,
              const struct node_version *version, uint32_t *ret_slot)
{
    uint32_t slot = nodes_find(n, parent, name, len, kind, version);
    size_t text_len = version && version->etag.kind == ETAG_TEXT ? version->etag.text_len : 0;
    int rc;

    assert(len > 0 && len <= 255);
    if (slot) {
        // the same bytes written again: only the time is new
        if (version && at(n, slot)->mtime_s != version->mtime_s)
            at(n, slot)->mtime_s = version->mtime_s;
        *ret_slot = slot;
        return 0;
    }
    rc = take_chain(n, node_more_records(len + text_len), &slot);
    if (rc < 0)
        return rc;
    fill(n, slot, parent, name, len, version);
    set_state(n, slot, (uint8_t)kind);
    nodes_hold(n, parent);
    index_add(n, slot);
    *ret_slot = slot;
    return 0;
}

void nodes_settle(struct nodes *n, uint32_t slot)
{
    while (slot > NODE_CONTROL_FILE && !n->priv[slot].holds && !at(n, slot)->lookups) {
        struct node_record *r = at(n, slot);
        uint32_t parent = r->parent, more = r->more;

        index_remove(n, slot);
        give_free(n, slot);
        free_chain(n, more, node_more_records((size_t)r->name_len + r->etag_len));
        n->priv[parent].holds--;
        slot = parent;
    }
}

void nodes_hold(struct nodes *n, uint32_t slot)
{
    n->priv[slot].holds++;
}

void nodes_unhold(struct nodes *n, uint32_t slot)
{
    assert(n->priv[slot].holds > 0);
    n->priv[slot].holds--;
    nodes_settle(n, slot);
}

void nodes_add_lookups(struct nodes *n, uint32_t slot, uint64_t count)
{
    uint32_t have = at(n, slot)->lookups;

    at(n, slot)->lookups = count < LOOKUPS_PINNED - have ? have + (uint32_t)count : LOOKUPS_PINNED;
}

void nodes_forget(struct nodes *n, uint32_t slot, uint64_t count)
{
    uint32_t have = at(n, slot)->lookups;

    // more than it has: a host may say what it likes
    if (have != LOOKUPS_PINNED)
        at(n, slot)->lookups = count < have ? have - (uint32_t)count : 0;
    nodes_settle(n, slot);
}

// --- reading ---

uint32_t nodes_slot(const struct nodes *n, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    uint8_t state;

    if (slot == NODE_NONE || slot >= n->table.n)
        return NODE_NONE;
    state = state_of(n, slot);
    if ((state != NODE_FILE && state != NODE_DIR) || at(n, slot)->generation != id >> 32)
        return NODE_NONE;
    return slot;
}

uint64_t nodes_id(const struct nodes *n, uint32_t slot)
{
    return (uint64_t)at(n, slot)->generation << 32 | slot;
}

enum node_kind nodes_kind(const struct nodes *n, uint32_t slot)
{
    return (enum node_kind)state_of(n, slot);
}

uint32_t nodes_parent(const struct nodes *n, uint32_t slot)
{
    return at(n, slot)->parent;
}

unsigned nodes_flags(const struct nodes *n, uint32_t slot)
{
    return at(n, slot)->flags;
}

void nodes_set_flags(struct nodes *n, uint32_t slot, unsigned set, unsigned clear)
{
    struct node_record *r = at(n, slot);
    unsigned flags = (r->flags | set) & ~clear;

    if (flags != r->flags)
        r->flags = (uint8_t)flags;
}

void nodes_version(struct nodes *n, uint32_t slot, struct node_version *ret)
{
    const struct node_record *r = at(n, slot);

    *ret = (struct node_version){.size = r->size,
                                 .mtime_s = r->mtime_s,
                                 .archived = r->flags & NODE_ARCHIVED,
                                 .etag = {.kind = r->etag_kind,
                                          .parts = r->etag_parts,
                                          .text_len = r->etag_len,
                                          .text = n->text}};
    memcpy(ret->etag.md5, r->md5, sizeof(r->md5));
    node_payload_read(&n->table, slot, r->name_len, n->text, r->etag_len);
}

size_t nodes_name(const struct nodes *n, uint32_t slot, char out[static 256])
{
    size_t len = at(n, slot)->name_len;

    node_payload_read(&n->table, slot, 0, out, len);
    out[len] = 0;
    return len;
}

void nodes_path(const struct nodes *n, uint32_t slot, struct buf *out)
{
    bool dir = state_of(n, slot) == NODE_DIR;
    size_t len = 0, pos;

    for (uint32_t s = slot; s != NODE_ROOT; s = at(n, s)->parent)
        len += at(n, s)->name_len + (size_t)1;
    if (!len)
        return;
    buf_reserve(out, len);
    pos = out->len + len;
    for (uint32_t s = slot; s != NODE_ROOT; s = at(n, s)->parent) {
        size_t name_len = at(n, s)->name_len;

        out->data[--pos] = '/';
        pos -= name_len;
        node_payload_read(&n->table, s, 0, out->data + pos, name_len);
    }
    out->len += dir ? len : len - 1;
    out->data[out->len] = 0;
}

uint32_t nodes_find_dir(const struct nodes *n, const char *path, size_t len)
{
    uint32_t slot = NODE_ROOT;

    while (slot && len) {
        const char *slash = memchr(path, '/', len);
        size_t name_len = slash ? (size_t)(slash - path) : len;

        slot = nodes_find(n, slot, path, name_len, NODE_DIR, NULL);
        if (!slash)
            break;
        path += name_len + 1;
        len -= name_len + 1;
    }
    return slot;
}

static const struct node_header *header(const struct nodes *n)
{
    return table_at(&n->table, 0);
}

int64_t nodes_created_s(const struct nodes *n)
{
    return header(n)->created_s;
}

uint64_t nodes_count(const struct nodes *n)
{
    return n->count;
}

uint64_t nodes_bytes(const struct nodes *n)
{
    return (uint64_t)n->table.n * sizeof(struct node_record) +
           (uint64_t)n->n_priv * sizeof(*n->priv) + (uint64_t)n->buckets_size * sizeof(*n->buckets);
}

// --- start ---

// A new table: the nodes that are always there, then the magic number.
static void make_fixed(struct nodes *n, int64_t now_s)
{
    struct node_header *h = table_at(&n->table, 0);

    *at(n, NODE_ROOT) = (struct node_record){0};
    set_state(n, NODE_ROOT, NODE_DIR);
    *at(n, NODE_CONTROL_DIR) = (struct node_record){0};
    fill(n, NODE_CONTROL_DIR, NODE_ROOT, OS2G_CONTROL_DIR, strlen(OS2G_CONTROL_DIR), NULL);
    *at(n, NODE_CONTROL_FILE) = (struct node_record){0};
    fill(n, NODE_CONTROL_FILE, NODE_CONTROL_DIR, OS2G_CONTROL_FILE, strlen(OS2G_CONTROL_FILE),
         NULL);
    at(n, NODE_CONTROL_DIR)->generation = at(n, NODE_CONTROL_FILE)->generation = 0;
    set_state(n, NODE_CONTROL_DIR, NODE_DIR);
    set_state(n, NODE_CONTROL_FILE, NODE_FILE);
    h->created_s = now_s;
    atomic_store_explicit(&h->magic, NODE_MAGIC, memory_order_release);
}

static bool is_node(const struct nodes *n, uint32_t slot)
{
    uint8_t state = state_of(n, slot);

    return state == NODE_FILE || state == NODE_DIR;
}

// Frees the heads that cannot be used, until no more are found: a child goes with its parent.
static void drop_invalid(struct nodes *n)
{
    uint32_t dropped = 0, before;

    do {
        before = dropped;
        for (uint32_t slot = NODE_CONTROL_FILE + 1; slot < n->table.n; slot++) {
            if (!is_node(n, slot))
                continue;
            if (node_record_valid(&n->table, slot) && state_of(n, at(n, slot)->parent) == NODE_DIR)
                continue;
            set_state(n, slot, NODE_FREE);
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
        const struct node_record *r = at(n, slot);
        uint32_t more = r->more;

        if (!is_node(n, slot))
            continue;
        kept[slot] = true;
        for (uint32_t i = node_more_records((size_t)r->name_len + r->etag_len); i; i--) {
            kept[more] = true;
            more = at(n, more)->more;
        }
        n->priv[r->parent].holds++;
        index_add(n, slot);
    }
    for (uint32_t slot = n->table.n; slot-- > NODE_CONTROL_DIR;)
        if (!kept[slot])
            give_free(n, slot);
    free(kept);
}

void nodes_sweep(struct nodes *n)
{
    for (uint32_t slot = NODE_CONTROL_FILE + 1; slot < n->table.n; slot++)
        if (is_node(n, slot))
            nodes_settle(n, slot);
}

int nodes_open(struct nodes **ret, int fd, int64_t now_s)
{
    struct nodes *n = xcalloc(1, sizeof(*n));
    int rc = table_open(&n->table, fd, "os2g-nodes", sizeof(struct node_record), NODES_MAX);

    if (rc == 0 && n->table.n == 0)
        rc = table_grow(&n->table);
    if (rc == 0) {
        n->n_priv = n->table.n;
        n->priv = calloc(n->n_priv, sizeof(*n->priv));
        rc = n->priv ? 0 : -ENOMEM;
    }
    if (rc < 0) {
        nodes_close(n);
        return rc;
    }
    n->n_buckets = n->buckets_size = n->level = BUCKETS_MIN;
    n->buckets = xcalloc(n->buckets_size, sizeof(*n->buckets));
    if (atomic_load(&((struct node_header *)table_at(&n->table, 0))->magic) != NODE_MAGIC)
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
