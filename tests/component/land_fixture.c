// SPDX-License-Identifier: Apache-2.0
#include "land_fixture.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct s3_fixture fixture;
struct cache *cache;

static void wait_for(sem_t *s)
{
    while (sem_wait(s) < 0 && errno == EINTR)
        ;
    sem_destroy(s);
}

int land_fixture_start(void **state)
{
    static const char *const args[] = {"--synthetic", LAND_KEYS, NULL};

    s3_fixture_start(&fixture,
                     (struct s3_settings){.bucket = LAND_BUCKET,
                                          .retry_timeout_ns = 20 * NS_PER_S,
                                          .no_hedging = true},
                     args);
    return 0;
}

int land_fixture_stop(void **state)
{
    s3_fixture_stop(&fixture);
    return 0;
}

void land_begin(uint64_t memory, unsigned data_loops, const char *faults)
{
    struct cache_config c = {.memory = memory, .data_loops = data_loops, .bucket = fixture.bucket};
    char *error = NULL;

    assert_int_equal(cache_new(&cache, &c, &error), 0);
    s3d_process_set_faults(&fixture.server, faults);
    s3d_process_reset_counters(&fixture.server);
}

void land_end(void)
{
    cache_free(cache);
    s3d_process_set_faults(&fixture.server, "");
}

struct cache_stats land_stats(void)
{
    struct cache_stats s;

    cache_stats_read(cache, &s);
    return s;
}

uint64_t land_gets(void)
{
    return s3d_process_counter(&fixture.server, "operations.GetObject");
}

void object_open(struct object *o, const char *key, uint64_t size)
{
    char etag[40];

    s3d_name_hash(&o->name, LAND_BUCKET, key, 0);
    snprintf(etag, sizeof(etag), "\"%s\"", o->name.etag);
    o->cache = cache_object_new(cache, key, strlen(key), etag, size);
}

void object_close(struct object *o)
{
    cache_object_unref(o->cache);
}

// --- landing ---

static void on_landed(struct cache_land *l, int error)
{
    struct landing *x = container_of(l, struct landing, land);

    x->error = error;
    sem_post(&x->done);
}

void landing_start(struct landing *x, struct object *o, uint64_t offset, uint32_t len,
                   struct host_memory *m, uint64_t at)
{
    x->land = (struct cache_land){.object = o->cache,
                                  .offset = offset,
                                  .len = len,
                                  .dest = &m->dest,
                                  .dest_at = at,
                                  .done = on_landed};
    sem_init(&x->done, 0, 0);
    cache_land_start(cache, &x->land);
}

bool landing_is_done(struct landing *x, unsigned ms)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000L;
    t.tv_sec += t.tv_nsec / 1000000000L;
    t.tv_nsec %= 1000000000L;
    if (sem_timedwait(&x->done, &t) < 0)
        return false;
    sem_post(&x->done);
    return true;
}

int landing_wait(struct landing *x)
{
    wait_for(&x->done);
    return x->error;
}

int land_now(struct object *o, uint64_t offset, uint32_t len, struct host_memory *m, uint64_t at)
{
    struct landing x;

    landing_start(&x, o, offset, len, m, at);
    return landing_wait(&x);
}

bool landed_right(struct object *o, uint64_t offset, uint64_t len, const struct host_memory *m,
                  uint64_t at)
{
    return host_memory_holds(m, at, &fixture.table, o->name.start, offset, len) &&
           host_memory_untouched(m, 0, at) &&
           host_memory_untouched(m, at + len, m->dest.len - at - len);
}

// --- reading ---

static void on_read(struct cache_read *r, int error)
{
    struct reading *x = container_of(r, struct reading, read);
    uint64_t at = r->offset;

    x->error = error;
    for (int i = 0; i < r->n_iov && !error; i++) {
        x->wrong |= s3d_synthetic_check(&fixture.table, x->object->name.start, at,
                                        r->iov[i].iov_base, r->iov[i].iov_len) >= 0;
        at += r->iov[i].iov_len;
    }
    if (!error) {
        x->wrong |= at != r->offset + r->len;
        cache_read_release(r);
    }
    sem_post(&x->done);
}

void reading_start(struct reading *x, struct object *o, uint64_t offset, uint32_t len)
{
    x->read.object = o->cache;
    x->read.offset = offset;
    x->read.len = len;
    x->read.done = on_read;
    x->object = o;
    x->wrong = false;
    sem_init(&x->done, 0, 0);
    cache_read_start(cache, &x->read);
}

int reading_wait(struct reading *x)
{
    wait_for(&x->done);
    return x->error ? x->error : x->wrong ? -EBADMSG : 0;
}

int read_now(struct object *o, uint64_t offset, uint32_t len)
{
    struct reading x;

    reading_start(&x, o, offset, len);
    return reading_wait(&x);
}

// --- fetching ---

static void on_fetched(struct cache_fetch *f, int error)
{
    struct fetch *x = container_of(f, struct fetch, fetch);

    x->error = error;
    sem_post(&x->done);
}

void fetch_start(struct fetch *x, const char *key, struct host_memory *m)
{
    x->fetch = (struct cache_fetch){
        .key = key, .key_len = strlen(key), .dest = &m->dest, .done = on_fetched};
    sem_init(&x->done, 0, 0);
    cache_fetch_start(cache, &x->fetch);
}

int fetch_wait(struct fetch *x)
{
    wait_for(&x->done);
    return x->error;
}

int fetch_now(struct fetch *x, const char *key, struct host_memory *m)
{
    fetch_start(x, key, m);
    return fetch_wait(x);
}

// --- fences ---

struct fence {
    struct cache_fence fence;
    sem_t done;
};

static void on_fence(struct cache_fence *f)
{
    assert_ptr_equal(loop_self(), fixture.loop);
    sem_post(&container_of(f, struct fence, fence)->done);
}

static void start_fence(void *arg)
{
    struct fence *f = arg;

    f->fence.done = on_fence;
    cache_fence_start(cache, &f->fence);
}

void fence_now(void)
{
    struct fence f;

    sem_init(&f.done, 0, 0);
    s3_fixture_call(&fixture, start_fence, &f);
    wait_for(&f.done);
}
