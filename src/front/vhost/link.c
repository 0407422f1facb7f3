// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/link_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "front/vhost/foreign_fd.h"

#include <linux/virtio_config.h>
#include <linux/virtio_fs.h>
#include <linux/virtio_ring.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIT(n) (1ULL << (n))

#define FEATURES                                                                                   \
    (BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_RING_F_INDIRECT_DESC) | BIT(VIRTIO_RING_F_EVENT_IDX) |   \
     BIT(VHOST_USER_F_PROTOCOL_FEATURES))

int link_broken(char **ret_why, const char *fmt, ...)
{
    char text[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    *ret_why = xstrdup(text);
    return -EPROTO;
}

void link_close_fd(int *fd)
{
    foreign_fd_close(*fd);
    *fd = -1;
}

uint64_t link_send(struct vhost_link *l, struct vhost_command *c, int fd)
{
    c->session = l->config.session;
    c->seq = ++l->last_seq;
    return l->config.send(l->config.arg, c, fd) ? c->seq : 0;
}

static uint64_t protocol_features(const struct vhost_link *l)
{
    return BIT(VHOST_USER_PROTOCOL_F_MQ) | BIT(VHOST_USER_PROTOCOL_F_REPLY_ACK) |
           BIT(VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS) |
           (l->config.tag ? BIT(VHOST_USER_PROTOCOL_F_CONFIG) : 0);
}

// --- ends of a message ---

static int reply_u64(struct vhost_link *l, uint64_t value)
{
    return link_io_reply(l, &value, sizeof(value));
}

static int reply_base(struct vhost_link *l)
{
    struct vhost_user_vring_state state = l->message.payload.state;

    state.num = l->rings[state.index].base;
    return link_io_reply(l, &state, sizeof(state));
}

// What was asked for is done.
static int acknowledge(struct vhost_link *l)
{
    if (l->message.request == VHOST_USER_GET_VRING_BASE)
        return reply_base(l);
    return l->message.need_reply ? reply_u64(l, 0) : 0;
}

// It is not, and nothing has changed. A host that does not want to hear of it cannot go on.
static int refuse(struct vhost_link *l, const char *why, char **ret_why)
{
    if (!l->message.need_reply)
        return link_broken(ret_why, "%s", why);
    log_info("vhost", "session %u: refused: %s", l->config.session, why);
    return reply_u64(l, 1);
}

// --- messages that take the worker ---

static int finish(struct vhost_link *l, char **ret_why)
{
    int rc;

    l->phase = LINK_IDLE;
    if (l->message.request == VHOST_USER_GET_VRING_BASE)
        link_rings_rest(l, l->message.payload.state.index);
    rc = link_rings_start(l, ret_why);
    return rc < 0 ? rc : acknowledge(l);
}

// Goes through the phases as far as nothing is waited for.
static int step(struct vhost_link *l, char **ret_why)
{
    switch (l->phase) {
    case LINK_IDLE:
        return 0;
    case LINK_STOPPING:
        if (link_rings_stop_waits(l))
            return 0;
        l->phase = LINK_REMOVING;
        link_memory_send_going(l);
        // fall through
    case LINK_REMOVING:
        if (link_memory_waits(l))
            return 0;
        link_memory_drop_going(l);
        l->phase = LINK_ADDING;
        link_memory_send_coming(l);
        // fall through
    case LINK_ADDING:
        // the host may kick as soon as it has the answer, and kicks do not wait for commands
        if (link_memory_waits(l))
            return 0;
        return finish(l, ret_why);
    }
    return 0;
}

static int begin(struct vhost_link *l, char **ret_why)
{
    l->phase = LINK_STOPPING;
    link_rings_send_stopping(l);
    return step(l, ret_why);
}

static int change_memory(struct vhost_link *l, char **ret_why)
{
    const char *why = NULL;
    int rc;

    if (l->message.request == VHOST_USER_ADD_MEM_REG)
        rc = link_memory_add(l, &why);
    else if (l->message.request == VHOST_USER_REM_MEM_REG)
        rc = link_memory_remove(l, &why);
    else
        rc = link_memory_replace(l, &why);
    if (rc < 0)
        return refuse(l, why, ret_why);
    link_rings_stop_homeless(l);
    return begin(l, ret_why);
}

// --- features and configuration ---

static int set_features(struct vhost_link *l, char **ret_why)
{
    uint64_t features = l->message.payload.u64;

    if (features & ~FEATURES)
        return link_broken(ret_why, "features that were not offered");
    if (features != l->features && link_rings_any_running(l))
        return link_broken(ret_why, "features change while rings run");
    l->features = features;
    l->has_features = true;
    // without them nobody could say SET_VRING_ENABLE
    if (!(features & BIT(VHOST_USER_F_PROTOCOL_FEATURES)))
        for (unsigned i = 0; i < VHOST_QUEUES; i++)
            link_rings_enable(l, i, true);
    return finish(l, ret_why);
}

static int set_protocol_features(struct vhost_link *l, char **ret_why)
{
    uint64_t features = l->message.payload.u64;

    if (features & ~protocol_features(l))
        return link_broken(ret_why, "protocol features that were not offered");
    l->protocol_features = features;
    return acknowledge(l);
}

static int get_config(struct vhost_link *l)
{
    struct vhost_user_config c = l->message.payload.config;
    struct virtio_fs_config fs = {.num_request_queues = VHOST_QUEUES - 1};

    memcpy(fs.tag, l->tag, sizeof(fs.tag));
    // an answer without bytes is how an error is told
    if (!l->config.tag || c.offset > sizeof(fs) || c.size > sizeof(fs) - c.offset)
        return link_io_reply(l, NULL, 0);
    memcpy(c.data, (const uint8_t *)&fs + c.offset, c.size);
    return link_io_reply(l, &c, offsetof(struct vhost_user_config, data) + c.size);
}

// --- each message ---

static int carry_out(struct vhost_link *l, char **ret_why)
{
    const struct vhost_user_message *m = &l->message;
    int rc;

    if (!m->known)
        return m->need_reply ? reply_u64(l, 1) : 0;
    switch (m->request) {
    case VHOST_USER_GET_FEATURES:
        return reply_u64(l, FEATURES);
    case VHOST_USER_SET_FEATURES:
        return set_features(l, ret_why);
    case VHOST_USER_GET_PROTOCOL_FEATURES:
        return reply_u64(l, protocol_features(l));
    case VHOST_USER_SET_PROTOCOL_FEATURES:
        return set_protocol_features(l, ret_why);
    case VHOST_USER_GET_QUEUE_NUM:
        return reply_u64(l, VHOST_QUEUES);
    case VHOST_USER_GET_MAX_MEM_SLOTS:
        return reply_u64(l, REGIONS_MAX);
    case VHOST_USER_GET_CONFIG:
        return get_config(l);
    case VHOST_USER_SET_CONFIG:
        return refuse(l, "nothing of the configuration can be written", ret_why);
    case VHOST_USER_SET_OWNER:
    case VHOST_USER_RESET_OWNER: // deprecated; the specification advises to ignore it
        return acknowledge(l);
    case VHOST_USER_SET_MEM_TABLE:
    case VHOST_USER_ADD_MEM_REG:
    case VHOST_USER_REM_MEM_REG:
        return change_memory(l, ret_why);
    case VHOST_USER_GET_VRING_BASE:
        link_rings_stop(l, m->payload.state.index);
        return begin(l, ret_why);
    case VHOST_USER_SET_VRING_ENABLE:
        link_rings_enable(l, m->payload.state.index, m->payload.state.num);
        return begin(l, ret_why);
    default: // SET_VRING_ NUM, ADDR, BASE, KICK, CALL, ERR
        rc = link_rings_set(l, ret_why);
        return rc < 0 ? rc : finish(l, ret_why);
    }
}

int vhost_link_ready(struct vhost_link *l, char **ret_why)
{
    int rc;

    *ret_why = NULL;
    rc = link_io_flush(l);
    if (rc < 0 || l->io.out_len || l->phase != LINK_IDLE)
        return rc;
    rc = link_io_receive(l, ret_why);
    if (rc == 1) {
        rc = carry_out(l, ret_why);
        link_io_drop_fds(l);
    }
    return rc;
}

short vhost_link_events(const struct vhost_link *l)
{
    if (l->io.out_len)
        return POLLOUT;
    return l->phase == LINK_IDLE ? POLLIN : 0;
}

// --- the worker ---

int vhost_link_event(struct vhost_link *l, const struct vhost_event *e, char **ret_why)
{
    *ret_why = NULL;
    if (e->kind == VHOST_BAD)
        return link_broken(ret_why, "%.*s", (int)sizeof(e->text), e->text);
    if (e->kind != VHOST_DONE || e->seq == 0)
        return 0;
    link_rings_done(l, e->seq, e->value);
    link_memory_done(l, e->seq);
    return step(l, ret_why);
}

static void say_session(struct vhost_link *l)
{
    struct vhost_command c = {.kind = VHOST_SESSION_ADD};

    c.peer.uid = l->config.uid;
    c.peer.gid = l->config.gid;
    c.peer.pid = l->config.pid;
    c.peer.since_s = l->since_s;
    link_send(l, &c, l->config.memory_fd);
}

int vhost_link_resume(struct vhost_link *l, char **ret_why)
{
    *ret_why = NULL;
    say_session(l);
    link_memory_resume(l);
    link_rings_resume(l);
    return 0;
}

int vhost_link_worker_died(struct vhost_link *l, char **ret_why)
{
    *ret_why = NULL;
    link_rings_worker_died(l);
    link_memory_worker_died(l);
    return step(l, ret_why);
}

// --- life ---

struct vhost_link *vhost_link_new(const struct vhost_link_config *c)
{
    struct vhost_link *l = xcalloc(1, sizeof(*l));

    l->config = *c;
    if (c->tag)
        memcpy(l->tag, c->tag, strnlen(c->tag, sizeof(l->tag)));
    l->since_s = (uint64_t)clock_wall_s();
    for (unsigned i = 0; i < VHOST_QUEUES; i++)
        l->rings[i].kick_fd = l->rings[i].call_fd = -1;
    for (unsigned i = 0; i < ARRAY_LEN(l->message_fds); i++)
        l->message_fds[i] = -1;
    say_session(l);
    return l;
}

static int take(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

int vhost_link_take_memory(struct vhost_link *l)
{
    return take(&l->config.memory_fd);
}

int vhost_link_take_socket(struct vhost_link *l)
{
    return take(&l->config.fd);
}

static void close_own(int fd)
{
    if (fd >= 0)
        close(fd);
}

void vhost_link_free(struct vhost_link *l)
{
    if (!l)
        return;
    link_rings_close(l);
    link_memory_close(l);
    link_io_drop_fds(l);
    for (unsigned i = 0; i < l->io.n_fds; i++)
        link_close_fd(&l->io.fds[i]);
    close_own(l->config.memory_fd);
    close_own(l->config.fd);
    free(l);
}

int vhost_link_fd(const struct vhost_link *l)
{
    return l->config.fd;
}

void vhost_link_stats_read(const struct vhost_link *l, struct vhost_link_stats *ret)
{
    *ret = (struct vhost_link_stats){.regions = l->n_regions,
                                     .descriptors = 2 + l->n_regions + l->io.n_fds};
    for (unsigned i = 0; i < l->n_regions; i++)
        ret->region_bytes += l->regions[i].is.size;
    for (unsigned i = 0; i < VHOST_QUEUES; i++) {
        const struct link_ring *r = &l->rings[i];

        ret->queues += r->running;
        ret->descriptors += (r->kick_fd >= 0) + (r->call_fd >= 0);
    }
}
