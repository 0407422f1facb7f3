// SPDX-License-Identifier: Apache-2.0
#include "host/vhost_slots.h"

#include "host/transport.h"

#include <string.h>

#define TABLE_DESCS 8 // a message, an answer, and data in pieces that a descriptor can count
#define TABLE_BYTES (TABLE_DESCS * sizeof(struct vring_desc))
#define PIECE_MAX   GIB
#define ERRNO_MAX   4095

struct layout {
    size_t in, out; // room for them
    size_t stride;
};

static const struct layout small = {1536, 384, 2048};
static const struct layout large = {TRANSPORT_IN_MAX + 512, TRANSPORT_OUT_MAX + 512, 22 * 4096};

_Static_assert(TABLE_BYTES + 1536 + 384 <= 2048, "small slots hold it all");
_Static_assert(TABLE_BYTES + TRANSPORT_IN_MAX + TRANSPORT_OUT_MAX + 1024 <= 22 * 4096,
               "large slots hold it all");
_Static_assert(TRANSPORT_DATA_MAX <= (TABLE_DESCS - 2) * PIECE_MAX, "the table has room for data");

size_t slots_bytes(unsigned n_small, unsigned n_large)
{
    return n_small * small.stride + n_large * large.stride;
}

bool slots_is_large(size_t in_len, size_t out_len)
{
    return in_len > small.in || out_len > small.out;
}

static const struct layout *layout_of(const struct slots *s, unsigned i, size_t *ret_at)
{
    if (i < s->n_small) {
        *ret_at = i * small.stride;
        return &small;
    }
    *ret_at = s->n_small * small.stride + (i - s->n_small) * large.stride;
    return &large;
}

void slots_fill(struct slots *s, unsigned i, struct ring *r, const struct slot_message *m)
{
    struct fuse_in_header head = m->head;
    struct fuse_out_header no_answer = {0};
    size_t at;
    const struct layout *l = layout_of(s, i, &at);
    uint8_t *in = s->memory + at + TABLE_BYTES, *out = in + l->in, *to = in + sizeof(head);
    struct vring_desc table[TABLE_DESCS];
    unsigned n = 0;

    for (unsigned k = 0; k < m->n_in; k++) {
        assert(m->in[k].iov_len <= (size_t)(in + l->in - to));
        memcpy(to, m->in[k].iov_base, m->in[k].iov_len);
        to += m->in[k].iov_len;
    }
    head.len = (uint32_t)(to - in);
    memcpy(in, &head, sizeof(head));
    table[n++] = (struct vring_desc){s->address + at + TABLE_BYTES, head.len, VRING_DESC_F_NEXT, 1};
    if (!m->no_answer) {
        // an answer that was not written must not look like the last one
        memcpy(out, &no_answer, sizeof(no_answer));
        table[n] = (struct vring_desc){s->address + at + TABLE_BYTES + l->in,
                                       (uint32_t)(sizeof(no_answer) + m->out_len),
                                       VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, (uint16_t)(n + 1)};
        n++;
    }
    for (uint64_t done = 0; done < m->data_len; n++) {
        uint64_t len = MIN(m->data_len - done, PIECE_MAX);

        table[n] = (struct vring_desc){m->data_address + done, (uint32_t)len,
                                       VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, (uint16_t)(n + 1)};
        done += len;
    }
    table[n - 1].flags &= (uint16_t)~VRING_DESC_F_NEXT;
    table[n - 1].next = 0;
    memcpy(s->memory + at, table, n * sizeof(table[0]));
    r->v.desc[i] = (struct vring_desc){s->address + at, (uint32_t)(n * sizeof(table[0])),
                                       VRING_DESC_F_INDIRECT, 0};
}

int slots_answer(const struct slots *s, unsigned i, uint64_t unique, size_t out_len,
                 uint64_t data_len, struct slot_answer *ret)
{
    struct fuse_out_header h;
    size_t at, len;
    const struct layout *l = layout_of(s, i, &at);
    const uint8_t *out = s->memory + at + TABLE_BYTES + l->in;

    memcpy(&h, out, sizeof(h));
    if (h.unique != unique || h.len < sizeof(h) || h.error > 0 || h.error < -ERRNO_MAX)
        return -EBADMSG;
    len = h.len - sizeof(h);
    if (len > out_len + data_len)
        return -EBADMSG;
    *ret = (struct slot_answer){
        .error = h.error,
        .out = out + sizeof(h),
        .out_got = (uint32_t)MIN(len, out_len),
        .data_got = len - MIN(len, out_len),
    };
    return 0;
}
