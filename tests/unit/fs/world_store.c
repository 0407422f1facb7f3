// SPDX-License-Identifier: Apache-2.0
// A store in memory, and a cache that has nothing but a pattern of bytes.
#include "world_store.h"

#include "cache/cache.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct s3_client {
    struct loop *loop;
};

static unsigned under_way;

// --- objects ---

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct world_object *)a)->key, ((const struct world_object *)b)->key);
}

// The first object whose key is not before key.
static size_t lower_bound(const char *key)
{
    size_t from = 0, to = world.n_objects;

    while (from < to) {
        size_t mid = (from + to) / 2;

        if (strcmp(world.objects[mid].key, key) < 0)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

static struct world_object *find(const char *key, size_t len)
{
    char *copy = xmemdup(key, len);
    size_t at = lower_bound(copy);
    bool same = at < world.n_objects && !strcmp(world.objects[at].key, copy);

    free(copy);
    return same ? &world.objects[at] : NULL;
}

void world_put(const char *key, uint64_t size, const char *etag)
{
    struct world_object *o = find(key, strlen(key));

    if (o) {
        free(o->etag);
    } else {
        world.objects = xrealloc(world.objects, (world.n_objects + 1) * sizeof(*world.objects));
        o = &world.objects[world.n_objects++];
        o->key = xstrdup(key);
        o->storage_class = "";
    }
    o->etag = xstrdup(etag);
    o->size = size;
    // appended in order, mostly
    if (world.n_objects > 1 &&
        compare(&world.objects[world.n_objects - 2], &world.objects[world.n_objects - 1]) > 0)
        qsort(world.objects, world.n_objects, sizeof(*world.objects), compare);
}

void world_delete(const char *key)
{
    struct world_object *o = find(key, strlen(key));

    free(o->key);
    free(o->etag);
    memmove(o, o + 1, (char *)(world.objects + world.n_objects) - (char *)(o + 1));
    world.n_objects--;
}

void store_clear(void)
{
    for (size_t i = 0; i < world.n_objects; i++) {
        free(world.objects[i].key);
        free(world.objects[i].etag);
    }
    free(world.objects);
    world.objects = NULL;
    world.n_objects = 0;
}

// --- operations that end when the loop comes round ---

struct op {
    struct loop_msg msg;
    struct list link;
    void (*fn)(struct op *op);
    void *user;
    bool cancelled;
};

static void run_op(struct loop_msg *msg)
{
    struct op *op = container_of(msg, struct op, msg);

    if (world.hold && !op->cancelled) {
        under_way--;
        list_push_back(&world.held, &op->link);
        return;
    }
    under_way--;
    op->fn(op);
    free(op);
}

static struct op *op_start(void (*fn)(struct op *op), void *user)
{
    struct op *op = xcalloc(1, sizeof(*op));

    op->fn = fn;
    op->user = user;
    list_init(&op->link);
    under_way++;
    loop_post(world.loop, &op->msg, run_op);
    return op;
}

static void op_cancel(struct op *op)
{
    if (!op || op->cancelled)
        return;
    op->cancelled = true;
    if (!list_empty(&op->link)) {
        list_remove(&op->link);
        under_way++;
        loop_post(world.loop, &op->msg, run_op);
    }
}

void world_run_held(void)
{
    struct list held;

    list_init(&held);
    list_splice_back(&held, &world.held);
    while (!list_empty(&held)) {
        struct op *op = list_first(&held, struct op, link);

        list_remove(&op->link);
        op->fn(op);
        free(op);
    }
}

bool world_store_busy(void)
{
    return under_way > 0;
}

// --- s3_* ---

int s3_client_new(struct s3_client **ret, struct loop *l, struct s3_bucket *b)
{
    *ret = xcalloc(1, sizeof(**ret));
    return 0;
}

void s3_client_free(struct s3_client *c)
{
    free(c);
}

static const struct http_header metadata[] = {{"colour", "blue"}, {"Note", "two words"}};

static struct s3_object_info info_of(const struct world_object *o, bool head)
{
    return (struct s3_object_info){
        .size = o->size,
        .mtime_s = 1700000000,
        .etag = o->etag,
        .storage_class = o->storage_class,
        .content_type = head ? "text/plain" : "",
        .metadata = head ? metadata : NULL,
        .n_metadata = head ? ARRAY_LEN(metadata) : 0,
    };
}

static void run_head(struct op *op)
{
    struct s3_head *h = op->user;
    struct world_object *o = find(h->key, h->key_len);
    int error = op->cancelled ? -ECANCELED : world.head_error ? world.head_error : o ? 0 : -ENOENT;
    struct s3_object_info info;

    h->op = NULL;
    if (!error)
        info = info_of(o, true);
    h->done(h, error, error ? NULL : &info);
}

void s3_head_start(struct s3_client *c, struct s3_head *h)
{
    world.heads++;
    h->op = op_start(run_head, h);
}

void s3_head_cancel(struct s3_head *h)
{
    op_cancel(h->op);
}

// The entry of a listing that key falls into; false if it is not listed.
static bool entry_of(const struct s3_list *l, const struct world_object *o, struct s3_list_entry *e)
{
    const char *slash;

    if (strlen(o->key) < l->prefix_len || memcmp(o->key, l->prefix, l->prefix_len))
        return false;
    if (l->start_after && strcmp(o->key, l->start_after) <= 0)
        return false;
    slash = l->delimiter ? strchr(o->key + l->prefix_len, l->delimiter) : NULL;
    *e = (struct s3_list_entry){.key = o->key, .key_len = strlen(o->key)};
    if (slash) {
        e->is_prefix = true;
        e->key_len = (size_t)(slash - o->key) + 1;
    } else {
        e->info = info_of(o, false);
    }
    return true;
}

static bool same_key(const struct s3_list_entry *a, const struct s3_list_entry *b)
{
    return a->key_len == b->key_len && !memcmp(a->key, b->key, a->key_len);
}

// Objects first, then prefixes, as a page of S3 has them. The continuation is the number of the
// object to go on with.
static size_t page(struct s3_list *l, struct s3_list_entry *out, size_t max)
{
    size_t i = lower_bound(l->start_after ? l->start_after : l->prefix), n = 0;

    if (l->continuation)
        i = strtoul(l->continuation, NULL, 10);
    for (; i < world.n_objects; i++) {
        struct s3_list_entry e;

        if (strncmp(world.objects[i].key, l->prefix, l->prefix_len) > 0)
            break;
        if (!entry_of(l, &world.objects[i], &e))
            continue;
        if (n && out[n - 1].is_prefix && same_key(&out[n - 1], &e))
            continue;
        if (n == max)
            return i;
        out[n++] = e;
    }
    return SIZE_MAX;
}

static int tell(struct s3_list *l, size_t *ret_next)
{
    size_t max = l->max_keys ? l->max_keys : world.page;
    struct s3_list_entry *entries = xcalloc(max, sizeof(*entries));
    int rc = 0;

    *ret_next = page(l, entries, max);
    for (int prefixes = 0; prefixes < 2; prefixes++)
        for (size_t i = 0; i < max && entries[i].key && rc == 0; i++)
            if (entries[i].is_prefix == prefixes)
                rc = l->entry(l, &entries[i]);
    free(entries);
    return rc;
}

static void run_list(struct op *op)
{
    struct s3_list *l = op->user;
    int error = op->cancelled ? -ECANCELED : 0;
    char continuation[32];
    size_t next = SIZE_MAX;

    world.lists_now--;
    if (!error && world.list_error) {
        if (world.list_error_after)
            world.list_error_after--;
        else
            error = world.list_error;
    }
    if (!error)
        error = tell(l, &next);
    snprintf(continuation, sizeof(continuation), "%zu", next);
    l->op = NULL;
    l->done(l, error, error || next == SIZE_MAX ? NULL : continuation);
}

void s3_list_start(struct s3_client *c, struct s3_list *l)
{
    world.lists++;
    world.exact_lists += l->max_keys == 1;
    world.lists_now++;
    world.most_lists_at_once = MAX(world.most_lists_at_once, world.lists_now);
    l->op = op_start(run_list, l);
}

void s3_list_cancel(struct s3_list *l)
{
    op_cancel(l->op);
}

// --- cache_* ---

struct cache_object *cache_object_new(struct cache *c, const char *key, size_t key_len,
                                      const char *etag, uint64_t size)
{
    struct cache_object *o = xcalloc(1, sizeof(*o));

    assert_true(size > 0);
    o->refs = 1;
    o->size = size;
    o->key = xmemdup(key, key_len);
    o->key_len = key_len;
    o->etag = xstrdup(etag);
    return o;
}

void cache_object_unref(struct cache_object *o)
{
    if (!o || --o->refs)
        return;
    free(o->key);
    free(o->etag);
    free(o);
}

static int check(struct cache_object *o)
{
    const struct world_object *stored = find(o->key, o->key_len);

    if (world.load_error)
        return world.load_error;
    if (stored && !strcmp(stored->etag, o->etag) && stored->size == o->size)
        return 0;
    o->stale = true;
    return stored ? -ESTALE : -ENOENT;
}

static void run_load(struct op *op)
{
    struct cache_load *l = op->user;

    l->done(l, check(l->object));
}

void cache_load_start(struct cache *c, struct cache_load *l)
{
    assert_true(l->object->size <= CACHE_EXTENT);
    world.loads++;
    world.background_loads += l->background;
    op_start(run_load, l);
}

static void run_read(struct op *op)
{
    struct cache_read *r = op->user;
    static uint8_t bytes[CACHE_READ_MAX];
    int error = op->cancelled ? -ECANCELED : check(r->object);

    r->parts[0].extent = NULL;
    for (uint32_t i = 0; i < r->len; i++)
        bytes[i] = (uint8_t)(r->offset + i);
    r->iov[0] = (struct iovec){bytes, r->len};
    r->n_iov = 1;
    r->done(r, error);
}

void cache_read_start(struct cache *c, struct cache_read *r)
{
    assert_true(r->len > 0 && r->len <= CACHE_READ_MAX && r->offset + r->len <= r->object->size);
    world.reads++;
    // private to the cache, which this is
    r->parts[0].extent = (struct cache_extent *)op_start(run_read, r);
}

void cache_read_release(struct cache_read *r) {}

void cache_read_cancel(struct cache_read *r)
{
    world.cancelled_reads++;
    op_cancel((struct op *)r->parts[0].extent);
}

// Where a landing goes in as many pieces as it likes; all of ours take it whole.
static int put(struct cache_dest *d, uint64_t at, uint64_t offset, uint64_t len)
{
    static uint8_t bytes[CACHE_EXTENT];
    struct cache_put p = {0};
    struct iovec iov = {bytes, len};

    for (uint64_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(offset + i);
    return d->ops->put(d, at, &iov, 1, &p);
}

static void run_land(struct op *op)
{
    struct cache_land *l = op->user;
    int error = op->cancelled ? -ECANCELED : check(l->object);

    l->op.cache = NULL; // a cancel may come too late
    l->done(l, error ? error : put(l->dest, l->dest_at, l->offset, l->len));
}

void cache_land_start(struct cache *c, struct cache_land *l)
{
    assert_true(l->len > 0 && l->offset + l->len <= l->object->size);
    assert_true(l->offset % CACHE_EXTENT + l->len <= CACHE_EXTENT);
    assert_true(l->dest_at + l->len <= l->dest->len);
    world.lands++;
    // private to the cache, which this is
    l->op.cache = (struct cache *)op_start(run_land, l);
}

void cache_land_cancel(struct cache_land *l)
{
    world.cancelled_lands++;
    op_cancel((struct op *)l->op.cache);
}

static void run_fetch(struct op *op)
{
    struct cache_fetch *f = op->user;
    struct world_object *o = find(f->key, f->key_len);
    int error = op->cancelled ? -ECANCELED : world.load_error ? world.load_error : o ? 0 : -ENOENT;

    f->op.cache = NULL;
    if (o && !error) {
        f->size = o->size + (uint64_t)world.lie;
        snprintf(f->etag, sizeof(f->etag), "%s", o->etag);
        error = f->size > f->dest->len ? -EFBIG
                                       : put(f->dest, 0, 0, MIN(f->size, (uint64_t)CACHE_EXTENT));
    }
    f->done(f, error);
}

void cache_fetch_start(struct cache *c, struct cache_fetch *f)
{
    assert_true(f->dest->direct);
    world.fetches++;
    f->op.cache = (struct cache *)op_start(run_fetch, f);
}

void cache_fetch_cancel(struct cache_fetch *f)
{
    op_cancel((struct op *)f->op.cache);
}

void cache_prefetch(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len)
{
    assert_true(offset + len <= o->size);
    world.prefetched += len;
}

void cache_unwant(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len)
{
    world.unwants++;
    world.unwanted += len;
}

unsigned cache_pressure(const struct cache *c)
{
    return world.pressure;
}

void cache_stats_read(const struct cache *c, struct cache_stats *ret)
{
    *ret = (struct cache_stats){.pool_bytes = 512 * MIB};
}
