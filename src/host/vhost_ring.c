// SPDX-License-Identifier: Apache-2.0
#include "host/vhost_ring.h"

#include <stdatomic.h>
#include <string.h>

void ring_init(struct ring *r, void *memory, unsigned size)
{
    *r = (struct ring){.size = size};
    vring_init(&r->v, size, memory, RING_ALIGN);
}

void ring_add(struct ring *r, uint16_t head)
{
    r->v.avail->ring[r->avail_idx % r->size] = head;
    __atomic_store_n(&r->v.avail->idx, ++r->avail_idx, __ATOMIC_RELEASE);
}

bool ring_kick_needed(struct ring *r)
{
    uint16_t event, old = r->kicked_idx;

    if (r->avail_idx == old)
        return false;
    // avail->idx is written before the device's wish is read: it does the two the other way round
    atomic_thread_fence(memory_order_seq_cst);
    event = __atomic_load_n(&vring_avail_event(&r->v), __ATOMIC_RELAXED);
    r->kicked_idx = r->avail_idx;
    return vring_need_event(event, r->avail_idx, old);
}

int ring_take(struct ring *r, uint32_t *ret_id, uint32_t *ret_len)
{
    uint16_t idx = __atomic_load_n(&r->v.used->idx, __ATOMIC_ACQUIRE);
    struct vring_used_elem e;

    if (idx == r->last_used)
        return 0;
    // as many as were added and not taken, at most
    if ((uint16_t)(idx - r->last_used) > (uint16_t)(r->avail_idx - r->last_used))
        return -EBADMSG;
    memcpy(&e, &r->v.used->ring[r->last_used % r->size], sizeof(e));
    r->last_used++;
    *ret_id = e.id;
    *ret_len = e.len;
    return 1;
}

bool ring_arm(struct ring *r, unsigned n)
{
    __atomic_store_n(&vring_used_event(&r->v), (uint16_t)(r->last_used + n - 1), __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_seq_cst);
    return __atomic_load_n(&r->v.used->idx, __ATOMIC_ACQUIRE) == r->last_used;
}
