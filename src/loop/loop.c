// SPDX-License-Identifier: Apache-2.0
#include "loop/loop.h"

#include "base/clock.h"
#include "base/log.h"
#include "loop/timer_heap.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct loop {
    uv_loop_t uv;
    uv_async_t wake;
    // What the loop sends itself is looked at before it sleeps: no wake-up, no system call.
    uv_prepare_t before_sleep;
    uv_idle_t awake; // active: it must not sleep now
    bool sent_itself;
    // libuv's timers count in milliseconds; a descriptor's in nanoseconds
    uv_poll_t timer;
    int timer_fd;
    uint64_t armed_ns; // when timer_fd will fire, UINT64_MAX: it will not
    bool in_timers;
    struct timer_heap timers;
    char name[16];
    pthread_t thread;
    bool has_thread;

    // Messages, pushed by any thread, newest first; taken whole by the loop.
    _Atomic(struct loop_msg *) inbox;
    atomic_bool quit;
};

static _Thread_local struct loop *self;

struct loop *loop_self(void)
{
    return self;
}

uv_loop_t *loop_uv(struct loop *l)
{
    return &l->uv;
}

// --- messages ---

void loop_post(struct loop *l, struct loop_msg *msg, void (*fn)(struct loop_msg *msg))
{
    struct loop_msg *head = atomic_load_explicit(&l->inbox, memory_order_relaxed);

    msg->fn = fn;
    do {
        msg->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&l->inbox, &head, msg, memory_order_release,
                                                    memory_order_relaxed));
    // whoever finds the inbox empty wakes the loop; the others ride along
    if (head)
        return;
    if (self == l)
        l->sent_itself = true;
    else
        uv_async_send(&l->wake);
}

static void run_messages(struct loop *l)
{
    struct loop_msg *msg = atomic_exchange_explicit(&l->inbox, NULL, memory_order_acquire);
    struct loop_msg *oldest = NULL;

    while (msg) {
        struct loop_msg *next = msg->next;

        msg->next = oldest;
        oldest = msg;
        msg = next;
    }
    while (oldest) {
        struct loop_msg *next = oldest->next;

        oldest->fn(oldest);
        oldest = next;
    }
}

static void work_off(struct loop *l)
{
    if (atomic_load_explicit(&l->inbox, memory_order_relaxed))
        run_messages(l);
    if (atomic_load(&l->quit) && !atomic_load(&l->inbox)) {
        atomic_store(&l->quit, false); // it may be run again
        uv_stop(&l->uv);
    }
}

static void on_wake(uv_async_t *wake)
{
    work_off(container_of(wake, struct loop, wake));
}

static void on_awake(uv_idle_t *awake)
{
    (void)awake;
}

// Messages that post again and again leave descriptors their turn in between.
static void on_before_sleep(uv_prepare_t *prepare)
{
    struct loop *l = container_of(prepare, struct loop, before_sleep);

    if (l->sent_itself) {
        l->sent_itself = false;
        work_off(l);
    }
    if (l->sent_itself)
        uv_idle_start(&l->awake, on_awake);
    else
        uv_idle_stop(&l->awake);
}

struct call {
    struct loop_msg msg;
    void (*fn)(void *arg);
    void *arg;
    sem_t done;
};

static void run_call(struct loop_msg *msg)
{
    struct call *c = container_of(msg, struct call, msg);

    c->fn(c->arg);
    sem_post(&c->done);
}

void loop_call(struct loop *l, void (*fn)(void *arg), void *arg)
{
    struct call c = {.fn = fn, .arg = arg};

    assert(self != l);
    sem_init(&c.done, 0, 0);
    loop_post(l, &c.msg, run_call);
    while (sem_wait(&c.done) < 0 && errno == EINTR)
        ;
    sem_destroy(&c.done);
}

// --- timers ---

// A wake-up that is due earlier is kept: finding nothing due costs less than a system call for each
// timer that comes and goes.
static void arm(struct loop *l)
{
    struct loop_timer *t = timer_heap_first(&l->timers);
    struct itimerspec when = {0};
    uint64_t due_ns;

    if (!t || l->in_timers || l->armed_ns <= t->due_ns)
        return;
    // a time of zero would disarm it
    due_ns = MAX(t->due_ns, (uint64_t)1);
    when.it_value.tv_sec = (time_t)(due_ns / NS_PER_S);
    when.it_value.tv_nsec = (long)(due_ns % NS_PER_S);
    l->armed_ns = t->due_ns;
    timerfd_settime(l->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void on_timer(uv_poll_t *timer, int status, int events)
{
    struct loop *l = container_of(timer, struct loop, timer);
    uint64_t now = clock_monotonic_ns(), expirations;
    struct loop_timer *t;

    if (read(l->timer_fd, &expirations, sizeof(expirations)) < 0)
        return;
    l->armed_ns = UINT64_MAX;
    l->in_timers = true;
    while ((t = timer_heap_first(&l->timers)) && t->due_ns <= now) {
        timer_heap_remove(&l->timers, t);
        t->fn(t);
    }
    l->in_timers = false;
    arm(l);
}

void loop_timer_init(struct loop_timer *t, struct loop *l, void (*fn)(struct loop_timer *t))
{
    *t = (struct loop_timer){.loop = l, .fn = fn};
}

void loop_timer_start_ns(struct loop_timer *t, uint64_t delay_ns)
{
    struct loop *l = t->loop;

    loop_timer_stop(t);
    t->due_ns = clock_monotonic_ns() + delay_ns;
    timer_heap_add(&l->timers, t);
    arm(l);
}

void loop_timer_stop(struct loop_timer *t)
{
    if (t->slot)
        timer_heap_remove(&t->loop->timers, t);
}

// --- file descriptors ---

struct loop_io {
    uv_poll_t poll;
    void (*fn)(struct loop_io *io, unsigned events, void *arg);
    void *arg;
    unsigned wanted;
};

static void poll_start(struct loop_io *io);

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct loop_io *io = container_of(poll, struct loop_io, poll);
    struct loop *l = container_of(poll->loop, struct loop, uv);
    unsigned ready = 0;

    if (status < 0) {
        // libuv stops watching at an error, but bytes may still be there to be read first
        ready = io->wanted;
        poll_start(io);
    } else {
        if (events & UV_READABLE)
            ready |= LOOP_READ;
        if (events & UV_WRITABLE)
            ready |= LOOP_WRITE;
    }
    // A turn may move megabytes for each descriptor: who sent a message is not kept waiting for
    // all of them.
    if (atomic_load_explicit(&l->inbox, memory_order_relaxed)) {
        run_messages(l);
        ready &=
            io->wanted; // it may have been paused, or freed: its memory lives until this turn ends
    }
    if (ready && !uv_is_closing((uv_handle_t *)poll))
        io->fn(io, ready, io->arg);
}

int loop_io_new(struct loop_io **ret, struct loop *l, int fd,
                void (*fn)(struct loop_io *io, unsigned events, void *arg), void *arg)
{
    struct loop_io *io = xcalloc(1, sizeof(*io));
    int rc = uv_poll_init(&l->uv, &io->poll, fd);

    if (rc < 0) {
        free(io);
        return rc;
    }
    io->fn = fn;
    io->arg = arg;
    *ret = io;
    return 0;
}

static void poll_start(struct loop_io *io)
{
    int events =
        (io->wanted & LOOP_READ ? UV_READABLE : 0) | (io->wanted & LOOP_WRITE ? UV_WRITABLE : 0);
    int rc = uv_poll_start(&io->poll, events, on_poll);

    assert(rc == 0);
    (void)rc;
}

void loop_io_want(struct loop_io *io, unsigned events)
{
    if (events == io->wanted)
        return;
    io->wanted = events;
    if (events)
        poll_start(io);
    else
        uv_poll_stop(&io->poll);
}

static void on_io_closed(uv_handle_t *handle)
{
    free(container_of((uv_poll_t *)handle, struct loop_io, poll));
}

void loop_io_free(struct loop_io *io)
{
    if (!io)
        return;
    uv_poll_stop(&io->poll);
    uv_close((uv_handle_t *)&io->poll, on_io_closed);
}

// --- life ---

int loop_new(struct loop **ret, const char *name)
{
    struct loop *l = xcalloc(1, sizeof(*l));
    int rc;

    l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (l->timer_fd < 0) {
        rc = -errno;
        goto fail;
    }
    rc = uv_loop_init(&l->uv);
    if (rc < 0)
        goto fail_timer;
    rc = uv_async_init(&l->uv, &l->wake, on_wake);
    if (rc < 0)
        goto fail_loop;
    uv_prepare_init(&l->uv, &l->before_sleep);
    uv_prepare_start(&l->before_sleep, on_before_sleep);
    uv_idle_init(&l->uv, &l->awake);
    // none of these can fail: the descriptor is new and fit for epoll
    uv_poll_init(&l->uv, &l->timer, l->timer_fd);
    uv_poll_start(&l->timer, UV_READABLE, on_timer);
    l->armed_ns = UINT64_MAX;
    strncpy(l->name, name, sizeof(l->name) - 1);
    *ret = l;
    return 0;
fail_loop:
    uv_loop_close(&l->uv);
fail_timer:
    close(l->timer_fd);
fail:
    free(l);
    return rc;
}

void loop_run(struct loop *l)
{
    self = l;
    uv_run(&l->uv, UV_RUN_DEFAULT);
    self = NULL;
}

void loop_quit(struct loop *l)
{
    atomic_store(&l->quit, true);
    uv_async_send(&l->wake);
}

static void *thread_main(void *arg)
{
    struct loop *l = arg;

    pthread_setname_np(pthread_self(), l->name);
    loop_run(l);
    return NULL;
}

int loop_start(struct loop **ret, const char *name)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGILL, SIGFPE};
    sigset_t all, before;
    struct loop *l = NULL;
    int rc = loop_new(&l, name);

    if (rc < 0)
        return rc;
    assert(l);
    // signals are the business of the program's main thread; but what a thread's own instructions
    // raise ends the process without its handler where it is blocked
    sigfillset(&all);
    for (size_t i = 0; i < ARRAY_LEN(faults); i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = -pthread_create(&l->thread, NULL, thread_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc < 0) {
        loop_stop(l);
        return rc;
    }
    l->has_thread = true;
    *ret = l;
    return 0;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void loop_stop(struct loop *l)
{
    int rc;

    if (!l)
        return;
    if (l->has_thread) {
        assert(self != l);
        loop_quit(l);
        pthread_join(l->thread, NULL);
    }
    // closing things may have posted since
    self = l;
    run_messages(l);
    self = NULL;
    uv_walk(&l->uv, close_handle, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    rc = uv_loop_close(&l->uv);
    assert(rc == 0);
    (void)rc;
    close(l->timer_fd);
    timer_heap_fini(&l->timers);
    free(l);
}
