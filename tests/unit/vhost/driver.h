// SPDX-License-Identifier: Apache-2.0
// The driver's side of a split virtqueue, for tests: a memfd that holds the ring and what chains
// name. It does what it is told, bad things too.
#pragma once

#include "front/vhost/command.h"

#include <linux/virtio_ring.h>

#define DRIVER_MEMORY    (4 * MIB)
#define DRIVER_ADDR      (1 * GIB)   // as descriptors name the memory
#define DRIVER_USER_ADDR (3 * GIB)   // as a QUEUE_START does
#define DRIVER_HEAP      (128 * KIB) // offset of what chains may name

#define DRIVER_EVENT_IDX (1ULL << VIRTIO_RING_F_EVENT_IDX)
#define DRIVER_INDIRECT  (1ULL << VIRTIO_RING_F_INDIRECT_DESC)

struct driver {
    int fd;
    char *memory; // DRIVER_MEMORY bytes, mapped for the driver itself
    uint64_t features;
    struct vring ring;
    uint16_t seen_used;
};

// sealed: against shrinking.
void driver_init(struct driver *d, unsigned size, uint64_t features, bool sealed);
void driver_fini(struct driver *d);
// A new ring in the same memory, as after a guest's reboot.
void driver_reset(struct driver *d);

struct vhost_command driver_region(const struct driver *d); // REGION_ADD of all of the memory
struct vhost_command driver_start(const struct driver *d, uint32_t base); // QUEUE_START

void driver_describe(struct driver *d, uint16_t i, uint64_t addr, uint32_t len, uint16_t flags,
                     uint16_t next);
// A table for indirect descriptors at this offset of the memory.
struct vring_desc *driver_table(struct driver *d, uint64_t offset);
void driver_offer(struct driver *d, uint16_t head);
// The next that the device has used; false: there is none.
bool driver_take(struct driver *d, uint32_t *ret_head, uint32_t *ret_len);
