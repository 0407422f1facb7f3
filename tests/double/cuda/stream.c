// SPDX-License-Identifier: Apache-2.0
// Streams: threads that carry out operations in order. Events, host functions, waits for a value.
#include "double.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PRIORITY_LEAST    0
#define PRIORITY_GREATEST -5

struct CUevent_st {
    uint64_t recorded, done; // numbers of records
    unsigned refs;           // records under way, and whoever made it
};

struct operation {
    struct list link;
    enum { COPY, FILL, RECORD, CALL, WAIT } kind;
    void *to;
    const void *from;
    size_t len;
    void *staged; // what was copied at once, from memory that is not registered
    struct memory *memory;
    struct host_range *host;
    CUevent event;
    uint64_t number;
    CUhostFn fn;
    void *arg;
    const _Atomic uint32_t *at;
    uint32_t value;
    bool *ended; // somebody waits for this one
};

struct CUstream_st {
    struct list link; // of the context
    struct CUctx_st *context;
    unsigned flags;
    int priority;
    struct list queue; // the first is being carried out
    bool closing;
};

static uint64_t copies, pageable_copies;

uint64_t stream_copies(bool pageable)
{
    return pageable ? pageable_copies : copies;
}

static void nap_us(unsigned us)
{
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};

    nanosleep(&t, NULL);
}

// --- carrying out; locked, but for the work itself ---

static void event_drop(CUevent e)
{
    if (--e->refs == 0)
        free(e);
}

static void run_copy(struct operation *o)
{
    CUresult r;

    if (double_must_fail("copy", &r))
        return;
    pthread_mutex_unlock(&double_mutex);
    if (double_delay_us())
        nap_us(double_delay_us());
    memcpy(o->to, o->staged ? o->staged : o->from, o->len);
    pthread_mutex_lock(&double_mutex);
}

static void run_wait(struct operation *o)
{
    while ((int32_t)(atomic_load(o->at) - o->value) < 0 && !double_sticky()) {
        pthread_mutex_unlock(&double_mutex);
        nap_us(50);
        pthread_mutex_lock(&double_mutex);
    }
}

static void operation_end(struct operation *o)
{
    if (o->memory)
        o->memory->in_flight--;
    if (o->host)
        o->host->in_flight--;
    if (o->event)
        event_drop(o->event);
    if (o->ended)
        *o->ended = true;
    list_remove(&o->link);
    free(o->staged);
    free(o);
    pthread_cond_broadcast(&double_cond);
}

static void run(struct operation *o)
{
    // after an error that sticks nothing is carried out any more, and nobody told
    if (double_sticky())
        return;
    switch (o->kind) {
    case COPY:
        run_copy(o);
        break;
    case FILL:
        memset(o->to, (int)o->value, o->len);
        break;
    case RECORD:
        o->event->done = MAX(o->event->done, o->number);
        break;
    case CALL:
        pthread_mutex_unlock(&double_mutex);
        double_host_function(o->fn, o->arg);
        pthread_mutex_lock(&double_mutex);
        break;
    case WAIT:
        run_wait(o);
        break;
    }
}

static void *stream_main(void *arg)
{
    CUstream s = arg;

    pthread_mutex_lock(&double_mutex);
    for (;;) {
        struct operation *o = list_first(&s->queue, struct operation, link);

        if (o) {
            run(o);
            operation_end(o);
        } else if (s->closing) {
            break;
        } else {
            pthread_cond_wait(&double_cond, &double_mutex);
        }
    }
    list_remove(&s->link);
    pthread_mutex_unlock(&double_mutex);
    free(s);
    return NULL;
}

// --- streams ---

static CUstream stream_new(struct CUctx_st *c, unsigned flags, int priority)
{
    CUstream s = xcalloc(1, sizeof(*s));
    pthread_attr_t attr;
    pthread_t thread;

    s->context = c;
    s->flags = flags;
    s->priority = MIN(MAX(priority, PRIORITY_GREATEST), PRIORITY_LEAST);
    list_init(&s->queue);
    list_push_back(&c->streams, &s->link);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attr, stream_main, s))
        double_undefined("no thread for a stream");
    pthread_attr_destroy(&attr);
    return s;
}

// The stream if it is one of c's that is open; NULL stands for the default one.
static CUstream stream_of(struct CUctx_st *c, CUstream stream)
{
    if (!stream) {
        if (!c->null_stream)
            c->null_stream = stream_new(c, 0, PRIORITY_LEAST);
        return c->null_stream;
    }
    list_for_each (it, &c->streams) {
        CUstream s = list_entry(it, struct CUstream_st, link);

        if (s == stream && !s->closing)
            return s;
    }
    return NULL;
}

static void stream_close(CUstream s)
{
    s->closing = true;
    pthread_cond_broadcast(&double_cond);
}

void stream_close_all(struct CUctx_st *c)
{
    list_for_each (it, &c->streams)
        stream_close(list_entry(it, struct CUstream_st, link));
    c->null_stream = NULL;
}

CUresult cuStreamCreate(CUstream *ret, unsigned flags)
{
    return cuStreamCreateWithPriority(ret, flags, PRIORITY_LEAST);
}

CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned flags, int priority)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuStreamCreate", &c);

    if (r != CUDA_SUCCESS)
        return r;
    if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    *ret = stream_new(c, flags, priority);
    return double_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuCtxGetStreamPriorityRange", &c);

    if (r != CUDA_SUCCESS)
        return r;
    *least = PRIORITY_LEAST;
    *greatest = PRIORITY_GREATEST;
    return double_leave(CUDA_SUCCESS);
}

// Begins a call that names a stream of the current context; as double_enter.
static CUresult enter_stream(const char *name, CUstream *stream)
{
    struct CUctx_st *c;
    CUresult r = double_enter(name, &c);

    if (r != CUDA_SUCCESS)
        return r;
    *stream = stream_of(c, *stream);
    return *stream ? CUDA_SUCCESS : double_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuStreamGetPriority(CUstream stream, int *ret)
{
    CUresult r = enter_stream("cuStreamGetPriority", &stream);

    if (r != CUDA_SUCCESS)
        return r;
    *ret = stream->priority;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuStreamIsCapturing(CUstream stream, int *ret)
{
    CUresult r = enter_stream("cuStreamIsCapturing", &stream);

    if (r != CUDA_SUCCESS)
        return r;
    *ret = 0; // there are no graphs
    return double_leave(CUDA_SUCCESS);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUresult r = enter_stream("cuStreamDestroy", &stream);

    if (r != CUDA_SUCCESS)
        return r;
    stream_close(stream); // what is on it is carried out yet
    return double_leave(CUDA_SUCCESS);
}

CUresult cuStreamQuery(CUstream stream)
{
    CUresult r = enter_stream("cuStreamQuery", &stream);

    if (r != CUDA_SUCCESS)
        return r;
    return double_leave(list_empty(&stream->queue) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

static struct operation *push(CUstream s, struct operation what)
{
    struct operation *o = xmemdup(&what, sizeof(what));

    list_push_back(&s->queue, &o->link);
    pthread_cond_broadcast(&double_cond);
    return o;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    CUresult r = enter_stream("cuStreamSynchronize", &stream);
    CUevent e;
    bool ended = false;

    if (r != CUDA_SUCCESS)
        return r;
    e = xcalloc(1, sizeof(*e));
    e->refs = 1;
    push(stream, (struct operation){.kind = RECORD, .event = e, .ended = &ended});
    while (!ended)
        pthread_cond_wait(&double_cond, &double_mutex);
    return double_leave(double_sticky());
}

// --- copies ---

static void push_copy(CUstream s, void *to, const void *from, size_t len, struct memory *m,
                      bool *ended)
{
    struct operation o = {
        .kind = COPY, .to = to, .from = from, .len = len, .memory = m, .ended = ended};

    copies++;
    m->in_flight++;
    o.host = host_find(ended ? to : from, len);
    if (!o.host)
        o.host = host_find(from, len);
    if (o.host) {
        o.host->in_flight++;
    } else if (!ended) {
        pageable_copies++;
        o.staged = xmemdup(from, len);
    }
    push(s, o);
}

CUresult stream_run(struct CUctx_st *c, void *to, const void *from, size_t len, struct memory *m)
{
    bool ended = false;

    push_copy(stream_of(c, NULL), to, from, len, m, &ended);
    while (!ended)
        pthread_cond_wait(&double_cond, &double_mutex);
    return double_sticky();
}

static uint8_t *bytes_at(CUdeviceptr p, size_t len, struct memory **ret)
{
    struct memory *m = memory_find(p, len);

    if (!m || !m->accessible)
        return NULL;
    *ret = m;
    return m->bytes + (p - m->base);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t len, CUstream stream)
{
    CUresult r = enter_stream("cuMemcpyHtoDAsync", &stream);
    struct memory *m;
    uint8_t *at;

    if (r != CUDA_SUCCESS)
        return r;
    at = bytes_at(to, len, &m);
    if (!at)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    push_copy(stream, at, from, len, m, NULL);
    return double_leave(CUDA_SUCCESS);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t len)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuMemcpyDtoH", &c);
    struct memory *m;
    uint8_t *at;

    if (r != CUDA_SUCCESS)
        return r;
    at = bytes_at(from, len, &m);
    return double_leave(at ? stream_run(c, to, at, len, m) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t len, CUstream stream)
{
    CUresult r = enter_stream("cuMemsetD8Async", &stream);
    struct memory *m;
    uint8_t *at;

    if (r != CUDA_SUCCESS)
        return r;
    at = bytes_at(p, len, &m);
    if (!at)
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    m->in_flight++;
    push(stream,
         (struct operation){.kind = FILL, .to = at, .value = value, .len = len, .memory = m});
    return double_leave(CUDA_SUCCESS);
}

// --- events ---

CUresult cuEventCreate(CUevent *ret, unsigned flags)
{
    struct CUctx_st *c;
    CUresult r = double_enter("cuEventCreate", &c);

    if (r != CUDA_SUCCESS)
        return r;
    *ret = xcalloc(1, sizeof(**ret));
    (*ret)->refs = 1;
    return double_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy_v2(CUevent event)
{
    CUresult r = double_enter("cuEventDestroy", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    event_drop(event);
    return double_leave(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CUresult r = enter_stream("cuEventRecord", &stream);

    if (r != CUDA_SUCCESS)
        return r;
    event->refs++;
    push(stream, (struct operation){.kind = RECORD, .event = event, .number = ++event->recorded});
    return double_leave(CUDA_SUCCESS);
}

CUresult cuEventQuery(CUevent event)
{
    CUresult r = double_enter("cuEventQuery", NULL);

    if (r != CUDA_SUCCESS)
        return r;
    return double_leave(event->done == event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult cuEventSynchronize(CUevent event)
{
    CUresult r = double_enter("cuEventSynchronize", NULL);
    uint64_t number;

    if (r != CUDA_SUCCESS)
        return r;
    number = event->recorded;
    while (event->done < number && !double_sticky())
        pthread_cond_wait(&double_cond, &double_mutex);
    return double_leave(double_sticky());
}

// --- host functions, waiting for a value ---

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *arg)
{
    CUresult r = enter_stream("cuLaunchHostFunc", &stream);

    if (r != CUDA_SUCCESS)
        return r;
    push(stream, (struct operation){.kind = CALL, .fn = fn, .arg = arg});
    return double_leave(CUDA_SUCCESS);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags)
{
    CUresult r = enter_stream("cuStreamWaitValue32", &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (flags != CU_STREAM_WAIT_VALUE_GEQ || at % 4 || !host_find((void *)(uintptr_t)at, 4))
        return double_leave(CUDA_ERROR_INVALID_VALUE);
    push(stream, (struct operation){
                     .kind = WAIT, .at = (const _Atomic uint32_t *)(uintptr_t)at, .value = value});
    return double_leave(CUDA_SUCCESS);
}
