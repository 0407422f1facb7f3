// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "driver.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void driver_reset(struct driver *d)
{
    memset(d->memory, 0, DRIVER_HEAP);
    d->seen_used = 0;
}

void driver_init(struct driver *d, unsigned size, uint64_t features, bool sealed)
{
    *d = (struct driver){.fd = memfd_create("driver", MFD_CLOEXEC | MFD_ALLOW_SEALING),
                         .features = features};
    assert_true(d->fd >= 0);
    assert_return_code(ftruncate(d->fd, DRIVER_MEMORY), errno);
    if (sealed)
        assert_return_code(fcntl(d->fd, F_ADD_SEALS, F_SEAL_SHRINK), errno);
    d->memory = mmap(NULL, DRIVER_MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
    assert_ptr_not_equal(d->memory, MAP_FAILED);
    assert_true(vring_size(size, 4096) <= DRIVER_HEAP);
    vring_init(&d->ring, size, d->memory, 4096);
}

void driver_fini(struct driver *d)
{
    munmap(d->memory, DRIVER_MEMORY);
    close(d->fd);
}

struct vhost_command driver_region(const struct driver *d)
{
    return (struct vhost_command){
        .kind = VHOST_REGION_ADD,
        .region = {.addr = DRIVER_ADDR, .user_addr = DRIVER_USER_ADDR, .size = DRIVER_MEMORY},
    };
}

static uint64_t user_addr(const struct driver *d, const void *p)
{
    return DRIVER_USER_ADDR + (uint64_t)((const char *)p - d->memory);
}

struct vhost_command driver_start(const struct driver *d, uint32_t base)
{
    return (struct vhost_command){
        .kind = VHOST_QUEUE_START,
        .ring = {.desc = user_addr(d, d->ring.desc),
                 .avail = user_addr(d, d->ring.avail),
                 .used = user_addr(d, d->ring.used),
                 .size = d->ring.num,
                 .base = base,
                 .features = d->features},
    };
}

void driver_describe(struct driver *d, uint16_t i, uint64_t addr, uint32_t len, uint16_t flags,
                     uint16_t next)
{
    d->ring.desc[i] = (struct vring_desc){.addr = addr, .len = len, .flags = flags, .next = next};
}

struct vring_desc *driver_table(struct driver *d, uint64_t offset)
{
    return (struct vring_desc *)(d->memory + offset);
}

void driver_offer(struct driver *d, uint16_t head)
{
    uint16_t idx = d->ring.avail->idx;

    d->ring.avail->ring[idx % d->ring.num] = head;
    __atomic_store_n(&d->ring.avail->idx, (uint16_t)(idx + 1), __ATOMIC_SEQ_CST);
}

bool driver_take(struct driver *d, uint32_t *ret_head, uint32_t *ret_len)
{
    const struct vring_used_elem *e = &d->ring.used->ring[d->seen_used % d->ring.num];

    if (d->seen_used == __atomic_load_n(&d->ring.used->idx, __ATOMIC_ACQUIRE))
        return false;
    d->seen_used++;
    *ret_head = e->id;
    *ret_len = e->len;
    return true;
}
