// SPDX-License-Identifier: Apache-2.0
// Batches: many struct io, and who waits for their ends. Memory is made with the batch, and what an
// io needs is kept for the next one in its place.
#include "host/file.h"
#include "host/io.h"

#include "base/clock.h"
#include "wire/ops.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct batch_op {
    struct io io;
    struct os2g_batch *batch;
    struct list link; // idle, running or ended
    void *cookie;
};

// A thread in os2g_batch_status.
struct batch_waiter {
    struct list link;
    unsigned min;
    _Atomic uint32_t flag, missing; // of min
};

struct os2g_batch {
    struct os2g *client;
    struct batch_op *ops;
    unsigned max;
    unsigned forks; // fork_count() when it was made

    struct {
        pthread_mutex_t lock; // not taken in a child of fork()
        struct list idle, running, ended, waiters;
        unsigned n_idle, n_running, n_ended;
        int event_fd; // readable while n_ended; -1 until asked for
        int epoll_fd; // over event_fd and the transport's
    } locked;
};

static int enter(struct os2g_batch *b)
{
    if (b->forks != fork_count())
        return client_fail(-EPERM, "this batch belongs to the process that made it");
    return client_enter(b->client);
}

// --- ends ---

static void wake_locked(struct os2g_batch *b)
{
    list_for_each (it, &b->locked.waiters) {
        struct batch_waiter *w = list_entry(it, struct batch_waiter, link);

        if (b->locked.n_ended >= w->min || b->locked.n_running == 0)
            transport_flag(b->client->transport, &w->flag);
        else
            w->missing = MIN(w->min - b->locked.n_ended, b->locked.n_running);
    }
}

static void end_locked(struct batch_op *op)
{
    struct os2g_batch *b = op->batch;
    const uint64_t one = 1;

    list_remove(&op->link);
    list_push_back(&b->locked.ended, &op->link);
    b->locked.n_running--;
    // can't fail: the counter never gets beyond 1
    if (b->locked.n_ended++ == 0 && b->locked.event_fd >= 0 &&
        write(b->locked.event_fd, &one, sizeof(one)) < 0)
        return;
    wake_locked(b);
}

static void on_done(struct io *io)
{
    struct batch_op *op = container_of(io, struct batch_op, io);
    struct os2g_batch *b = op->batch;

    pthread_mutex_lock(&b->locked.lock);
    end_locked(op);
    pthread_mutex_unlock(&b->locked.lock);
}

// --- submitting ---

static int check(const struct os2g_batch *b, const struct os2g_io *io, size_t key_len)
{
    for (size_t i = 0; i < ARRAY_LEN(io->reserved); i++)
        if (io->reserved[i])
            return client_fail(-EINVAL, "an operation is zeroed before it is filled in");
    if (io->kind == OS2G_IO_FETCH) {
        if (!io->key || key_len == 0 || key_len > OS2G_KEY_MAX)
            return client_fail(-EINVAL, "a key has 1 to %d bytes", OS2G_KEY_MAX);
        return 0;
    }
    if (io->kind != OS2G_IO_READ)
        return client_fail(-EINVAL, "%d is no kind of operation", (int)io->kind);
    if (!io->file || io->file->client != b->client)
        return client_fail(-EINVAL, "the file to read is of another connection, or none");
    if (io->file_offset < 0)
        return client_fail(-EINVAL, "a read begins before its file");
    return 0;
}

static int prepare(struct batch_op *op, const struct os2g_io *io)
{
    struct os2g *c = op->batch->client;
    size_t key_len =
        io->kind == OS2G_IO_FETCH && io->key && !io->key_len ? strlen(io->key) : io->key_len;
    struct destination to;
    int rc = check(op->batch, io, key_len);

    if (rc == 0)
        rc = destination_find(c, io->buffer_base, io->size, io->buffer_offset, &to);
    if (rc < 0)
        return rc;
    op->cookie = io->cookie;
    op->io = (struct io){.memory = op->io.memory,
                         .client = c,
                         .kind = io->kind,
                         .file = io->file,
                         .file_offset = (uint64_t)io->file_offset,
                         .key = io->key,
                         .key_len = key_len,
                         .to = to,
                         .size = io->size,
                         .done = on_done};
    return 0;
}

// Takes n operations from one list of b to list.
static void take_locked(struct list *from, struct list *list, unsigned n)
{
    while (n--) {
        struct list *link = from->next;

        list_remove(link);
        list_push_back(list, link);
    }
}

static void start(struct batch_op *op)
{
    int rc = io_start(&op->io);

    if (rc == 0)
        return;
    // the others have begun: it ends like them
    destination_end(&op->io.to);
    op->io.result = rc;
    op->io.object_size = 0;
    on_done(&op->io);
}

// All or none of them.
static int prepare_all(struct list *taken, const struct os2g_io *io)
{
    unsigned n = 0;
    int rc = 0;

    list_for_each (it, taken) {
        rc = prepare(list_entry(it, struct batch_op, link), &io[n]);
        if (rc < 0)
            break;
        n++;
    }
    if (rc == 0)
        return 0;
    list_for_each (it, taken) {
        if (n-- == 0)
            break;
        destination_end(&list_entry(it, struct batch_op, link)->io.to);
    }
    return rc;
}

static void start_all(struct os2g_batch *b, struct list *taken)
{
    transport_plug(b->client->transport);
    while (!list_empty(taken)) {
        struct batch_op *op = list_first(taken, struct batch_op, link);

        // it may end, and its place be taken again, as soon as it has begun
        pthread_mutex_lock(&b->locked.lock);
        list_remove(&op->link);
        list_push_back(&b->locked.running, &op->link);
        b->locked.n_running++;
        pthread_mutex_unlock(&b->locked.lock);
        start(op);
    }
    transport_unplug(b->client->transport);
}

int os2g_batch_submit(struct os2g_batch *b, const struct os2g_io *io, unsigned n)
{
    struct list taken = LIST_INIT(taken);
    int rc = enter(b);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&b->locked.lock);
    if (n > b->locked.n_idle) {
        pthread_mutex_unlock(&b->locked.lock);
        return client_fail(-EAGAIN, "%u operations do not fit in a batch of %u", n, b->max);
    }
    take_locked(&b->locked.idle, &taken, n);
    b->locked.n_idle -= n;
    pthread_mutex_unlock(&b->locked.lock);

    rc = prepare_all(&taken, io);
    if (rc == 0) {
        start_all(b, &taken);
        return 0;
    }
    pthread_mutex_lock(&b->locked.lock);
    list_splice_back(&b->locked.idle, &taken);
    b->locked.n_idle += n;
    pthread_mutex_unlock(&b->locked.lock);
    return rc;
}

// --- reporting ---

static unsigned report_locked(struct os2g_batch *b, unsigned max, struct os2g_io_event *events)
{
    unsigned n = MIN(max, b->locked.n_ended);
    uint64_t count;

    for (unsigned i = 0; i < n; i++) {
        struct batch_op *op = list_first(&b->locked.ended, struct batch_op, link);

        events[i] = (struct os2g_io_event){
            .cookie = op->cookie, .result = op->io.result, .object_size = op->io.object_size};
        list_remove(&op->link);
        list_push_front(&b->locked.idle, &op->link); // its memory is in the CPU's cache
    }
    b->locked.n_idle += n;
    b->locked.n_ended -= n;
    if (n && b->locked.n_ended == 0 && b->locked.event_fd >= 0 &&
        read(b->locked.event_fd, &count, sizeof(count)) < 0)
        return n; // never: it is not empty
    return n;
}

// Until min have ended, nothing is under way, or the time is over; -ETIMEDOUT then. in_any_case:
// whether its user is called away or not, which is -EINTR.
static int wait_locked(struct os2g_batch *b, unsigned min, uint64_t deadline_ns, bool in_any_case)
{
    int rc = 0;

    while (rc == 0 && b->locked.n_ended < min && b->locked.n_running) {
        struct batch_waiter w = {.min = min,
                                 .missing = MIN(min - b->locked.n_ended, b->locked.n_running)};

        list_push_back(&b->locked.waiters, &w.link);
        pthread_mutex_unlock(&b->locked.lock);
        rc = in_any_case
                 ? transport_wait_many(b->client->transport, &w.flag, &w.missing, deadline_ns)
                 : client_wait(b->client, &w.flag, &w.missing, deadline_ns);
        pthread_mutex_lock(&b->locked.lock);
        list_remove(&w.link);
    }
    return rc;
}

// When the time is over; any timeout can be said, also one that never comes.
static int deadline_of(const struct timespec *timeout, uint64_t *ret_ns)
{
    uint64_t now = clock_monotonic_ns();

    *ret_ns = UINT64_MAX;
    if (!timeout)
        return 0;
    if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || (uint64_t)timeout->tv_nsec >= NS_PER_S)
        return client_fail(-EINVAL, "a timeout of %lld s and %ld ns cannot be",
                           (long long)timeout->tv_sec, timeout->tv_nsec);
    if ((uint64_t)timeout->tv_sec < (UINT64_MAX - now) / NS_PER_S - 1)
        *ret_ns = now + (uint64_t)timeout->tv_sec * NS_PER_S + (uint64_t)timeout->tv_nsec;
    return 0;
}

int os2g_batch_status(struct os2g_batch *b, unsigned min, unsigned max,
                      struct os2g_io_event *events, const struct timespec *timeout)
{
    uint64_t deadline_ns = 0;
    int rc = enter(b);

    if (rc == 0)
        rc = deadline_of(timeout, &deadline_ns);
    if (rc < 0)
        return rc;
    if (min > max)
        return client_fail(-EINVAL, "at least %u events are more than at most %u", min, max);
    // waiting collects, too
    if (min == 0)
        transport_poll(b->client->transport);
    pthread_mutex_lock(&b->locked.lock);
    wait_locked(b, min, deadline_ns, false);
    rc = (int)report_locked(b, max, events);
    pthread_mutex_unlock(&b->locked.lock);
    return rc;
}

static void cancel_locked(struct os2g_batch *b)
{
    list_for_each (it, &b->locked.running)
        io_cancel(&list_entry(it, struct batch_op, link)->io);
}

int os2g_batch_cancel(struct os2g_batch *b)
{
    int rc = enter(b);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&b->locked.lock);
    cancel_locked(b);
    pthread_mutex_unlock(&b->locked.lock);
    return 0;
}

static int make_eventfd_locked(struct os2g_batch *b)
{
    int transport_fd = transport_event_fd(b->client->transport), rc;
    struct epoll_event event = {.events = EPOLLIN};

    if (transport_fd < 0)
        return transport_fd;
    b->locked.event_fd = eventfd(b->locked.n_ended ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    b->locked.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (b->locked.event_fd >= 0 && b->locked.epoll_fd >= 0 &&
        epoll_ctl(b->locked.epoll_fd, EPOLL_CTL_ADD, b->locked.event_fd, &event) == 0 &&
        epoll_ctl(b->locked.epoll_fd, EPOLL_CTL_ADD, transport_fd, &event) == 0)
        return b->locked.epoll_fd;
    rc = -errno;
    if (b->locked.event_fd >= 0)
        close(b->locked.event_fd);
    if (b->locked.epoll_fd >= 0)
        close(b->locked.epoll_fd);
    b->locked.event_fd = b->locked.epoll_fd = -1;
    return rc;
}

int os2g_batch_eventfd(struct os2g_batch *b)
{
    int rc = enter(b);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&b->locked.lock);
    rc = b->locked.epoll_fd >= 0 ? b->locked.epoll_fd : make_eventfd_locked(b);
    pthread_mutex_unlock(&b->locked.lock);
    return rc < 0 ? client_fail_errno(rc, "a descriptor for a batch's events") : rc;
}

// --- one's life ---

int os2g_batch_new(struct os2g *c, struct os2g_batch **ret, unsigned max)
{
    struct os2g_batch *b;
    int rc = client_enter(c);

    if (rc < 0)
        return rc;
    if (max == 0)
        return client_fail(-EINVAL, "a batch of no operations");
    b = calloc(1, sizeof(*b));
    if (b)
        b->ops = calloc(max, sizeof(*b->ops));
    if (!b || !b->ops) {
        free(b);
        return client_fail_errno(-ENOMEM, NULL);
    }
    b->client = c;
    b->max = max;
    b->forks = fork_count();
    pthread_mutex_init(&b->locked.lock, NULL);
    list_init(&b->locked.idle);
    list_init(&b->locked.running);
    list_init(&b->locked.ended);
    list_init(&b->locked.waiters);
    for (unsigned i = 0; i < max; i++) {
        b->ops[i].batch = b;
        list_push_back(&b->locked.idle, &b->ops[i].link);
    }
    b->locked.n_idle = max;
    b->locked.event_fd = b->locked.epoll_fd = -1;
    *ret = b;
    return 0;
}

void os2g_batch_free(struct os2g_batch *b)
{
    if (!b)
        return;
    if (b->forks == fork_count()) {
        pthread_mutex_lock(&b->locked.lock);
        cancel_locked(b);
        wait_locked(b, UINT32_MAX, UINT64_MAX, true);
        pthread_mutex_unlock(&b->locked.lock);
        pthread_mutex_destroy(&b->locked.lock);
    } else if (b->locked.n_running) {
        // what is under way is the parent's; its requests may still be on lists here
        return;
    }
    if (b->locked.event_fd >= 0)
        close(b->locked.event_fd);
    if (b->locked.epoll_fd >= 0)
        close(b->locked.epoll_fd);
    for (unsigned i = 0; i < b->max; i++)
        io_fini(&b->ops[i].io);
    free(b->ops);
    free(b);
}
