// SPDX-License-Identifier: Apache-2.0
#include "cache/shard.h"

#include "base/clock.h"

#include <stdio.h>

// --- memory that became available ---

static void on_pump(struct loop_msg *msg)
{
    struct shard *s = container_of(msg, struct shard, pump_msg);

    s->pump_posted = false;
    while (!list_empty(&s->queue)) {
        struct cache_op *op = list_first(&s->queue, struct cache_op, link);
        bool ok;

        list_remove(&op->link);
        // it may be over when it has got what it needs
        counter_sub(&s->waiting, 1);
        ok = op->is_load ? load_try(s, container_of(op, struct cache_load, op), true)
                         : read_try(s, container_of(op, struct cache_read, op), true);
        if (!ok) {
            counter_add(&s->waiting, 1);
            list_push_front(&s->queue, &op->link);
            return;
        }
    }
    wants_pump(s);
}

void shard_pump(struct shard *s)
{
    if (s->pump_posted || (list_empty(&s->queue) && list_empty(&s->wants)))
        return;
    s->pump_posted = true;
    loop_post(s->loop, &s->pump_msg, on_pump);
}

void shard_enqueue(struct shard *s, struct cache_op *op)
{
    op->since_ns = clock_monotonic_ns();
    list_push_back(&s->queue, &op->link);
    counter_add(&s->waiting, 1);
}

void shard_waited(struct cache_op *op, struct cache_waited *w)
{
    if (!op->since_ns)
        return;
    cache_waited_memory(w, op->since_ns, clock_monotonic_ns());
    op->since_ns = 0;
}

// --- objects ---

void shard_drop_object(struct loop_msg *msg)
{
    struct cache_object *o = container_of(msg, struct cache_object, msg);
    struct shard *s = &o->cache->shards[o->dropped];

    list_for_each_safe (link, &o->extents[s->index]) {
        struct cache_extent *x = list_entry(link, struct cache_extent, of_object);

        extent_hold(x);
        for (uint32_t i = 0; i < x->n_pages; i++)
            if (x->pages[i] != NO_PAGE)
                pool_drop(&s->pool, x->pages[i]);
        extent_let_go(x);
    }
    shard_pump(s);
    if (++o->dropped < o->cache->n_shards)
        loop_post(o->cache->shards[o->dropped].loop, &o->msg, shard_drop_object);
    else
        cache_object_free(o);
}

// --- life ---

struct client {
    struct shard *shard;
    int rc;
};

static void make_client(void *arg)
{
    struct client *c = arg;

    c->rc = s3_client_new(&c->shard->s3, c->shard->loop, c->shard->cache->bucket);
}

static int start_loop(struct shard *s)
{
    char name[16];

    snprintf(name, sizeof(name), "os2g-data-%u", s->index % 1000);
    return loop_start(&s->loop, name);
}

int shard_init(struct shard *s, struct cache *c, unsigned index, struct loop *l, void *base,
               uint32_t n_pages)
{
    unsigned connections = s3_bucket_settings(c->bucket)->max_connections;
    struct client client = {.shard = s};
    int rc = 0;

    s->cache = c;
    s->index = index;
    pool_init(&s->pool, base, n_pages, extent_evicted);
    extent_table_init(&s->extents, n_pages);
    list_init(&s->queue);
    list_init(&s->reads);
    list_init(&s->wants);
    list_init(&s->landings);
    sem_init(&s->closed, 0, 0);
    s->ahead_max = MAX(connections / c->n_shards, 1);
    s->loop = l;
    s->loop_given = l;
    if (!l)
        rc = start_loop(s);
    if (rc < 0)
        return rc;
    if (loop_self() == s->loop)
        make_client(&client);
    else
        loop_call(s->loop, make_client, &client);
    return client.rc;
}

static void close_shard(void *arg)
{
    struct shard *s = arg;

    s->closing = true;
    while (!list_empty(&s->wants))
        want_free(s, list_first(&s->wants, struct want, link));
    for (uint32_t i = 0; i <= s->extents.mask; i++)
        for (struct cache_extent *x = s->extents.buckets[i]; x; x = x->next)
            list_for_each (link, &x->gets) {
                struct cache_get *g = list_entry(link, struct cache_get, link);

                g->cancelled = true;
                s3_get_cancel(&g->get);
            }
    if (s->gets == 0)
        sem_post(&s->closed);
}

static void free_client(void *arg)
{
    struct shard *s = arg;

    s3_client_free(s->s3);
}

void shard_close(struct shard *s)
{
    if (!s->s3)
        return;
    loop_call(s->loop, close_shard, s);
    while (sem_wait(&s->closed) < 0 && errno == EINTR)
        ;
    loop_call(s->loop, free_client, s);
}

static void nothing(void *arg)
{
    (void)arg;
}

void shard_stop(struct shard *s)
{
    if (!s->loop_given)
        loop_stop(s->loop);
    else if (loop_self() != s->loop) // else it has not begun
        loop_call(s->loop, nothing, NULL);
}

void shard_fini(struct shard *s)
{
    if (!s->cache)
        return;
    assert(list_empty(&s->landings));
    extent_table_fini(&s->extents);
    pool_fini(&s->pool);
    sem_destroy(&s->closed);
}
