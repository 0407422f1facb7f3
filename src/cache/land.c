// SPDX-License-Identifier: Apache-2.0
// Landing a range of one extent in a host's memory, piece by piece, two at a time. A piece is
//
//   absent, and nobody else wants it     one GET received straight into the destination, if that
//                                        is allowed; the extent knows nothing of it
//   anything else                        a cache_read, whose pages are then copied (by the CPU or
//                                        by an engine)
//
// What comes directly takes no memory of the pool and leaves nothing there: the host has it.
#include "cache/shard.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

// Less than this, if it is here, is not worth two requests around it.
#define RUN_MIN ((uint32_t)256 << 10)

struct landing;

struct piece {
    struct landing *landing; // NULL: not in use
    uint32_t from, to;       // in the extent
    bool direct;
    union {
        struct {
            struct s3_get get;
            uint64_t since_ns;
            uint32_t at; // landed up to here
            struct dest_place place;
        };
        struct {
            struct cache_read read;
            struct cache_put put;
        };
    };
};

struct landing {
    struct landing_op op;
    struct shard *shard;
    struct cache_land *user;
    uint64_t number;         // of the extent
    uint32_t from, next, to; // in it; next: what no piece was made of yet
    bool wanted;             // all of it was, to be fetched ahead of the pieces
    int error;
    struct piece pieces[2];
};

static void go_on(struct landing *ld);

static uint64_t place_of(const struct landing *ld, uint32_t at)
{
    return ld->user->dest_at + at - ld->from;
}

static void piece_done(struct piece *p, int error)
{
    struct landing *ld = p->landing;

    p->landing = NULL;
    if (error && !ld->error) {
        ld->error = error;
        ld->op.cancel(&ld->op);
    }
    go_on(ld);
}

// --- directly ---

static int on_head(struct s3_get *get, const struct s3_object_info *info, uint64_t body_len)
{
    const struct piece *p = container_of(get, struct piece, get);

    return info->size != p->landing->user->object->size || body_len != p->to - p->from ? -ESTALE
                                                                                       : 0;
}

static int on_room(struct s3_get *get, struct iovec *iov, int max)
{
    struct piece *p = container_of(get, struct piece, get);
    const struct landing *ld = p->landing;

    if (dest_is_cut(ld->op.dest))
        return -ECANCELED;
    if (p->at == p->to)
        return -EBADMSG;
    return dest_iov(ld->op.dest, &p->place, place_of(ld, p->at),
                    MIN((uint64_t)p->to - p->at, ROOM_MAX), iov, max);
}

static void on_landed(struct s3_get *get, size_t n)
{
    struct piece *p = container_of(get, struct piece, get);
    struct shard *s = p->landing->shard;

    assert(n <= p->to - p->at);
    p->at += (uint32_t)n;
    counter_add(&s->demand_bytes, n);
    counter_add(&s->direct_bytes, n);
}

static void on_got(struct s3_get *get, int error)
{
    struct piece *p = container_of(get, struct piece, get);
    struct cache_object *o = p->landing->user->object;

    if (error == -ESTALE || error == -ENOENT)
        atomic_store_explicit(&o->stale, true, memory_order_relaxed);
    direct_waited(get, p->since_ns, &p->landing->user->waited);
    if (error == 0)
        counter_add(&p->landing->shard->read_bytes, p->to - p->from);
    error = landing_error(error);
    get_tell(get, error);
    piece_done(p, error);
}

static void start_get(struct piece *p)
{
    const struct landing *ld = p->landing;
    const struct cache_object *o = ld->user->object;

    p->at = p->from;
    p->since_ns = clock_monotonic_ns();
    p->place = (struct dest_place){0};
    p->get = (struct s3_get){
        .key = o->key,
        .key_len = o->key_len,
        .if_match = o->etag,
        .offset = ld->number * CACHE_EXTENT + p->from,
        .len = p->to - p->from,
        .priority = HTTP_DEMAND,
        .hedge = p->to - p->from <= HEDGE_MAX,
        .on_head = on_head,
        .on_room = on_room,
        .on_landed = on_landed,
        .done = on_got,
    };
    s3_get_start(ld->shard->s3, &p->get);
}

// --- from pages ---

static void on_put(struct cache_put *put, int error)
{
    struct piece *p = container_of(put, struct piece, put);

    cache_read_release(&p->read);
    piece_done(p, landing_error(error));
}

static void on_read(struct cache_read *r, int error)
{
    struct piece *p = container_of(r, struct piece, read);
    struct landing *ld = p->landing;
    struct cache_dest *d = ld->op.dest;

    cache_waited_merge(&ld->user->waited, &r->waited);
    if (error == 0) {
        p->put = (struct cache_put){.done = on_put};
        error = ld->error ? ld->error
                          : d->ops->put(d, place_of(ld, p->from), r->iov, r->n_iov, &p->put);
        if (error == -EINPROGRESS)
            return;
        cache_read_release(r);
    }
    piece_done(p, landing_error(error));
}

// The pieces go one after the other, but what they need comes at once.
static void want_all(struct landing *ld, struct piece *p)
{
    struct shard *s = ld->shard;
    struct cache_extent *x;

    if (ld->wanted || ld->to - p->to < RUN_MIN || ld->op.dest->direct)
        return;
    ld->wanted = true;
    x = extent_get(&s->extents, ld->user->object, s->index, ld->number);
    extent_hold(x);
    want_add(s, x, p->from, ld->to, true);
    extent_let_go(x);
    wants_pump(s);
}

static void start_read(struct piece *p)
{
    struct landing *ld = p->landing;

    want_all(ld, p);
    p->read.object = ld->user->object;
    p->read.offset = ld->number * CACHE_EXTENT + p->from;
    p->read.len = p->to - p->from;
    p->read.done = on_read;
    cache_read_start(ld->shard->cache, &p->read);
}

// --- which is which ---

// Up to where the bytes from at on are all absent and wanted by nobody else, or all not.
static uint32_t stretch(struct landing *ld, const struct cache_extent *x, uint32_t at,
                        bool *ret_free)
{
    bool first = true;

    while (at < ld->to) {
        struct cover_span span = extent_cover(&ld->shard->pool, x, at, ld->to);
        bool is_free = span.what == COVER_ABSENT && !want_at(x, at);

        if (!first && is_free != *ret_free)
            break;
        *ret_free = is_free;
        first = false;
        at = span.to;
    }
    return at;
}

// Whether the next piece comes directly, and how far it goes: up to the next stretch that is worth
// being copied from pages.
static bool cut_piece(struct landing *ld, uint32_t *ret_to)
{
    const struct cache_extent *x = extent_find(&ld->shard->extents, ld->user->object, ld->number);
    uint32_t at = ld->next, end = at;
    bool is_free = false;

    *ret_to = ld->to;
    if (!x || !ld->op.dest->direct)
        return ld->op.dest->direct;
    for (; at < ld->to; at = end) {
        end = stretch(ld, x, at, &is_free);
        if (!is_free && (end - at >= RUN_MIN || (at == ld->next && end == ld->to)))
            break;
    }
    *ret_to = at == ld->next ? end : at;
    return at > ld->next;
}

static void start_piece(struct landing *ld, struct piece *p)
{
    p->landing = ld;
    p->direct = cut_piece(ld, &p->to);
    p->from = ld->next;
    if (!p->direct)
        p->to = (uint32_t)MIN((uint64_t)p->to, p->from + CACHE_READ_MAX);
    ld->next = p->to;
    if (p->direct)
        start_get(p);
    else
        start_read(p);
}

// --- the whole ---

static void cancel(struct landing_op *op)
{
    struct landing *ld = container_of(op, struct landing, op);

    if (!ld->error)
        ld->error = -ECANCELED;
    for (size_t i = 0; i < ARRAY_LEN(ld->pieces); i++) {
        struct piece *p = &ld->pieces[i];

        if (p->landing && p->direct)
            s3_get_cancel(&p->get);
        else if (p->landing)
            cache_read_cancel(&p->read);
    }
}

static void finish(struct landing *ld)
{
    struct cache_land *user = ld->user;
    int error = ld->error;

    if (error && ld->wanted)
        cache_unwant(ld->shard->cache, user->object, user->offset, user->len);
    list_remove(&ld->op.link);
    free(ld);
    user->done(user, error);
}

static void go_on(struct landing *ld)
{
    bool busy = false;

    if (!ld->error && dest_is_cut(ld->op.dest))
        cancel(&ld->op);
    for (size_t i = 0; i < ARRAY_LEN(ld->pieces); i++) {
        struct piece *p = &ld->pieces[i];

        if (!p->landing && !ld->error && ld->next < ld->to)
            start_piece(ld, p);
        busy |= p->landing != NULL;
    }
    if (!busy)
        finish(ld);
}

static void on_visit(struct loop_msg *msg)
{
    struct cache_op *op = container_of(msg, struct cache_op, msg);
    struct cache_land *user = container_of(op, struct cache_land, op);
    struct landing *ld = xmalloc(sizeof(*ld));
    uint64_t number = user->offset / CACHE_EXTENT;

    ld->op =
        (struct landing_op){.user = user, .id = user->id, .dest = user->dest, .cancel = cancel};
    ld->shard = &op->cache->shards[shard_of(op->cache, user->object, number)];
    ld->user = user;
    user->waited = (struct cache_waited){0};
    ld->number = number;
    ld->from = ld->next = (uint32_t)(user->offset % CACHE_EXTENT);
    ld->to = ld->from + user->len;
    ld->wanted = false;
    ld->error = 0;
    for (size_t i = 0; i < ARRAY_LEN(ld->pieces); i++)
        ld->pieces[i].landing = NULL;
    list_push_back(&ld->shard->landings, &ld->op.link);
    go_on(ld);
}

static struct shard *shard_for(struct cache *c, const struct cache_land *l)
{
    return &c->shards[shard_of(c, l->object, l->offset / CACHE_EXTENT)];
}

void cache_land_start(struct cache *c, struct cache_land *l)
{
    assert(l->len > 0 && l->offset + l->len <= l->object->size &&
           l->offset % CACHE_EXTENT + l->len <= CACHE_EXTENT &&
           l->dest_at + l->len <= l->dest->len);
    l->op.cache = c;
    l->id = atomic_fetch_add_explicit(&c->next_id, 1, memory_order_relaxed);
    loop_post(shard_for(c, l)->loop, &l->op.msg, on_visit);
}

void cache_land_cancel(struct cache_land *l)
{
    landing_cancel(shard_for(l->op.cache, l), l, l->id);
}
