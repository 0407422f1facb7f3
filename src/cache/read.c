// SPDX-License-Identifier: Apache-2.0
// A read visits the shards of its one or two extents in ascending order. In each it
//
//   visit ──► memory for all its pages at once ──► bytes ──► next shard, or done
//                 │          ▲
//                 └─ queue ──┘  holding nothing
//
// gets every page of its range pinned, or none and waits in line; asks for what is absent; waits
// until all is there. While it waits for memory in one shard it holds pages of lower shards only,
// so that reads never wait for each other in a circle.
#include "cache/shard.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

static struct cache_read *read_of(struct cache_op *op)
{
    return container_of(op, struct cache_read, op);
}

static struct shard *shard_at(const struct cache_read *r, unsigned part)
{
    return &r->op.cache->shards[r->parts[part].shard];
}

// One past the parts that are visited together.
static unsigned stage_end(const struct cache_read *r)
{
    bool both = r->n_parts == 2 && r->stage == 0 && r->parts[0].shard == r->parts[1].shard;

    return both ? 2 : r->stage + 1;
}

// --- pages ---

struct unpin {
    struct loop_msg msg;
    struct shard *shard;
    struct cache_part part;
};

static void unpin_here(struct shard *s, struct cache_part *part)
{
    extent_unpin(&s->pool, part->extent, part->from, part->to);
    part->extent = NULL;
    shard_pump(s);
}

static void on_unpin(struct loop_msg *msg)
{
    struct unpin *u = container_of(msg, struct unpin, msg);

    unpin_here(u->shard, &u->part);
    free(u);
}

// Of all parts; called on the loop of here.
static void unpin_all(struct cache_read *r, const struct shard *here)
{
    for (unsigned i = 0; i < r->n_parts; i++) {
        struct cache_part *part = &r->parts[i];
        struct shard *s = shard_at(r, i);
        struct unpin *u;

        if (!part->extent)
            continue;
        if (s == here) {
            unpin_here(s, part);
            continue;
        }
        u = xmalloc(sizeof(*u));
        u->shard = s;
        u->part = *part;
        loop_post(s->loop, &u->msg, on_unpin);
    }
}

// --- the end ---

// A part's iovecs in front of those of the part that was visited before but lies behind it.
static void add_iov(struct shard *s, struct cache_read *r, const struct cache_part *part)
{
    struct iovec iov[CACHE_READ_IOVS / 2];
    int n = extent_iov(&s->pool, part->extent, part->from, part->to, iov, ARRAY_LEN(iov));
    int at = part == &r->parts[1] && part->number < r->parts[0].number ? 0 : r->n_iov;

    memmove(&r->iov[at + n], &r->iov[at], (size_t)(r->n_iov - at) * sizeof(iov[0]));
    memcpy(&r->iov[at], iov, (size_t)n * sizeof(iov[0]));
    r->n_iov += n;
}

static void on_visit(struct loop_msg *msg);

static void stage_done(struct shard *s, struct cache_read *r)
{
    unsigned end = stage_end(r);

    list_remove(&r->op.link);
    for (; r->stage < end; r->stage++) {
        struct cache_part *part = &r->parts[r->stage];
        uint32_t ahead = extent_read(&s->pool, part->extent, part->from, part->to);

        counter_add(&s->preread_used_bytes, ahead);
        r->preread |= ahead > 0;
        add_iov(s, r, part);
    }
    if (r->stage < r->n_parts) {
        loop_post(shard_at(r, r->stage)->loop, &r->op.msg, on_visit);
        return;
    }
    counter_add(&s->read_bytes, r->len);
    r->done(r, 0);
}

static void fail(struct shard *s, struct cache_read *r, int error)
{
    list_remove(&r->op.link);
    for (size_t i = 0; i < ARRAY_LEN(r->waits); i++) {
        struct cache_wait *w = &r->waits[i];

        if (!w->read)
            continue;
        list_remove(&w->link);
        if (error == -ECANCELED && !w->get->ahead)
            get_abandon(w->get);
    }
    unpin_all(r, s);
    r->done(r, error);
}

void cache_read_release(struct cache_read *r)
{
    unpin_all(r, shard_at(r, r->n_parts - 1));
}

// --- bytes ---

static void wait_for(struct cache_read *r, unsigned part, struct cache_get *g, uint32_t to)
{
    struct cache_wait *w = r->waits;

    while (w->read)
        w++;
    *w = (struct cache_wait){
        .read = r, .get = g, .part = part, .from = r->parts[part].scanned, .to = to};
    list_push_back(&g->waits, &w->link);
    r->parts[part].scanned = to;
    if (r->waiting++ == 0)
        r->op.since_ns = clock_monotonic_ns();
    r->hit = false;
    get_raise(g);
}

// [from, to) is absent. If more behind it is in line to be fetched ahead and there is memory, the
// GET goes on with that.
static struct cache_get *demand_get(struct shard *s, struct cache_extent *x, uint32_t from,
                                    uint32_t to)
{
    const struct want *w = want_at(x, from);
    uint32_t end = to;
    struct cache_get *g;

    if (w && w->to > to && list_empty(&s->queue)) {
        struct cover_span span = extent_cover(&s->pool, x, from, w->to);

        if (span.to > to)
            end = pages_ahead(s, x, to, span.to);
    }
    g = get_start(s, x, from, end, to, false, false);
    if (end > to)
        extent_unpin(&s->pool, x, to, end);
    return g;
}

static void scan_part(struct shard *s, struct cache_read *r, unsigned i)
{
    struct cache_part *part = &r->parts[i];

    while (part->scanned < part->to && r->waiting < ARRAY_LEN(r->waits)) {
        struct cover_span span = extent_cover(&s->pool, part->extent, part->scanned, part->to);

        if (span.what != COVER_ABSENT)
            counter_add(&s->hit_bytes, span.to - part->scanned);
        if (span.what == COVER_HERE) {
            part->scanned = span.to;
            continue;
        }
        if (span.what == COVER_ABSENT)
            span.get = demand_get(s, part->extent, part->scanned, span.to);
        wait_for(r, i, span.get, span.to);
    }
}

static void scan(struct shard *s, struct cache_read *r)
{
    for (unsigned i = r->stage; i < stage_end(r); i++)
        scan_part(s, r, i);
    if (r->waiting == 0)
        stage_done(s, r);
}

static struct cache_read *wait_over(struct cache_wait *w)
{
    struct cache_read *r = w->read;

    w->read = NULL;
    // whichever comes last is what was waited for
    if (--r->waiting == 0)
        get_waited(w->get, &r->op, &r->waited);
    return r;
}

void read_landed(struct cache_wait *w)
{
    struct cache_read *r = wait_over(w);

    if (r->waiting == 0)
        scan(shard_at(r, r->stage), r);
}

void read_failed(struct cache_wait *w, int error)
{
    struct cache_read *r = wait_over(w);
    struct cache_part *part = &r->parts[w->part];

    if (error != -EAGAIN) {
        fail(shard_at(r, r->stage), r, error);
        return;
    }
    part->scanned = MIN(part->scanned, w->from);
    if (r->waiting == 0)
        scan(shard_at(r, r->stage), r);
}

// --- memory ---

bool read_try(struct shard *s, struct cache_read *r, bool first)
{
    unsigned end = stage_end(r);
    uint32_t need = 0;
    bool enough;

    for (unsigned i = r->stage; i < end; i++) {
        struct cache_part *part = &r->parts[i];

        part->extent = extent_get(&s->extents, r->object, s->index, part->number);
        extent_hold(part->extent);
        extent_pin(&s->pool, part->extent, part->from, part->to);
        need += extent_missing_pages(part->extent, part->from, part->to);
    }
    enough = need == 0 || (first && need <= pool_available(&s->pool, true));
    if (enough && need)
        pool_reserve(&s->pool, need, true);
    for (unsigned i = r->stage; i < end; i++) {
        struct cache_part *part = &r->parts[i];

        if (enough)
            extent_fill(&s->pool, part->extent, part->from, part->to);
        else
            extent_unpin(&s->pool, part->extent, part->from, part->to);
        extent_let_go(part->extent);
        if (!enough)
            part->extent = NULL;
    }
    if (!enough)
        return false;
    shard_waited(&r->op, &r->waited);
    list_push_back(&s->reads, &r->op.link);
    scan(s, r);
    return true;
}

static void on_visit(struct loop_msg *msg)
{
    struct cache_read *r = read_of(container_of(msg, struct cache_op, msg));
    struct shard *s = shard_at(r, r->stage);

    if (!read_try(s, r, list_empty(&s->queue)))
        shard_enqueue(s, &r->op);
}

// --- starting ---

static void set_part(const struct cache *c, struct cache_read *r, uint64_t number, unsigned at)
{
    uint64_t start = number * CACHE_EXTENT, end = r->offset + r->len;
    struct cache_part *part = &r->parts[at];

    part->extent = NULL;
    part->number = number;
    part->from = part->scanned = (uint32_t)(MAX(r->offset, start) - start);
    part->to = (uint32_t)(MIN(end, start + CACHE_EXTENT) - start);
    part->shard = shard_of(c, r->object, number);
}

void cache_read_start(struct cache *c, struct cache_read *r)
{
    uint64_t first = r->offset / CACHE_EXTENT, last = (r->offset + r->len - 1) / CACHE_EXTENT;

    assert(r->len > 0 && r->len <= CACHE_READ_MAX && r->offset + r->len <= r->object->size);
    r->op.cache = c;
    r->op.is_load = false;
    r->op.since_ns = 0;
    r->waited = (struct cache_waited){0};
    r->id = atomic_fetch_add_explicit(&c->next_id, 1, memory_order_relaxed);
    r->n_iov = 0;
    r->hit = true;
    r->preread = false;
    r->stage = 0;
    r->waiting = 0;
    for (size_t i = 0; i < ARRAY_LEN(r->waits); i++)
        r->waits[i].read = NULL;
    r->n_parts = last > first ? 2 : 1;
    set_part(c, r, first, 0);
    if (last > first) {
        unsigned swap = shard_of(c, r->object, last) < r->parts[0].shard;

        set_part(c, r, first, swap);
        set_part(c, r, last, !swap);
        // it is visited later, but its bytes may come at the same time
        if (r->parts[1].shard != r->parts[0].shard)
            ahead_of_read(c, r->object, r->parts[1].number * CACHE_EXTENT + r->parts[1].from,
                          r->parts[1].to - r->parts[1].from);
    }
    loop_post(shard_at(r, 0)->loop, &r->op.msg, on_visit);
}

// --- cancelling ---

// Goes the way the read went, and does not touch it unless it finds it.
struct cancel {
    struct loop_msg msg;
    struct cache *cache;
    const struct cache_read *read;
    uint64_t id;
    unsigned shards[2], n, at;
};

static struct cache_read *cancel_find(const struct cancel *c, const struct list *ops)
{
    list_for_each (link, ops) {
        struct cache_op *op = list_entry(link, struct cache_op, link);

        if (!op->is_load && read_of(op) == c->read && read_of(op)->id == c->id)
            return read_of(op);
    }
    return NULL;
}

static void on_cancel(struct loop_msg *msg)
{
    struct cancel *c = container_of(msg, struct cancel, msg);
    struct shard *s = &c->cache->shards[c->shards[c->at]];
    struct cache_read *r = cancel_find(c, &s->queue);

    if (r)
        counter_sub(&s->waiting, 1);
    else
        r = cancel_find(c, &s->reads);
    if (r) {
        fail(s, r, -ECANCELED);
        shard_pump(s); // whoever is behind it in line may need less
    } else if (++c->at < c->n) {
        loop_post(c->cache->shards[c->shards[c->at]].loop, &c->msg, on_cancel);
        return;
    }
    free(c);
}

void cache_read_cancel(struct cache_read *r)
{
    struct cancel *c = xmalloc(sizeof(*c));

    *c = (struct cancel){
        .cache = r->op.cache,
        .read = r,
        .id = r->id,
        .shards = {r->parts[0].shard, r->parts[r->n_parts - 1].shard},
        .n = r->n_parts,
    };
    loop_post(c->cache->shards[c->shards[0]].loop, &c->msg, on_cancel);
}
