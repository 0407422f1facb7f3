// SPDX-License-Identifier: Apache-2.0
#include "gdd/landing.h"

#include "gdd/engine.h"

static bool inside(const struct landing *l, uint64_t at, const struct iovec *iov, int n)
{
    uint64_t room = at <= l->dest.len ? l->dest.len - at : 0;

    for (int i = 0; i < n; i++) {
        if (iov[i].iov_len > room)
            return false;
        room -= iov[i].iov_len;
    }
    return true;
}

// --- addressable ---

// A place in the destination: byte "at" of piece "piece".
struct place {
    int piece;
    uint64_t at;
};

static struct place place_of(const struct cache_dest *d, uint64_t at)
{
    struct place p = {0, at};

    while (p.piece < d->n_iov && p.at >= d->iov[p.piece].iov_len)
        p.at -= d->iov[p.piece++].iov_len;
    return p;
}

static int copy(struct cache_dest *d, struct place *to, const char *from, size_t len)
{
    while (len > 0) {
        const struct iovec *piece = &d->iov[to->piece];
        size_t n = MIN(len, piece->iov_len - to->at);

        if (atomic_load_explicit(&d->cut, memory_order_acquire))
            return -ECANCELED;
        if (region_copy_out((char *)piece->iov_base + to->at, from, n) < 0)
            return -EFAULT;
        from += n;
        len -= n;
        to->at += n;
        if (to->at == piece->iov_len)
            *to = (struct place){to->piece + 1, 0};
    }
    return 0;
}

static int addressable_put(struct cache_dest *d, uint64_t at, const struct iovec *iov, int n,
                           struct cache_put *p)
{
    struct landing *l = container_of(d, struct landing, dest);
    struct place to;
    int rc = inside(l, at, iov, n) ? 0 : -EFAULT;

    if (rc < 0)
        return rc;
    to = place_of(d, at);
    for (int i = 0; i < n && rc == 0; i++)
        rc = copy(d, &to, iov[i].iov_base, iov[i].iov_len);
    return rc;
}

static const struct cache_dest_ops addressable_ops = {.put = addressable_put};

// --- engine ---

static int through_engine(struct cache_dest *d, uint64_t at, const struct iovec *iov, int n,
                          struct cache_put *p)
{
    struct landing *l = container_of(d, struct landing, dest);

    if (!inside(l, at, iov, n))
        return -EFAULT;
    if (atomic_load_explicit(&d->cut, memory_order_acquire))
        return -ECANCELED;
    return engine_put(l->engine, l->engine_offset + at, iov, n, p);
}

static const struct cache_dest_ops engine_ops = {.put = through_engine};

// --- making one ---

static bool note_region(struct landing *l, uint64_t id)
{
    if (landing_touches(l, id))
        return true;
    if (l->n_regions == ARRAY_LEN(l->regions))
        return false;
    l->regions[l->n_regions++] = id;
    return true;
}

static int init_engine(struct landing *l, const struct region_piece *piece)
{
    l->dest.ops = &engine_ops;
    l->dest.len = piece->len;
    l->engine = piece->engine_memory;
    l->engine_offset = piece->offset;
    note_region(l, piece->id);
    return 0;
}

int landing_init(struct landing *l, const struct region_piece *pieces, struct iovec *iov, int n,
                 bool allow_direct)
{
    bool sealed = true;
    int n_iov = 0;

    *l = (struct landing){.dest = {.ops = &addressable_ops, .iov = iov}};
    if (n == 1 && pieces[0].kind == REGION_CUDA)
        return init_engine(l, &pieces[0]);
    for (int i = 0; i < n; i++) {
        const struct region_piece *p = &pieces[i];
        struct iovec *last = n_iov > 0 ? &iov[n_iov - 1] : NULL;

        if (p->kind == REGION_CUDA || !note_region(l, p->id))
            return -EFAULT;
        sealed &= p->sealed;
        l->dest.len += p->len;
        if (last && (char *)last->iov_base + last->iov_len == p->base)
            last->iov_len += p->len;
        else
            iov[n_iov++] = (struct iovec){p->base, p->len};
    }
    l->dest.n_iov = n_iov;
    l->dest.direct = allow_direct && sealed && n_iov > 0;
    return 0;
}

bool landing_touches(const struct landing *l, uint64_t region_id)
{
    for (unsigned i = 0; i < l->n_regions; i++)
        if (l->regions[i] == region_id)
            return true;
    return false;
}
