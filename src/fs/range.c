// SPDX-License-Identifier: Apache-2.0
#include "fs/range.h"

static void on_piece(struct loop_msg *msg);

// On a data loop.
static void on_landed(struct cache_land *l, int error)
{
    struct range_piece *p = container_of(l, struct range_piece, land);

    p->error = error;
    loop_post(p->range->fs->loop, &p->msg, on_piece);
}

static void start_piece(struct range_land *r, struct range_piece *p)
{
    uint64_t from = r->offset + r->next;
    uint64_t len = MIN(r->len - r->next, CACHE_EXTENT - from % CACHE_EXTENT);

    p->range = r;
    p->land = (struct cache_land){
        .object = r->object,
        .offset = from,
        .len = (uint32_t)len,
        .dest = r->dest,
        .dest_at = r->dest_at + r->next,
        .done = on_landed,
    };
    r->next += len;
    r->running++;
    cache_land_start(r->fs->cache, &p->land);
}

static void start_pieces(struct range_land *r)
{
    for (size_t i = 0; i < ARRAY_LEN(r->pieces) && !r->error && r->next < r->len; i++)
        if (!r->pieces[i].range)
            start_piece(r, &r->pieces[i]);
}

static void cancel(struct range_land *r, int error)
{
    if (r->error)
        return;
    r->error = error;
    for (size_t i = 0; i < ARRAY_LEN(r->pieces); i++)
        if (r->pieces[i].range)
            cache_land_cancel(&r->pieces[i].land);
}

static void on_piece(struct loop_msg *msg)
{
    struct range_piece *p = container_of(msg, struct range_piece, msg);
    struct range_land *r = p->range;

    p->range = NULL;
    cache_waited_merge(&r->waited, &p->land.waited);
    r->running--;
    if (p->error)
        cancel(r, p->error);
    start_pieces(r);
    if (!r->running)
        r->done(r, r->error);
}

void range_land_start(struct range_land *r)
{
    r->next = 0;
    r->running = 0;
    r->error = 0;
    r->waited = (struct cache_waited){0};
    for (size_t i = 0; i < ARRAY_LEN(r->pieces); i++)
        r->pieces[i].range = NULL;
    start_pieces(r);
}

void range_land_cancel(struct range_land *r)
{
    cancel(r, -ECANCELED);
}
