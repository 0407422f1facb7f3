// SPDX-License-Identifier: Apache-2.0
// Who collects: everybody who waits or polls; what has ended is told by who finds it first.
#include "host/guest.h"

#include "wire/ops.h"

#include <sys/eventfd.h>
#include <unistd.h>

void guest_wake_locked(struct guest *g)
{
    uint64_t one = 1;

    pthread_cond_broadcast(&g->locked.ended);
    if (g->locked.event_fd >= 0 && write(g->locked.event_fd, &one, sizeof(one)) < 0)
        return; // it is readable already
}

void guest_end_locked(struct guest *g, struct transport_request *r, int error, uint32_t out_got,
                      uint64_t data_got)
{
    r->slot = GUEST_ENDED;
    r->error = error;
    r->out_got = error ? 0 : out_got;
    // an object that is larger than its room still tells how large it is
    if (r->opcode == OS2G_OP_FETCH && error == -EFBIG)
        r->out_got = out_got;
    r->data_got = error ? 0 : data_got;
    g->locked.errors += error != 0;
    g->locked.bytes += r->data_got;
    g->locked.n_active--;
    list_push_back(&g->locked.done, &r->link);
    pthread_cond_signal(&g->locked.left);
    guest_wake_locked(g);
}

void guest_post(struct transport *t, struct transport_request *r)
{
    struct guest *g = guest_of(t);

    pthread_mutex_lock(&g->locked.lock.mutex);
    r->slot = GUEST_ENDED;
    list_push_back(&g->locked.done, &r->link);
    guest_wake_locked(g);
    pthread_mutex_unlock(&g->locked.lock.mutex);
}

// Calls done for what has ended, and renew for what belongs to a parent process; how many.
static unsigned collect(struct guest *g)
{
    struct list ended = LIST_INIT(ended), renewals = LIST_INIT(renewals);
    unsigned n = 0;

    pthread_mutex_lock(&g->locked.lock.mutex);
    list_splice_back(&ended, &g->locked.done);
    list_splice_back(&renewals, &g->locked.renewals);
    pthread_mutex_unlock(&g->locked.lock.mutex);
    while (!list_empty(&renewals)) {
        struct transport_request *r = list_first(&renewals, struct transport_request, link);
        int rc;

        list_remove(&r->link);
        rc = r->renew(r);
        if (rc == 0) {
            guest_start(g, r);
        } else {
            pthread_mutex_lock(&g->locked.lock.mutex);
            guest_end_locked(g, r, rc, 0, 0);
            pthread_mutex_unlock(&g->locked.lock.mutex);
        }
        n++;
    }
    while (!list_empty(&ended)) {
        struct transport_request *r = list_first(&ended, struct transport_request, link);

        list_remove(&r->link);
        r->done(r, r->error, r->out_got, r->data_got);
        n++;
    }
    if (n && g->base.room)
        g->base.room(g->base.room_arg);
    return n;
}

struct timespec guest_until(uint64_t deadline_ns)
{
    uint64_t at = MIN(deadline_ns, clock_monotonic_ns() + 60 * NS_PER_S);

    return (struct timespec){(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)};
}

int guest_wait(struct transport *t, const _Atomic uint32_t *flag, const _Atomic uint32_t *missing,
               uint64_t deadline_ns)
{
    struct guest *g = guest_of(t);

    while (!atomic_load_explicit(flag, memory_order_acquire)) {
        struct timespec ts = guest_until(deadline_ns);

        if (collect(g))
            continue;
        if (clock_monotonic_ns() >= deadline_ns)
            return -ETIMEDOUT;
        pthread_mutex_lock(&g->locked.lock.mutex);
        if (list_empty(&g->locked.done) && list_empty(&g->locked.renewals) && !atomic_load(flag))
            pthread_cond_timedwait(&g->locked.ended, &g->locked.lock.mutex, &ts);
        pthread_mutex_unlock(&g->locked.lock.mutex);
    }
    return 0;
}

void guest_flag(struct transport *t, _Atomic uint32_t *flag)
{
    struct guest *g = guest_of(t);

    pthread_mutex_lock(&g->locked.lock.mutex);
    atomic_store_explicit(flag, 1, memory_order_release);
    pthread_cond_broadcast(&g->locked.ended);
    pthread_mutex_unlock(&g->locked.lock.mutex);
}

unsigned guest_poll(struct transport *t)
{
    struct guest *g = guest_of(t);
    uint64_t n;

    pthread_mutex_lock(&g->locked.lock.mutex);
    if (g->locked.event_fd >= 0 && read(g->locked.event_fd, &n, sizeof(n)) < 0)
        n = 0; // nothing there
    pthread_mutex_unlock(&g->locked.lock.mutex);
    return collect(g);
}

int guest_event_fd(struct transport *t)
{
    struct guest *g = guest_of(t);
    int fd;

    pthread_mutex_lock(&g->locked.lock.mutex);
    if (g->locked.event_fd < 0)
        g->locked.event_fd = eventfd(!list_empty(&g->locked.done), EFD_CLOEXEC | EFD_NONBLOCK);
    fd = g->locked.event_fd < 0 ? -errno : g->locked.event_fd;
    pthread_mutex_unlock(&g->locked.lock.mutex);
    return fd;
}
