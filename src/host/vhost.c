// SPDX-License-Identifier: Apache-2.0
// Requests on their way to the device and back.
#include "host/vhost.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local struct transport *plugged;
static _Thread_local unsigned plug_depth;

static struct vhost *from_base(struct transport *t)
{
    return container_of(t, struct vhost, base);
}

// --- sending; locked ---

void vhost_post_locked(struct vhost *v, struct transport_request *r, int error)
{
    uint64_t one = 1;

    r->slot = PLACE_ENDED;
    r->error = error;
    r->out_got = 0;
    r->data_got = 0;
    list_push_back(&v->locked.posted, &r->link);
    if (v->locked.post_fd >= 0 && write(v->locked.post_fd, &one, sizeof(one)) < 0)
        return; // it is readable already
}

static size_t in_bytes(const struct transport_request *r)
{
    size_t len = sizeof(struct fuse_in_header);

    for (unsigned i = 0; i < r->n_in; i++)
        len += r->in[i].iov_len;
    return len;
}

// False: there is no slot for it now.
static bool place_locked(struct vhost *v, struct transport_request *r)
{
    struct vhost_session *s = v->locked.session;
    bool large = slots_is_large(in_bytes(r), sizeof(struct fuse_out_header) + r->out_len);
    unsigned *n = large ? &v->locked.n_free_large : &v->locked.n_free_small, i;
    struct slot_message m;

    if (!*n)
        return false;
    i = (large ? v->locked.free_large : v->locked.free_small)[--*n];
    r->unique = v->locked.next_unique++;
    m = (struct slot_message){
        .head = session_header(s, r->opcode, r->nodeid, r->unique),
        .in = r->in,
        .n_in = r->n_in,
        .out_len = r->out_len,
        .data_address = r->memory ? r->memory->address + r->memory_offset : 0,
        .data_len = r->memory ? r->data_len : 0,
    };
    v->locked.slots[i] = (struct vhost_slot){r, true, r->unique, r->out_len, m.data_len};
    r->slot = (int)i;
    slots_fill(&s->slots, i, &s->requests, &m);
    ring_add(&s->requests, (uint16_t)i);
    v->locked.requests++;
    return true;
}

// As many forgets as fit into a slot of the hiprio queue.
#define FORGETS_IN_ONE 64

static void send_forgets_locked(struct vhost *v, unsigned i)
{
    struct vhost_session *s = v->locked.session;
    unsigned n = (unsigned)MIN(v->locked.n_forgets, FORGETS_IN_ONE);
    struct fuse_batch_forget_in head = {.count = n};
    struct fuse_forget_one one[FORGETS_IN_ONE];
    struct iovec iov[] = {{&head, sizeof(head)}, {one, n * sizeof(one[0])}};
    struct slot_message m = {
        .head = session_header(s, FUSE_BATCH_FORGET, 0, v->locked.next_unique++),
        .in = iov,
        .n_in = 2,
        .no_answer = true,
    };

    for (unsigned k = 0; k < n; k++) {
        struct forget *f = &v->locked.forgets[--v->locked.n_forgets];

        one[k] = (struct fuse_forget_one){f->node, f->n};
    }
    slots_fill(&s->hiprio_slots, i, &s->hiprio, &m);
    v->locked.forget_busy[i] = true;
    ring_add(&s->hiprio, (uint16_t)i);
}

static int free_hiprio_locked(struct vhost *v)
{
    for (unsigned i = 0; i < SESSION_FORGETS; i++)
        if (!v->locked.forget_busy[i])
            return (int)i;
    return -1;
}

// One that cannot be sent as it is goes elsewhere.
static bool divert_locked(struct vhost *v, struct transport_request *r)
{
    if (r->memory && r->memory->cut) {
        vhost_post_locked(v, r, -ECANCELED);
    } else if (r->generation && r->generation != v->locked.generation) {
        if (!r->renew) {
            vhost_post_locked(v, r, -ENOTCONN);
        } else {
            r->slot = PLACE_RENEWAL;
            list_push_back(&v->locked.renewals, &r->link);
        }
    } else {
        return false;
    }
    return true;
}

void vhost_send_locked(struct vhost *v)
{
    int i;

    if (v->locked.state != VHOST_UP)
        return;
    while (v->locked.n_forgets && (i = free_hiprio_locked(v)) >= 0)
        send_forgets_locked(v, (unsigned)i);
    list_for_each_safe (it, &v->locked.unsent) {
        struct transport_request *r = list_entry(it, struct transport_request, link);

        if (!v->locked.n_free_small && !v->locked.n_free_large)
            break;
        list_remove(&r->link);
        if (!divert_locked(v, r) && !place_locked(v, r))
            list_insert_between(&r->link, it_next->prev, it_next);
    }
}

void vhost_kick_locked(struct vhost *v)
{
    if (v->locked.state == VHOST_UP && plugged != &v->base)
        session_kick(v->locked.session);
}

static bool is_sound(const struct transport_request *r)
{
    return in_bytes(r) - sizeof(struct fuse_in_header) <= TRANSPORT_IN_MAX &&
           r->out_len <= TRANSPORT_OUT_MAX && r->data_len <= TRANSPORT_DATA_MAX &&
           (!r->memory || (r->memory_offset <= r->memory->size &&
                           r->data_len <= r->memory->size - r->memory_offset));
}

static int submit(struct transport *t, struct transport_request *r, bool nonblock)
{
    struct vhost *v = from_base(t);
    int rc = 0;

    if (!is_sound(r))
        return -EINVAL;
    r->slot = PLACE_UNSENT;
    r->cancelled = false;
    pthread_mutex_lock(&v->locked.lock.mutex);
    if (v->locked.state == VHOST_GONE) {
        v->locked.state = VHOST_DOWN;
        v->locked.retry_ns = v->locked.give_up_ns = 0;
    }
    if (v->locked.n_active >= v->depth)
        rc = nonblock ? -EAGAIN : vhost_wait_room_locked(v, clock_monotonic_ns() + v->timeout_ns);
    if (rc == 0) {
        v->locked.n_active++;
        list_push_back(&v->locked.unsent, &r->link);
        vhost_send_locked(v);
        vhost_kick_locked(v);
        if (r->slot == PLACE_ENDED || r->slot == PLACE_RENEWAL)
            vhost_wake_locked(v);
    }
    pthread_mutex_unlock(&v->locked.lock.mutex);
    return rc;
}

static void post(struct transport *t, struct transport_request *r)
{
    struct vhost *v = from_base(t);
    uint32_t out_got = r->out_got;
    uint64_t data_got = r->data_got;

    pthread_mutex_lock(&v->locked.lock.mutex);
    v->locked.n_active++;
    vhost_post_locked(v, r, r->error);
    r->out_got = out_got;
    r->data_got = data_got;
    vhost_wake_locked(v);
    pthread_mutex_unlock(&v->locked.lock.mutex);
}

static void plug(struct transport *t)
{
    plugged = t;
    plug_depth++;
}

static void unplug(struct transport *t)
{
    struct vhost *v = from_base(t);

    if (--plug_depth)
        return;
    plugged = NULL;
    pthread_mutex_lock(&v->locked.lock.mutex);
    vhost_kick_locked(v);
    pthread_mutex_unlock(&v->locked.lock.mutex);
}

// INTERRUPT takes a slot of the hiprio queue; when none is free the request just takes its time.
static void send_interrupt_locked(struct vhost *v, uint64_t unique)
{
    struct vhost_session *s = v->locked.session;
    struct fuse_interrupt_in in = {.unique = unique};
    struct iovec iov = {&in, sizeof(in)};
    struct slot_message m = {
        .head = session_header(s, FUSE_INTERRUPT, 0, v->locked.next_unique++),
        .in = &iov,
        .n_in = 1,
    };
    int i = free_hiprio_locked(v);

    if (i < 0)
        return;
    slots_fill(&s->hiprio_slots, (unsigned)i, &s->hiprio, &m);
    v->locked.forget_busy[i] = true;
    ring_add(&s->hiprio, (uint16_t)i);
    session_kick(s);
}

static void cancel(struct transport *t, struct transport_request *r)
{
    struct vhost *v = from_base(t);

    pthread_mutex_lock(&v->locked.lock.mutex);
    if (r->slot == PLACE_UNSENT || r->slot == PLACE_RENEWAL) {
        list_remove(&r->link);
        vhost_post_locked(v, r, -ECANCELED);
        vhost_wake_locked(v);
    } else if (r->slot >= 0 && !r->cancelled && v->locked.state == VHOST_UP) {
        send_interrupt_locked(v, r->unique);
    }
    r->cancelled = true;
    pthread_mutex_unlock(&v->locked.lock.mutex);
}

static void forget(struct transport *t, unsigned generation, uint64_t nodeid, uint64_t n)
{
    struct vhost *v = from_base(t);

    pthread_mutex_lock(&v->locked.lock.mutex);
    if (generation == v->locked.generation && v->locked.state == VHOST_UP) {
        if (v->locked.n_forgets == v->locked.size_forgets) {
            v->locked.size_forgets = v->locked.size_forgets ? 2 * v->locked.size_forgets : 64;
            v->locked.forgets =
                xrealloc(v->locked.forgets, v->locked.size_forgets * sizeof(struct forget));
        }
        v->locked.forgets[v->locked.n_forgets++] = (struct forget){nodeid, n};
        // else with the next requests
        if (v->locked.n_forgets >= FORGETS_IN_ONE)
            vhost_send_locked(v);
    }
    pthread_mutex_unlock(&v->locked.lock.mutex);
}

// --- the device's answers; locked ---

static void free_slot_locked(struct vhost *v, unsigned i)
{
    v->locked.slots[i] = (struct vhost_slot){0};
    if (i < v->locked.session->slots.n_small)
        v->locked.free_small[v->locked.n_free_small++] = i;
    else
        v->locked.free_large[v->locked.n_free_large++] = i;
}

// 0; -EBADMSG: the device has answered what was not asked, or nonsense.
static int take_answer_locked(struct vhost *v, uint32_t i, struct list *ended)
{
    struct vhost_slot *slot;
    struct transport_request *r;
    struct slot_answer a;

    if (i >= slots_count(&v->locked.session->slots) || !v->locked.slots[i].busy)
        return -EBADMSG;
    slot = &v->locked.slots[i];
    if (slots_answer(&v->locked.session->slots, i, slot->unique, slot->out_len, slot->data_len,
                     &a) < 0)
        return -EBADMSG;
    r = slot->request;
    if (r) {
        if (a.out_got)
            memcpy(r->out, a.out, a.out_got);
        r->out_got = a.out_got;
        r->data_got = a.data_got;
        r->error = a.error;
        if (!a.error && !r->out_variable && a.out_got < slot->out_len)
            r->error = -EIO;
        if (r->error == -EINTR && r->cancelled)
            r->error = -ECANCELED;
        r->slot = PLACE_ENDED;
        list_push_back(ended, &r->link);
        v->locked.bytes += r->data_got;
        if (r->error)
            v->locked.errors++;
    }
    free_slot_locked(v, i);
    v->locked.answered = true;
    return 0;
}

static int collect_ring_locked(struct vhost *v, struct list *ended)
{
    struct vhost_session *s = v->locked.session;
    uint32_t id, len;
    int rc;

    while ((rc = ring_take(&s->hiprio, &id, &len)) > 0) {
        if (id >= SESSION_FORGETS || !v->locked.forget_busy[id])
            return -EBADMSG;
        v->locked.forget_busy[id] = false;
    }
    while (rc == 0 && (rc = ring_take(&s->requests, &id, &len)) > 0)
        rc = take_answer_locked(v, id, ended);
    return rc;
}

void vhost_collect_locked(struct vhost *v, struct list *ended, struct list *renewals)
{
    if (v->locked.state == VHOST_UP) {
        if (collect_ring_locked(v, ended) < 0)
            vhost_lost_locked(v, "it has answered nonsense");
        vhost_send_locked(v);
    }
    list_splice_back(ended, &v->locked.posted);
    // in no session nothing can be put right
    if (v->locked.state == VHOST_UP) {
        list_for_each (it, &v->locked.renewals)
            list_entry(it, struct transport_request, link)->slot = PLACE_RENEWING;
        list_splice_back(renewals, &v->locked.renewals);
    }
    list_for_each (it, ended)
        v->locked.n_active--;
    if (!list_empty(ended) && v->locked.n_room_waiters)
        vhost_wake_room_locked(v);
}

// The request has been put right, or not.
static void renewed(struct vhost *v, struct transport_request *r, int error)
{
    pthread_mutex_lock(&v->locked.lock.mutex);
    if (r->cancelled || (error && error != -ENOTCONN)) {
        vhost_post_locked(v, r, r->cancelled ? -ECANCELED : error);
    } else {
        // after -ENOTCONN it waits for one more session
        r->slot = PLACE_UNSENT;
        list_push_back(&v->locked.unsent, &r->link);
        vhost_send_locked(v);
        vhost_kick_locked(v);
    }
    pthread_mutex_unlock(&v->locked.lock.mutex);
}

unsigned vhost_run(struct vhost *v, struct list *ended, struct list *renewals)
{
    unsigned n = 0;

    while (!list_empty(ended)) {
        struct transport_request *r = list_first(ended, struct transport_request, link);

        list_remove(&r->link);
        r->done(r, r->error, r->out_got, r->data_got);
        n++;
    }
    if (n && v->base.room)
        v->base.room(v->base.room_arg);
    while (!list_empty(renewals)) {
        struct transport_request *r = list_first(renewals, struct transport_request, link);

        list_remove(&r->link);
        renewed(v, r, r->renew(r));
        n++;
    }
    return n;
}

static unsigned generation(struct transport *t)
{
    struct vhost *v = from_base(t);
    unsigned g;

    pthread_mutex_lock(&v->locked.lock.mutex);
    g = v->locked.generation;
    pthread_mutex_unlock(&v->locked.lock.mutex);
    return g;
}

static void stats(struct transport *t, struct os2g_stats *ret)
{
    struct vhost *v = from_base(t);

    pthread_mutex_lock(&v->locked.lock.mutex);
    ret->requests = v->locked.requests;
    ret->bytes = v->locked.bytes;
    ret->errors = v->locked.errors;
    ret->reconnects = v->locked.reconnects;
    if (v->locked.session)
        memcpy(ret->release, v->locked.session->release, sizeof(ret->release));
    pthread_mutex_unlock(&v->locked.lock.mutex);
}

const struct transport_kind vhost_kind = {
    .way = "shared memory",
    .free = vhost_free,
    .submit = submit,
    .post = post,
    .plug = plug,
    .unplug = unplug,
    .cancel = cancel,
    .forget = forget,
    .wait = vhost_wait,
    .flag = vhost_flag,
    .poll = vhost_poll,
    .event_fd = vhost_event_fd,
    .generation = generation,
    .stats = stats,
    .memory_add = vhost_memory_add,
    .memory_add_cuda = vhost_memory_add_cuda,
    .memory_cut = vhost_memory_cut,
    .memory_remove = vhost_memory_remove,
    .after_fork = vhost_after_fork,
};
