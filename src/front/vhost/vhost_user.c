// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/vhost_user.h"

#include "front/vhost/command.h"

#include <string.h>

static int bad(const char **ret_why, const char *why)
{
    *ret_why = why;
    return -EBADMSG;
}

int vhost_user_read_header(const struct vhost_user_header *h, uint32_t *ret_size,
                           const char **ret_why)
{
    if ((h->flags & VHOST_USER_VERSION_MASK) != VHOST_USER_VERSION)
        return bad(ret_why, "a message of another version of vhost-user");
    if (h->flags & VHOST_USER_REPLY)
        return bad(ret_why, "a reply where a request was due");
    if (h->size > VHOST_USER_BYTES_MAX)
        return bad(ret_why, "a message that is too long");
    *ret_size = h->size;
    return 0;
}

// --- each request ---

// What stands behind the header: bytes and descriptors, whose number may depend on the bytes.
struct shape {
    uint32_t request;
    uint32_t size_min, size_max;
    unsigned fds_min, fds_max;
    int (*check)(const struct vhost_user_message *m, uint32_t size, const char **ret_why);
};

static int check_region(const struct vhost_user_region *r, const char **ret_why)
{
    uint64_t end;

    if (r->size == 0 || __builtin_add_overflow(r->guest_addr, r->size, &end) ||
        __builtin_add_overflow(r->user_addr, r->size, &end) ||
        __builtin_add_overflow(r->mmap_offset, r->size, &end) || end > INT64_MAX)
        return bad(ret_why, "a region that no address space has room for");
    return 0;
}

static bool overlap(const struct vhost_user_region *a, const struct vhost_user_region *b)
{
    return a->guest_addr < b->guest_addr + b->size && b->guest_addr < a->guest_addr + a->size;
}

static int check_table(const struct vhost_user_message *m, uint32_t size, const char **ret_why)
{
    const struct vhost_user_mem_table *t = &m->payload.table;

    if (t->n > VHOST_USER_TABLE_MAX ||
        size != offsetof(struct vhost_user_mem_table, regions) + t->n * sizeof(t->regions[0]))
        return bad(ret_why, "a table of regions of another length than it says");
    if (m->n_fds != t->n)
        return bad(ret_why, "a table of regions with another number of descriptors");
    for (uint32_t i = 0; i < t->n; i++) {
        if (check_region(&t->regions[i], ret_why) < 0)
            return -EBADMSG;
        for (uint32_t k = 0; k < i; k++)
            if (overlap(&t->regions[i], &t->regions[k]))
                return bad(ret_why, "a table of regions that overlap");
    }
    return 0;
}

static int check_mem_reg(const struct vhost_user_message *m, uint32_t size, const char **ret_why)
{
    return check_region(&m->payload.reg.region, ret_why);
}

static int check_index(uint64_t index, const char **ret_why)
{
    return index < VHOST_QUEUES ? 0 : bad(ret_why, "a ring beyond the last one");
}

static int check_num(const struct vhost_user_message *m, uint32_t size, const char **ret_why)
{
    const struct vhost_user_vring_state *s = &m->payload.state;

    if (s->num == 0 || s->num > VHOST_RING_MAX || (s->num & (s->num - 1)))
        return bad(ret_why, "a ring of a size that is no power of two up to 1024");
    return check_index(s->index, ret_why);
}

static int check_base(const struct vhost_user_message *m, uint32_t size, const char **ret_why)
{
    const struct vhost_user_vring_state *s = &m->payload.state;

    if (s->num > UINT16_MAX)
        return bad(ret_why, "a ring's base beyond 65535");
    return check_index(s->index, ret_why);
}

static int check_state(const struct vhost_user_message *m, uint32_t size, const char **ret_why)
{
    return check_index(m->payload.state.index, ret_why);
}

static int check_enable(const struct vhost_user_message *m, uint32_t size, const char **ret_why)
{
    if (m->payload.state.num > 1)
        return bad(ret_why, "a ring that is neither enabled nor disabled");
    return check_state(m, size, ret_why);
}

// virtio 1.2, 2.7: how the parts of a split ring are aligned.
static int check_addr(const struct vhost_user_message *m, uint32_t size, const char **ret_why)
{
    const struct vhost_user_vring_addr *a = &m->payload.addr;

    if (a->flags)
        return bad(ret_why, "a ring whose changes are to be logged, which was not offered");
    if (a->desc % 16 || a->avail % 2 || a->used % 4)
        return bad(ret_why, "a ring that is not aligned");
    return check_index(a->index, ret_why);
}

static int check_vring_fd(const struct vhost_user_message *m, uint32_t size, const char **ret_why)
{
    uint64_t u = m->payload.u64;
    bool none = u & VHOST_USER_VRING_NOFD;

    if (u & ~(uint64_t)(VHOST_USER_VRING_INDEX | VHOST_USER_VRING_NOFD))
        return bad(ret_why, "a ring's descriptor with bits that mean nothing");
    if (m->n_fds != (none ? 0 : 1))
        return bad(ret_why, "a ring's descriptor that is there against what is said, or is not");
    return check_index(u & VHOST_USER_VRING_INDEX, ret_why);
}

static int check_config(const struct vhost_user_message *m, uint32_t size, const char **ret_why)
{
    const struct vhost_user_config *c = &m->payload.config;

    if (c->size > sizeof(c->data) || size != offsetof(struct vhost_user_config, data) + c->size)
        return bad(ret_why, "a piece of configuration of another length than it says");
    return 0;
}

#define NOTHING       0, 0
#define EXACTLY(type) sizeof(type), sizeof(type)

static const struct shape shapes[] = {
    {VHOST_USER_GET_FEATURES, NOTHING, 0, 0, NULL},
    {VHOST_USER_SET_FEATURES, EXACTLY(uint64_t), 0, 0, NULL},
    {VHOST_USER_SET_OWNER, NOTHING, 0, 0, NULL},
    {VHOST_USER_RESET_OWNER, NOTHING, 0, 0, NULL},
    {VHOST_USER_SET_MEM_TABLE, offsetof(struct vhost_user_mem_table, regions),
     sizeof(struct vhost_user_mem_table), 0, VHOST_USER_TABLE_MAX, check_table},
    {VHOST_USER_SET_VRING_NUM, EXACTLY(struct vhost_user_vring_state), 0, 0, check_num},
    {VHOST_USER_SET_VRING_ADDR, EXACTLY(struct vhost_user_vring_addr), 0, 0, check_addr},
    {VHOST_USER_SET_VRING_BASE, EXACTLY(struct vhost_user_vring_state), 0, 0, check_base},
    {VHOST_USER_GET_VRING_BASE, EXACTLY(struct vhost_user_vring_state), 0, 0, check_state},
    {VHOST_USER_SET_VRING_KICK, EXACTLY(uint64_t), 0, 1, check_vring_fd},
    {VHOST_USER_SET_VRING_CALL, EXACTLY(uint64_t), 0, 1, check_vring_fd},
    {VHOST_USER_SET_VRING_ERR, EXACTLY(uint64_t), 0, 1, check_vring_fd},
    {VHOST_USER_GET_PROTOCOL_FEATURES, NOTHING, 0, 0, NULL},
    {VHOST_USER_SET_PROTOCOL_FEATURES, EXACTLY(uint64_t), 0, 0, NULL},
    {VHOST_USER_GET_QUEUE_NUM, NOTHING, 0, 0, NULL},
    {VHOST_USER_SET_VRING_ENABLE, EXACTLY(struct vhost_user_vring_state), 0, 0, check_enable},
    {VHOST_USER_GET_CONFIG, offsetof(struct vhost_user_config, data),
     sizeof(struct vhost_user_config), 0, 0, check_config},
    {VHOST_USER_SET_CONFIG, offsetof(struct vhost_user_config, data),
     sizeof(struct vhost_user_config), 0, 0, check_config},
    {VHOST_USER_GET_MAX_MEM_SLOTS, NOTHING, 0, 0, NULL},
    {VHOST_USER_ADD_MEM_REG, EXACTLY(struct vhost_user_mem_reg), 1, 1, check_mem_reg},
    // QEMU sends the region's descriptor along, others do not
    {VHOST_USER_REM_MEM_REG, EXACTLY(struct vhost_user_mem_reg), 0, 1, check_mem_reg},
};

static const struct shape *find_shape(uint32_t request)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        if (shapes[i].request == request)
            return &shapes[i];
    return NULL;
}

int vhost_user_read(const struct vhost_user_header *h, const void *payload, unsigned n_fds,
                    struct vhost_user_message *ret, const char **ret_why)
{
    const struct shape *s = find_shape(h->request);

    *ret = (struct vhost_user_message){
        .request = h->request,
        .known = s != NULL,
        .need_reply = h->flags & VHOST_USER_NEED_REPLY,
        .n_fds = n_fds,
    };
    if (!s)
        return 0;
    if (h->size < s->size_min || h->size > s->size_max)
        return bad(ret_why, "a message of another length than its kind has");
    if (n_fds < s->fds_min || n_fds > s->fds_max)
        return bad(ret_why, "a message with another number of descriptors than its kind has");
    memcpy(&ret->payload, payload, h->size);
    return s->check ? s->check(ret, h->size, ret_why) : 0;
}
