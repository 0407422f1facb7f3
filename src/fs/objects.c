// SPDX-License-Identifier: Apache-2.0
#include "fs/objects.h"

#include <string.h>

#define IDLE_OBJECTS 16384

static bool is_version(const struct cache_object *o, const char *key, size_t len, const char *etag,
                       uint64_t size)
{
    return o->key_len == len && o->size == size && !memcmp(o->key, key, len) &&
           !strcmp(o->etag, etag);
}

// Nobody will be given it any more.
static void unlist(struct fs *fs, struct object *o)
{
    if (!o->listed)
        return;
    hmap_remove(&fs->objects, &o->link);
    o->listed = false;
}

static void destroy(struct fs *fs, struct object *o)
{
    if (!list_empty(&o->idle)) {
        list_remove(&o->idle);
        fs->n_idle_objects--;
    }
    unlist(fs, o);
    cache_object_unref(o->cache);
    free(o);
}

static bool is_stale(const struct object *o)
{
    return atomic_load_explicit(&o->cache->stale, memory_order_relaxed);
}

static struct object *find(struct fs *fs, uint64_t hash, const struct buf *key, const char *etag,
                           uint64_t size)
{
    struct hmap_link *l = hmap_first(&fs->objects, hash);

    for (; l; l = hmap_next(l)) {
        struct object *o = container_of(l, struct object, link);

        if (is_version(o->cache, key->data, key->len, etag, size))
            return o;
    }
    return NULL;
}

struct object *object_ref(struct fs *fs, struct object *o)
{
    if (!list_empty(&o->idle)) {
        list_remove(&o->idle);
        fs->n_idle_objects--;
    }
    o->users++;
    return o;
}

static struct object *get(struct fs *fs, const char *path, size_t len, const struct node_version *v,
                          bool make)
{
    char etag[ETAG_TEXT_MAX + 1];
    struct buf key = {0};
    struct object *o;
    uint64_t hash;

    etag_format(&v->etag, etag);
    buf_add_str(&key, fs->o.prefix);
    buf_add(&key, path, len);
    // a version without an ETag is told from others by its time
    hash = fs_hash(key.data, key.len,
                   v->etag.kind == ETAG_NONE ? v->mtime_s : fs_hash(etag, strlen(etag), v->size));
    o = find(fs, hash, &key, etag, v->size);
    // one that was found old is left to those who have it: the same bytes may have been written
    // again, and then it is current
    if (o && is_stale(o)) {
        unlist(fs, o);
        if (!o->users)
            destroy(fs, o);
        o = NULL;
    }
    if (!o && make) {
        o = xcalloc(1, sizeof(*o));
        o->cache = cache_object_new(fs->cache, key.data, key.len, etag, v->size);
        list_init(&o->idle);
        hmap_add(&fs->objects, &o->link, hash);
        o->listed = true;
    }
    buf_free(&key);
    return o ? object_ref(fs, o) : NULL;
}

struct object *object_get(struct fs *fs, const char *path, size_t len, const struct node_version *v)
{
    return get(fs, path, len, v, true);
}

struct object *object_peek(struct fs *fs, const char *path, size_t len,
                           const struct node_version *v)
{
    return get(fs, path, len, v, false);
}

void object_put(struct fs *fs, struct object *o)
{
    assert(o->users > 0);
    if (--o->users)
        return;
    if (!o->listed || is_stale(o)) {
        destroy(fs, o);
        return;
    }
    list_push_back(&fs->idle_objects, &o->idle);
    if (++fs->n_idle_objects > IDLE_OBJECTS)
        destroy(fs, list_entry(fs->idle_objects.next, struct object, idle));
}

void objects_fini(struct fs *fs)
{
    list_for_each_safe (it, &fs->idle_objects)
        destroy(fs, list_entry(it, struct object, idle));
    assert(fs->objects.n == 0);
    hmap_fini(&fs->objects);
}
