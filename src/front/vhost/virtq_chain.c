// SPDX-License-Identifier: Apache-2.0
// A chain of descriptors becomes pieces of regions. The host may change any of it at any moment:
// each descriptor is copied, and the copy is checked and used.
#include "front/vhost/virtq_impl.h"

#include <endian.h>
#include <linux/virtio_ring.h>

// One that is being walked.
struct walk {
    const struct virtq *q;
    struct virtq_chain *chain;
    unsigned n; // descriptors so far
    const char *why;
};

static int bad(struct walk *w, const char *why)
{
    w->why = why;
    return -EBADMSG;
}

static int add_pieces(struct walk *w, const struct vring_desc *d, bool writable)
{
    struct virtq_chain *c = w->chain;
    uint64_t addr = le64toh(d->addr), left = le32toh(d->len);

    if (left == 0)
        return bad(w, "a descriptor without bytes");
    if (c->n_out > 0 && !writable)
        return bad(w, "a readable descriptor after a writable one");
    if (addr > UINT64_MAX - left)
        return bad(w, "a descriptor beyond the last address");
    *(writable ? &c->out_len : &c->in_len) += left;
    while (left > 0) {
        struct region_piece *p = &c->pieces[c->n_in + c->n_out];

        if (c->n_in + c->n_out == c->max)
            return bad(w, "a chain in too many pieces");
        if (region_translate(w->q->map, addr, left, p) < 0) {
            if (!writable)
                return bad(w, "a descriptor outside the shared memory");
            *p = (struct region_piece){.len = left};
            c->nowhere = true;
        }
        addr += p->len;
        left -= p->len;
        *(writable ? &c->n_out : &c->n_in) += 1;
    }
    return 0;
}

static int add_descriptor(struct walk *w, const struct vring_desc *d)
{
    if (++w->n > VHOST_RING_MAX)
        return bad(w, "a chain of too many descriptors");
    return add_pieces(w, d, le16toh(d->flags) & VRING_DESC_F_WRITE);
}

static int copy_table(struct walk *w, uint64_t addr, void *to, size_t len)
{
    char *at = to;

    while (len > 0) {
        struct region_piece p;

        if (region_translate(w->q->map, addr, len, &p) < 0 || !p.base)
            return bad(w, "an indirect table outside the shared memory");
        if (region_copy_in(at, p.base, p.len) < 0)
            return -EFAULT;
        at += p.len;
        addr += p.len;
        len -= p.len;
    }
    return 0;
}

// An indirect table, copied as a whole before any of it is looked at.
static int walk_indirect(struct walk *w, const struct vring_desc *d)
{
    struct vring_desc table[VHOST_RING_MAX];
    uint32_t len = le32toh(d->len), n = len / sizeof(*table), i = 0;
    int rc;

    if (!FEATURE(w->q, VIRTIO_RING_F_INDIRECT_DESC))
        return bad(w, "an indirect table that was not agreed on");
    if (le16toh(d->flags) & VRING_DESC_F_NEXT)
        return bad(w, "an indirect table with a next descriptor");
    if (len == 0 || len % sizeof(*table) != 0 || n > VHOST_RING_MAX)
        return bad(w, "an indirect table of a bad length");
    if (le64toh(d->addr) > UINT64_MAX - len)
        return bad(w, "an indirect table beyond the last address");
    rc = copy_table(w, le64toh(d->addr), table, len);
    for (unsigned seen = 0; rc == 0; seen++) {
        uint16_t flags = le16toh(table[i].flags);

        if (seen == n)
            return bad(w, "a loop in an indirect table");
        if (flags & VRING_DESC_F_INDIRECT)
            return bad(w, "an indirect table in another");
        rc = add_descriptor(w, &table[i]);
        if (rc < 0 || !(flags & VRING_DESC_F_NEXT))
            break;
        i = le16toh(table[i].next);
        if (i >= n)
            return bad(w, "a next descriptor outside its table");
    }
    return rc;
}

static int walk(struct walk *w, uint16_t head)
{
    const struct vring_desc *ring = w->q->desc;
    uint16_t i = head;

    for (unsigned seen = 0;; seen++) {
        struct vring_desc d;
        int rc = region_copy_in(&d, &ring[i], sizeof(d));

        if (rc < 0)
            return rc;
        if (seen == w->q->size)
            return bad(w, "a loop of descriptors");
        if (le16toh(d.flags) & VRING_DESC_F_INDIRECT)
            return walk_indirect(w, &d);
        rc = add_descriptor(w, &d);
        if (rc < 0 || !(le16toh(d.flags) & VRING_DESC_F_NEXT))
            return rc;
        i = le16toh(d.next);
        if (i >= w->q->size)
            return bad(w, "a next descriptor outside the ring");
    }
}

int virtq_walk(const struct virtq *q, uint16_t head, struct virtq_chain *ret, const char **ret_why)
{
    struct walk w = {.q = q, .chain = ret};
    int rc;

    ret->head = head;
    ret->n_in = ret->n_out = 0;
    ret->in_len = ret->out_len = 0;
    ret->nowhere = false;
    rc = walk(&w, head);
    if (rc == -EFAULT)
        w.why = "the shared memory is not there any more";
    if (rc < 0)
        *ret_why = w.why;
    return rc;
}
