// SPDX-License-Identifier: Apache-2.0
// What ends a landing early, and what landings have in common.
#include "cache/shard.h"

#include "base/clock.h"

#include <stdlib.h>

// --- a host's memory ---

int dest_iov(const struct cache_dest *d, struct dest_place *place, uint64_t at, uint64_t len,
             struct iovec *iov, int max)
{
    int i, n = 0;

    while (at >= place->from + d->iov[place->piece].iov_len)
        place->from += d->iov[place->piece++].iov_len;
    at -= place->from;
    for (i = place->piece; len && n < max; i++, at = 0) {
        uint64_t part = MIN(len, (uint64_t)d->iov[i].iov_len - at);

        iov[n++] = (struct iovec){(char *)d->iov[i].iov_base + at, part};
        len -= part;
    }
    return n;
}

int landing_error(int error)
{
    switch (error) {
    case 0:
    case -ESTALE:
    case -ENOENT:
    case -EACCES:
    case -ECANCELED:
    case -EFAULT:
        return error;
    default:
        return -EIO;
    }
}

void direct_waited(const struct s3_get *get, uint64_t since_ns, struct cache_waited *w)
{
    struct cache_asked asked = {get->sent_ns, get->first_byte_ns, true};

    cache_waited_bytes(w, &asked, since_ns, clock_monotonic_ns());
}

// --- cancelling ---

struct cancel {
    struct loop_msg msg;
    struct shard *shard;
    const void *user;
    uint64_t id;
};

static void on_cancel(struct loop_msg *msg)
{
    struct cancel *c = container_of(msg, struct cancel, msg);

    list_for_each (link, &c->shard->landings) {
        struct landing_op *op = list_entry(link, struct landing_op, link);

        if (op->user == c->user && op->id == c->id) {
            op->cancel(op);
            break;
        }
    }
    free(c);
}

void landing_cancel(struct shard *s, const void *user, uint64_t id)
{
    struct cancel *c = xmalloc(sizeof(*c));

    *c = (struct cancel){.shard = s, .user = user, .id = id};
    loop_post(s->loop, &c->msg, on_cancel);
}

// --- fences ---

static void on_fenced(struct loop_msg *msg)
{
    struct cache_fence *f = container_of(msg, struct cache_fence, msg);

    f->done(f);
}

// Whoever writes has looked at dest->cut in this very turn of the loop. That what was cut off ends
// now, and not when its next byte comes, is for the host's sake, who waits for the answer.
static void on_shard(struct loop_msg *msg)
{
    struct cache_fence *f = container_of(msg, struct cache_fence, msg);
    struct shard *s = &f->cache->shards[f->at];

    list_for_each (link, &s->landings) {
        struct landing_op *op = list_entry(link, struct landing_op, link);

        if (dest_is_cut(op->dest))
            op->cancel(op);
    }
    if (++f->at < f->cache->n_shards)
        loop_post(f->cache->shards[f->at].loop, &f->msg, on_shard);
    else
        loop_post(f->loop, &f->msg, on_fenced);
}

void cache_fence_start(struct cache *c, struct cache_fence *f)
{
    f->cache = c;
    f->loop = loop_self();
    f->at = 0;
    assert(f->loop);
    loop_post(c->shards[0].loop, &f->msg, on_shard);
}
