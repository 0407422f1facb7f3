// SPDX-License-Identifier: Apache-2.0
// Who collects. There is no thread of our own: of those that wait, one leads (it sleeps until the
// device signals, takes what has ended and calls done for it), the others sleep until it has done
// their work or leaves. While done runs nobody leads, so that it may wait for something itself.
#include "host/vhost.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

// Of the requests under way, so many parts stay with the device while the others are gathered, and
// what has ended is seen to after such a time at the latest.
#define GATHER_PART 4
#define GATHER_NS   (2 * NS_PER_MS)

static struct vhost *from_base(struct transport *t)
{
    return container_of(t, struct vhost, base);
}

static void drain(int fd)
{
    uint64_t n;

    // nothing there (EAGAIN) is just as well
    if (read(fd, &n, sizeof(n)) < 0)
        return;
}

static void signal_fd(int fd)
{
    uint64_t one = 1;

    // a full counter (EAGAIN) is readable, too
    if (write(fd, &one, sizeof(one)) < 0)
        return;
}

static void wake_waiter_locked(struct vhost *v, struct waiter *w)
{
    if (w->asleep)
        signal_fd(v->leader_fd);
    else
        pthread_cond_signal(&w->cond);
}

void vhost_wake_locked(struct vhost *v)
{
    struct waiter *w =
        v->locked.leader ? v->locked.leader : list_first(&v->locked.waiters, struct waiter, link);

    if (w)
        wake_waiter_locked(v, w);
}

void vhost_wake_room_locked(struct vhost *v)
{
    list_for_each (it, &v->locked.waiters) {
        struct waiter *w = list_entry(it, struct waiter, link);

        if (!w->flag)
            wake_waiter_locked(v, w);
    }
}

static bool is_ready_locked(const struct vhost *v, const struct waiter *w)
{
    return w->flag ? atomic_load_explicit(w->flag, memory_order_acquire)
                   : v->locked.n_active < v->depth;
}

// How many ends at once are worth waking up for: as many as everybody who waits is missing, and few
// enough that the device does not run out of requests meanwhile.
static unsigned gather_locked(const struct vhost *v)
{
    unsigned n = MIN(v->locked.n_active / GATHER_PART, UINT16_MAX / 2);

    if (v->locked.epoll_fd >= 0)
        return 1;
    list_for_each (it, &v->locked.waiters) {
        const struct waiter *w = list_entry(it, struct waiter, link);

        n = MIN(n, w->missing ? atomic_load_explicit(w->missing, memory_order_relaxed) : 1);
    }
    return MAX(n, 1);
}

static void sleep_locked(struct vhost *v, struct waiter *w, uint64_t deadline_ns)
{
    int socket = v->locked.session->socket;
    uint64_t now = clock_monotonic_ns(), most = v->locked.gathers > 1 ? GATHER_NS : 60 * NS_PER_S,
             left = deadline_ns > now ? MIN(deadline_ns - now, most) : 0;
    struct timespec ts = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
    struct pollfd p[] = {{.fd = v->call_fd, .events = POLLIN},
                         {.fd = v->leader_fd, .events = POLLIN},
                         {.fd = socket, .events = POLLRDHUP}};

    w->asleep = true;
    pthread_mutex_unlock(&v->locked.lock.mutex);
    // an error here is an interruption; the caller looks at everything again anyway
    if (ppoll(p, 3, &ts, NULL) < 0)
        p[0].revents = p[1].revents = p[2].revents = 0;
    if (p[0].revents)
        drain(v->call_fd);
    if (p[1].revents)
        drain(v->leader_fd);
    pthread_mutex_lock(&v->locked.lock.mutex);
    w->asleep = false;
    // what the device had answered before it went still counts
    if (p[2].revents && ring_arm(&v->locked.session->requests, 1))
        vhost_lost_locked(v, "it has closed the connection");
}

static void follow_locked(struct vhost *v, struct waiter *w, uint64_t deadline_ns)
{
    uint64_t t = MIN(deadline_ns, clock_monotonic_ns() + 60 * NS_PER_S);
    struct timespec ts = {(time_t)(t / NS_PER_S), (long)(t % NS_PER_S)};

    pthread_cond_timedwait(&w->cond, &v->locked.lock.mutex, &ts);
}

// One step of the one that leads: something was collected, or slept for.
static void lead_locked(struct vhost *v, struct waiter *w, uint64_t deadline_ns)
{
    struct list ended = LIST_INIT(ended), renewals = LIST_INIT(renewals);

    v->locked.leader = w;
    vhost_collect_locked(v, &ended, &renewals);
    if (!list_empty(&ended) || !list_empty(&renewals)) {
        vhost_kick_locked(v);
        v->locked.leader = NULL;
        pthread_mutex_unlock(&v->locked.lock.mutex);
        vhost_run(v, &ended, &renewals);
        pthread_mutex_lock(&v->locked.lock.mutex);
        return;
    }
    switch (v->locked.state) {
    case VHOST_UP:
        session_kick(v->locked.session); // plugged or not: it is going to be waited for
        v->locked.gathers = gather_locked(v);
        if (ring_arm(&v->locked.session->requests, v->locked.gathers))
            sleep_locked(v, w, deadline_ns);
        break;
    case VHOST_DOWN:
        vhost_reconnect_locked(v, w, deadline_ns);
        break;
    case VHOST_GONE:
        // whatever was submitted has been posted: nothing can set the flag but another thread
        follow_locked(v, w, deadline_ns);
        break;
    }
    if (v->locked.leader == w)
        v->locked.leader = NULL;
}

static int wait_locked(struct vhost *v, struct waiter *w, uint64_t deadline_ns)
{
    pthread_condattr_t attr;
    int rc = 0;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->cond, &attr);
    pthread_condattr_destroy(&attr);
    list_push_back(&v->locked.waiters, &w->link);
    if (v->locked.leader && v->locked.leader->asleep && v->locked.gathers > gather_locked(v))
        vhost_wake_locked(v);
    while (!is_ready_locked(v, w)) {
        if (clock_monotonic_ns() >= deadline_ns) {
            rc = v->locked.state == VHOST_UP ? -ETIMEDOUT : -ENOTCONN;
            break;
        }
        if (v->locked.leader)
            follow_locked(v, w, deadline_ns);
        else
            lead_locked(v, w, deadline_ns);
        if (v->locked.lost_why || v->locked.back || v->locked.start_error[0]) {
            pthread_mutex_unlock(&v->locked.lock.mutex);
            vhost_tell(v);
            pthread_mutex_lock(&v->locked.lock.mutex);
        }
    }
    list_remove(&w->link);
    if (!v->locked.leader)
        vhost_wake_locked(v);
    pthread_cond_destroy(&w->cond);
    return rc;
}

int vhost_wait(struct transport *t, const _Atomic uint32_t *flag, const _Atomic uint32_t *missing,
               uint64_t deadline_ns)
{
    struct vhost *v = from_base(t);
    struct waiter w = {.flag = flag, .missing = missing};
    int rc;

    if (atomic_load_explicit(flag, memory_order_acquire))
        return 0;
    pthread_mutex_lock(&v->locked.lock.mutex);
    rc = wait_locked(v, &w, deadline_ns);
    pthread_mutex_unlock(&v->locked.lock.mutex);
    return rc;
}

int vhost_wait_room_locked(struct vhost *v, uint64_t deadline_ns)
{
    struct waiter w = {.flag = NULL};
    int rc;

    v->locked.n_room_waiters++;
    rc = wait_locked(v, &w, deadline_ns);
    v->locked.n_room_waiters--;
    return rc;
}

void vhost_flag(struct transport *t, _Atomic uint32_t *flag)
{
    struct vhost *v = from_base(t);

    // whoever waits for it holds the lock while it looks and until it sleeps
    pthread_mutex_lock(&v->locked.lock.mutex);
    atomic_store_explicit(flag, 1, memory_order_release);
    list_for_each (it, &v->locked.waiters) {
        struct waiter *w = list_entry(it, struct waiter, link);

        if (w->flag == flag)
            wake_waiter_locked(v, w);
    }
    pthread_mutex_unlock(&v->locked.lock.mutex);
}

// --- those that poll ---

static bool hung_up(const struct vhost_session *s)
{
    struct pollfd p = {.fd = s->socket, .events = POLLRDHUP};

    return poll(&p, 1, 0) > 0;
}

// Collects, connects again if it is time to; with an event descriptor it is armed afterwards.
static void poll_once_locked(struct vhost *v, struct list *ended, struct list *renewals)
{
    struct waiter me = {.cond = PTHREAD_COND_INITIALIZER};

    if (v->locked.epoll_fd >= 0) {
        drain(v->call_fd);
        drain(v->locked.post_fd);
        drain(v->locked.timer_fd);
    }
    vhost_collect_locked(v, ended, renewals);
    if (list_empty(ended) && v->locked.state == VHOST_UP && hung_up(v->locked.session) &&
        ring_arm(&v->locked.session->requests, 1)) {
        vhost_lost_locked(v, "it has closed the connection");
        vhost_collect_locked(v, ended, renewals);
    }
    if (v->locked.state == VHOST_DOWN && !v->locked.leader) {
        v->locked.leader = &me;
        vhost_reconnect_locked(v, NULL, 0);
        v->locked.leader = NULL;
        vhost_wake_locked(v);
    }
    vhost_kick_locked(v);
}

unsigned vhost_poll(struct transport *t)
{
    struct vhost *v = from_base(t);
    struct list ended = LIST_INIT(ended), renewals = LIST_INIT(renewals);
    bool more = true;
    unsigned n = 0;

    for (unsigned i = 0; more && i < 16; i++) {
        pthread_mutex_lock(&v->locked.lock.mutex);
        poll_once_locked(v, &ended, &renewals);
        more = v->locked.epoll_fd >= 0 && v->locked.state == VHOST_UP &&
               !ring_arm(&v->locked.session->requests, 1);
        pthread_mutex_unlock(&v->locked.lock.mutex);
        n += vhost_run(v, &ended, &renewals);
        vhost_tell(v);
    }
    if (more) // there is no end of it: so that the descriptor is readable still
        signal_fd(v->call_fd);
    return n;
}

void vhost_timer_locked(struct vhost *v)
{
    struct itimerspec at = {.it_value = {(time_t)(v->locked.retry_ns / NS_PER_S),
                                         (long)(v->locked.retry_ns % NS_PER_S)}};

    if (v->locked.timer_fd >= 0)
        timerfd_settime(v->locked.timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

int vhost_watch_socket_locked(struct vhost *v)
{
    struct epoll_event e = {.events = EPOLLRDHUP};

    if (v->locked.epoll_fd < 0 || v->locked.state != VHOST_UP)
        return 0;
    return epoll_ctl(v->locked.epoll_fd, EPOLL_CTL_ADD, v->locked.session->socket, &e) < 0 ? -errno
                                                                                           : 0;
}

void vhost_unwatch_socket_locked(struct vhost *v)
{
    if (v->locked.epoll_fd >= 0)
        epoll_ctl(v->locked.epoll_fd, EPOLL_CTL_DEL, v->locked.session->socket, NULL);
}

static int event_fd_make_locked(struct vhost *v)
{
    struct epoll_event e = {.events = EPOLLIN};
    int rc;

    v->locked.post_fd = eventfd(!list_empty(&v->locked.posted), EFD_CLOEXEC | EFD_NONBLOCK);
    v->locked.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    v->locked.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (v->locked.post_fd < 0 || v->locked.timer_fd < 0 || v->locked.epoll_fd < 0 ||
        epoll_ctl(v->locked.epoll_fd, EPOLL_CTL_ADD, v->call_fd, &e) < 0 ||
        epoll_ctl(v->locked.epoll_fd, EPOLL_CTL_ADD, v->locked.post_fd, &e) < 0 ||
        epoll_ctl(v->locked.epoll_fd, EPOLL_CTL_ADD, v->locked.timer_fd, &e) < 0)
        rc = -errno;
    else
        rc = vhost_watch_socket_locked(v);
    if (rc < 0) {
        vhost_event_fd_close(v);
        return rc;
    }
    if (v->locked.state == VHOST_DOWN)
        vhost_timer_locked(v);
    else if (v->locked.state == VHOST_UP && !ring_arm(&v->locked.session->requests, 1))
        signal_fd(v->call_fd);
    return 0;
}

int vhost_event_fd(struct transport *t)
{
    struct vhost *v = from_base(t);
    int rc = 0;

    pthread_mutex_lock(&v->locked.lock.mutex);
    if (v->locked.epoll_fd < 0)
        rc = event_fd_make_locked(v);
    if (rc == 0)
        rc = v->locked.epoll_fd;
    pthread_mutex_unlock(&v->locked.lock.mutex);
    return rc;
}

void vhost_event_fd_close(struct vhost *v)
{
    int *fds[] = {&v->locked.epoll_fd, &v->locked.post_fd, &v->locked.timer_fd};

    for (unsigned i = 0; i < ARRAY_LEN(fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}
