// SPDX-License-Identifier: Apache-2.0
#include "host/guest.h"

#include "host/error.h"
#include "host/thread.h"
#include "wire/control.h"
#include "wire/ops.h"

#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_READ ((uint32_t)8 << 20) // an extent

// --- threads ---

size_t guest_message(const struct transport_request *r, void *to)
{
    size_t len = 0;

    for (unsigned i = 0; i < r->n_in && len + r->in[i].iov_len <= TRANSPORT_IN_MAX; i++) {
        memcpy((char *)to + len, r->in[i].iov_base, r->in[i].iov_len);
        len += r->in[i].iov_len;
    }
    return len;
}

static void *carry_out(void *arg)
{
    struct guest *g = arg;

    pthread_mutex_lock(&g->locked.lock.mutex);
    for (;;) {
        struct transport_request *r = list_first(&g->locked.queue, struct transport_request, link);
        uint32_t out = 0;
        uint64_t data = 0;
        int error;

        if (!r && g->locked.stopping)
            break;
        if (!r) {
            g->locked.n_idle++;
            pthread_cond_wait(&g->locked.work, &g->locked.lock.mutex);
            g->locked.n_idle--;
            continue;
        }
        list_remove(&r->link);
        r->slot = GUEST_RUNNING;
        if (r->memory)
            r->memory->running++;
        pthread_mutex_unlock(&g->locked.lock.mutex);
        error = guest_carry_out(g, r, &out, &data);
        pthread_mutex_lock(&g->locked.lock.mutex);
        if (r->memory)
            r->memory->running--;
        guest_end_locked(g, r, error, out, data);
    }
    g->locked.n_threads--;
    pthread_cond_broadcast(&g->locked.left);
    pthread_mutex_unlock(&g->locked.lock.mutex);
    return NULL;
}

static int start_thread(struct guest *g, void *(*run)(void *))
{
    pthread_t thread;
    int rc = thread_start(&thread, run, g);

    if (rc == 0)
        pthread_detach(thread);
    return rc;
}

static int queue_locked(struct guest *g, struct transport_request *r)
{
    if (!g->locked.n_idle && g->locked.n_threads < GUEST_THREADS) {
        int rc = start_thread(g, carry_out);

        if (rc == 0)
            g->locked.n_threads++;
        else if (!g->locked.n_threads)
            return rc;
    }
    r->slot = GUEST_QUEUED;
    list_push_back(&g->locked.queue, &r->link);
    pthread_cond_signal(&g->locked.work);
    return 0;
}

static int reaper_locked(struct guest *g)
{
    int rc = g->locked.reaper ? 0 : start_thread(g, guest_reaper);

    g->locked.reaper = rc == 0;
    return rc;
}

// --- submitting ---

static int take_room_locked(struct guest *g, bool nonblock)
{
    uint64_t deadline_ns = clock_monotonic_ns() + g->timeout_ns;

    while (g->locked.n_active >= g->depth) {
        struct timespec ts = guest_until(deadline_ns);

        if (nonblock)
            return -EAGAIN;
        if (clock_monotonic_ns() >= deadline_ns)
            return -ETIMEDOUT;
        pthread_cond_timedwait(&g->locked.left, &g->locked.lock.mutex, &ts);
    }
    g->locked.n_active++;
    g->locked.requests++;
    return 0;
}

// As far as it can be said here what becomes of r: 0, or what it ends with.
static int check(struct guest *g, const struct transport_request *r)
{
    const struct transport_memory *m = r->memory;

    if (m && atomic_load(&m->cut))
        return -ECANCELED;
    if (m && m->bar && m->forks != fork_count())
        return -EPERM; // the lease is a parent's
    return 0;
}

void guest_start(struct guest *g, struct transport_request *r)
{
    int rc = check(g, r);
    bool lands = r->memory && r->memory->bar;

    pthread_mutex_lock(&g->locked.lock.mutex);
    if (rc == 0 && r->generation && r->generation != g->locked.generation) {
        rc = r->renew ? 0 : -ENOTCONN;
        r->slot = GUEST_RENEWAL;
        if (rc == 0) {
            list_push_back(&g->locked.renewals, &r->link);
            guest_wake_locked(g);
        }
    } else if (rc == 0 && lands) {
        rc = reaper_locked(g);
        if (rc == 0) {
            pthread_mutex_unlock(&g->locked.lock.mutex);
            guest_gdd_submit(g, r);
            return;
        }
    } else if (rc == 0) {
        rc = queue_locked(g, r);
    }
    if (rc < 0)
        guest_end_locked(g, r, rc, 0, 0);
    pthread_mutex_unlock(&g->locked.lock.mutex);
}

static int submit(struct transport *t, struct transport_request *r, bool nonblock)
{
    struct guest *g = guest_of(t);
    int rc;

    list_init(&r->link);
    r->cancelled = false;
    pthread_mutex_lock(&g->locked.lock.mutex);
    rc = take_room_locked(g, nonblock);
    pthread_mutex_unlock(&g->locked.lock.mutex);
    if (rc == 0)
        guest_start(g, r);
    return rc;
}

static void cancel(struct transport *t, struct transport_request *r)
{
    struct guest *g = guest_of(t);
    uint64_t tag = 0;
    int slot;

    pthread_mutex_lock(&g->locked.lock.mutex);
    slot = r->slot;
    if (slot >= 0)
        tag = guest_gdd_tag_locked(g, slot);
    r->cancelled = true;
    if (slot == GUEST_QUEUED || slot == GUEST_RENEWAL) {
        list_remove(&r->link);
        guest_end_locked(g, r, -ECANCELED, 0, 0);
    }
    pthread_mutex_unlock(&g->locked.lock.mutex);
    if (slot >= 0)
        guest_gdd_cancel(g, tag);
}

// Each request is a system call anyway.
static void plug(struct transport *t) {}

// --- the rest ---

static unsigned generation(struct transport *t)
{
    struct guest *g = guest_of(t);
    unsigned n;

    pthread_mutex_lock(&g->locked.lock.mutex);
    n = g->locked.generation;
    pthread_mutex_unlock(&g->locked.lock.mutex);
    return n;
}

static void stats(struct transport *t, struct os2g_stats *ret)
{
    struct guest *g = guest_of(t);

    pthread_mutex_lock(&g->locked.lock.mutex);
    ret->requests = g->locked.requests;
    ret->bytes = g->locked.bytes;
    ret->errors = g->locked.errors;
    pthread_mutex_unlock(&g->locked.lock.mutex);
}

// Memory of this process: bytes are read into it.
static int memory_add(struct transport *t, struct transport_memory **ret, void *base, uint64_t size,
                      int fd, uint64_t fd_offset)
{
    struct transport_memory *m = xcalloc(1, sizeof(*m));

    m->base = base;
    m->size = size;
    *ret = m;
    return 0;
}

static void memory_cut(struct transport *t, struct transport_memory *m)
{
    struct guest *g = guest_of(t);

    if (atomic_exchange(&m->cut, true))
        return;
    if (m->bar)
        guest_memory_cut(t, m);
    pthread_mutex_lock(&g->locked.lock.mutex);
    list_for_each_safe (it, &g->locked.queue) {
        struct transport_request *r = list_entry(it, struct transport_request, link);

        if (r->memory != m)
            continue;
        list_remove(&r->link);
        guest_end_locked(g, r, -ECANCELED, 0, 0);
    }
    // a read that has begun ends by itself
    while (m->running)
        pthread_cond_wait(&g->locked.left, &g->locked.lock.mutex);
    pthread_mutex_unlock(&g->locked.lock.mutex);
}

static void memory_remove(struct transport *t, struct transport_memory *m)
{
    memory_cut(t, m);
    free(m);
}

static void init_conditions(struct guest *g)
{
    pthread_cond_t *all[] = {&g->locked.work, &g->locked.reap, &g->locked.ended, &g->locked.left};
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        pthread_cond_init(all[i], &attr);
    pthread_condattr_destroy(&attr);
}

// The threads, the reads under way and the leases are the parent's, and so is what is open: the
// same open files, so that closing them here takes nothing away there.
static int after_fork(struct transport *t)
{
    struct guest *g = guest_of(t);

    pthread_mutex_lock(&g->locked.lock.mutex);
    if (g->forks != fork_count()) {
        g->forks = fork_count();
        g->locked.generation++;
        g->locked.n_active = g->locked.n_threads = g->locked.n_idle = 0;
        g->locked.reaper = false;
        list_init(&g->locked.queue);
        list_init(&g->locked.done);
        list_init(&g->locked.renewals);
        memset(g->locked.slots, 0, g->depth * sizeof(*g->locked.slots));
        if (g->locked.event_fd >= 0)
            close(g->locked.event_fd);
        g->locked.event_fd = -1;
        guest_files_close(g);
        init_conditions(g);
        if (g->control.gdd_fd >= 0)
            close(g->control.gdd_fd);
        g->control.gdd_fd = -1;
    }
    pthread_mutex_unlock(&g->locked.lock.mutex);
    return 0;
}

static void guest_free(struct transport *t)
{
    struct guest *g = guest_of(t);

    pthread_mutex_lock(&g->locked.lock.mutex);
    g->locked.stopping = true;
    pthread_cond_broadcast(&g->locked.work);
    pthread_cond_broadcast(&g->locked.reap);
    while (g->forks == fork_count() && (g->locked.n_threads || g->locked.reaper))
        pthread_cond_wait(&g->locked.left, &g->locked.lock.mutex);
    pthread_mutex_unlock(&g->locked.lock.mutex);
    guest_files_close(g);
    if (g->locked.event_fd >= 0)
        close(g->locked.event_fd);
    if (g->control.gdd_fd >= 0)
        close(g->control.gdd_fd);
    if (g->control.bar)
        munmap(g->control.bar, g->control.bar_size);
    fork_lock_fini(&g->locked.lock);
    fork_lock_fini(&g->control.lock);
    free(g->locked.nodes);
    free(g->locked.files);
    free(g->locked.slots);
    free(g->directory);
    free(g);
}

static const struct transport_kind kind = {
    .way = "guest BAR",
    .free = guest_free,
    .submit = submit,
    .post = guest_post,
    .plug = plug,
    .unplug = plug,
    .cancel = cancel,
    .forget = guest_forget,
    .wait = guest_wait,
    .flag = guest_flag,
    .poll = guest_poll,
    .event_fd = guest_event_fd,
    .generation = generation,
    .stats = stats,
    .memory_add = memory_add,
    .memory_lease = guest_memory_lease,
    .memory_cut = memory_cut,
    .memory_remove = memory_remove,
    .after_fork = after_fork,
};

int transport_guest_new(struct transport **ret, const char *directory, const struct os2g_options *o)
{
    char *path = realpath(directory, NULL), *control;
    struct guest *g;
    struct stat st;
    int rc;

    if (!path)
        return client_fail_errno(-errno, directory);
    control = xasprintf("%s/%s/%s", path, OS2G_CONTROL_DIR, OS2G_GDD_FILE);
    rc = stat(control, &st) < 0 ? -errno : 0;
    free(control);
    if (rc < 0) {
        free(path);
        return client_fail(rc, "%s is no mount of os2g's", directory);
    }
    g = xcalloc(1, sizeof(*g));
    g->base.kind = &kind;
    g->base.max_read = MAX_READ;
    g->directory = path;
    g->depth = o->depth;
    g->timeout_ns = o->timeout_ms * NS_PER_MS;
    g->forks = fork_count();
    g->control.gdd_fd = -1;
    g->locked.event_fd = -1;
    g->locked.generation = 1;
    g->locked.slots = xcalloc(g->depth, sizeof(*g->locked.slots));
    list_init(&g->locked.queue);
    list_init(&g->locked.done);
    list_init(&g->locked.renewals);
    init_conditions(g);
    fork_lock_init(&g->control.lock, FORK_CONTROL);
    fork_lock_init(&g->locked.lock, FORK_TRANSPORT);
    *ret = &g->base;
    return 0;
}
