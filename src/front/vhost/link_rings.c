// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/foreign_fd.h"
#include "front/vhost/link_impl.h"

#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

static void say_call(struct vhost_link *l, unsigned i)
{
    struct vhost_command c = {.kind = VHOST_QUEUE_CALL, .queue = i};

    link_send(l, &c, l->rings[i].call_fd);
}

static void say_start(struct vhost_link *l, unsigned i)
{
    struct link_ring *r = &l->rings[i];
    struct vhost_command c = {.kind = VHOST_QUEUE_START, .queue = i, .start = r->start};

    c.ring.desc = r->desc;
    c.ring.avail = r->avail;
    c.ring.used = r->used;
    c.ring.size = r->size;
    c.ring.base = r->base;
    c.ring.features = l->features;
    r->told |= link_send(l, &c, r->kick_fd) != 0;
    if (r->call_fd >= 0)
        say_call(l, i);
}

static void say_stop(struct vhost_link *l, unsigned i)
{
    struct vhost_command c = {.kind = VHOST_QUEUE_STOP, .queue = i};

    l->rings[i].stop_seq = link_send(l, &c, -1);
}

// --- what the host says of a ring ---

// KICK, CALL, ERR.
static int set_fd(struct vhost_link *l, char **ret_why)
{
    unsigned i = l->message.payload.u64 & VHOST_USER_VRING_INDEX;
    struct link_ring *r = &l->rings[i];
    int fd = -1;

    if (l->message.n_fds) {
        // nobody else's file may be what the worker waits for or writes to
        if (foreign_fd_kind(l->message_fds[0]) != FOREIGN_EVENTFD)
            return link_broken(ret_why, "ring %u: a descriptor that is no eventfd", i);
        fd = link_io_take_fd(l, 0);
    }
    if (l->message.request == VHOST_USER_SET_VRING_CALL) {
        link_close_fd(&r->call_fd);
        r->call_fd = fd;
        if (r->running)
            say_call(l, i);
        return 0;
    }
    if (l->message.request == VHOST_USER_SET_VRING_ERR) {
        // what is wrong ends the session: there is nothing to signal
        link_close_fd(&fd);
        return 0;
    }
    if (r->running || fd < 0) {
        link_close_fd(&fd);
        return r->running ? link_broken(ret_why, "ring %u runs: it is started already", i)
                          : link_broken(ret_why,
                                        "ring %u: it is to be polled, which was not "
                                        "offered",
                                        i);
    }
    link_close_fd(&r->kick_fd);
    r->kick_fd = fd;
    return 0;
}

int link_rings_set(struct vhost_link *l, char **ret_why)
{
    const struct vhost_user_message *m = &l->message;
    const struct vhost_user_vring_state *state = &m->payload.state;
    struct link_ring *r;

    if (m->request == VHOST_USER_SET_VRING_KICK || m->request == VHOST_USER_SET_VRING_CALL ||
        m->request == VHOST_USER_SET_VRING_ERR)
        return set_fd(l, ret_why);
    // each of the others begins with the ring's index, too
    r = &l->rings[state->index];
    if (r->running)
        return link_broken(ret_why, "ring %u runs: it cannot be changed", state->index);
    if (m->request == VHOST_USER_SET_VRING_NUM) {
        r->size = state->num;
        r->has_size = true;
    } else if (m->request == VHOST_USER_SET_VRING_BASE) {
        r->base = state->num;
        r->has_base = true;
    } else {
        r->desc = m->payload.addr.desc;
        r->avail = m->payload.addr.avail;
        r->used = m->payload.addr.used;
        r->has_addr = true;
    }
    r->paused = false;
    return 0;
}

void link_rings_enable(struct vhost_link *l, unsigned i, bool enable)
{
    l->rings[i].enabled = enable;
    if (!enable)
        link_rings_stop(l, i);
}

// --- starting ---

static bool in_memory(const struct vhost_link *l, const struct link_ring *r)
{
    // virtio 1.2, 2.7, with the event index behind each ring
    return link_memory_holds(l, r->desc, r->size * (uint64_t)sizeof(struct vring_desc)) &&
           link_memory_holds(l, r->avail, 6 + r->size * (uint64_t)sizeof(uint16_t)) &&
           link_memory_holds(l, r->used, 6 + r->size * (uint64_t)sizeof(struct vring_used_elem));
}

int link_rings_start(struct vhost_link *l, char **ret_why)
{
    for (unsigned i = 0; i < VHOST_QUEUES; i++) {
        struct link_ring *r = &l->rings[i];

        if (r->running || r->kick_fd < 0 || !r->enabled || !r->has_size || !r->has_base ||
            !r->has_addr || !l->has_features)
            continue;
        if (!(l->features & (1ULL << VIRTIO_F_VERSION_1)))
            return link_broken(ret_why, "its driver speaks virtio as it was before version 1");
        if (!in_memory(l, r)) {
            if (r->paused)
                continue;
            return link_broken(ret_why, "ring %u does not lie in memory that is shared", i);
        }
        r->running = true;
        r->told = r->paused = false;
        r->start = ++l->last_start;
        say_start(l, i);
    }
    return 0;
}

bool link_rings_any_running(const struct vhost_link *l)
{
    for (unsigned i = 0; i < VHOST_QUEUES; i++)
        if (l->rings[i].running)
            return true;
    return false;
}

// --- stopping ---

void link_rings_stop(struct vhost_link *l, unsigned i)
{
    l->rings[i].stopping = l->rings[i].running;
}

void link_rings_rest(struct vhost_link *l, unsigned i)
{
    link_close_fd(&l->rings[i].kick_fd);
    l->rings[i].paused = false;
}

void link_rings_stop_homeless(struct vhost_link *l)
{
    for (unsigned i = 0; i < VHOST_QUEUES; i++) {
        struct link_ring *r = &l->rings[i];

        if (r->running && !in_memory(l, r))
            r->stopping = r->paused = true;
    }
}

static void stopped(struct link_ring *r, uint32_t base)
{
    r->base = base;
    r->running = r->told = r->stopping = false;
    r->stop_seq = 0;
}

void link_rings_send_stopping(struct vhost_link *l)
{
    for (unsigned i = 0; i < VHOST_QUEUES; i++) {
        struct link_ring *r = &l->rings[i];

        if (!r->stopping)
            continue;
        say_stop(l, i);
        // no worker has ever taken anything from it
        if (!r->told)
            stopped(r, r->base);
    }
}

bool link_rings_stop_waits(const struct vhost_link *l)
{
    for (unsigned i = 0; i < VHOST_QUEUES; i++)
        if (l->rings[i].stopping)
            return true;
    return false;
}

void link_rings_done(struct vhost_link *l, uint64_t seq, uint64_t value)
{
    for (unsigned i = 0; i < VHOST_QUEUES; i++) {
        struct link_ring *r = &l->rings[i];

        if (r->stop_seq == seq)
            stopped(r, value & UINT16_MAX);
    }
}

// --- workers come and go ---

void link_rings_worker_died(struct vhost_link *l)
{
    for (unsigned i = 0; i < VHOST_QUEUES; i++)
        l->rings[i].stop_seq = 0;
}

void link_rings_resume(struct vhost_link *l)
{
    for (unsigned i = 0; i < VHOST_QUEUES; i++) {
        if (l->rings[i].running)
            say_start(l, i);
        if (l->rings[i].stopping)
            say_stop(l, i);
    }
}

void link_rings_close(struct vhost_link *l)
{
    for (unsigned i = 0; i < VHOST_QUEUES; i++) {
        link_close_fd(&l->rings[i].kick_fd);
        link_close_fd(&l->rings[i].call_fd);
    }
}
