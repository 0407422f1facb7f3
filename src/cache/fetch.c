// SPDX-License-Identifier: Apache-2.0
// An object of which nothing is known: one GET, received straight into a host's memory. The extent
// table is not asked and learns nothing: before the answer there is no version to ask for.
#include "cache/shard.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

// The body of an object that is too large is received up to here, to keep the connection.
#define DRAIN_MAX (64 * KIB)

struct fetching {
    struct landing_op op;
    struct shard *shard;
    struct cache_fetch *user;
    struct s3_get get;
    struct dest_place place;
    uint64_t since_ns;
    uint64_t at; // landed
    bool too_large;
    char *drain; // DRAIN_MAX bytes that nobody looks at
};

static struct fetching *fetching_of(struct s3_get *get)
{
    return container_of(get, struct fetching, get);
}

static int on_head(struct s3_get *get, const struct s3_object_info *info, uint64_t body_len)
{
    struct fetching *f = fetching_of(get);
    struct cache_fetch *user = f->user;
    size_t etag_len = strlen(info->etag);

    user->size = info->size;
    if (etag_len < sizeof(user->etag))
        memcpy(user->etag, info->etag, etag_len + 1);
    if (info->size <= f->op.dest->len)
        return 0;
    f->too_large = true;
    if (body_len > DRAIN_MAX)
        return -EFBIG;
    f->drain = xmalloc(DRAIN_MAX);
    return 0;
}

static int on_room(struct s3_get *get, struct iovec *iov, int max)
{
    struct fetching *f = fetching_of(get);
    struct cache_dest *d = f->op.dest;

    if (dest_is_cut(d))
        return -ECANCELED;
    if (f->drain) {
        iov[0] = (struct iovec){f->drain, DRAIN_MAX};
        return 1;
    }
    if (f->at == d->len)
        return -EBADMSG;
    return dest_iov(d, &f->place, f->at, MIN(d->len - f->at, ROOM_MAX), iov, max);
}

static void on_landed(struct s3_get *get, size_t n)
{
    struct fetching *f = fetching_of(get);

    f->at += n;
    counter_add(&f->shard->demand_bytes, n);
    counter_add(&f->shard->direct_bytes, n);
}

static void on_done(struct s3_get *get, int error)
{
    struct fetching *f = fetching_of(get);
    struct cache_fetch *user = f->user;

    if (f->too_large && error != -ECANCELED)
        error = -EFBIG;
    else
        error = landing_error(error);
    get_tell(get, error);
    direct_waited(get, f->since_ns, &user->waited);
    if (error == 0)
        counter_add(&f->shard->read_bytes, f->at);
    list_remove(&f->op.link);
    free(f->drain);
    free(f);
    user->done(user, error);
}

static void cancel(struct landing_op *op)
{
    s3_get_cancel(&container_of(op, struct fetching, op)->get);
}

static void on_start(struct loop_msg *msg)
{
    struct cache_op *op = container_of(msg, struct cache_op, msg);
    struct cache_fetch *user = container_of(op, struct cache_fetch, op);
    struct fetching *f = xmalloc(sizeof(*f));

    *f = (struct fetching){
        .op = {.user = user, .id = user->id, .dest = user->dest, .cancel = cancel},
        .shard = &op->cache->shards[user->shard],
        .user = user,
        .since_ns = clock_monotonic_ns(),
        .get =
            {
                .key = user->key,
                .key_len = user->key_len,
                // an empty object has no range
                .len = user->dest->len <= CACHE_EXTENT ? UINT64_MAX : CACHE_EXTENT,
                .priority = HTTP_DEMAND,
                .hedge = user->dest->len <= HEDGE_MAX,
                .on_head = on_head,
                .on_room = on_room,
                .on_landed = on_landed,
                .done = on_done,
            },
    };
    list_push_back(&f->shard->landings, &f->op.link);
    s3_get_start(f->shard->s3, &f->get);
}

void cache_fetch_start(struct cache *c, struct cache_fetch *f)
{
    assert(f->dest->direct);
    f->op.cache = c;
    f->id = atomic_fetch_add_explicit(&c->next_id, 1, memory_order_relaxed);
    f->size = 0;
    f->etag[0] = 0;
    f->waited = (struct cache_waited){0};
    f->shard = (unsigned)(XXH3_64bits(f->key, f->key_len) % c->n_shards);
    loop_post(c->shards[f->shard].loop, &f->op.msg, on_start);
}

void cache_fetch_cancel(struct cache_fetch *f)
{
    landing_cancel(&f->op.cache->shards[f->shard], f, f->id);
}
