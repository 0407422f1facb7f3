// SPDX-License-Identifier: Apache-2.0
// Pre-reading: wants wait in line, first come first served and behind all demand, for pages that
// can be had without dropping unread ones and for one of the GETs kept for them. A want holds no
// memory; a read of bytes in it does not wait for its turn but fetches them itself.
#include "cache/shard.h"

#include <stdlib.h>

#define WANTS_MAX 8192
// Less is not worth a request, unless it is all that is wanted.
#define PIECE_MIN ((uint32_t)1 << 20)

// --- wants ---

struct want *want_at(const struct cache_extent *x, uint32_t at)
{
    list_for_each (link, &x->wants) {
        struct want *w = list_entry(link, struct want, of_extent);

        if (at >= w->from && at < w->to)
            return w;
    }
    return NULL;
}

void want_free(struct shard *s, struct want *w)
{
    struct cache_object *o = w->extent->object;

    list_remove(&w->link);
    list_remove(&w->of_extent);
    s->n_wants--;
    free(w);
    cache_object_unref(o);
}

// What is left of [*from, *to) without what is there, coming or wanted at its ends.
static void trim(struct shard *s, struct cache_extent *x, uint32_t *from, uint32_t *to)
{
    while (*from < *to) {
        const struct want *w = want_at(x, *from);
        struct cover_span span;

        if (w) {
            *from = w->to;
            continue;
        }
        span = extent_cover(&s->pool, x, *from, *to);
        if (span.what == COVER_ABSENT)
            break;
        *from = span.to;
    }
    for (const struct want *w; *from < *to && (w = want_at(x, *to - 1));)
        *to = w->from;
}

bool want_add(struct shard *s, struct cache_extent *x, uint32_t from, uint32_t to, bool demand)
{
    struct want *w;

    // only whole blocks are remembered until their reader comes
    from = ALIGN_DOWN(from, BLOCK);
    to = MIN(ALIGN_UP(to, BLOCK), x->len);
    trim(s, x, &from, &to);
    if (from >= to)
        return true;
    if (s->n_wants >= WANTS_MAX)
        return false;
    w = xmalloc(sizeof(*w));
    *w = (struct want){.extent = x, .from = from, .to = to, .demand = demand};
    cache_object_ref(x->object);
    list_push_back(&s->wants, &w->link);
    list_push_back(&x->wants, &w->of_extent);
    s->n_wants++;
    return true;
}

// --- starting ---

uint32_t pages_ahead(struct shard *s, struct cache_extent *x, uint32_t from, uint32_t to)
{
    uint32_t end = from, missing = 0, available;

    extent_pin(&s->pool, x, from, to);
    available = pool_available(&s->pool, false);
    for (uint32_t i = page_of(from); end < to; i++) {
        if (x->pages[i] == NO_PAGE && missing++ == available) {
            missing--;
            break;
        }
        end = (uint32_t)MIN((i + 1) * CACHE_PAGE, to);
    }
    if (end < to)
        extent_unpin(&s->pool, x, end, to);
    if (missing)
        pool_reserve(&s->pool, missing, false);
    if (end > from)
        extent_fill(&s->pool, x, from, end);
    return end;
}

// Starts one GET of w, or ends w when nothing is absent of it; false: no memory.
static bool want_start(struct shard *s, struct want *w)
{
    struct cache_extent *x = w->extent;
    struct cover_span span = {.to = w->from};
    uint32_t end;

    do {
        w->from = span.to;
        if (w->from < w->to)
            span = extent_cover(&s->pool, x, w->from, w->to);
    } while (w->from < w->to && span.what != COVER_ABSENT);
    if (w->from == w->to) {
        want_free(s, w);
        loads_check(s, x, 0);
        return true;
    }
    end = pages_ahead(s, x, w->from, span.to);
    if (end - w->from < MIN(span.to - w->from, PIECE_MIN)) {
        if (end > w->from)
            extent_unpin(&s->pool, x, w->from, end);
        return false;
    }
    get_start(s, x, w->from, end, w->from, !w->demand, true);
    extent_unpin(&s->pool, x, w->from, end);
    w->from = end;
    if (end == w->to)
        want_free(s, w);
    return true;
}

void wants_pump(struct shard *s)
{
    while (!s->closing && list_empty(&s->queue) && !list_empty(&s->wants) &&
           s->ahead_running < s->ahead_max) {
        struct want *w = list_first(&s->wants, struct want, link);
        struct cache_extent *x = w->extent;
        bool started;

        extent_hold(x);
        started = want_start(s, w);
        extent_let_go(x);
        if (!started)
            return;
    }
}

// --- messages ---

struct ahead {
    struct loop_msg msg;
    struct shard *shard;
    struct cache_object *object;
    uint64_t from, to;
    bool demand;
};

static void on_prefetch(struct loop_msg *msg)
{
    struct ahead *a = container_of(msg, struct ahead, msg);
    struct cache_object *o = a->object;
    struct shard *s = a->shard;

    for (uint64_t n = a->from / CACHE_EXTENT; n * CACHE_EXTENT < a->to; n++) {
        uint64_t start = n * CACHE_EXTENT;
        struct cache_extent *x;

        if (shard_of(s->cache, o, n) != s->index)
            continue;
        x = extent_get(&s->extents, o, s->index, n);
        extent_hold(x);
        want_add(s, x, (uint32_t)(MAX(a->from, start) - start),
                 (uint32_t)(MIN(a->to, start + CACHE_EXTENT) - start), a->demand);
        extent_let_go(x);
    }
    free(a);
    wants_pump(s);
    cache_object_unref(o);
}

static void drop_wants(struct shard *s, struct cache_extent *x, uint32_t from, uint32_t to)
{
    list_for_each_safe (link, &x->wants) {
        struct want *w = list_entry(link, struct want, of_extent);

        if (w->to <= from || w->from >= to)
            continue;
        if (w->from < from)
            w->to = from;
        else if (w->to > to)
            w->from = to;
        else
            want_free(s, w);
    }
}

static bool has_demand_load(const struct cache_extent *x)
{
    list_for_each (link, &x->loads) {
        struct cache_op *op = list_entry(link, struct cache_op, link);

        if (!container_of(op, struct cache_load, op)->background)
            return true;
    }
    return false;
}

static void unwant(struct shard *s, struct cache_extent *x, uint32_t from, uint32_t to)
{
    extent_hold(x);
    drop_wants(s, x, from, to);
    list_for_each (link, &x->gets) {
        struct cache_get *g = list_entry(link, struct cache_get, link);

        if (g->unread_from == g->from && g->from >= from && g->to <= to && !has_demand_load(x))
            get_abandon(g);
    }
    extent_unwant(&s->pool, x, from, to);
    loads_check(s, x, -EAGAIN);
    extent_let_go(x);
}

static void on_unwant(struct loop_msg *msg)
{
    struct ahead *a = container_of(msg, struct ahead, msg);
    struct cache_object *o = a->object;

    list_for_each_safe (link, &o->extents[a->shard->index]) {
        struct cache_extent *x = list_entry(link, struct cache_extent, of_object);
        uint64_t start = x->number * CACHE_EXTENT;

        if (a->from < start + x->len && a->to > start)
            unwant(a->shard, x, (uint32_t)(MAX(a->from, start) - start),
                   (uint32_t)(MIN(a->to, start + x->len) - start));
    }
    shard_pump(a->shard);
    free(a);
    cache_object_unref(o);
}

static void post(struct shard *s, struct cache_object *o, uint64_t offset, uint64_t len,
                 bool demand, void (*fn)(struct loop_msg *msg))
{
    struct ahead *a = xmalloc(sizeof(*a));

    *a = (struct ahead){
        .shard = s,
        .object = cache_object_ref(o),
        .from = offset,
        .to = offset + MIN(len, o->size - offset),
        .demand = demand,
    };
    loop_post(s->loop, &a->msg, fn);
}

// To every shard that has one of the extents.
static void post_all(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len,
                     void (*fn)(struct loop_msg *msg))
{
    uint64_t first = offset / CACHE_EXTENT, last;

    if (offset >= o->size || !len)
        return;
    last = (offset + MIN(len, o->size - offset) - 1) / CACHE_EXTENT;
    for (unsigned i = 0; i < c->n_shards && first + i <= last; i++)
        post(&c->shards[shard_of(c, o, first + i)], o, offset, len, false, fn);
}

void cache_prefetch(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len)
{
    post_all(c, o, offset, len, on_prefetch);
}

void cache_unwant(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len)
{
    post_all(c, o, offset, len, on_unwant);
}

void ahead_of_read(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len)
{
    post(&c->shards[shard_of(c, o, offset / CACHE_EXTENT)], o, offset, len, true, on_prefetch);
}
