// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include "base/clock.h"
#include "cache/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LONG_MS 30000

struct cache *world;

void world_begin(uint64_t memory, unsigned data_loops)
{
    char *error = NULL;

    assert_int_equal(cache_new(&world,
                               &(struct cache_config){.memory = memory, .data_loops = data_loops},
                               &error),
                     0);
}

void world_end(void)
{
    cache_free(world);
    fake_reset();
}

struct cache_object *world_object(const char *name, uint64_t size)
{
    char key[64];
    int len = snprintf(key, sizeof(key), "%s:%llu", name, (unsigned long long)size);

    return cache_object_new(world, key, (size_t)len, "\"v1\"", size);
}

static bool wait_ms(sem_t *sem, unsigned ms)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return sem_timedwait(sem, &t) == 0;
}

static bool bytes_right(const struct cache_read *r)
{
    uint64_t at = r->offset;

    for (int i = 0; i < r->n_iov; i++)
        for (size_t k = 0; k < r->iov[i].iov_len; k++)
            if (((uint8_t *)r->iov[i].iov_base)[k] != fake_byte(r->object->key, at++))
                return false;
    return at == r->offset + r->len;
}

static void on_read(struct cache_read *r, int error)
{
    struct reading *x = container_of(r, struct reading, r);

    x->loop = loop_self();
    x->error = error;
    if (!error) {
        x->wrong = !bytes_right(r);
        if (!x->hold)
            cache_read_release(r);
    }
    sem_post(&x->done);
}

void reading_start(struct reading *x, struct cache_object *o, uint64_t offset, uint32_t len)
{
    x->r.object = o;
    x->r.offset = offset;
    x->r.len = len;
    x->r.done = on_read;
    x->error = 1;
    sem_init(&x->done, 0, 0);
    cache_read_start(world, &x->r);
}

bool reading_is_done(struct reading *x, unsigned ms)
{
    bool done = wait_ms(&x->done, ms);

    if (done)
        sem_post(&x->done);
    return done;
}

int reading_wait(struct reading *x)
{
    assert_true(wait_ms(&x->done, LONG_MS));
    assert_false(x->wrong);
    return x->error;
}

static void do_release(void *arg)
{
    struct reading *x = arg;

    x->wrong |= !bytes_right(&x->r);
    cache_read_release(&x->r);
}

void reading_release(struct reading *x)
{
    loop_call(x->loop, do_release, x);
    assert_false(x->wrong);
}

int read_now(struct cache_object *o, uint64_t offset, uint32_t len, bool *ret_hit)
{
    struct reading x = {0};
    int rc;

    reading_start(&x, o, offset, len);
    rc = reading_wait(&x);
    if (ret_hit)
        *ret_hit = x.r.hit;
    return rc;
}

static void on_load(struct cache_load *l, int error)
{
    struct loading *x = container_of(l, struct loading, l);

    x->error = error;
    sem_post(&x->done);
}

void loading_start(struct loading *x, struct cache_object *o, bool background)
{
    x->l = (struct cache_load){.object = o, .background = background, .done = on_load};
    x->error = 1;
    sem_init(&x->done, 0, 0);
    cache_load_start(world, &x->l);
}

bool loading_is_done(struct loading *x, unsigned ms)
{
    bool done = wait_ms(&x->done, ms);

    if (done)
        sem_post(&x->done);
    return done;
}

int loading_wait(struct loading *x)
{
    assert_true(wait_ms(&x->done, LONG_MS));
    return x->error;
}

static void nothing(void *arg) {}

void world_settle(void)
{
    // a message may cause another, on this loop or the next, and that one more
    for (int round = 0; round < 4; round++)
        for (unsigned i = 0; i < world->n_shards; i++)
            loop_call(world->shards[i].loop, nothing, NULL);
}

struct cache_stats world_stats(void)
{
    struct cache_stats s;

    cache_stats_read(world, &s);
    return s;
}
