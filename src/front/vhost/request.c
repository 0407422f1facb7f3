// SPDX-License-Identifier: Apache-2.0
// A request in progress: its message copied out of the host's memory, its answer written there.
#include "base/log.h"
#include "front/vhost/session.h"
#include "wire/ops.h"

#include <stdlib.h>
#include <string.h>

// All requests of a session together may take so much private memory; 1,024 READs of 1 MiB from
// a guest take a third of it.
#define SESSION_BYTES_MAX (64 * MIB)

static int send_error(struct request *r, int error);
static void wire_finished(struct fuse_request *fuse);

static struct request *request_of(struct fuse_request *r)
{
    return container_of(r, struct request, fuse);
}

// --- room ---

static void recycle(struct request *r)
{
    struct session *s = r->session;

    list_remove(&r->link);
    if (r->large) {
        s->bytes -= MESSAGE_MAX;
        free(r->large);
        r->large = NULL;
    }
    r->next = s->free;
    s->free = r;
}

void requests_collect(struct session *s)
{
    struct request *r;

    if (!atomic_load_explicit(&s->freed, memory_order_relaxed))
        return;
    r = atomic_exchange_explicit(&s->freed, NULL, memory_order_acquire);
    while (r) {
        struct request *next = r->next;

        recycle(r);
        r = next;
    }
}

void requests_free(struct session *s)
{
    struct request *r = s->free;

    while (r) {
        struct request *next = r->next;

        free(r->out);
        free(r->iov);
        free(r);
        r = next;
    }
    s->free = NULL;
}

static struct request *request_new(struct queue *q, uint16_t head)
{
    struct session *s = q->session;
    struct request *r;

    requests_collect(s);
    r = s->free;
    if (r) {
        s->free = r->next;
    } else {
        r = xcalloc(1, sizeof(*r));
        r->session = s;
        s->bytes += sizeof(*r);
    }
    r->queue = q;
    r->head = head;
    r->outcome = UNDECIDED;
    r->used = 0;
    r->cancelled = false;
    r->n_out = 0;
    r->out_len = 0;
    atomic_store_explicit(&r->fate, FATE_ANSWER, memory_order_relaxed);
    list_push_back(&s->in_progress, &r->link);
    return r;
}

static int make_room(struct request *r, unsigned n)
{
    size_t more = (n - MIN(n, r->out_room)) * (sizeof(*r->out) + sizeof(*r->iov));
    struct region_piece *out;
    struct iovec *iov;

    if (n <= r->out_room)
        return 0;
    if (r->session->bytes + more > SESSION_BYTES_MAX)
        return -ENOMEM;
    out = realloc(r->out, n * sizeof(*out));
    if (out)
        r->out = out;
    iov = realloc(r->iov, n * sizeof(*iov));
    if (iov)
        r->iov = iov;
    if (!out || !iov)
        return -ENOMEM;
    r->out_room = n;
    r->session->bytes += more;
    return 0;
}

// --- in ---

static bool follows(const struct region_piece *a, const struct region_piece *b)
{
    return a->id == b->id && a->offset + a->len == b->offset && a->base &&
           (char *)a->base + a->len == b->base;
}

// Keeps the device-writable pieces, neighbours as one.
static int keep_out(struct request *r, const struct virtq_chain *c)
{
    const struct region_piece *from = c->pieces + c->n_in;
    unsigned n = 0;

    for (unsigned i = 0; i < c->n_out; i++)
        n += i == 0 || !follows(&from[i - 1], &from[i]);
    if (make_room(r, n) < 0)
        return -ENOMEM;
    for (unsigned i = 0; i < c->n_out; i++) {
        if (i == 0 || !follows(&from[i - 1], &from[i]))
            r->out[r->n_out++] = from[i];
        else
            r->out[r->n_out - 1].len += from[i].len;
    }
    r->out_len = c->out_len;
    return 0;
}

static int copy_in(unsigned char *to, size_t len, const struct region_piece *pieces)
{
    for (const struct region_piece *p = pieces; len > 0; p++) {
        size_t n = MIN(len, p->len);

        if (!p->base || region_copy_in(to, p->base, n) < 0)
            return -EFAULT;
        to += n;
        len -= n;
    }
    return 0;
}

// Where the message is copied to, or NULL.
static unsigned char *message_room(struct request *r, size_t len)
{
    struct session *s = r->session;

    if (len <= sizeof(r->message))
        return r->message;
    if (s->bytes + MESSAGE_MAX > SESSION_BYTES_MAX)
        return NULL;
    r->large = malloc(MESSAGE_MAX);
    if (r->large)
        s->bytes += MESSAGE_MAX;
    return r->large;
}

// The part of the writable memory that a READ's or FETCH's data goes to. false: there is none, or
// it is such that nothing can land there.
static bool make_landing(struct request *r, size_t offset)
{
    struct region_piece *pieces = r->session->vhost->pieces; // the chain's, done with
    bool direct = fuse_session_negotiated(r->session->fuse)->hello != 0;
    uint64_t room = UINT32_MAX - offset; // as the header's len can say
    int n = 0;

    for (unsigned i = 0; i < r->n_out && room > 0; i++) {
        struct region_piece p = r->out[i];
        uint64_t skip = MIN(offset, p.len);

        offset -= skip;
        p.len = MIN(p.len - skip, room);
        p.offset += skip;
        if (p.base)
            p.base = (char *)p.base + skip;
        if (p.len == 0)
            continue;
        room -= p.len;
        pieces[n++] = p;
    }
    return offset == 0 && landing_init(&r->landing, pieces, r->iov, n, direct) == 0;
}

static void count(struct vhost *v, const struct fuse_in_header *h)
{
    atomic_fetch_add_explicit(&v->requests, 1, memory_order_relaxed);
    if (h->opcode == OS2G_OP_FETCH)
        atomic_fetch_add_explicit(&v->fetches, 1, memory_order_relaxed);
}

// A FORGET is used up before it is carried out: done twice, after a crash, it would take away
// references that the host still has; not done at all, it only leaves a node behind.
static void pass(struct request *r)
{
    if (virtq_push(&r->queue->q, r->head, 0) < 0)
        session_bad(r->session, "queue %u: the ring is not there any more", r->queue->index);
    r->outcome = DROP;
}

// libos2g may take memory back while requests that name it are in the ring, or in the log of a
// worker that has died: they end as they would have a moment later. Nobody else does that, nor can
// anything but data be without a place.
static void answer_nowhere(struct request *r, const struct fuse_in_header *h, size_t data)
{
    struct session *s = r->session;

    if (data == 0 || !fuse_session_negotiated(s->fuse)->hello) {
        session_bad(s, "queue %u: a descriptor outside the shared memory", r->queue->index);
        recycle(r);
        return;
    }
    count(s->vhost, h);
    atomic_fetch_add_explicit(&s->vhost->cut_off, 1, memory_order_relaxed);
    r->fuse.opcode = h->opcode;
    r->fuse.unique = h->unique;
    send_error(r, -ECANCELED);
    wire_finished(&r->fuse);
}

static void dispatch(struct request *r, const unsigned char *message, size_t len,
                     const struct virtq_chain *c)
{
    struct session *s = r->session;
    const struct fuse_in_header *h = (const void *)message;
    size_t data = fuse_session_data_offset(message, len);
    struct fuse_arrival arrival = {.replayed = c->replayed};

    if (c->nowhere) {
        answer_nowhere(r, h, data);
        return;
    }
    if (data > 0 && make_landing(r, data))
        arrival.dest = &r->landing.dest;
    count(s->vhost, h);
    if (h->opcode == FUSE_FORGET || h->opcode == FUSE_BATCH_FORGET)
        pass(r);
    if (fuse_session_dispatch(s->fuse, &r->fuse, message, len, &arrival) < 0) {
        session_bad(s, "queue %u: a message that is no request", r->queue->index);
        recycle(r);
    }
}

void request_take(struct queue *q, const struct virtq_chain *c)
{
    struct request *r = request_new(q, c->head);
    struct session *s = q->session;
    unsigned char *message = NULL;
    int rc = -EBADMSG;

    if (c->in_len >= sizeof(struct fuse_in_header) && c->in_len <= MESSAGE_MAX)
        rc = keep_out(r, c);
    if (rc == 0) {
        message = message_room(r, c->in_len);
        rc = message ? copy_in(message, c->in_len, c->pieces) : -ENOMEM;
    }
    if (rc == 0) {
        dispatch(r, message, c->in_len, c);
        return;
    }
    if (rc == -EBADMSG)
        session_bad(s, "queue %u: a message of %llu bytes", q->index,
                    (unsigned long long)c->in_len);
    else if (rc == -EFAULT)
        session_bad(s, "queue %u: a message in memory that cannot be read", q->index);
    else
        session_bad(s, "queue %u: too much memory is taken by requests", q->index);
    recycle(r);
}

// --- out, on any loop ---

static int write_out(const struct request *r, const struct iovec *iov, int n)
{
    const struct region_piece *p = r->out;
    uint64_t at = 0;

    for (int i = 0; i < n; i++) {
        const char *from = iov[i].iov_base;
        size_t left = iov[i].iov_len;

        while (left > 0) {
            size_t len;

            if (at == p->len) {
                p++;
                at = 0;
            }
            len = MIN(left, p->len - at);
            if (!p->base || region_copy_out((char *)p->base + at, from, len) < 0)
                return -EFAULT;
            from += len;
            left -= len;
            at += len;
        }
    }
    return 0;
}

static void push_later(struct request *r, uint32_t used)
{
    r->outcome = PUSH;
    r->used = used;
}

// 0 or -ENOENT: the host does not get this answer.
static int send_error(struct request *r, int error)
{
    struct fuse_out_header h = {.len = sizeof(h), .error = error, .unique = r->fuse.unique};
    const struct iovec iov = {&h, sizeof(h)};

    if (r->out_len < sizeof(h)) {
        // an INTERRUPT is answered only where there is room
        if (r->fuse.opcode != FUSE_INTERRUPT)
            session_bad(r->session, "a request without room for its answer");
        push_later(r, 0);
        return -ENOENT;
    }
    if (write_out(r, &iov, 1) < 0) {
        session_bad(r->session, "the memory for an answer is not there");
        r->outcome = DROP;
        return -ENOENT;
    }
    push_later(r, sizeof(h));
    return 0;
}

static int send_all(struct request *r, const struct fuse_out_header *h, const struct iovec *iov,
                    int n)
{
    if (write_out(r, iov, n) < 0) {
        session_bad(r->session, "the memory for an answer is not there");
        r->outcome = DROP;
        return -ENOENT;
    }
    push_later(r, h->len);
    return 0;
}

static void count_landed(struct request *r, uint64_t len)
{
    struct vhost *v = r->session->vhost;
    const struct landing *l = &r->landing;

    atomic_fetch_add_explicit(&v->read_bytes, len, memory_order_relaxed);
    atomic_fetch_add_explicit(l->engine        ? &v->landed_engine
                              : l->dest.direct ? &v->landed_direct
                                               : &v->landed_copied,
                              len, memory_order_relaxed);
}

static int wire_send(struct fuse_request *fuse, const struct iovec *iov, int n)
{
    struct request *r = request_of(fuse);
    const struct fuse_out_header *h = iov[0].iov_base;
    enum fate fate = atomic_load_explicit(&r->fate, memory_order_acquire);
    size_t here = 0;
    int rc;

    for (int i = 0; i < n; i++)
        here += iov[i].iov_len;
    if (fate == FATE_DETACHED || fate == FATE_MUTE) {
        if (fate == FATE_MUTE)
            push_later(r, 0);
        else
            r->outcome = DROP;
        return -ENOENT;
    }
    // a worker after us gets no INIT
    if (fuse->opcode == FUSE_INIT)
        r->session->memory.head->negotiated = *fuse_session_negotiated(r->session->fuse);
    if (fate == FATE_CUT) {
        send_error(r, -ECANCELED);
        return -ENOENT;
    }
    if (h->len > r->out_len) {
        rc = send_error(r, h->error ? h->error : -EIO);
        return h->error ? rc : -ENOENT;
    }
    if (h->len > here)
        count_landed(r, h->len - here);
    return send_all(r, h, iov, n);
}

static void on_home(struct loop_msg *msg)
{
    struct request *r = container_of(msg, struct request, home);
    struct session *s = r->session;

    recycle(r);
    session_end_if_idle(s);
}

static void give_back(struct request *r)
{
    struct session *s = r->session;
    struct request *head;

    if (atomic_load(&s->ending)) {
        loop_post(s->vhost->loop, &r->home, on_home);
        return;
    }
    if (loop_self() == s->vhost->loop) {
        recycle(r);
        return;
    }
    head = atomic_load_explicit(&s->freed, memory_order_relaxed);
    do {
        r->next = head;
    } while (!atomic_compare_exchange_weak(&s->freed, &head, r));
}

static void wire_finished(struct fuse_request *fuse)
{
    struct request *r = request_of(fuse);

    // one that is not answered
    if (r->outcome == UNDECIDED &&
        atomic_load_explicit(&r->fate, memory_order_acquire) != FATE_DETACHED)
        push_later(r, 0);
    if (r->outcome == PUSH && virtq_push(&r->queue->q, r->head, r->used) < 0)
        session_bad(r->session, "queue %u: the ring is not there any more", r->queue->index);
    give_back(r);
}

// --- the rest of the wire ---

static struct fuse_request *wire_find(void *arg, uint64_t unique)
{
    struct session *s = arg;

    requests_collect(s);
    list_for_each (it, &s->in_progress) {
        struct request *r = list_entry(it, struct request, link);

        if (r->fuse.unique == unique && r->fuse.opcode != FUSE_INTERRUPT)
            return &r->fuse;
    }
    return NULL;
}

static void wire_hello(void *arg)
{
    struct session *s = arg;
    const struct fuse_negotiated *n = fuse_session_negotiated(s->fuse);

    s->memory.head->negotiated = *n;
    s->gpu.checks_modes = false;
    log_info("vhost", "session %u: libos2g, version %u of the wire", s->number, n->hello);
}

const struct fuse_wire session_wire = {
    .send = wire_send,
    .finished = wire_finished,
    .find = wire_find,
    .hello = wire_hello,
    .region = window_request,
};
