// SPDX-License-Identifier: Apache-2.0
#include "fs/nodes.h"

#include "fs/node_index.h"

#include <stdlib.h>
#include <string.h>

#define LOOKUPS_PINNED UINT32_MAX

bool node_version_equal(const struct node_version *a, const struct node_version *b)
{
    return a->size == b->size && etag_equal(&a->etag, &b->etag) &&
           (a->etag.kind != ETAG_NONE || a->mtime_s == b->mtime_s);
}

static bool is_version(const struct nodes *n, uint32_t slot, enum node_kind kind,
                       const struct node_version *version)
{
    const struct node_record *r = nodes_at(n, slot);

    if (nodes_state(n, slot) != kind)
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
    uint32_t slot = node_index_first(n, parent, name, len);

    while (slot && !is_version(n, slot, kind, version))
        slot = node_index_next(n, slot, parent, name, len);
    return slot;
}

void nodes_set_current(struct nodes *n, uint32_t parent, const char *name, size_t len,
                       enum node_kind kind, const struct node_version *version)
{
    uint32_t slot = node_index_first(n, parent, name, len);

    for (; slot; slot = node_index_next(n, slot, parent, name, len))
        if (nodes_state(n, slot) == NODE_FILE)
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
    uint32_t before = n->table.n;
    struct node_private *priv;
    int rc = table_grow(&n->table);

    if (rc < 0)
        return rc;
    if (n->n_priv < n->table.n) {
        uint32_t size = MAX(n->table.n, n->n_priv + n->n_priv / 4);

        priv = realloc(n->priv, sizeof(*priv) * size);
        if (!priv) {
            n->table.n = before;
            return -ENOMEM;
        }
        n->priv = priv;
        n->n_priv = size;
    }
    return 0;
}

static int take_free(struct nodes *n, uint32_t *ret)
{
    uint32_t slot = n->free;

    if (slot) {
        n->free = nodes_at(n, slot)->more;
    } else {
        int rc = n->used == n->table.n ? grow(n) : 0;

        if (rc < 0)
            return rc;
        slot = n->used++;
    }
    n->priv[slot] = (struct node_private){0};
    *ret = slot;
    return 0;
}

void nodes_give_free(struct nodes *n, uint32_t slot)
{
    nodes_set_state(n, slot, NODE_FREE);
    nodes_at(n, slot)->more = n->free;
    n->free = slot;
}

static void free_chain(struct nodes *n, uint32_t more, uint32_t records)
{
    while (records--) {
        uint32_t next = nodes_at(n, more)->more;

        nodes_give_free(n, more);
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
    nodes_at(n, head)->more = 0;
    for (uint32_t i = 0; i < records; i++) {
        rc = take_free(n, &more);
        if (rc < 0) {
            free_chain(n, nodes_at(n, head)->more, i);
            nodes_give_free(n, head);
            return rc;
        }
        nodes_at(n, more)->more = nodes_at(n, head)->more;
        nodes_set_state(n, more, NODE_MORE);
        nodes_at(n, head)->more = more;
    }
    *ret = head;
    return 0;
}

void nodes_fill(struct nodes *n, uint32_t slot, uint32_t parent, const char *name, size_t len,
                const struct node_version *v)
{
    struct node_record *r = nodes_at(n, slot);

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
        if (version && nodes_at(n, slot)->mtime_s != version->mtime_s)
            nodes_at(n, slot)->mtime_s = version->mtime_s;
        *ret_slot = slot;
        return 0;
    }
    rc = take_chain(n, node_more_records(len + text_len), &slot);
    if (rc < 0)
        return rc;
    nodes_fill(n, slot, parent, name, len, version);
    nodes_set_state(n, slot, (uint8_t)kind);
    nodes_hold(n, parent);
    node_index_add(n, slot);
    *ret_slot = slot;
    return 0;
}

void nodes_settle(struct nodes *n, uint32_t slot)
{
    while (slot > NODE_FIXED_LAST && !n->priv[slot].holds && !nodes_at(n, slot)->lookups) {
        struct node_record *r = nodes_at(n, slot);
        uint32_t parent = r->parent, more = r->more;

        node_index_remove(n, slot);
        nodes_give_free(n, slot);
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
    uint32_t have = nodes_at(n, slot)->lookups;

    nodes_at(n, slot)->lookups =
        count < LOOKUPS_PINNED - have ? have + (uint32_t)count : LOOKUPS_PINNED;
}

void nodes_forget(struct nodes *n, uint32_t slot, uint64_t count)
{
    uint32_t have = nodes_at(n, slot)->lookups;

    // more than it has: a host may say what it likes
    if (have != LOOKUPS_PINNED)
        nodes_at(n, slot)->lookups = count < have ? have - (uint32_t)count : 0;
    nodes_settle(n, slot);
}

// --- reading ---

uint32_t nodes_slot(const struct nodes *n, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    uint8_t state;

    if (slot == NODE_NONE || slot >= n->table.n)
        return NODE_NONE;
    state = nodes_state(n, slot);
    if ((state != NODE_FILE && state != NODE_DIR) || nodes_at(n, slot)->generation != id >> 32)
        return NODE_NONE;
    return slot;
}

uint64_t nodes_id(const struct nodes *n, uint32_t slot)
{
    return (uint64_t)nodes_at(n, slot)->generation << 32 | slot;
}

enum node_kind nodes_kind(const struct nodes *n, uint32_t slot)
{
    return (enum node_kind)nodes_state(n, slot);
}

uint32_t nodes_parent(const struct nodes *n, uint32_t slot)
{
    return nodes_at(n, slot)->parent;
}

unsigned nodes_flags(const struct nodes *n, uint32_t slot)
{
    return nodes_at(n, slot)->flags;
}

void nodes_set_flags(struct nodes *n, uint32_t slot, unsigned set, unsigned clear)
{
    struct node_record *r = nodes_at(n, slot);
    unsigned flags = (r->flags | set) & ~clear;

    if (flags != r->flags)
        r->flags = (uint8_t)flags;
}

void nodes_version(struct nodes *n, uint32_t slot, struct node_version *ret)
{
    const struct node_record *r = nodes_at(n, slot);

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
    size_t len = nodes_at(n, slot)->name_len;

    node_payload_read(&n->table, slot, 0, out, len);
    out[len] = 0;
    return len;
}

void nodes_path(const struct nodes *n, uint32_t slot, struct buf *out)
{
    bool dir = nodes_state(n, slot) == NODE_DIR;
    size_t len = 0, pos;

    for (uint32_t s = slot; s != NODE_ROOT; s = nodes_at(n, s)->parent)
        len += nodes_at(n, s)->name_len + (size_t)1;
    if (!len)
        return;
    buf_reserve(out, len);
    pos = out->len + len;
    for (uint32_t s = slot; s != NODE_ROOT; s = nodes_at(n, s)->parent) {
        size_t name_len = nodes_at(n, s)->name_len;

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
    return (uint64_t)n->used * sizeof(struct node_record) + (uint64_t)n->n_priv * sizeof(*n->priv) +
           (uint64_t)n->buckets_size * sizeof(*n->buckets);
}
