// SPDX-License-Identifier: Apache-2.0
#include "fs/handles.h"

#include "fs/table.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HANDLES_MAX ((uint32_t)1 << 24)

struct handle_record {
    _Atomic uint8_t state; // enum handle_kind; stored last
    uint8_t unused;
    uint16_t place_len;
    uint32_t generation; // stays when the record is freed
    uint64_t node;
    uint64_t unique;
    _Atomic uint64_t cookie; // 0 while place is being written
    _Alignas(8) char place[HANDLE_ROOM];
};
_Static_assert(sizeof(struct handle_record) == 288, "kept in memory that outlives a worker");

struct handles {
    struct table table;
    void **priv; // table.n of them
    uint32_t *free;
    uint32_t n_free;
    uint64_t count;
};

static struct handle_record *at(const struct handles *h, uint32_t slot)
{
    return table_at(&h->table, slot);
}

static int grow(struct handles *h)
{
    uint32_t first = MAX(h->table.n, 1u); // slot 0 is nobody's
    int rc = table_grow(&h->table);

    if (rc < 0)
        return rc;
    h->priv = xrealloc(h->priv, sizeof(*h->priv) * h->table.n);
    h->free = xrealloc(h->free, sizeof(*h->free) * h->table.n);
    for (uint32_t slot = h->table.n; slot-- > first;)
        h->free[h->n_free++] = slot;
    return 0;
}

int handles_open(struct handles **ret, int fd)
{
    struct handles *h = xcalloc(1, sizeof(*h));
    int rc = table_open(&h->table, fd, "os2g-handles", sizeof(struct handle_record), HANDLES_MAX);

    if (rc < 0) {
        free(h);
        return rc;
    }
    h->priv = xcalloc(h->table.n, sizeof(*h->priv));
    h->free = xcalloc(h->table.n, sizeof(*h->free));
    for (uint32_t slot = h->table.n; slot-- > 1;) {
        struct handle_record *r = at(h, slot);

        if (r->state == HANDLE_FREE || r->state >= HANDLE_KINDS) {
            r->state = HANDLE_FREE;
            h->free[h->n_free++] = slot;
            continue;
        }
        if (r->place_len > sizeof(r->place))
            r->cookie = 0;
        h->count++;
    }
    *ret = h;
    return 0;
}

void handles_close(struct handles *h)
{
    if (!h)
        return;
    table_close(&h->table);
    free(h->priv);
    free(h->free);
    free(h);
}

int handles_new(struct handles *h, enum handle_kind kind, uint64_t node, uint64_t unique,
                uint32_t *ret_slot)
{
    struct handle_record *r;
    uint32_t slot;

    if (!h->n_free) {
        int rc = grow(h);

        if (rc < 0)
            return rc;
    }
    slot = h->free[--h->n_free];
    r = at(h, slot);
    r->generation++;
    r->node = node;
    r->unique = unique;
    r->cookie = 0;
    r->place_len = 0;
    if (kind == HANDLE_GDD)
        memset(r->place, 0, sizeof(r->place));
    h->priv[slot] = NULL;
    atomic_store_explicit(&r->state, (uint8_t)kind, memory_order_release);
    h->count++;
    *ret_slot = slot;
    return 0;
}

void handles_free(struct handles *h, uint32_t slot)
{
    atomic_store_explicit(&at(h, slot)->state, HANDLE_FREE, memory_order_release);
    h->free[h->n_free++] = slot;
    h->count--;
}

uint32_t handles_find_unique(const struct handles *h, enum handle_kind kind, uint64_t node,
                             uint64_t unique)
{
    for (uint32_t slot = handles_next(h, 1); slot; slot = handles_next(h, slot + 1))
        if (at(h, slot)->state == kind && at(h, slot)->node == node &&
            at(h, slot)->unique == unique)
            return slot;
    return HANDLE_NONE;
}

uint32_t handles_slot(const struct handles *h, uint64_t id, enum handle_kind kind)
{
    uint32_t slot = (uint32_t)id;

    if (slot == HANDLE_NONE || slot >= h->table.n || at(h, slot)->state != kind ||
        at(h, slot)->generation != id >> 32)
        return HANDLE_NONE;
    return slot;
}

uint64_t handles_id(const struct handles *h, uint32_t slot)
{
    return (uint64_t)at(h, slot)->generation << 32 | slot;
}

uint64_t handles_node(const struct handles *h, uint32_t slot)
{
    return at(h, slot)->node;
}

enum handle_kind handles_kind(const struct handles *h, uint32_t slot)
{
    return (enum handle_kind)at(h, slot)->state;
}

uint64_t handles_count(const struct handles *h)
{
    return h->count;
}

uint32_t handles_next(const struct handles *h, uint32_t slot)
{
    for (; slot < h->table.n; slot++)
        if (at(h, slot)->state != HANDLE_FREE)
            return slot;
    return HANDLE_NONE;
}

void handles_set_place(struct handles *h, uint32_t slot, uint64_t cookie, const char *key,
                       size_t len)
{
    struct handle_record *r = at(h, slot);

    assert(len <= sizeof(r->place));
    atomic_store_explicit(&r->cookie, 0, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst); // the bytes after the zero, also for the compiler
    memcpy(r->place, key, len);
    r->place_len = (uint16_t)len;
    atomic_store_explicit(&r->cookie, cookie, memory_order_release);
}

size_t handles_place(const struct handles *h, uint32_t slot, uint64_t *ret_cookie, char *out)
{
    const struct handle_record *r = at(h, slot);

    if (!r->cookie)
        return 0;
    *ret_cookie = r->cookie;
    memcpy(out, r->place, r->place_len);
    out[r->place_len] = 0;
    return r->place_len;
}

void *handles_room(const struct handles *h, uint32_t slot)
{
    return at(h, slot)->place;
}

void *handles_private(const struct handles *h, uint32_t slot)
{
    return h->priv[slot];
}

void handles_set_private(struct handles *h, uint32_t slot, void *p)
{
    h->priv[slot] = p;
}
