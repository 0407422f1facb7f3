// SPDX-License-Identifier: Apache-2.0
// Sessions that come and go.
#include "host/vhost.h"

#include "base/unix_address.h"
#include "host/error.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

// One attempt may take so long, whatever its caller's deadline is: less would never succeed with a
// daemon that is slow to start.
#define ATTEMPT_MIN_NS (2 * NS_PER_S)

// A daemon that is about to end closes connections: the next attempt starts another.
#define FIRST_ATTEMPTS 5

static struct vhost *from_base(struct transport *t)
{
    return container_of(t, struct vhost, base);
}

static unsigned n_small(const struct vhost *v)
{
    return MIN(v->depth, SESSION_SLOT_MAX);
}

// --- the session's end; locked ---

static void slots_reset_locked(struct vhost *v)
{
    unsigned n = n_small(v);

    memset(v->locked.slots, 0, (n + SESSION_LARGE) * sizeof(*v->locked.slots));
    for (unsigned i = 0; i < n; i++)
        v->locked.free_small[i] = n - 1 - i;
    for (unsigned i = 0; i < SESSION_LARGE; i++)
        v->locked.free_large[i] = n + i;
    v->locked.n_free_small = n;
    v->locked.n_free_large = SESSION_LARGE;
    memset(v->locked.forget_busy, 0, sizeof(v->locked.forget_busy));
    v->locked.n_forgets = 0;
}

// Keeps the order in which they were submitted.
static void put_back_locked(struct vhost *v, struct list *again, struct transport_request *r)
{
    struct list *at = again;

    r->slot = PLACE_UNSENT;
    while (at->prev != again &&
           list_entry(at->prev, struct transport_request, link)->unique > r->unique)
        at = at->prev;
    list_insert_between(&r->link, at->prev, at);
}

static void end_all_locked(struct vhost *v, int error)
{
    struct list all = LIST_INIT(all);

    list_splice_back(&all, &v->locked.unsent);
    list_splice_back(&all, &v->locked.renewals);
    list_for_each_safe (it, &all) {
        list_remove(it);
        vhost_post_locked(v, list_entry(it, struct transport_request, link), error);
    }
}

void vhost_lost_locked(struct vhost *v, const char *why)
{
    uint64_t now = clock_monotonic_ns();
    struct list again = LIST_INIT(again);

    if (v->locked.state != VHOST_UP)
        return;
    // whatever the reason, the device is to let go of our memory
    shutdown(v->locked.session->socket, SHUT_RDWR);
    vhost_unwatch_socket_locked(v);
    v->locked.state = VHOST_DOWN;
    if (++v->locked.generation == 0)
        v->locked.generation = 1;
    // one that ends again and again without an answer is given the time of one outage
    if (v->locked.answered) {
        v->locked.give_up_ns = now + v->timeout_ns;
        v->locked.backoff_ns = BACKOFF_MIN_NS;
    }
    v->locked.answered = false;
    v->locked.retry_ns = now + v->locked.backoff_ns;
    v->locked.lost_why = why;
    v->locked.start_failed = false;
    for (unsigned i = 0; i < n_small(v) + SESSION_LARGE; i++) {
        struct transport_request *r = v->locked.slots[i].request;

        if (!r)
            continue;
        if (r->again && !r->cancelled)
            put_back_locked(v, &again, r);
        else
            vhost_post_locked(v, r, r->cancelled ? -ECANCELED : -ENOTCONN);
    }
    list_for_each_safe (it, &v->locked.unsent) {
        struct transport_request *r = list_entry(it, struct transport_request, link);

        list_remove(&r->link);
        if (r->generation && !r->renew)
            vhost_post_locked(v, r, -ENOTCONN);
        else
            list_push_back(&again, &r->link);
    }
    list_splice_back(&v->locked.unsent, &again);
    slots_reset_locked(v);
    if (now >= v->locked.give_up_ns) {
        v->locked.state = VHOST_GONE;
        end_all_locked(v, -ENOTCONN);
    } else {
        vhost_timer_locked(v);
    }
    vhost_wake_locked(v);
}

// --- the next one ---

// Whoever listens there now may be another than was asked for, or than before.
static int check_source(struct vhost *v, const struct vhost_session *s)
{
    const char *below = "";
    char *asked, *told;
    int rc = 0;

    if (v->asked.url && s->source.url)
        below = source_below(&v->asked, &s->source);
    if (below && !v->base.below)
        v->base.below = xstrdup(below);
    if (below && !strcmp(below, v->base.below))
        return 0;
    asked = v->asked.url ? source_text(&v->asked) : xstrdup("what it did");
    told = s->source.url ? source_text(&s->source) : xstrdup("something else");
    rc = client_fail(-EINVAL, "the daemon at %s serves %s, not %s", v->path, told, asked);
    free(asked);
    free(told);
    return rc;
}

// To the daemon at path, which is started if none is there. *ret_start_failed: that could not be.
static int connect_or_start(struct vhost *v, int *ret_socket, bool *ret_start_failed)
{
    int socket = unix_connect(v->path, SOCK_NONBLOCK), rc = 0;

    if ((socket == -ENOENT || socket == -ECONNREFUSED) && v->start) {
        rc = v->start(v->start_arg, &socket);
        *ret_start_failed = rc < 0;
    }
    if (rc == 0 && socket < 0)
        rc = session_explain(socket, v->path);
    if (rc == 0)
        *ret_socket = socket;
    return rc;
}

static int attempt(struct vhost *v, struct vhost_session **ret, uint64_t deadline_ns,
                   bool *ret_start_failed)
{
    struct vhost_session *s;
    int socket = -1, rc;

    *ret_start_failed = false;
    rc = connect_or_start(v, &socket, ret_start_failed);
    if (rc == 0)
        rc = session_open(&s, socket, v->path, n_small(v), v->call_fd, deadline_ns);
    if (rc != 0)
        return rc;
    rc = session_hello(s, v->call_fd, deadline_ns);
    if (rc == 0)
        rc = check_source(v, s);
    if (rc == 0)
        rc = vhost_memory_tell_all(v, s, deadline_ns);
    if (rc != 0)
        session_close(s);
    else
        *ret = s;
    return rc;
}

static void up_locked(struct vhost *v, struct vhost_session *s)
{
    session_close(v->locked.session);
    v->locked.session = s;
    v->locked.state = VHOST_UP;
    v->base.max_read = s->max_read;
    slots_reset_locked(v);
    if (vhost_watch_socket_locked(v) < 0)
        vhost_event_fd_close(v); // never seen with descriptors that are open
    vhost_send_locked(v);
    session_kick(s);
}

static void failed_locked(struct vhost *v)
{
    uint64_t now = clock_monotonic_ns();

    if (now >= v->locked.give_up_ns) {
        v->locked.state = VHOST_GONE;
        end_all_locked(v, -ENOTCONN);
        return;
    }
    v->locked.retry_ns = now + v->locked.backoff_ns;
    v->locked.backoff_ns = MIN(2 * v->locked.backoff_ns, BACKOFF_MAX_NS);
    vhost_timer_locked(v);
}

// Once an outage, for whoever waits for its end: that another daemon does not start.
static void note_start_locked(struct vhost *v)
{
    if (v->locked.start_failed)
        return;
    v->locked.start_failed = true;
    snprintf(v->locked.start_error, sizeof(v->locked.start_error), "%s", client_error());
}

static void sleep_until_retry_locked(struct vhost *v, struct waiter *w, uint64_t deadline_ns)
{
    uint64_t until = MIN(deadline_ns, v->locked.retry_ns), now = clock_monotonic_ns();
    struct pollfd p = {.fd = v->leader_fd, .events = POLLIN};
    uint64_t n;

    if (until <= now)
        return;
    w->asleep = true;
    pthread_mutex_unlock(&v->locked.lock.mutex);
    if (poll(&p, 1, (int)((until - now) / NS_PER_MS + 1)) > 0 &&
        read(v->leader_fd, &n, sizeof(n)) < 0)
        p.revents = 0; // drained by nobody else: there is always something
    pthread_mutex_lock(&v->locked.lock.mutex);
    w->asleep = false;
}

void vhost_reconnect_locked(struct vhost *v, struct waiter *w, uint64_t deadline_ns)
{
    uint64_t now = clock_monotonic_ns();
    struct vhost_session *s;
    bool start_failed;
    int rc;

    if (now < v->locked.retry_ns) {
        if (w)
            sleep_until_retry_locked(v, w, deadline_ns);
        return;
    }
    pthread_mutex_unlock(&v->locked.lock.mutex);
    pthread_mutex_lock(&v->control.lock.mutex);
    rc = attempt(v, &s, MAX(MIN(deadline_ns, now + v->timeout_ns), now + ATTEMPT_MIN_NS),
                 &start_failed);
    pthread_mutex_lock(&v->locked.lock.mutex);
    if (rc == 0) {
        up_locked(v, s);
        v->locked.reconnects++;
        v->locked.back = true;
    } else {
        if (start_failed)
            note_start_locked(v);
        failed_locked(v);
    }
    pthread_mutex_unlock(&v->control.lock.mutex);
}

void vhost_tell(struct vhost *v)
{
    char text[400], start_error[sizeof(v->locked.start_error)];
    const char *why;
    bool back;

    pthread_mutex_lock(&v->locked.lock.mutex);
    why = v->locked.lost_why;
    back = v->locked.back;
    v->locked.lost_why = NULL;
    v->locked.back = false;
    memcpy(start_error, v->locked.start_error, sizeof(start_error));
    v->locked.start_error[0] = 0;
    pthread_mutex_unlock(&v->locked.lock.mutex);
    if (!v->event)
        return;
    if (why) {
        snprintf(text, sizeof(text), "the daemon at %s has gone: %s", v->path, why);
        v->event(v->event_arg, OS2G_EVENT_LOST, text);
    }
    if (start_error[0]) {
        snprintf(text, sizeof(text), "the daemon at %s cannot be started again: %s", v->path,
                 start_error);
        v->event(v->event_arg, OS2G_EVENT_LOST, text);
    }
    if (back) {
        snprintf(text, sizeof(text), "the daemon at %s is back", v->path);
        v->event(v->event_arg, OS2G_EVENT_RECONNECTED, text);
    }
}

// --- making one ---

static int make_fds(struct vhost *v)
{
    v->call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    v->leader_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return v->call_fd < 0 || v->leader_fd < 0 ? client_fail_errno(-errno, "eventfd") : 0;
}

static void close_fds(struct vhost *v)
{
    if (v->call_fd >= 0)
        close(v->call_fd);
    if (v->leader_fd >= 0)
        close(v->leader_fd);
    v->call_fd = v->leader_fd = -1;
    vhost_event_fd_close(v);
}

static int first_attempt(struct vhost *v)
{
    uint64_t deadline = clock_monotonic_ns() + v->timeout_ns;
    struct timespec pause = {.tv_nsec = (long)BACKOFF_MIN_NS};
    struct vhost_session *s;
    unsigned closed = 0;
    bool start_failed;
    int rc;

    for (;;) {
        pthread_mutex_lock(&v->control.lock.mutex);
        rc = attempt(v, &s, deadline, &start_failed);
        if (rc == 0) {
            pthread_mutex_lock(&v->locked.lock.mutex);
            v->locked.answered = true;
            up_locked(v, s);
            pthread_mutex_unlock(&v->locked.lock.mutex);
        }
        pthread_mutex_unlock(&v->control.lock.mutex);
        if (rc == -EPIPE)
            closed++;
        // -EAGAIN: many are connecting at the moment
        if ((rc != -EAGAIN && rc != -EPIPE) || closed == FIRST_ATTEMPTS ||
            clock_monotonic_ns() >= deadline)
            break;
        nanosleep(&pause, NULL);
    }
    return rc == -EAGAIN || rc == -EPIPE ? -ECONNREFUSED : rc;
}

int transport_vhost_new(struct transport **ret, const struct transport_vhost_config *c)
{
    struct vhost *v = xcalloc(1, sizeof(*v));
    unsigned n;
    int rc;

    v->base.kind = &vhost_kind;
    v->path = xstrdup(c->path);
    v->depth = c->o->depth;
    v->timeout_ns = c->o->timeout_ms * NS_PER_MS;
    v->start = c->start;
    v->start_arg = c->arg;
    v->event = c->o->event;
    v->event_arg = c->o->arg;
    if (c->asked.url)
        v->asked.url = xstrdup(c->asked.url);
    if (c->asked.endpoint)
        v->asked.endpoint = xstrdup(c->asked.endpoint);
    v->call_fd = v->leader_fd = -1;
    v->forks = fork_count();
    fork_lock_init(&v->control.lock, FORK_CONTROL);
    list_init(&v->control.memories);
    v->control.next_address = SESSION_ADDRESS + GIB;
    fork_lock_init(&v->locked.lock, FORK_TRANSPORT);
    v->locked.generation = 1;
    v->locked.next_unique = 2; // 1 is a session's first requests'
    v->locked.epoll_fd = v->locked.post_fd = v->locked.timer_fd = -1;
    list_init(&v->locked.unsent);
    list_init(&v->locked.posted);
    list_init(&v->locked.renewals);
    list_init(&v->locked.waiters);
    n = n_small(v);
    v->locked.slots = xcalloc(n + SESSION_LARGE, sizeof(*v->locked.slots));
    v->locked.free_small = xcalloc(n, sizeof(unsigned));
    v->locked.free_large = xcalloc(SESSION_LARGE, sizeof(unsigned));
    rc = make_fds(v);
    if (rc == 0)
        rc = first_attempt(v);
    if (rc < 0) {
        vhost_free(&v->base);
        return rc;
    }
    *ret = &v->base;
    return 0;
}

static void end_everything(struct vhost *v)
{
    struct list ended = LIST_INIT(ended), renewals = LIST_INIT(renewals);

    pthread_mutex_lock(&v->locked.lock.mutex);
    if (v->locked.state == VHOST_UP)
        vhost_lost_locked(v, "this side has ended it");
    v->locked.state = VHOST_GONE;
    end_all_locked(v, -ENOTCONN);
    vhost_collect_locked(v, &ended, &renewals);
    pthread_mutex_unlock(&v->locked.lock.mutex);
    vhost_run(v, &ended, &renewals);
}

void vhost_free(struct transport *t)
{
    struct vhost *v = from_base(t);

    if (v->forks == fork_count())
        end_everything(v);
    session_close(v->locked.session);
    close_fds(v);
    fork_lock_fini(&v->locked.lock);
    fork_lock_fini(&v->control.lock);
    free(v->locked.forgets);
    free(v->locked.slots);
    free(v->locked.free_small);
    free(v->locked.free_large);
    source_fini(&v->asked);
    free(v->base.below);
    free(v->path);
    free(v);
}

// --- fork ---

int vhost_after_fork(struct transport *t)
{
    struct vhost *v = from_base(t);
    int rc;

    // other threads, what they waited for, and memory of a GPU are the parent's
    list_init(&v->locked.unsent);
    list_init(&v->locked.posted);
    list_init(&v->locked.renewals);
    list_init(&v->locked.waiters);
    vhost_memory_forget_cuda(v);
    v->locked.leader = NULL;
    v->locked.n_active = v->locked.n_room_waiters = 0;
    v->locked.lost_why = NULL;
    v->locked.back = false;
    v->locked.start_failed = false;
    v->locked.start_error[0] = 0;
    if (++v->locked.generation == 0)
        v->locked.generation = 1;
    close_fds(v);
    session_close(v->locked.session);
    v->locked.session = NULL;
    v->locked.state = VHOST_GONE; // until the next call, if this one fails
    v->forks = fork_count();
    rc = make_fds(v);
    return rc < 0 ? rc : first_attempt(v);
}
