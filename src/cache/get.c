// SPDX-License-Identifier: Apache-2.0
// One GET into an extent's pages. Its bytes land where they stay; whoever waits for some of them
// goes on as soon as those are there.
#include "cache/shard.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>

static struct cache_get *get_of(struct s3_get *get)
{
    return container_of(get, struct cache_get, get);
}

static int on_head(struct s3_get *get, const struct s3_object_info *info, uint64_t body_len)
{
    struct cache_get *g = get_of(get);

    // the listing or the HEAD that told the size spoke of another version
    if (info->size != g->extent->object->size || body_len != g->to - g->from)
        return -ESTALE;
    g->headed = true;
    loads_check(g->shard, g->extent, 0);
    return 0;
}

static int on_room(struct s3_get *get, struct iovec *iov, int max)
{
    struct cache_get *g = get_of(get);

    if (g->at == g->to)
        return -EBADMSG;
    return extent_iov(&g->shard->pool, g->extent, g->at, (uint32_t)MIN(g->at + ROOM_MAX, g->to),
                      iov, max);
}

static void on_landed(struct s3_get *get, size_t n)
{
    struct cache_get *g = get_of(get);
    struct shard *s = g->shard;
    uint32_t before = g->at, ahead = MAX(g->unread_from, before);

    assert(n <= g->to - g->at);
    g->at += (uint32_t)n;
    extent_landed(&s->pool, g->extent, g->from, before, g->at, g->unread_from);
    ahead = g->at > ahead ? g->at - ahead : 0;
    counter_add(&s->preread_bytes, ahead);
    counter_add(&s->demand_bytes, n - ahead);
    list_for_each_safe (link, &g->waits) {
        struct cache_wait *w = list_entry(link, struct cache_wait, link);

        if (w->to > g->at)
            continue;
        list_remove(&w->link);
        read_landed(w);
    }
}

// What a reader is told.
static int reader_error(int error)
{
    switch (error) {
    case 0:
    case -ESTALE:
    case -ENOENT:
    case -EACCES:
        return error;
    default:
        return -EIO;
    }
}

void get_tell(const struct s3_get *get, int error)
{
    // the others have a meaning of their own, or are told of by s3/
    if (error == -EIO)
        log_warning("cache", "%s", get->error_text);
}

static void on_done(struct s3_get *get, int error)
{
    struct cache_get *g = get_of(get);
    struct cache_extent *x = g->extent;
    struct cache_object *o = x->object;
    struct shard *s = g->shard;
    struct list waits;

    if (error == -ESTALE || error == -ENOENT)
        atomic_store_explicit(&o->stale, true, memory_order_relaxed);
    // who joined a GET that was being cancelled asks again
    error = g->cancelled ? -EAGAIN : reader_error(error);
    if (!list_empty(&g->waits))
        get_tell(get, error);
    list_init(&waits);
    list_splice_back(&waits, &g->waits);
    list_remove(&g->link);
    s->gets--;
    s->ahead_running -= g->ahead;
    while (!list_empty(&waits)) {
        struct cache_wait *w = list_first(&waits, struct cache_wait, link);

        list_remove(&w->link);
        read_failed(w, error ? error : -EIO);
    }
    extent_hold(x);
    extent_unpin(&s->pool, x, g->from, g->to);
    loads_check(s, x, error);
    extent_let_go(x);
    free(g);
    cache_object_unref(o);
    if (s->closing && s->gets == 0)
        sem_post(&s->closed);
    shard_pump(s);
}

struct cache_get *get_start(struct shard *s, struct cache_extent *x, uint32_t from, uint32_t to,
                            uint32_t unread_from, bool background, bool ahead)
{
    struct cache_get *g = xcalloc(1, sizeof(*g));
    struct cache_object *o = cache_object_ref(x->object);

    g->shard = s;
    g->extent = x;
    g->from = g->at = from;
    g->to = to;
    g->unread_from = unread_from;
    g->background = background;
    g->ahead = ahead;
    g->on_demand = !background;
    list_init(&g->waits);
    list_push_back(&x->gets, &g->link);
    extent_pin(&s->pool, x, from, to);
    s->gets++;
    s->ahead_running += ahead;
    g->get = (struct s3_get){
        .key = o->key,
        .key_len = o->key_len,
        .if_match = o->etag,
        .offset = x->number * CACHE_EXTENT + from,
        .len = to - from,
        .priority = background ? HTTP_BACKGROUND : HTTP_DEMAND,
        .hedge = !background && to - from <= HEDGE_MAX,
        .on_head = on_head,
        .on_room = on_room,
        .on_landed = on_landed,
        .done = on_done,
    };
    s3_get_start(s->s3, &g->get);
    return g;
}

void get_raise(struct cache_get *g)
{
    if (!g->background || g->cancelled)
        return;
    g->background = false;
    s3_get_raise(&g->get);
}

void get_waited(const struct cache_get *g, struct cache_op *op, struct cache_waited *w)
{
    struct cache_asked asked = {g->get.sent_ns, g->get.first_byte_ns, g->on_demand};

    cache_waited_bytes(w, &asked, op->since_ns, clock_monotonic_ns());
    op->since_ns = 0;
}

void get_abandon(struct cache_get *g)
{
    if (g->cancelled || !list_empty(&g->waits) || g->at - g->from >= (g->to - g->from) / 2)
        return;
    g->cancelled = true;
    s3_get_cancel(&g->get);
}
