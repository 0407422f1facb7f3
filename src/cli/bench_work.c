// SPDX-License-Identifier: Apache-2.0
// The threads of os2g bench: each has a batch and a buffer with a slot per operation under way.
// They warm up, wait for each other, and are measured from there on.
#include "cli/bench.h"

#include "base/clock.h"
#include "base/rand.h"
#include "cli/progress.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define DRAW_NS (100 * NS_PER_MS)

struct slot {
    struct bench_item *item;
    char *memory;
    off_t offset;
    uint64_t start_ns;
};

struct phase {
    atomic_size_t next; // number of the next operation
    size_t end;         // where it stops, or
    uint64_t deadline_ns;
    size_t first; // number of the pass's item that it begins with
};

static struct bench_item *phase_item(const struct phase *p, struct bench_items *items,
                                     size_t number)
{
    return &items->items[(p->first + number) % items->n];
}

// Threads stop here until the main thread has seen all of them and lets them go on.
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned arrived, opened;
};

struct job {
    struct os2g *c;
    const struct bench_options *options;
    struct bench_items *items;
    struct phase warm_up, measured;
    struct gate gate;
    _Atomic bool over;
    atomic_uint_fast64_t bytes, ops;
};

struct worker {
    struct job *job;
    pthread_t thread;
    struct os2g_batch *batch;
    struct os2g_buffer *buffer;
    char *memory;
    struct slot *slots;
    unsigned *idle, n_idle; // numbers of slots
    struct os2g_io *io;
    struct os2g_io_event *events;

    // of the measured phase
    uint64_t ops, bytes, errors, mismatches, latency_max_ns;
    struct histogram latency;
    char first_error[256];
};

// --- the gate ---

static void gate_stop(struct gate *g)
{
    unsigned opened;

    pthread_mutex_lock(&g->lock);
    opened = g->opened;
    g->arrived++;
    pthread_cond_broadcast(&g->changed);
    while (g->opened == opened)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_wait_for(struct gate *g, unsigned n)
{
    pthread_mutex_lock(&g->lock);
    while (g->arrived < n)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->arrived = 0;
    g->opened++;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

// --- operations ---

static void count_error(struct worker *w, const struct slot *slot, int error)
{
    const struct bench_object *object = &w->job->items->objects[slot->item->object];

    if (w->errors++ == 0)
        snprintf(w->first_error, sizeof(w->first_error), "%s: %s", object->key, strerror(-error));
}

// The same bytes each time they are read?
static void verify(struct worker *w, const struct slot *slot, size_t len)
{
    uint64_t digest = XXH3_64bits_withSeed(slot->memory + slot->offset, len, len) | 1, first = 0;

    if (!atomic_compare_exchange_strong(&slot->item->digest, &first, digest) && first != digest)
        w->mismatches++;
}

static void end(struct worker *w, const struct os2g_io_event *e, uint64_t now)
{
    struct slot *slot = e->cookie;
    uint64_t ns = now - slot->start_ns;

    if (e->result < 0)
        count_error(w, slot, (int)e->result);
    else if (w->job->options->verify)
        verify(w, slot, (size_t)e->result);
    w->ops++;
    w->bytes += e->result > 0 ? (uint64_t)e->result : 0;
    histogram_add(&w->latency, ns);
    w->latency_max_ns = MAX(w->latency_max_ns, ns);
    w->idle[w->n_idle++] = (unsigned)(slot - w->slots);
}

static struct os2g_io operation(struct worker *w, struct slot *slot, struct bench_item *item)
{
    const struct bench_object *object = &w->job->items->objects[item->object];

    slot->item = item;
    if (w->job->options->in_place)
        slot->offset = (off_t)item->offset;
    return (struct os2g_io){.kind = w->job->options->op,
                            .file = object->file,
                            .key = object->key,
                            .buffer_base = slot->memory,
                            .size = item->len,
                            .file_offset = (off_t)item->offset,
                            .buffer_offset = slot->offset,
                            .cookie = slot};
}

// Fills the idle slots and submits; how many.
static unsigned begin(struct worker *w, struct phase *p, uint64_t now)
{
    unsigned n = 0;

    if (now >= p->deadline_ns)
        return 0;
    while (w->n_idle > n) {
        size_t number = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        struct slot *slot = &w->slots[w->idle[w->n_idle - n - 1]];

        if (number >= p->end)
            break;
        slot->start_ns = now;
        w->io[n++] = operation(w, slot, phase_item(p, w->job->items, number));
    }
    return n;
}

// 0, or -errno: the batch itself has failed.
static int run(struct worker *w, struct phase *p, unsigned depth)
{
    uint64_t reap = w->job->options->reap;
    bool over = false;

    while (!over || w->n_idle < depth) {
        uint64_t bytes = w->bytes;
        unsigned n = over ? 0 : begin(w, p, clock_monotonic_ns());
        int rc = n ? os2g_batch_submit(w->batch, w->io, n) : 0;

        if (rc < 0)
            return rc;
        w->n_idle -= n;
        over = over || (n == 0 && w->n_idle > 0);
        if (w->n_idle == depth)
            continue;
        rc = os2g_batch_status(w->batch, (unsigned)MIN(reap, depth - w->n_idle), depth, w->events,
                               NULL);
        if (rc < 0)
            return rc;
        for (int i = 0; i < rc; i++)
            end(w, &w->events[i], clock_monotonic_ns());
        atomic_fetch_add_explicit(&w->job->bytes, w->bytes - bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&w->job->ops, (unsigned)rc, memory_order_relaxed);
    }
    return 0;
}

static void forget_counts(struct worker *w)
{
    w->ops = w->bytes = w->errors = w->mismatches = w->latency_max_ns = 0;
    memset(&w->latency, 0, sizeof(w->latency));
    w->first_error[0] = 0;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct job *job = w->job;
    unsigned depth = (unsigned)job->options->depth;
    int rc = run(w, &job->warm_up, depth);

    gate_stop(&job->gate); // the clocks are read
    if (rc == 0 && !job->over) {
        forget_counts(w);
        rc = run(w, &job->measured, depth);
    }
    if (rc < 0) {
        w->errors++;
        snprintf(w->first_error, sizeof(w->first_error), "%s", os2g_last_error());
    }
    gate_stop(&job->gate);
    return NULL;
}

// --- threads and their memory ---

static int make_memory(struct worker *w, size_t size, char **ret_error)
{
    const struct bench_options *o = w->job->options;
    int rc;

    if (o->plain) {
        w->memory = malloc(size);
        if (!w->memory)
            return -ENOMEM;
    } else {
        rc = os2g_buffer_alloc(w->job->c, &w->buffer, size, o->memory, (int)o->device);
        if (rc < 0) {
            *ret_error = xasprintf("a buffer of %zu bytes: %s", size, os2g_last_error());
            return rc;
        }
        w->memory = os2g_buffer_base(w->buffer);
    }
    if (o->memory != OS2G_MEMORY_CUDA)
        memset(w->memory, 0x5a, size); // pre-faulted
    return 0;
}

static int worker_init(struct worker *w, struct job *job, char **ret_error)
{
    const struct bench_options *o = job->options;
    unsigned depth = (unsigned)o->depth;
    // slots begin at pages of their own
    size_t room = ALIGN_UP(MAX(1, job->items->largest), 4 * KIB);
    int rc;

    w->job = job;
    w->slots = xcalloc(depth, sizeof(*w->slots));
    w->idle = xcalloc(depth, sizeof(*w->idle));
    w->io = xcalloc(depth, sizeof(*w->io));
    w->events = xcalloc(depth, sizeof(*w->events));
    rc = os2g_batch_new(job->c, &w->batch, depth);
    if (rc < 0) {
        *ret_error = xstrdup(os2g_last_error());
        return rc;
    }
    rc = make_memory(w, o->in_place ? room : room * depth, ret_error);
    for (unsigned i = 0; rc == 0 && i < depth; i++) {
        w->slots[i].memory = w->memory;
        w->slots[i].offset = o->in_place ? 0 : (off_t)(i * room);
        w->idle[w->n_idle++] = i;
    }
    return rc;
}

static void worker_fini(struct worker *w)
{
    os2g_batch_free(w->batch);
    if (!w->buffer)
        free(w->memory);
    os2g_buffer_free(w->buffer);
    free(w->slots);
    free(w->idle);
    free(w->io);
    free(w->events);
}

// --- the measurement ---

static void *draw_thread(void *arg)
{
    struct job *job = arg;
    struct progress progress;

    progress_init(&progress, "reading", 0, job->options->duration_ns ? 0 : job->measured.end,
                  false);
    while (!job->over) {
        nanosleep(&(struct timespec){.tv_nsec = DRAW_NS}, NULL);
        progress_update(&progress, atomic_load(&job->bytes), atomic_load(&job->ops));
    }
    progress_finish(&progress);
    return NULL;
}

static int make_plan(struct job *job, struct os2g_plan **ret)
{
    const struct phase *p = &job->measured;
    const char **keys = xcalloc(p->end, sizeof(*keys));
    int rc = os2g_plan_new(job->c, ret, 0);

    for (size_t i = 0; i < p->end; i++)
        keys[i] = job->items->objects[phase_item(p, job->items, i)->object].key;
    if (rc == 0)
        rc = os2g_plan_add(*ret, keys, p->end);
    if (rc == 0)
        rc = os2g_plan_commit(*ret);
    free(keys);
    return rc;
}

static void add_up(struct bench_result *r, const struct worker *w)
{
    r->ops += w->ops;
    r->bytes += w->bytes;
    r->errors += w->errors;
    r->mismatches += w->mismatches;
    r->latency_max_ns = MAX(r->latency_max_ns, w->latency_max_ns);
    histogram_merge(&r->latency, &w->latency);
    if (!r->first_error[0])
        memcpy(r->first_error, w->first_error, sizeof(r->first_error));
}

// From the first gate to the second.
static int measure(struct job *job, unsigned threads, struct bench_result *ret, char **ret_error)
{
    const struct bench_options *o = job->options;
    uint64_t pid = bench_device_pid(o), start;
    struct os2g_plan *plan = NULL;
    double device = 0, host;
    int rc;

    gate_wait_for(&job->gate, threads);
    rc = o->plan ? make_plan(job, &plan) : 0;
    if (rc < 0) {
        *ret_error = xasprintf("the plan: %s", os2g_last_error());
        job->over = true;
    }
    job->bytes = job->ops = 0;
    if (pid)
        device = bench_cpu_of(pid);
    host = bench_cpu_self();
    start = clock_monotonic_ns();
    if (o->duration_ns)
        job->measured.deadline_ns = start + o->duration_ns;
    gate_open(&job->gate);
    gate_wait_for(&job->gate, threads);
    ret->seconds = (double)(clock_monotonic_ns() - start) / 1e9;
    ret->host_cpu_s = bench_cpu_self() - host;
    ret->device_cpu_s = pid ? bench_cpu_of(pid) - device : -1;
    if (plan)
        os2g_plan_status(plan, &ret->plan);
    os2g_plan_free(plan);
    return rc;
}

static void job_init(struct job *job)
{
    const struct bench_options *o = job->options;

    job->warm_up.deadline_ns = job->measured.deadline_ns = UINT64_MAX;
    // each place is landed in once, by a device that sees it for the first time
    job->warm_up.end = o->warm_up != UINT64_MAX ? o->warm_up
                       : o->in_place            ? job->items->n * o->threads
                                                : 2 * o->depth * o->threads;
    job->measured.first = job->warm_up.end;
    job->measured.end = o->duration_ns  ? SIZE_MAX
                        : o->operations ? o->operations
                                        : job->items->n * o->loops;
    pthread_mutex_init(&job->gate.lock, NULL);
    pthread_cond_init(&job->gate.changed, NULL);
}

// How many have begun.
static unsigned start(struct worker *workers, unsigned n, char **ret_error)
{
    for (unsigned i = 0; i < n; i++) {
        int rc = pthread_create(&workers[i].thread, NULL, work, &workers[i]);

        if (rc) {
            *ret_error = xasprintf("thread %u: %s", i + 1, strerror(rc));
            return i;
        }
    }
    return n;
}

// Those that have begun, after a failure: nothing is measured.
static void send_home(struct job *job, unsigned n)
{
    job->over = true;
    for (unsigned gates = 0; n && gates < 2; gates++) {
        gate_wait_for(&job->gate, n);
        gate_open(&job->gate);
    }
}

static int run_threads(struct job *job, struct worker *workers, struct bench_result *ret,
                       char **ret_error)
{
    const struct bench_options *o = job->options;
    bool drawing = !o->quiet && isatty(STDERR_FILENO);
    unsigned n = start(workers, (unsigned)o->threads, ret_error);
    pthread_t drawer;
    int rc = -EAGAIN;

    if (n < o->threads) {
        send_home(job, n);
    } else {
        drawing = drawing && pthread_create(&drawer, NULL, draw_thread, job) == 0;
        rc = measure(job, n, ret, ret_error);
        job->over = true;
        gate_open(&job->gate);
        if (drawing)
            pthread_join(drawer, NULL);
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(workers[i].thread, NULL);
    return rc;
}

int bench_work(struct os2g *c, const struct bench_options *o, struct bench_items *items,
               struct bench_result *ret, char **ret_error)
{
    struct job job = {.c = c, .options = o, .items = items};
    struct worker *workers = xcalloc(o->threads, sizeof(*workers));
    int rc = 0;

    *ret = (struct bench_result){.stats.size = sizeof(ret->stats)};
    job_init(&job);
    for (unsigned i = 0; rc == 0 && i < o->threads; i++)
        rc = worker_init(&workers[i], &job, ret_error);
    if (rc == 0)
        rc = run_threads(&job, workers, ret, ret_error);
    for (unsigned i = 0; i < o->threads; i++) {
        add_up(ret, &workers[i]);
        worker_fini(&workers[i]);
    }
    os2g_stats_read(c, &ret->stats);
    pthread_mutex_destroy(&job.gate.lock);
    pthread_cond_destroy(&job.gate.changed);
    free(workers);
    return rc;
}
