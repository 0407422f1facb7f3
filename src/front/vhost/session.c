// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/session.h"
#include "base/log.h"
#include "fuse/holdings.h"
#include "gdd/engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The kernel's own ceiling of a READ, which a guest's shares.
#define MAX_READ ((uint32_t)MIB)

// Nodes and handles given back in one turn of the loop.
#define GIVEN_BACK_PER_TURN 4096

// --- telling the supervisor ---

static void on_bad(struct loop_msg *msg)
{
    struct session *s = container_of(msg, struct session, bad.msg);
    struct vhost_event e = {.kind = VHOST_BAD, .session = s->number};

    s->bad.reported = true;
    memcpy(e.text, s->bad.text, sizeof(e.text));
    if (!atomic_load(&s->ending))
        s->vhost->config.event(s->vhost->config.arg, &e);
    session_end_if_idle(s);
}

void session_bad(struct session *s, const char *fmt, ...)
{
    va_list args;

    if (atomic_exchange(&s->bad.is, true))
        return;
    va_start(args, fmt);
    vsnprintf(s->bad.text, sizeof(s->bad.text), fmt, args);
    va_end(args);
    atomic_fetch_add_explicit(&s->vhost->bad, 1, memory_order_relaxed);
    loop_post(s->vhost->loop, &s->bad.msg, on_bad);
}

static void done(struct session *s, uint64_t value)
{
    const struct vhost_event e = {
        .kind = VHOST_DONE, .session = s->number, .seq = s->current.seq, .value = value};

    s->vhost->config.event(s->vhost->config.arg, &e);
}

// --- life ---

static int open_parts(struct session *s, const struct vhost_command *c, int memory_fd)
{
    const struct vhost_config *v = &s->vhost->config;
    struct fuse_session_config config = {
        .wire = &session_wire,
        .wire_arg = s,
        .ops = v->ops,
        .fs = v->fs,
        .max_read = MAX_READ,
        .max_readahead = v->max_readahead,
        .max_background = v->max_background,
        .max_read_landing = CACHE_EXTENT,
        .peer_uid = c->peer.uid,
        .peer_gid = c->peer.gid,
        .peer_pid = c->peer.pid,
        .source = v->source,
        .endpoint = v->endpoint,
    };
    int rc = session_memory_open(&s->memory, memory_fd);

    if (rc == 0)
        rc = fuse_holdings_open(&s->holdings, s->memory.fd, session_memory_holdings_offset());
    if (rc < 0)
        return rc;
    config.holdings = s->holdings;
    config.unique_key = s->memory.head->unique_key;
    s->map = region_map_new(v->gpu_memory, v->n_gpu_memory);
    config.gpu = &s->gpu;
    s->fuse = fuse_session_new(&config, &s->memory.head->negotiated);
    session_gpu_init(s);
    windows_resume(s);
    return 0;
}

struct session *session_new(struct vhost *v, const struct vhost_command *c, int memory_fd)
{
    struct session *s = xcalloc(1, sizeof(*s));
    int rc;

    s->vhost = v;
    s->number = c->session;
    s->peer_uid = c->peer.uid;
    s->peer_pid = c->peer.pid;
    s->memory.fd = -1;
    list_init(&s->waiting);
    list_init(&s->in_progress);
    for (unsigned i = 0; i < VHOST_QUEUES; i++) {
        s->queues[i].session = s;
        s->queues[i].index = i;
    }
    list_push_back(&v->sessions, &s->link);
    atomic_fetch_add_explicit(&v->n_sessions, 1, memory_order_relaxed);
    s->current = *c;
    rc = open_parts(s, c, memory_fd);
    if (rc < 0)
        session_bad(s, "the session's memory: %s", strerror(-rc));
    else
        done(s, 0);
    return s;
}

static void session_free(struct session *s)
{
    list_for_each_safe (it, &s->waiting) {
        struct waiting_command *w = list_entry(it, struct waiting_command, link);

        if (w->fd >= 0)
            close(w->fd);
        free(w);
    }
    list_remove(&s->link);
    atomic_fetch_sub_explicit(&s->vhost->n_sessions, 1, memory_order_relaxed);
    requests_free(s);
    engine_free(s->engine);
    fuse_session_free(s->fuse);
    fuse_holdings_close(s->holdings);
    session_memory_close(&s->memory);
    region_map_free(s->map);
    free(s);
}

static void on_give_back(struct loop_msg *msg)
{
    struct session *s = container_of(msg, struct session, give_back);

    s->giving_back = false;
    session_end_if_idle(s);
}

// True: everything that the host held has been given back.
static bool gave_back(struct session *s)
{
    if (!s->fuse || fuse_session_give_back(s->fuse, GIVEN_BACK_PER_TURN))
        return true;
    s->giving_back = true;
    loop_post(s->vhost->loop, &s->give_back, on_give_back);
    return false;
}

void session_end_if_idle(struct session *s)
{
    if (!s->gone || s->giving_back || !list_empty(&s->in_progress))
        return;
    if (session_is_bad(s) && !s->bad.reported)
        return;
    for (unsigned i = 0; i < VHOST_QUEUES; i++)
        if (s->queues[i].turn_posted)
            return;
    if (!gave_back(s))
        return;
    done(s, 0);
    session_free(s);
}

// --- commands ---

static void carry_out(struct session *s, const struct vhost_command *c, int fd);

static void next_command(struct session *s)
{
    s->busy = false;
    list_for_each_safe (it, &s->waiting) {
        struct waiting_command *w = list_entry(it, struct waiting_command, link);

        if (s->busy)
            break;
        list_remove(it);
        carry_out(s, &w->command, w->fd);
        free(w);
    }
}

static void fence(struct session *s, void (*fn)(struct cache_fence *f))
{
    s->busy = true;
    s->fence.done = fn;
    cache_fence_start(s->vhost->config.cache, &s->fence);
}

static struct region_info info_of(const struct vhost_command *c)
{
    return (struct region_info){
        .addr = c->region.addr,
        .user_addr = c->region.user_addr,
        .size = c->region.size,
        .fd_offset = c->region.fd_offset,
    };
}

// Which way this host's bytes take into a region: said once for each way.
static void log_region(struct session *s, const struct region_info *r)
{
    static const char *const ways[] = {
        "received into if the host is libos2g, else copied into",
        "copied into: it is not sealed against shrinking (F_SEAL_SHRINK)",
        "a GPU's, reached through .os2g/gdd of the mount",
    };
    struct region_piece p;
    unsigned way = region_translate(s->map, r->addr, 1, &p) < 0 ? 2 : !p.sealed;

    if (s->ways_logged & 1u << way)
        return;
    s->ways_logged |= 1u << way;
    log_info("vhost", "session %u (pid %u, uid %u): memory of %llu KiB is %s", s->number,
             s->peer_pid, s->peer_uid, (unsigned long long)(r->size / KIB), ways[way]);
}

static void add_region(struct session *s, const struct vhost_command *c, int fd)
{
    const struct region_info info = info_of(c);
    uint64_t id;
    int rc;

    if (window_take_fd(s, &info, fd)) {
        done(s, 0);
        return;
    }
    rc = region_add(s->map, &info, fd, &id);
    if (rc < 0) {
        if (fd >= 0)
            close(fd);
        session_bad(s, "memory at %#llx, %llu bytes: %s", (unsigned long long)info.addr,
                    (unsigned long long)info.size, strerror(-rc));
        return;
    }
    log_region(s, &info);
    done(s, 0);
}

static void on_region_fenced(struct cache_fence *f)
{
    struct session *s = container_of(f, struct session, fence);

    region_remove_end(s->map, s->removing);
    done(s, 0);
    next_command(s);
}

static void on_window_removed(struct session *s)
{
    done(s, 0);
    next_command(s);
}

static bool holds_ring(struct session *s, uint64_t region)
{
    for (unsigned i = 0; i < VHOST_QUEUES; i++)
        if (s->queues[i].running && virtq_touches(&s->queues[i].q, region))
            return true;
    return false;
}

static void remove_region(struct session *s, const struct vhost_command *c)
{
    const struct region_info info = info_of(c);
    uint64_t id;

    switch (window_drop_fd(s, &info, on_window_removed)) {
    case 0:
        done(s, 0);
        return;
    case -EINPROGRESS:
        s->busy = true;
        return;
    default:
        break; // a region like any other
    }
    id = region_find(s->map, &info);
    if (!id) {
        session_bad(s, "no memory is shared at %#llx", (unsigned long long)info.addr);
        return;
    }
    if (holds_ring(s, id)) {
        session_bad(s, "the memory of a running ring is taken away");
        return;
    }
    s->removing = id;
    region_remove_begin(s->map, id);
    cut_off_region(s, id);
    fence(s, on_region_fenced);
}

static void start_queue(struct session *s, struct queue *q, const struct vhost_command *c, int fd)
{
    int rc = q->running ? -EBUSY : queue_start(q, c, fd);

    if (rc < 0) {
        if (fd >= 0)
            close(fd);
        session_bad(s, "queue %u cannot be started: %s", q->index, strerror(-rc));
        return;
    }
    done(s, 0);
}

static void on_queue_fenced(struct cache_fence *f)
{
    struct session *s = container_of(f, struct session, fence);

    done(s, queue_stop(&s->queues[s->current.queue]));
    next_command(s);
}

static void stop_queue(struct session *s, struct queue *q)
{
    if (!q->running) {
        session_bad(s, "queue %u does not run", q->index);
        return;
    }
    queue_pause(q);
    cut_off_queue(q);
    fence(s, on_queue_fenced);
}

static void set_call(struct session *s, struct queue *q, int fd)
{
    if (q->running)
        queue_set_call(q, fd);
    else if (fd >= 0)
        close(fd);
    done(s, 0);
}

// What is left is to wait until every request has been ended.
void session_window_ended(struct session *s)
{
    if (s->gone || !windows_ended(s))
        return;
    s->gone = true;
    session_end_if_idle(s);
}

// Nobody writes any more, but for engines.
static void on_session_fenced(struct cache_fence *f)
{
    struct session *s = container_of(f, struct session, fence);

    for (unsigned i = 0; i < VHOST_QUEUES; i++)
        if (s->queues[i].running)
            queue_stop(&s->queues[i]);
    requests_collect(s);
    s->fenced = true;
    leases_free(s->leases);
    s->leases = NULL;
    windows_end(s);
    session_window_ended(s);
}

static void remove_session(struct session *s)
{
    atomic_store(&s->ending, true);
    for (unsigned i = 0; i < VHOST_QUEUES; i++)
        if (s->queues[i].running)
            queue_pause(&s->queues[i]);
    for (unsigned i = 0; i < VHOST_QUEUES; i++)
        cut_off_queue(&s->queues[i]);
    if (s->leases)
        leases_cut(s->leases, 0);
    fence(s, on_session_fenced);
}

static bool makes_sense(const struct session *s, const struct vhost_command *c)
{
    bool for_queue =
        c->kind == VHOST_QUEUE_START || c->kind == VHOST_QUEUE_CALL || c->kind == VHOST_QUEUE_STOP;

    return c->kind == VHOST_SESSION_REMOVE || (s->map && (!for_queue || c->queue < VHOST_QUEUES));
}

static void carry_out(struct session *s, const struct vhost_command *c, int fd)
{
    s->current = *c;
    switch (makes_sense(s, c) ? c->kind : 0) {
    case VHOST_REGION_ADD:
        add_region(s, c, fd);
        return;
    case VHOST_QUEUE_START:
        start_queue(s, &s->queues[c->queue], c, fd);
        return;
    case VHOST_QUEUE_CALL:
        set_call(s, &s->queues[c->queue], fd);
        return;
    case VHOST_SESSION_REMOVE:
        remove_session(s);
        break;
    case VHOST_REGION_REMOVE:
        remove_region(s, c);
        break;
    case VHOST_QUEUE_STOP:
        stop_queue(s, &s->queues[c->queue]);
        break;
    default:
        session_bad(s, "a command that makes no sense");
    }
    if (fd >= 0)
        close(fd);
}

void session_command(struct session *s, const struct vhost_command *c, int fd)
{
    struct waiting_command *w;

    if (!s->busy) {
        carry_out(s, c, fd);
        return;
    }
    w = xcalloc(1, sizeof(*w));
    w->command = *c;
    w->fd = fd;
    list_push_back(&s->waiting, &w->link);
}
