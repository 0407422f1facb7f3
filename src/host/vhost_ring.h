// SPDX-License-Identifier: Apache-2.0
// A split virtqueue, the driver's side (virtio 1.2, 2.7) with EVENT_IDX, in memory that the device
// writes, too: what is read from it is checked. No locks, no I/O.
#pragma once

#include "base/base.h"

#include <linux/virtio_ring.h>

#define RING_ALIGN 64 // of the used ring; the specification asks for 4

struct ring {
    unsigned size; // a power of two
    struct vring v;
    uint16_t avail_idx;  // next to be added
    uint16_t kicked_idx; // avail_idx when the device was last looked after
    uint16_t last_used;  // next to be taken
};

static inline size_t ring_bytes(unsigned size)
{
    return vring_size(size, RING_ALIGN);
}

// memory: ring_bytes, zeroed, aligned to RING_ALIGN.
void ring_init(struct ring *r, void *memory, unsigned size);
// Makes a chain available whose first descriptor, head, is filled in.
void ring_add(struct ring *r, uint16_t head);
// Whether the device wants to hear of what was added since the last time.
bool ring_kick_needed(struct ring *r);
// 1 and a used element; 0: none; -EBADMSG: the device counts more than there can be.
int ring_take(struct ring *r, uint32_t *ret_id, uint32_t *ret_len);
// Asks for a signal at the n-th used element from now, n > 0. False: there is one already.
bool ring_arm(struct ring *r, unsigned n);
