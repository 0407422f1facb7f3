// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/foreign_fd.h"
#include "front/vhost/link_impl.h"

static int refuse(const char **ret_why, const char *why)
{
    *ret_why = why;
    return -EPERM;
}

// A file that a host's own file system answers for would let it hold up whoever touches the memory.
// A GPU's is not mapped.
static bool memory_ok(int fd)
{
    enum foreign_kind kind = foreign_fd_kind(fd);

    return kind == FOREIGN_MEMORY || kind == FOREIGN_DEVICE;
}

static bool same_file(int a, int b)
{
    return foreign_fd_kind(a) == FOREIGN_MEMORY && foreign_fd_kind(b) == FOREIGN_MEMORY &&
           foreign_fd_same(a, b);
}

static bool same_place(const struct vhost_user_region *a, const struct vhost_user_region *b)
{
    return a->guest_addr == b->guest_addr && a->user_addr == b->user_addr && a->size == b->size;
}

static bool overlap(const struct vhost_user_region *a, const struct vhost_user_region *b)
{
    return a->guest_addr < b->guest_addr + b->size && b->guest_addr < a->guest_addr + a->size;
}

static void append(struct vhost_link *l, const struct vhost_user_region *r, int fd)
{
    l->regions[l->n_regions++] = (struct link_region){.is = *r, .fd = fd, .coming = true};
}

int link_memory_add(struct vhost_link *l, const char **ret_why)
{
    const struct vhost_user_region *r = &l->message.payload.reg.region;

    if (l->n_regions == REGIONS_MAX)
        return refuse(ret_why, "more regions than there are slots");
    for (unsigned i = 0; i < l->n_regions; i++)
        if (overlap(&l->regions[i].is, r))
            return refuse(ret_why, "a region that overlaps another");
    if (!memory_ok(l->message_fds[0]))
        return refuse(ret_why, "memory that is neither a memfd nor in tmpfs or hugetlbfs");
    append(l, r, link_io_take_fd(l, 0));
    return 0;
}

int link_memory_remove(struct vhost_link *l, const char **ret_why)
{
    for (unsigned i = 0; i < l->n_regions; i++) {
        if (same_place(&l->regions[i].is, &l->message.payload.reg.region)) {
            l->regions[i].going = true;
            return 0;
        }
    }
    return refuse(ret_why, "a region to be removed that is not there");
}

// The region that the table's i-th one is already, or NULL.
static struct link_region *held_as(struct vhost_link *l, unsigned i)
{
    const struct vhost_user_region *r = &l->message.payload.table.regions[i];

    for (unsigned k = 0; k < l->n_regions; k++) {
        struct link_region *held = &l->regions[k];

        if (same_place(&held->is, r) && held->is.mmap_offset == r->mmap_offset &&
            same_file(held->fd, l->message_fds[i]))
            return held;
    }
    return NULL;
}

int link_memory_replace(struct vhost_link *l, const char **ret_why)
{
    const struct vhost_user_mem_table *t = &l->message.payload.table;
    struct link_region *same[VHOST_USER_TABLE_MAX] = {0};
    unsigned before = l->n_regions, stay = 0;

    for (unsigned i = 0; i < t->n; i++) {
        if (!memory_ok(l->message_fds[i]))
            return refuse(ret_why, "memory that is neither a memfd nor in tmpfs or hugetlbfs");
        same[i] = held_as(l, i);
        stay += same[i] != NULL;
    }
    // those that go are here until they have gone
    if (before + t->n - stay > REGIONS_MAX)
        return refuse(ret_why, "more regions than there are slots");
    for (unsigned k = 0; k < before; k++)
        l->regions[k].going = true;
    for (unsigned i = 0; i < t->n; i++) {
        if (same[i])
            same[i]->going = false;
        else
            append(l, &t->regions[i], link_io_take_fd(l, i));
    }
    return 0;
}

static uint64_t say(struct vhost_link *l, uint32_t kind, const struct link_region *r)
{
    struct vhost_command c = {.kind = kind};

    c.region.addr = r->is.guest_addr;
    c.region.user_addr = r->is.user_addr;
    c.region.size = r->is.size;
    c.region.fd_offset = r->is.mmap_offset;
    return link_send(l, &c, kind == VHOST_REGION_ADD ? r->fd : -1);
}

void link_memory_send_going(struct vhost_link *l)
{
    for (unsigned i = 0; i < l->n_regions; i++)
        if (l->regions[i].going)
            l->regions[i].sent_seq = say(l, VHOST_REGION_REMOVE, &l->regions[i]);
}

void link_memory_drop_going(struct vhost_link *l)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < l->n_regions; i++) {
        if (l->regions[i].going)
            link_close_fd(&l->regions[i].fd);
        else
            l->regions[kept++] = l->regions[i];
    }
    l->n_regions = kept;
}

void link_memory_send_coming(struct vhost_link *l)
{
    for (unsigned i = 0; i < l->n_regions; i++) {
        if (l->regions[i].coming)
            l->regions[i].sent_seq = say(l, VHOST_REGION_ADD, &l->regions[i]);
        l->regions[i].coming = false;
    }
}

void link_memory_done(struct vhost_link *l, uint64_t seq)
{
    for (unsigned i = 0; i < l->n_regions; i++)
        if (l->regions[i].sent_seq == seq)
            l->regions[i].sent_seq = 0;
}

bool link_memory_waits(const struct vhost_link *l)
{
    for (unsigned i = 0; i < l->n_regions; i++)
        if (l->regions[i].sent_seq)
            return true;
    return false;
}

void link_memory_worker_died(struct vhost_link *l)
{
    for (unsigned i = 0; i < l->n_regions; i++)
        l->regions[i].sent_seq = 0;
}

void link_memory_resume(struct vhost_link *l)
{
    // what the message that is carried out adds is said in its time
    for (unsigned i = 0; i < l->n_regions; i++)
        if (!l->regions[i].coming)
            say(l, VHOST_REGION_ADD, &l->regions[i]);
}

void link_memory_close(struct vhost_link *l)
{
    for (unsigned i = 0; i < l->n_regions; i++)
        link_close_fd(&l->regions[i].fd);
    l->n_regions = 0;
}

bool link_memory_holds(const struct vhost_link *l, uint64_t user_addr, uint64_t len)
{
    for (unsigned i = 0; i < l->n_regions; i++) {
        const struct vhost_user_region *r = &l->regions[i].is;

        if (!l->regions[i].going && !l->regions[i].coming && user_addr >= r->user_addr &&
            len <= r->size && user_addr - r->user_addr <= r->size - len)
            return true;
    }
    return false;
}
