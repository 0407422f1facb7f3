// SPDX-License-Identifier: Apache-2.0
#include "cache/cache.h"

#include "cache/shard.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY_MIN (16 * MIB) // for each data loop

// --- objects ---

struct cache_object *cache_object_new(struct cache *c, const char *key, size_t key_len,
                                      const char *etag, uint64_t size)
{
    struct cache_object *o = xcalloc(1, sizeof(*o) + c->n_shards * sizeof(o->extents[0]));

    assert(size > 0);
    atomic_init(&o->refs, 1);
    o->cache = c;
    o->id = atomic_fetch_add_explicit(&c->next_id, 1, memory_order_relaxed);
    o->size = size;
    o->key = xmemdup(key, key_len);
    o->key_len = key_len;
    o->etag = xstrdup(etag);
    for (unsigned i = 0; i < c->n_shards; i++)
        list_init(&o->extents[i]);
    return o;
}

struct cache_object *cache_object_ref(struct cache_object *o)
{
    atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
    return o;
}

void cache_object_unref(struct cache_object *o)
{
    if (!o || atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) > 1)
        return;
    loop_post(o->cache->shards[0].loop, &o->msg, shard_drop_object);
}

void cache_object_free(struct cache_object *o)
{
    free(o->key);
    free(o->etag);
    free(o);
}

// --- life ---

static int arena_map(struct cache *c, uint64_t len, bool shared)
{
    int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    void *p;

    c->arena_fd = -1;
    if (shared) {
        kind = MAP_SHARED;
        c->arena_fd = memfd_create("os2g-cache", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (c->arena_fd < 0 || ftruncate(c->arena_fd, (off_t)len) < 0 ||
            fcntl(c->arena_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
            return -errno;
    }
    p = mmap(NULL, len, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE, c->arena_fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    c->arena = p;
    c->arena_len = len;
    // fewer faults and TLB misses; where huge pages are not to be had, small ones do
    madvise(p, len, MADV_HUGEPAGE);
    return 0;
}

static void arena_unmap(struct cache *c)
{
    if (c->arena)
        munmap(c->arena, c->arena_len);
    if (c->arena_fd >= 0)
        close(c->arena_fd);
}

void cache_arena(const struct cache *c, int *ret_fd, void **ret_base, uint64_t *ret_len)
{
    *ret_fd = c->arena_fd;
    *ret_base = c->arena;
    *ret_len = c->arena_len;
}

int cache_new(struct cache **ret, const struct cache_config *config, char **ret_error)
{
    uint64_t each = ALIGN_DOWN(config->memory / MAX(config->data_loops, 1), CACHE_PAGE);
    struct cache *c;
    int rc;

    assert(!config->loop || config->data_loops == 1);
    if (config->data_loops < 1 || each < MEMORY_MIN || each / CACHE_PAGE >= NO_PAGE) {
        *ret_error = xasprintf("the cache needs at least %u MiB of memory for each of its %u "
                               "threads: give it more, or fewer threads",
                               (unsigned)(MEMORY_MIN / MIB), MAX(config->data_loops, 1));
        return -EINVAL;
    }
    c = xcalloc(1, sizeof(*c) + config->data_loops * sizeof(c->shards[0]));
    c->bucket = config->bucket;
    c->n_shards = config->data_loops;
    atomic_init(&c->next_id, 1);
    rc = arena_map(c, each * c->n_shards, config->shared);
    if (rc < 0) {
        *ret_error = xasprintf("no memory for a cache of %llu MiB: %s",
                               (unsigned long long)(config->memory / MIB), strerror(-rc));
        arena_unmap(c);
        free(c);
        return rc;
    }
    for (unsigned i = 0; i < c->n_shards && rc == 0; i++)
        rc = shard_init(&c->shards[i], c, i, config->loop, c->arena + i * each,
                        (uint32_t)(each / CACHE_PAGE));
    if (rc < 0) {
        *ret_error = xasprintf("cannot start the cache's threads: %s", strerror(-rc));
        cache_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    for (unsigned i = 0; i < c->n_shards; i++)
        shard_close(&c->shards[i]);
    // in this order, in which the last references of objects are passed on
    for (unsigned i = 0; i < c->n_shards; i++)
        shard_stop(&c->shards[i]);
    for (unsigned i = 0; i < c->n_shards; i++)
        shard_fini(&c->shards[i]);
    arena_unmap(c);
    free(c);
}

// --- figures ---

// Bytes that can't be used for something else right now.
static uint64_t pages_held(const struct pool *p)
{
    return pool_count(p, PAGE_BUSY) + pool_count(p, PAGE_UNREAD);
}

unsigned cache_pressure(const struct cache *c)
{
    unsigned worst = 0;

    for (unsigned i = 0; i < c->n_shards; i++) {
        const struct shard *s = &c->shards[i];
        unsigned percent = (unsigned)(pages_held(&s->pool) * 100 / s->pool.n_pages);

        if (counter_read(&s->waiting))
            percent = 100;
        worst = MAX(worst, MIN(percent, 100));
    }
    return worst;
}

void cache_stats_read(const struct cache *c, struct cache_stats *ret)
{
    *ret = (struct cache_stats){.pool_bytes = c->arena_len};
    for (unsigned i = 0; i < c->n_shards; i++) {
        const struct shard *s = &c->shards[i];
        const struct pool *p = &s->pool;

        ret->used_bytes += (p->n_pages - pool_count(p, PAGE_FREE)) * CACHE_PAGE;
        ret->unread_bytes += pool_count(p, PAGE_UNREAD) * CACHE_PAGE;
        ret->pinned_bytes += pool_count(p, PAGE_BUSY) * CACHE_PAGE;
        ret->peak_bytes += counter_read(&p->peak) * CACHE_PAGE;
        ret->read_bytes += counter_read(&s->read_bytes);
        ret->hit_bytes += counter_read(&s->hit_bytes);
        ret->demand_bytes += counter_read(&s->demand_bytes);
        ret->direct_bytes += counter_read(&s->direct_bytes);
        ret->preread_bytes += counter_read(&s->preread_bytes);
        ret->preread_used_bytes += counter_read(&s->preread_used_bytes);
        ret->preread_wasted_bytes += counter_read(&s->extents.wasted_bytes);
        ret->waiting += counter_read(&s->waiting);
        ret->extents += counter_read(&s->extents.count);
    }
}

unsigned cache_data_loops(const struct cache *c)
{
    return c->n_shards;
}

const struct s3_client *cache_s3_client(const struct cache *c, unsigned data_loop)
{
    return c->shards[data_loop].s3;
}
