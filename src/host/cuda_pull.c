// SPDX-License-Identifier: Apache-2.0
// Pulling: bytes land in a ring of pinned host memory, and whoever collects a completion has the
// GPU copy them from there, on a stream of ours, and waits for the end of that copy alone. That
// thread sleeps meanwhile (an event with blocking synchronisation), and other threads' copies run
// beside it, each on a lane of its own. The ring's chunks are what bounds how much is under way.
#include "host/cuda_impl.h"

#include <stdlib.h>

#define RING (64 * MIB)

// A stream and an event; used by one thread at a time.
struct lane {
    struct lane *next;
    CUstream stream;
    CUevent event;
};

struct cuda_lanes {
    struct list link;
    CUcontext context;
    unsigned refs;
    int priority; // of the streams
    bool priorities;
    struct lane *idle;
};

struct cuda_pull {
    struct {
        pthread_mutex_t mutex;
        struct list contexts; // struct cuda_lanes
        struct staging *ring;
        unsigned users; // of the ring
    } locked;
};

void cuda_pull_new(struct client_cuda *cuda)
{
    cuda->pull = xcalloc(1, sizeof(*cuda->pull));
    pthread_mutex_init(&cuda->pull->locked.mutex, NULL);
    list_init(&cuda->pull->locked.contexts);
}

// What is left is a parent's, of which a child has only the memory.
void cuda_pull_free(struct client_cuda *cuda)
{
    struct cuda_pull *p = cuda->pull;

    staging_free(p->locked.ring);
    list_for_each_safe (it, &p->locked.contexts)
        free(list_entry(it, struct cuda_lanes, link));
    pthread_mutex_destroy(&p->locked.mutex);
    free(p);
}

// --- the ring ---

static int ring_new(struct client_cuda *cuda, CUcontext context, struct staging **ret)
{
    const struct cuda_driver *d = cuda->d;
    struct staging *ring;
    CUcontext popped;
    CUresult r;
    int rc = staging_new(&ring, cuda->client, RING);

    if (rc < 0)
        return rc;
    r = d->cuCtxPushCurrent(context);
    if (r == CUDA_SUCCESS) {
        // the same pages for every GPU
        r = d->cuMemHostRegister(staging_base(ring), staging_size(ring),
                                 CU_MEMHOSTREGISTER_PORTABLE);
        d->cuCtxPopCurrent(&popped);
    }
    if (r != CUDA_SUCCESS) {
        staging_free(ring);
        return cuda_fail(cuda, -ENOMEM, "pinned memory for the way to the GPU", r);
    }
    *ret = ring;
    return 0;
}

int cuda_pull_staging(struct client_cuda *cuda, CUcontext context, struct staging **ret)
{
    struct cuda_pull *p = cuda->pull;
    int rc = 0;

    pthread_mutex_lock(&p->locked.mutex);
    if (!p->locked.ring)
        rc = ring_new(cuda, context, &p->locked.ring);
    *ret = p->locked.ring;
    p->locked.users += rc == 0;
    pthread_mutex_unlock(&p->locked.mutex);
    return rc;
}

void cuda_pull_staging_put(struct client_cuda *cuda)
{
    struct cuda_pull *p = cuda->pull;
    struct staging *ring = NULL;

    pthread_mutex_lock(&p->locked.mutex);
    if (--p->locked.users == 0) {
        ring = p->locked.ring;
        p->locked.ring = NULL;
    }
    pthread_mutex_unlock(&p->locked.mutex);
    if (ring)
        cuda->d->cuMemHostUnregister(staging_base(ring));
    staging_free(ring);
}

// --- lanes ---

static struct cuda_lanes *lanes_new(struct client_cuda *cuda, CUcontext context)
{
    struct cuda_lanes *l = xcalloc(1, sizeof(*l));
    int least = 0, greatest = 0;
    CUcontext popped;

    l->context = context;
    if (cuda->d->cuCtxPushCurrent(context) == CUDA_SUCCESS) {
        cuda->d->cuCtxGetStreamPriorityRange(&least, &greatest);
        cuda->d->cuCtxPopCurrent(&popped);
    }
    l->priority = greatest;
    l->priorities = least != greatest;
    return l;
}

struct cuda_lanes *cuda_lanes_get(struct client_cuda *cuda, CUcontext context)
{
    struct cuda_pull *p = cuda->pull;
    struct cuda_lanes *l = NULL;

    pthread_mutex_lock(&p->locked.mutex);
    list_for_each (it, &p->locked.contexts)
        if (list_entry(it, struct cuda_lanes, link)->context == context)
            l = list_entry(it, struct cuda_lanes, link);
    if (!l) {
        l = lanes_new(cuda, context);
        list_push_back(&p->locked.contexts, &l->link);
    }
    l->refs++;
    pthread_mutex_unlock(&p->locked.mutex);
    return l;
}

static void lane_free(const struct cuda_driver *d, struct lane *lane)
{
    if (lane->event)
        d->cuEventDestroy(lane->event);
    if (lane->stream)
        d->cuStreamDestroy(lane->stream);
    free(lane);
}

void cuda_lanes_put(struct client_cuda *cuda, struct cuda_lanes *l)
{
    CUcontext popped;
    bool last;

    if (!l)
        return;
    pthread_mutex_lock(&cuda->pull->locked.mutex);
    last = --l->refs == 0;
    if (last)
        list_remove(&l->link);
    pthread_mutex_unlock(&cuda->pull->locked.mutex);
    if (!last)
        return;
    // the context may have been destroyed by its owner, and the lanes with it
    if (cuda->d->cuCtxPushCurrent(l->context) == CUDA_SUCCESS) {
        while (l->idle) {
            struct lane *lane = l->idle;

            l->idle = lane->next;
            lane_free(cuda->d, lane);
        }
        cuda->d->cuCtxPopCurrent(&popped);
    }
    free(l);
}

bool cuda_lanes_priority(const struct client_cuda *cuda, const struct cuda_lanes *l, int *ret)
{
    *ret = l->priority;
    return l->priorities;
}

// The context is current.
static CUresult lane_take(struct client_cuda *cuda, struct cuda_lanes *l, struct lane **ret)
{
    struct lane *lane;
    CUresult r;

    pthread_mutex_lock(&cuda->pull->locked.mutex);
    lane = l->idle;
    if (lane)
        l->idle = lane->next;
    pthread_mutex_unlock(&cuda->pull->locked.mutex);
    *ret = lane;
    if (lane)
        return CUDA_SUCCESS;
    lane = xcalloc(1, sizeof(*lane));
    r = cuda->d->cuStreamCreateWithPriority(&lane->stream, CU_STREAM_NON_BLOCKING, l->priority);
    if (r == CUDA_SUCCESS)
        r = cuda->d->cuEventCreate(&lane->event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    if (r != CUDA_SUCCESS)
        lane_free(cuda->d, lane);
    else
        *ret = lane;
    return r;
}

static CUresult copy_on(const struct cuda_driver *d, const struct lane *lane, CUdeviceptr to,
                        const void *from, size_t len)
{
    CUresult r = d->cuMemcpyHtoDAsync(to, from, len, lane->stream);

    if (r == CUDA_SUCCESS)
        r = d->cuEventRecord(lane->event, lane->stream);
    if (r == CUDA_SUCCESS)
        r = d->cuEventSynchronize(lane->event);
    return r;
}

CUresult cuda_lanes_copy(struct client_cuda *cuda, struct cuda_lanes *l, CUdeviceptr to,
                         const void *from, size_t len)
{
    CUresult r = cuda->d->cuCtxPushCurrent(l->context);
    struct lane *lane;
    CUcontext popped;

    if (r != CUDA_SUCCESS)
        return r;
    r = lane_take(cuda, l, &lane);
    if (r == CUDA_SUCCESS) {
        r = copy_on(cuda->d, lane, to, from, len);
        pthread_mutex_lock(&cuda->pull->locked.mutex);
        lane->next = l->idle;
        l->idle = lane;
        pthread_mutex_unlock(&cuda->pull->locked.mutex);
    }
    cuda->d->cuCtxPopCurrent(&popped);
    return r;
}
