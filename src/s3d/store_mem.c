// SPDX-License-Identifier: Apache-2.0
// A bucket of synthetic families, with what was put, deleted or touched since laid over them.
#include "base/clock.h"
#include "s3d/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// When every untouched synthetic object was written: the same on every run.
#define SYNTHETIC_MTIME 1700000000

enum overlay_kind { OVERLAY_STORED, OVERLAY_DELETED, OVERLAY_TOUCHED };

struct overlay {
    enum overlay_kind kind;
    struct object object; // stored
    uint64_t generation;  // touched
    int64_t mtime_s;      // touched
};

struct bucket_mem {
    struct bucket base;
    struct family_set families;
    pthread_rwlock_t lock;
    struct keymap overlays; // under lock
    atomic_size_t n_overlays;
};

static struct bucket_mem *to_mem(struct bucket *b)
{
    return container_of(b, struct bucket_mem, base);
}

static void overlay_free(struct overlay *o)
{
    if (!o)
        return;
    object_fini(&o->object);
    free(o);
}

static void set_overlay_locked(struct bucket_mem *m, const char *key, struct overlay *o)
{
    overlay_free(keymap_put(&m->overlays, key, o));
    atomic_store(&m->n_overlays, m->overlays.len);
}

static struct object synthetic_object(const char *bucket, const char *key, uint64_t size,
                                      const struct overlay *touched)
{
    struct object o = {.size = size, .mtime_s = touched ? touched->mtime_s : SYNTHETIC_MTIME};
    struct s3d_name name;

    s3d_name_hash(&name, bucket, key, touched ? touched->generation : 0);
    memcpy(o.etag, name.etag, sizeof(name.etag));
    o.start = name.start;
    return o;
}

static int get_locked(struct bucket_mem *m, const char *key, struct object *ret)
{
    struct overlay *over = keymap_get(&m->overlays, key);
    uint64_t size;
    int rc;

    if (over && over->kind == OVERLAY_STORED) {
        object_copy(ret, &over->object);
        return 0;
    }
    if (over && over->kind == OVERLAY_DELETED)
        return -ENOENT;
    rc = family_set_find(&m->families, m->base.name, key, &size);
    if (rc == 0)
        *ret = synthetic_object(m->base.name, key, size, over);
    return rc;
}

static int mem_get(struct bucket *b, const char *key, bool with_bytes, struct object *ret)
{
    struct bucket_mem *m = to_mem(b);
    int rc;

    if (atomic_load_explicit(&m->n_overlays, memory_order_acquire) == 0) {
        uint64_t size;

        rc = family_set_find(&m->families, b->name, key, &size);
        if (rc == 0)
            *ret = synthetic_object(b->name, key, size, NULL);
        return rc;
    }
    pthread_rwlock_rdlock(&m->lock);
    rc = get_locked(m, key, ret);
    pthread_rwlock_unlock(&m->lock);
    return rc;
}

static int mem_put(struct bucket *b, const char *key, const struct object *o, bool must_be_new)
{
    struct bucket_mem *m = to_mem(b);
    struct object present;
    struct overlay *over;
    int rc = 0;

    pthread_rwlock_wrlock(&m->lock);
    if (must_be_new && get_locked(m, key, &present) == 0) {
        object_fini(&present);
        rc = -EEXIST;
    } else {
        over = xcalloc(1, sizeof(*over));
        object_copy(&over->object, o);
        over->object.mtime_s = clock_wall_s();
        set_overlay_locked(m, key, over);
    }
    pthread_rwlock_unlock(&m->lock);
    return rc;
}

static int mem_remove(struct bucket *b, const char *key)
{
    struct bucket_mem *m = to_mem(b);
    struct object present;
    uint64_t size;
    int rc;

    pthread_rwlock_wrlock(&m->lock);
    rc = get_locked(m, key, &present);
    if (rc == 0) {
        object_fini(&present);
        if (family_set_find(&m->families, b->name, key, &size) == 0) {
            struct overlay *over = xcalloc(1, sizeof(*over));

            over->kind = OVERLAY_DELETED;
            set_overlay_locked(m, key, over);
        } else {
            overlay_free(keymap_remove(&m->overlays, key));
        }
    }
    pthread_rwlock_unlock(&m->lock);
    return rc;
}

static int touch_locked(struct bucket_mem *m, const char *key, uint64_t *ret_generation)
{
    struct overlay *over = keymap_get(&m->overlays, key), *next;
    uint64_t size;

    if (over && over->kind == OVERLAY_STORED)
        return -ENOTSUP;
    if ((over && over->kind == OVERLAY_DELETED) ||
        family_set_find(&m->families, m->base.name, key, &size) < 0)
        return -ENOENT;
    next = xcalloc(1, sizeof(*next));
    next->kind = OVERLAY_TOUCHED;
    next->generation = over ? over->generation + 1 : 1;
    next->mtime_s = clock_wall_s();
    *ret_generation = next->generation;
    set_overlay_locked(m, key, next);
    return 0;
}

static int mem_touch(struct bucket *b, const char *key, uint64_t *ret_generation)
{
    struct bucket_mem *m = to_mem(b);
    int rc;

    pthread_rwlock_wrlock(&m->lock);
    rc = touch_locked(m, key, ret_generation);
    pthread_rwlock_unlock(&m->lock);
    return rc;
}

static int mem_blob_new(struct bucket *b, struct blob **ret)
{
    *ret = blob_new();
    return 0;
}

// --- listing: the lock is held from begin to end, which is one page ---

static struct cursor *mem_list_begin(struct bucket *b)
{
    struct cursor *c = xcalloc(1, sizeof(*c));

    c->bucket = b;
    pthread_rwlock_rdlock(&to_mem(b)->lock);
    return c;
}

static void fill_listed(struct listed *ret, const struct object *o)
{
    ret->size = o->size;
    ret->mtime_s = o->mtime_s;
    memcpy(ret->etag, o->etag, sizeof(ret->etag));
    snprintf(ret->storage_class, sizeof(ret->storage_class), "%s",
             o->meta && o->meta->storage_class ? o->meta->storage_class : "STANDARD");
}

static int mem_list_next(struct cursor *c, const char *key, bool after, struct listed *ret)
{
    struct bucket_mem *m = to_mem(c->bucket);
    char from[KEY_MAX_BYTES + 1];

    snprintf(from, sizeof(from), "%s", key);
    for (;; after = true) {
        struct keymap_node *node = keymap_seek(&m->overlays, from, after);
        struct overlay *over = node ? node->value : NULL;
        uint64_t size;
        int rc = family_set_next(&m->families, m->base.name, from, after, ret->key, &size);
        int order;

        if (rc < 0 && !node)
            return -ENOENT;
        order = rc < 0 ? -1 : node ? strcmp(node->key, ret->key) : 1;
        if (order <= 0)
            memcpy(ret->key, node->key, strlen(node->key) + 1);
        if (order > 0 || over->kind == OVERLAY_TOUCHED) {
            struct object o =
                synthetic_object(m->base.name, ret->key, size, order > 0 ? NULL : over);

            fill_listed(ret, &o);
            return 0;
        }
        if (over->kind == OVERLAY_STORED) {
            fill_listed(ret, &over->object);
            return 0;
        }
        memcpy(from, node->key, strlen(node->key) + 1); // deleted: look behind it
    }
}

static void mem_list_end(struct cursor *c)
{
    pthread_rwlock_unlock(&to_mem(c->bucket)->lock);
    free(c);
}

static void mem_free(struct bucket *b)
{
    struct bucket_mem *m = to_mem(b);

    for (struct keymap_node *n = keymap_first(&m->overlays); n; n = n->next[0])
        overlay_free(n->value);
    keymap_fini(&m->overlays);
    family_set_fini(&m->families);
    pthread_rwlock_destroy(&m->lock);
    bucket_fini(b);
    free(m);
}

static const struct bucket_ops mem_ops = {
    .get = mem_get,
    .put = mem_put,
    .remove = mem_remove,
    .touch = mem_touch,
    .blob_new = mem_blob_new,
    .list_begin = mem_list_begin,
    .list_next = mem_list_next,
    .list_end = mem_list_end,
    .free = mem_free,
};

struct bucket *store_mem_new(const char *name, struct family_set *families)
{
    struct bucket_mem *m = xcalloc(1, sizeof(*m));

    bucket_init(&m->base, &mem_ops, name);
    m->families = *families;
    *families = (struct family_set){0};
    pthread_rwlock_init(&m->lock, NULL);
    keymap_init(&m->overlays);
    return &m->base;
}
