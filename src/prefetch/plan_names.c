// SPDX-License-Identifier: Apache-2.0
#include "prefetch/plan_names.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

// A key cut in two: the directory with its '/', and the rest.
struct parts {
    const char *dir, *name;
    size_t dir_len, name_len;
};

static struct parts split(const char *key, size_t len)
{
    const char *slash = memrchr(key, '/', len);
    size_t dir_len = slash ? (size_t)(slash - key) + 1 : 0;

    return (struct parts){key, key + dir_len, dir_len, len - dir_len};
}

static bool text_is(const struct plan_names *n, uint32_t at, const char *s, size_t len)
{
    return at + len < n->text_len && !memcmp(n->text + at, s, len) && !n->text[at + len];
}

static uint64_t hash_of(const char *s, size_t len, uint32_t seed)
{
    return XXH3_64bits_withSeed(s, len, seed);
}

int plan_grow(void **array, uint32_t *size, uint32_t len, size_t item_size)
{
    uint32_t bigger = *size ? *size * 2 : 1024;
    void *p;

    if (len < *size)
        return 0;
    p = realloc(*array, bigger * item_size);
    if (!p)
        return -ENOMEM;
    *array = p;
    *size = bigger;
    return 0;
}

static int text_add(struct plan_names *n, const char *s, size_t len, uint32_t *ret)
{
    size_t size = MAX(n->text_size, 4096);

    while (size < n->text_len + len + 1)
        size *= 2;
    if (n->text_len + len + 1 > UINT32_MAX)
        return -ENOMEM;
    if (size != n->text_size) {
        char *p = realloc(n->text, size);

        if (!p)
            return -ENOMEM;
        n->text = p;
        n->text_size = size;
    }
    memcpy(n->text + n->text_len, s, len);
    n->text[n->text_len + len] = '\0';
    *ret = (uint32_t)n->text_len;
    n->text_len += len + 1;
    return 0;
}

// --- tables: open addressing, at most three quarters full ---

static uint64_t dir_hash(const struct plan_names *n, uint32_t dir)
{
    const char *s = n->text + n->dirs[dir];

    return hash_of(s, strlen(s), 0);
}

static uint64_t item_hash(const struct plan_names *n, uint32_t item)
{
    const char *s = n->text + n->items[item].name;

    return hash_of(s, strlen(s), n->items[item].dir);
}

static void table_put(struct plan_table *t, uint64_t hash, uint32_t number)
{
    uint32_t at = (uint32_t)hash & (t->size - 1);

    while (t->slots[at])
        at = (at + 1) & (t->size - 1);
    t->slots[at] = number + 1;
}

static int table_grow(const struct plan_names *n, struct plan_table *t, uint32_t used,
                      uint64_t (*hash)(const struct plan_names *n, uint32_t number))
{
    struct plan_table bigger = {.size = t->size ? t->size * 2 : 1024};

    if (used < t->size / 4 * 3)
        return 0;
    bigger.slots = calloc(bigger.size, sizeof(*bigger.slots));
    if (!bigger.slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < used; i++)
        table_put(&bigger, hash(n, i), i);
    free(t->slots);
    *t = bigger;
    return 0;
}

static uint32_t dir_find(const struct plan_names *n, const char *s, size_t len, uint64_t hash)
{
    const struct plan_table *t = &n->dir_table;

    for (uint32_t at = (uint32_t)hash & (t->size - 1); t->size && t->slots[at];
         at = (at + 1) & (t->size - 1))
        if (text_is(n, n->dirs[t->slots[at] - 1], s, len))
            return t->slots[at] - 1;
    return PLAN_NO_ITEM;
}

static uint32_t item_find(const struct plan_names *n, uint32_t dir, const char *s, size_t len,
                          uint64_t hash)
{
    const struct plan_table *t = &n->item_table;

    for (uint32_t at = (uint32_t)hash & (t->size - 1); t->size && t->slots[at];
         at = (at + 1) & (t->size - 1)) {
        const struct plan_item *i = &n->items[t->slots[at] - 1];

        if (i->dir == dir && text_is(n, i->name, s, len))
            return t->slots[at] - 1;
    }
    return PLAN_NO_ITEM;
}

// --- keys ---

static int dir_add(struct plan_names *n, const struct parts *p, uint32_t *ret)
{
    uint64_t hash;
    uint32_t at;
    int rc;

    if (n->n_dirs && text_is(n, n->dirs[n->last_dir], p->dir, p->dir_len)) {
        *ret = n->last_dir;
        return 0;
    }
    hash = hash_of(p->dir, p->dir_len, 0);
    *ret = dir_find(n, p->dir, p->dir_len, hash);
    if (*ret == PLAN_NO_ITEM) {
        if ((rc = plan_grow((void **)&n->dirs, &n->dirs_size, n->n_dirs, sizeof(*n->dirs))) < 0 ||
            (rc = table_grow(n, &n->dir_table, n->n_dirs, dir_hash)) < 0 ||
            (rc = text_add(n, p->dir, p->dir_len, &at)) < 0)
            return rc;
        *ret = n->n_dirs++;
        n->dirs[*ret] = at;
        table_put(&n->dir_table, hash, *ret);
    }
    n->last_dir = *ret;
    return 0;
}

int plan_names_add(struct plan_names *n, const char *key, size_t len, uint32_t *ret_item,
                   bool *ret_new)
{
    struct parts p = split(key, len);
    uint32_t dir, at;
    uint64_t hash;
    int rc = dir_add(n, &p, &dir);

    if (rc < 0)
        return rc;
    hash = hash_of(p.name, p.name_len, dir);
    *ret_item = item_find(n, dir, p.name, p.name_len, hash);
    *ret_new = *ret_item == PLAN_NO_ITEM;
    if (!*ret_new)
        return 0;
    if ((rc = plan_grow((void **)&n->items, &n->items_size, n->n_items, sizeof(*n->items))) < 0 ||
        (rc = table_grow(n, &n->item_table, n->n_items, item_hash)) < 0 ||
        (rc = text_add(n, p.name, p.name_len, &at)) < 0)
        return rc;
    *ret_item = n->n_items++;
    n->items[*ret_item] = (struct plan_item){.name = at, .dir = dir};
    table_put(&n->item_table, hash, *ret_item);
    return 0;
}

uint32_t plan_names_find(const struct plan_names *n, const char *key, size_t len)
{
    struct parts p = split(key, len);
    uint32_t dir = dir_find(n, p.dir, p.dir_len, hash_of(p.dir, p.dir_len, 0));

    if (dir == PLAN_NO_ITEM)
        return PLAN_NO_ITEM;
    return item_find(n, dir, p.name, p.name_len, hash_of(p.name, p.name_len, dir));
}

void plan_names_key(const struct plan_names *n, uint32_t item, struct buf *out)
{
    buf_reset(out);
    buf_add_str(out, n->text + n->dirs[n->items[item].dir]);
    buf_add_str(out, n->text + n->items[item].name);
}

size_t plan_names_memory(const struct plan_names *n)
{
    return n->text_size + n->items_size * sizeof(*n->items) + n->dirs_size * sizeof(*n->dirs) +
           ((size_t)n->item_table.size + n->dir_table.size) * sizeof(uint32_t);
}

void plan_names_fini(struct plan_names *n)
{
    free(n->text);
    free(n->items);
    free(n->dirs);
    free(n->item_table.slots);
    free(n->dir_table.slots);
}
