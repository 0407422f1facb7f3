// SPDX-License-Identifier: Apache-2.0
#include "gdd/engine.h"

#include "base/list.h"
#include "base/log.h"
#include "gdd/engine_wire.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// A put, or the end of a memory, until its result is there.
struct request {
    struct list link; // of waiting, while the ring has no room
    struct engine_memory *memory;
    struct cache_put *put; // NULL: the memory's end
    unsigned n;
    struct engine_command commands[]; // slots are filled in when it goes
};

struct engine_memory {
    struct list link;
    struct engine *engine;
    uint32_t number;
    uint64_t size;
    atomic_bool broken; // it could not be opened
    bool opening;
    void (*opened)(void *arg, int error, const char *text);
    void *opened_arg;
    void (*closed)(void *arg);
    void *closed_arg;
    struct loop_msg msg;
};

struct engine {
    struct loop *loop;
    struct engine_config config;
    struct engine_shared *shared;
    int socket, kick_fd, done_fd, pid_fd, shared_fd;
    struct loop_io *socket_io, *done_io, *pid_io;
    struct list memories;
    struct engine_memory *by_number[ENGINE_MEMORIES];
    char last_words[ENGINE_TEXT];
    uint32_t seen; // results

    struct {
        pthread_mutex_t mutex;
        bool dead; // the helper
        struct list waiting;
        struct request *slots[ENGINE_SLOTS];
        uint32_t free[ENGINE_SLOTS];
        unsigned n_free;
    } locked;
};

bool engine_possible(void)
{
    const char *library = getenv("OS2G_CUDA_LIBRARY");

    return (library && *library) || access("/dev/nvidiactl", F_OK) == 0;
}

static void signal_fd(int fd)
{
    uint64_t one = 1;

    // it cannot be full: its reader empties it
    if (write(fd, &one, sizeof(one)) < 0)
        log_debug("engine", "eventfd: %s", strerror(errno));
}

// --- requests ---

static void put_done(struct loop_msg *msg)
{
    struct cache_put *p = container_of(msg, struct cache_put, msg);

    p->done(p, p->error);
}

static void on_socket(struct loop_io *io, unsigned events, void *arg);

static void memory_gone(struct loop_msg *msg)
{
    struct engine_memory *m = container_of(msg, struct engine_memory, msg);
    void (*closed)(void *arg) = m->closed;
    void *arg = m->closed_arg;

    // what the helper has said of it, lest it counts for the next of that number
    on_socket(m->engine->socket_io, LOOP_READ, m->engine);
    list_remove(&m->link);
    m->engine->by_number[m->number] = NULL;
    free(m);
    closed(arg);
}

// Its submitter's loop hears of it; r is gone.
static void request_end(struct request *r, int error)
{
    if (r->put) {
        r->put->error = error;
        loop_post(r->put->loop, &r->put->msg, put_done);
    } else {
        loop_post(r->memory->engine->loop, &r->memory->msg, memory_gone);
    }
    free(r);
}

// Moves what there is room for into the ring.
static void pump_locked(struct engine *e)
{
    uint32_t at = atomic_load_explicit(&e->shared->submitted, memory_order_relaxed), first = at;
    struct request *r;

    while (e->locked.n_free && (r = list_first(&e->locked.waiting, struct request, link))) {
        uint32_t taken = atomic_load_explicit(&e->shared->taken, memory_order_acquire), slot;

        if (ENGINE_RING - (at - taken) < r->n)
            break; // what is in the ring has a result, which comes back here
        list_remove(&r->link);
        slot = e->locked.free[--e->locked.n_free];
        e->locked.slots[slot] = r;
        r->commands[r->n - 1].slot = slot;
        for (unsigned i = 0; i < r->n; i++)
            e->shared->commands[at++ % ENGINE_RING] = r->commands[i];
    }
    if (at == first)
        return;
    atomic_store(&e->shared->submitted, at);
    if (atomic_exchange(&e->shared->helper_sleeps, 0))
        signal_fd(e->kick_fd);
}

static bool submit(struct engine *e, struct request *r)
{
    bool dead;

    pthread_mutex_lock(&e->locked.mutex);
    dead = e->locked.dead;
    if (!dead) {
        list_push_back(&e->locked.waiting, &r->link);
        pump_locked(e);
    }
    pthread_mutex_unlock(&e->locked.mutex);
    return !dead;
}

static struct request *request_new(struct engine_memory *m, struct cache_put *p, unsigned n_max)
{
    struct request *r = xcalloc(1, sizeof(*r) + n_max * sizeof(r->commands[0]));

    r->memory = m;
    r->put = p;
    list_init(&r->link);
    return r;
}

// Neighbours in the arena are copied as one.
static void request_add(struct request *r, uint64_t at, uint64_t from, uint32_t len)
{
    struct engine_command *last = r->n ? &r->commands[r->n - 1] : NULL;

    if (last && last->from + last->len == from && (uint64_t)last->len + len <= UINT32_MAX) {
        last->len += len;
        return;
    }
    r->commands[r->n++] = (struct engine_command){.kind = ENGINE_COPY,
                                                  .memory = r->memory->number,
                                                  .at = at,
                                                  .from = from,
                                                  .len = len,
                                                  .slot = ENGINE_NO_SLOT};
}

int engine_put(struct engine_memory *m, uint64_t offset, const struct iovec *iov, int n,
               struct cache_put *p)
{
    const uint8_t *arena = m->engine->config.arena;
    uint64_t arena_len = m->engine->config.arena_len;
    struct request *r;

    assert(n >= 0 && n <= ENGINE_RING && loop_self());
    if (atomic_load_explicit(&m->broken, memory_order_relaxed))
        return -EIO;
    r = request_new(m, p, (unsigned)n);
    for (int i = 0; i < n; i++) {
        uint64_t from = (uint64_t)((const uint8_t *)iov[i].iov_base - arena);
        uint64_t len = iov[i].iov_len;

        assert(from <= arena_len && len <= arena_len - from && len <= UINT32_MAX);
        if (offset > m->size || len > m->size - offset) {
            free(r);
            return -EFAULT;
        }
        if (len)
            request_add(r, offset, from, (uint32_t)len);
        offset += len;
    }
    if (!r->n) {
        free(r);
        return 0;
    }
    p->loop = loop_self();
    p->engine = m;
    if (submit(m->engine, r))
        return -EINPROGRESS;
    free(r);
    return -EIO;
}

// --- what the helper says ---

static bool take_results(struct engine *e)
{
    uint32_t ended = atomic_load(&e->shared->ended);
    struct request *r;

    if (ended - e->seen > ENGINE_RING)
        return false;
    pthread_mutex_lock(&e->locked.mutex);
    for (; e->seen != ended; e->seen++) {
        struct engine_result result = e->shared->results[e->seen % ENGINE_RING];

        if (result.slot >= ENGINE_SLOTS || !e->locked.slots[result.slot])
            break;
        r = e->locked.slots[result.slot];
        e->locked.slots[result.slot] = NULL;
        e->locked.free[e->locked.n_free++] = result.slot;
        request_end(r, result.error ? -EIO : 0);
    }
    pump_locked(e);
    pthread_mutex_unlock(&e->locked.mutex);
    return e->seen == ended;
}

static void on_done(struct loop_io *io, unsigned events, void *arg)
{
    struct engine *e = arg;
    bool sane = true;
    uint64_t n;

    if (read(e->done_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
        log_debug("engine", "eventfd: %s", strerror(errno));
    do {
        sane = take_results(e);
        atomic_store(&e->shared->engine_sleeps, 1);
    } while (sane && atomic_load(&e->shared->ended) != e->seen);
    if (!sane) {
        snprintf(e->last_words, sizeof(e->last_words), "%s",
                 "its helper process says what makes no sense");
        loop_io_want(e->done_io, 0);
        pidfd_send_signal(e->pid_fd, SIGKILL, NULL, 0); // its death ends the rest
    }
}

static void on_opened(struct engine *e, const struct engine_event *event)
{
    struct engine_memory *m = event->memory < ENGINE_MEMORIES ? e->by_number[event->memory] : NULL;

    if (!m || !m->opening)
        return;
    m->opening = false;
    if (event->error)
        atomic_store(&m->broken, true);
    if (m->opened)
        m->opened(m->opened_arg, event->error ? event->error : 0, event->text);
}

static void on_event(struct engine *e, struct engine_event *event)
{
    event->text[sizeof(event->text) - 1] = 0;
    switch (event->kind) {
    case ENGINE_OPENED:
        on_opened(e, event);
        break;
    case ENGINE_NOTE:
        log_warning("engine", "%s", event->text);
        break;
    case ENGINE_FAILED:
        memcpy(e->last_words, event->text, sizeof(e->last_words));
        break;
    }
}

static void on_socket(struct loop_io *io, unsigned events, void *arg)
{
    struct engine *e = arg;
    struct engine_event event;
    ssize_t n;

    while ((n = recv(e->socket, &event, sizeof(event), MSG_DONTWAIT)) == (ssize_t)sizeof(event))
        on_event(e, &event);
    // closed: the process's end comes, too, and that is what counts
    if (n == 0)
        loop_io_want(e->socket_io, 0);
}

// Only now, when the process is no more, can none of its copies be under way.
static void on_death(struct loop_io *io, unsigned events, void *arg)
{
    struct engine *e = arg;
    struct list rest = LIST_INIT(rest);

    on_socket(e->socket_io, LOOP_READ, e);
    take_results(e);
    loop_io_want(e->pid_io, 0);
    loop_io_want(e->done_io, 0);
    while (waitid(P_PIDFD, (id_t)e->pid_fd, &(siginfo_t){0}, WEXITED) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&e->locked.mutex);
    e->locked.dead = true;
    list_splice_back(&rest, &e->locked.waiting);
    for (int i = 0; i < ENGINE_SLOTS; i++)
        if (e->locked.slots[i]) {
            list_push_back(&rest, &e->locked.slots[i]->link);
            e->locked.slots[i] = NULL;
        }
    pthread_mutex_unlock(&e->locked.mutex);
    list_for_each_safe (it, &rest)
        request_end(list_entry(it, struct request, link), -EIO);
    list_for_each_safe (it, &e->memories) {
        struct engine_memory *m = list_entry(it, struct engine_memory, link);
        struct engine_event event = {.memory = m->number, .error = -EIO};

        snprintf(event.text, sizeof(event.text), "%s",
                 *e->last_words ? e->last_words : "its helper process has died");
        on_opened(e, &event);
    }
    e->config.failed(e->config.arg, e->last_words);
}

// --- life ---

static int make_shared(struct engine *e)
{
    int pair[2];

    e->shared_fd = memfd_create("os2g-engine", MFD_CLOEXEC);
    if (e->shared_fd < 0 || ftruncate(e->shared_fd, sizeof(*e->shared)) < 0)
        return -errno;
    e->shared = mmap(NULL, sizeof(*e->shared), PROT_READ | PROT_WRITE, MAP_SHARED, e->shared_fd, 0);
    if (e->shared == MAP_FAILED) {
        e->shared = NULL;
        return -errno;
    }
    atomic_store(&e->shared->engine_sleeps, 1);
    e->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->kick_fd < 0 || e->done_fd < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    e->socket = pair[0];
    return pair[1];
}

static int start(struct engine *e)
{
    int peer = make_shared(e), rc = peer;

    if (rc >= 0)
        rc = engine_spawn(e->config.program,
                          (const int[]){peer, e->shared_fd, e->config.arena_fd, e->kick_fd,
                                        e->done_fd, e->config.life_fd},
                          &e->pid_fd);
    if (peer >= 0)
        close(peer);
    if (rc == 0)
        rc = loop_io_new(&e->pid_io, e->loop, e->pid_fd, on_death, e);
    if (rc == 0)
        rc = loop_io_new(&e->socket_io, e->loop, e->socket, on_socket, e);
    if (rc == 0)
        rc = loop_io_new(&e->done_io, e->loop, e->done_fd, on_done, e);
    if (rc < 0)
        return rc;
    loop_io_want(e->pid_io, LOOP_READ);
    loop_io_want(e->socket_io, LOOP_READ);
    loop_io_want(e->done_io, LOOP_READ);
    return 0;
}

int engine_new(struct engine **ret, struct loop *l, const struct engine_config *c)
{
    struct engine *e = xcalloc(1, sizeof(*e));
    int rc;

    e->loop = l;
    e->config = *c;
    e->socket = e->kick_fd = e->done_fd = e->pid_fd = e->shared_fd = -1;
    list_init(&e->memories);
    pthread_mutex_init(&e->locked.mutex, NULL);
    list_init(&e->locked.waiting);
    for (uint32_t i = 0; i < ENGINE_SLOTS; i++)
        e->locked.free[e->locked.n_free++] = i;
    rc = start(e);
    if (rc < 0) {
        engine_free(e);
        return rc;
    }
    *ret = e;
    return 0;
}

// A process that has a GPU takes its time to end, and a loop must not wait for it.
static void *reap(void *arg)
{
    struct pollfd p = {*(int *)arg, POLLIN, 0};

    free(arg);
    // the loop has made it non-blocking, for waitid, too
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    while (waitid(P_PIDFD, (id_t)p.fd, &(siginfo_t){0}, WEXITED) < 0 && errno == EINTR)
        ;
    close(p.fd);
    return NULL;
}

static void end_helper(int pid_fd)
{
    int *arg = xmemdup(&pid_fd, sizeof(pid_fd));
    pthread_t thread;

    pidfd_send_signal(pid_fd, SIGKILL, NULL, 0);
    if (pthread_create(&thread, NULL, reap, arg) == 0)
        pthread_detach(thread);
    else
        reap(arg);
}

void engine_free(struct engine *e)
{
    const int *fds[] = {e ? &e->socket : NULL, e ? &e->kick_fd : NULL, e ? &e->done_fd : NULL,
                        e ? &e->shared_fd : NULL};

    if (!e)
        return;
    assert(list_empty(&e->memories));
    loop_io_free(e->pid_io);
    loop_io_free(e->socket_io);
    loop_io_free(e->done_io);
    if (e->pid_fd >= 0)
        end_helper(e->pid_fd);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (*fds[i] >= 0)
            close(*fds[i]);
    if (e->shared)
        munmap(e->shared, sizeof(*e->shared));
    pthread_mutex_destroy(&e->locked.mutex);
    free(e);
}

// --- memory ---

static int send_open(struct engine *e, const struct engine_open_message *m, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {(void *)m, sizeof(*m)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *c;

    if (fd >= 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    }
    if (sendmsg(e->socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return -errno;
    signal_fd(e->kick_fd);
    return 0;
}

int engine_memory_open(struct engine *e, struct engine_memory **ret, const struct engine_open *o)
{
    struct engine_open_message message = {
        .has_fd = o->fd >= 0, .handle_offset = o->handle_offset, .size = o->size};
    struct engine_memory *m;
    uint32_t number = 0;
    int rc;

    while (number < ENGINE_MEMORIES && e->by_number[number])
        number++;
    if (number == ENGINE_MEMORIES)
        return -ENOSPC;
    message.memory = number;
    memcpy(message.uuid, o->uuid, sizeof(message.uuid));
    memcpy(message.handle, o->handle, sizeof(message.handle));
    rc = send_open(e, &message, o->fd);
    if (rc < 0)
        return rc;
    if (o->fd >= 0)
        close(o->fd);
    m = xcalloc(1, sizeof(*m));
    m->engine = e;
    m->number = number;
    m->size = o->size;
    m->opening = true;
    m->opened = o->opened;
    m->opened_arg = o->arg;
    list_push_back(&e->memories, &m->link);
    e->by_number[number] = m;
    *ret = m;
    return 0;
}

void engine_memory_close(struct engine_memory *m, void (*done)(void *arg), void *arg)
{
    struct request *r = request_new(m, NULL, 1);

    m->closed = done;
    m->closed_arg = arg;
    m->opening = false;
    r->n = 1;
    r->commands[0] = (struct engine_command){.kind = ENGINE_CLOSE, .memory = m->number};
    if (!submit(m->engine, r))
        request_end(r, 0);
}
