// SPDX-License-Identifier: Apache-2.0
#include "front/devfuse/devfuse.h"

#include "base/counter.h"
#include "base/log.h"
#include "front/devfuse/slots.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Requests read in one turn of the loop, before its messages get theirs.
#define READS_PER_TURN 32

struct devfuse {
    struct devfuse_config config;
    struct loop *loop;
    struct loop_io *io;
    struct fuse_session *session;
    struct slots slots;
    struct slot *reading; // what the next read fills

    // A FORGET or INTERRUPT is done with when its dispatch returns: it is copied here and its slot
    // read into again.
    struct slot passing;
    _Alignas(8) unsigned char passing_message[SLOT_MESSAGE];

    // All slots are busy and reading has stopped; whoever gives back the next one clears it and
    // posts resume.
    atomic_bool starved;
    bool paused; // since starved was set
    struct loop_msg resume;

    struct loop_msg start;
    bool started;
    bool freed; // by the message that is still on its way

    struct counter requests, read_bytes;
    _Atomic uint64_t replies_late;
};

// --- answers, on any loop ---

static struct slot *slot_of(struct fuse_request *r)
{
    return container_of(r, struct slot, request);
}

static int wire_send(struct fuse_request *r, const struct iovec *iov, int n)
{
    struct devfuse *d = slot_of(r)->devfuse;
    ssize_t rc;

    // a worker after us gets no INIT
    if (r->opcode == FUSE_INIT)
        *slots_negotiated(&d->slots) = *fuse_session_negotiated(d->session);
    do {
        rc = writev(d->config.fuse_fd, iov, n);
    } while (rc < 0 && errno == EINTR);
    if (rc >= 0)
        return 0;
    if (errno != ENOENT)
        return -errno;
    atomic_fetch_add_explicit(&d->replies_late, 1, memory_order_relaxed);
    return -ENOENT;
}

static void on_resume(struct loop_msg *msg)
{
    struct devfuse *d = container_of(msg, struct devfuse, resume);

    d->paused = false;
    if (d->freed)
        devfuse_free(d);
    else if (d->io)
        loop_io_want(d->io, LOOP_READ);
}

static void wire_finished(struct fuse_request *r)
{
    struct slot *slot = slot_of(r);
    struct devfuse *d = slot->devfuse;

    if (slot == &d->passing)
        return;
    slots_give_back(&d->slots, slot);
    if (atomic_load(&d->starved) && atomic_exchange(&d->starved, false))
        loop_post(d->loop, &d->resume, on_resume);
}

static struct fuse_request *wire_find(void *arg, uint64_t unique)
{
    struct devfuse *d = arg;
    struct slot *slot = slots_find(&d->slots, unique);

    return slot ? &slot->request : NULL;
}

static const struct fuse_wire wire = {
    .send = wire_send,
    .finished = wire_finished,
    .find = wire_find,
};

// --- requests ---

static void gone(struct devfuse *d, int error)
{
    if (error != -ENODEV)
        log_warning("devfuse", "reading /dev/fuse: %s", strerror(-error));
    loop_io_free(d->io);
    d->io = NULL;
    d->config.gone(d->config.arg);
}

static void count(struct devfuse *d, const void *message, size_t len)
{
    const struct fuse_in_header *h = message;

    counter_add(&d->requests, 1);
    if (h->opcode == FUSE_READ && len >= sizeof(*h) + sizeof(struct fuse_read_in))
        counter_add(&d->read_bytes, ((const struct fuse_read_in *)(h + 1))->size);
}

static bool passes(const void *message)
{
    const struct fuse_in_header *h = message;

    return h->opcode == FUSE_FORGET || h->opcode == FUSE_BATCH_FORGET ||
           h->opcode == FUSE_INTERRUPT;
}

static void dispatch(struct devfuse *d, struct slot *slot, const void *message, size_t len,
                     bool replayed)
{
    const struct fuse_arrival arrival = {.replayed = replayed};

    if (fuse_session_dispatch(d->session, &slot->request, message, len, &arrival) == 0)
        return;
    log_warning("devfuse", "a message of %zu bytes that is no request", len);
    wire_finished(&slot->request);
}

// The slot's message is emptied before the request is carried out: done twice, after a crash, a
// FORGET would take away references that the kernel still has; not done at all, it only leaves
// a node behind.
static void pass(struct devfuse *d, struct slot *slot, size_t len)
{
    memcpy(d->passing_message, slot->shared->message, len);
    slots_empty_message(slot);
    dispatch(d, &d->passing, d->passing_message, len, false);
}

static void received(struct devfuse *d, size_t len)
{
    struct slot *slot = d->reading;

    count(d, slot->shared->message, len);
    if (passes(slot->shared->message)) {
        pass(d, slot, len);
        return;
    }
    slots_busy(slot);
    d->reading = NULL;
    dispatch(d, slot, slot->shared->message, len, false);
}

static void recovered(void *arg, struct slot *slot, size_t len)
{
    struct devfuse *d = arg;

    count(d, slot->shared->message, len);
    if (passes(slot->shared->message)) {
        pass(d, slot, len);
        slots_give_back(&d->slots, slot);
    } else {
        dispatch(d, slot, slot->shared->message, len, true);
    }
}

// Stops reading until a slot is given back. One may have been just before starved was set: then
// whoever clears it, we here or the other loop with a message, starts reading again.
static void starve(struct devfuse *d)
{
    d->paused = true;
    atomic_store(&d->starved, true);
    d->reading = slots_take(&d->slots);
    if (d->reading && atomic_exchange(&d->starved, false))
        d->paused = false;
    else
        loop_io_want(d->io, 0);
}

static void on_readable(struct loop_io *io, unsigned events, void *arg)
{
    struct devfuse *d = arg;

    for (unsigned i = 0; i < READS_PER_TURN; i++) {
        ssize_t n;

        if (!d->reading)
            d->reading = slots_take(&d->slots);
        if (!d->reading) {
            starve(d);
            return;
        }
        n = read(d->config.fuse_fd, d->reading->shared->message, SLOT_MESSAGE);
        if (n > 0) {
            received(d, (size_t)n);
        } else if (n < 0 && errno == EAGAIN) {
            return;
        } else if (n == 0 || (errno != EINTR && errno != ENOENT)) {
            // ENOENT: the request was interrupted while it was copied
            gone(d, n == 0 ? -ENODEV : -errno);
            return;
        }
    }
}

// --- life ---

static void on_start(struct loop_msg *msg)
{
    struct devfuse *d = container_of(msg, struct devfuse, start);

    d->started = true;
    if (d->freed) {
        devfuse_free(d);
        return;
    }
    slots_recover(&d->slots, recovered, d);
    loop_io_want(d->io, LOOP_READ);
}

static int set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

static struct fuse_session *session_new(struct devfuse *d)
{
    const struct devfuse_config *c = &d->config;
    struct fuse_session_config config = {
        .wire = &wire,
        .wire_arg = d,
        .ops = c->ops,
        .fs = c->fs,
        .max_read = c->max_read ? c->max_read : DEVFUSE_MAX_READ,
        .max_readahead = c->max_readahead,
        .max_background = c->max_background,
        .deny_others = c->allow_root,
        .owner_uid = c->owner_uid,
    };

    return fuse_session_new(&config, slots_negotiated(&d->slots));
}

int devfuse_new(struct devfuse **ret, struct loop *l, const struct devfuse_config *c)
{
    struct devfuse *d = xcalloc(1, sizeof(*d));
    int rc;

    d->config = *c;
    d->loop = l;
    d->passing.devfuse = d;
    rc = set_nonblocking(c->fuse_fd);
    if (rc == 0)
        rc = slots_init(&d->slots, c->slots_fd, d);
    if (rc == 0)
        rc = loop_io_new(&d->io, l, c->fuse_fd, on_readable, d);
    if (rc < 0) {
        slots_fini(&d->slots);
        free(d);
        return rc;
    }
    d->session = session_new(d);
    loop_post(l, &d->start, on_start);
    *ret = d;
    return 0;
}

void devfuse_free(struct devfuse *d)
{
    if (!d)
        return;
    loop_io_free(d->io);
    d->io = NULL;
    if (!d->started || (d->paused && !atomic_exchange(&d->starved, false))) {
        d->freed = true;
        return;
    }
    fuse_session_free(d->session);
    slots_fini(&d->slots);
    free(d);
}

unsigned devfuse_in_flight(struct devfuse *d)
{
    return slots_in_use(&d->slots);
}

void devfuse_stats_read(const struct devfuse *d, struct devfuse_stats *ret)
{
    *ret = (struct devfuse_stats){
        .requests = counter_read(&d->requests),
        .replies_late = atomic_load_explicit(&d->replies_late, memory_order_relaxed),
        .read_bytes = counter_read(&d->read_bytes),
    };
}
