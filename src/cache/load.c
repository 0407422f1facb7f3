// SPDX-License-Identifier: Apache-2.0
// Loads: whole objects of one extent, from OPEN on or ahead of a plan's reader.
#include "cache/shard.h"

#include "base/clock.h"

// What a demand load is content with when the pool is full of bytes nobody has read yet.
#define LOAD_MIN ((uint32_t)1 << 20)

static struct cache_load *load_of(struct list *link)
{
    return container_of(list_entry(link, struct cache_op, link), struct cache_load, op);
}

static const struct cache_get *headed(const struct cache_extent *x)
{
    list_for_each (link, &x->gets) {
        const struct cache_get *g = list_entry(link, struct cache_get, link);

        if (g->headed)
            return g;
    }
    return NULL;
}

// What a load that can end now ends with; 1: not yet.
static int load_result(const struct cache_load *l, bool complete, bool head, bool coming, int error)
{
    if (complete || (!l->background && head))
        return 0;
    if (coming)
        return 1;
    if (l->background)
        return error == -EAGAIN ? -ECANCELED : error ? error : -EAGAIN;
    // nothing has gone wrong: readers fetch the rest
    return error == -EAGAIN ? 0 : error;
}

void loads_check(struct shard *s, struct cache_extent *x, int error)
{
    const struct cache_get *head;
    bool complete, landing, wanted;

    if (list_empty(&x->loads))
        return;
    complete = extent_complete(&s->pool, x);
    head = headed(x);
    landing = !list_empty(&x->gets);
    // a want may wait for memory that is free only once the opener has read
    wanted = !list_empty(&x->wants);
    list_for_each_safe (link, &x->loads) {
        struct cache_load *l = load_of(link);
        int result =
            load_result(l, complete, head != NULL, landing || (l->background && wanted), error);

        if (result > 0)
            continue;
        list_remove(&l->op.link);
        if (head && l->op.since_ns)
            get_waited(head, &l->op, &l->waited);
        l->done(l, result);
    }
}

// Starts what is absent and raises what is coming of [0, to), whose pages are there.
static void load_gaps(struct shard *s, struct cache_extent *x, uint32_t to)
{
    for (uint32_t at = 0; at < to;) {
        struct cover_span span = extent_cover(&s->pool, x, at, to);

        if (span.what == COVER_ABSENT)
            get_start(s, x, at, span.to, at, false, false);
        else if (span.what == COVER_COMING)
            get_raise(span.get);
        at = span.to;
    }
}

// As much as can be had without dropping what others are about to read, but at least LOAD_MIN.
static bool load_demand(struct shard *s, struct cache_extent *x, bool first)
{
    uint32_t to = x->len, need;

    extent_pin(&s->pool, x, 0, x->len);
    need = extent_missing_pages(x, 0, to);
    if (need > pool_available(&s->pool, false)) {
        to = MIN(x->len, LOAD_MIN);
        need = extent_missing_pages(x, 0, to);
    }
    if (need && (!first || need > pool_available(&s->pool, true))) {
        extent_unpin(&s->pool, x, 0, x->len);
        return false;
    }
    // what is here beyond stays pinned until its pages are safe from this very reservation
    if (need)
        pool_reserve(&s->pool, need, true);
    extent_fill(&s->pool, x, 0, to);
    load_gaps(s, x, to);
    extent_unpin(&s->pool, x, 0, x->len);
    return true;
}

bool load_try(struct shard *s, struct cache_load *l, bool first)
{
    struct cache_extent *x = extent_get(&s->extents, l->object, s->index, 0);
    bool ok = true;

    extent_hold(x);
    if (l->background)
        want_add(s, x, 0, x->len, false);
    else
        ok = load_demand(s, x, first);
    if (ok) {
        shard_waited(&l->op, &l->waited);
        list_push_back(&x->loads, &l->op.link);
        loads_check(s, x, 0);
        // l may be no more
        if (x->loads.prev == &l->op.link && !l->background)
            l->op.since_ns = clock_monotonic_ns();
    }
    extent_let_go(x);
    return ok;
}

static void on_load(struct loop_msg *msg)
{
    struct cache_op *op = container_of(msg, struct cache_op, msg);
    struct cache_load *l = container_of(op, struct cache_load, op);
    struct shard *s = &op->cache->shards[shard_of(op->cache, l->object, 0)];
    bool background = l->background;

    if (!load_try(s, l, list_empty(&s->queue)))
        shard_enqueue(s, op);
    else if (background)
        wants_pump(s);
}

void cache_load_start(struct cache *c, struct cache_load *l)
{
    assert(l->object->size <= CACHE_EXTENT);
    l->op.cache = c;
    l->op.is_load = true;
    l->op.since_ns = 0;
    l->waited = (struct cache_waited){0};
    loop_post(c->shards[shard_of(c, l->object, 0)].loop, &l->op.msg, on_load);
}
