// SPDX-License-Identifier: Apache-2.0
// os2g_read_async: a read in the order of a CUDA stream.
//
//   caller                    the stream                     a thread of ours
//   cuLaunchHostFunc          …
//   cuStreamWaitValue32       …
//   cuLaunchHostFunc          …
//   returns                   host function: its turn ─────► takes the parameters, os2g_read
//                             waits                          *bytes_read
//                             goes on ◄───────────────────── the value
//                             host function: passed ───────► the end
//
// A host function must neither call CUDA nor wait for it, so it only passes the turn on. The wait
// for a value is an order that CUDA does not see: where the bytes are pulled, our copy must not be
// queued behind the waiting stream in some channel of the driver's. Channels are not shared by
// streams of different priority; our copies have the greatest, and a caller's stream which has
// that, too, is read for at once instead: wait for the stream, read, return. The same where the
// driver cannot wait for a value.
#include "host/cuda_impl.h"
#include "host/file.h"
#include "host/thread.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 8
#define PAGE        ((size_t)4096)
#define WORD_SPACE  64 // a cache line each

// What a stream waits for: that it is 1.
struct word {
    struct word *next;
    _Atomic uint32_t *at; // in a page
};

struct page {
    struct page *next;
    uint8_t *base;
    struct word words[PAGE / WORD_SPACE];
};

struct stream_read {
    struct list link;
    struct cuda_streams *streams;
    struct destination to; // of the buffer's base; keeps the buffer
    struct os2g_file *file;
    const size_t *size;
    const off_t *file_offset, *buffer_offset;
    ssize_t *bytes_read;
    struct word *word;
    // locked
    unsigned turns; // 1: it is being carried out, 2: the stream has passed
    bool carried_out;
    unsigned refs; // of who puts it on the stream, who reads, and who ends it
};

struct cuda_streams {
    struct client_cuda *cuda;
    struct {
        pthread_mutex_t mutex;
        pthread_cond_t turn, end;
        struct list ready;
        unsigned pending; // begun and not ended
        struct word *idle;
        struct page *pages;
        CUcontext context; // of the last one
        bool closing;
        unsigned n_threads;
        pthread_t threads[THREADS_MAX];
    } locked;
};

// --- reading ---

static void unref_locked(struct stream_read *r)
{
    if (--r->refs == 0)
        free(r);
}

// The stream looks at the word no more.
static void read_end_locked(struct cuda_streams *s, const struct stream_read *r)
{
    r->word->next = s->locked.idle;
    s->locked.idle = r->word;
    s->locked.pending--;
    pthread_cond_broadcast(&s->locked.end);
}

// To the buffer that was found when the read was asked for: its address may be somebody else's by
// now.
static ssize_t read_parameters(const struct stream_read *r)
{
    struct destination to;
    int rc = r->to.buffer ? destination_within(&r->to, *r->size, *r->buffer_offset, &to)
                          : destination_find(r->file->client, r->to.address, *r->size,
                                             *r->buffer_offset, &to);

    return rc < 0 ? rc : file_read(r->file, &to, *r->size, *r->file_offset);
}

static void carry_out(struct stream_read *r)
{
    *r->bytes_read = read_parameters(r);
    atomic_store_explicit(r->word->at, 1, memory_order_release);
}

// As soon as the value is written the stream goes on, and another thread may take the second turn.
static void take_first_turn(struct cuda_streams *s, struct stream_read *r)
{
    carry_out(r);
    pthread_mutex_lock(&s->locked.mutex);
    r->carried_out = true;
    unref_locked(r);
    pthread_cond_broadcast(&s->locked.end);
    pthread_mutex_unlock(&s->locked.mutex);
}

static void take_second_turn(struct cuda_streams *s, struct stream_read *r)
{
    struct destination to = r->to;

    pthread_mutex_lock(&s->locked.mutex);
    read_end_locked(s, r);
    unref_locked(r);
    pthread_mutex_unlock(&s->locked.mutex);
    destination_end(&to); // perhaps the buffer's end, with calls that host functions must not make
}

static void *thread_main(void *arg)
{
    struct cuda_streams *s = arg;
    struct stream_read *r;

    pthread_mutex_lock(&s->locked.mutex);
    for (;;) {
        r = list_first(&s->locked.ready, struct stream_read, link);
        if (r) {
            bool first = r->turns++ == 0;

            list_remove(&r->link);
            pthread_mutex_unlock(&s->locked.mutex);
            if (first)
                take_first_turn(s, r);
            else
                take_second_turn(s, r);
            pthread_mutex_lock(&s->locked.mutex);
        } else if (s->locked.closing) {
            break;
        } else {
            pthread_cond_wait(&s->locked.turn, &s->locked.mutex);
        }
    }
    pthread_mutex_unlock(&s->locked.mutex);
    return NULL;
}

// A host function: the stream has got to the read, and again when it has passed it.
static void on_turn(void *arg)
{
    struct stream_read *r = arg;
    struct cuda_streams *s = r->streams;

    pthread_mutex_lock(&s->locked.mutex);
    list_push_back(&s->locked.ready, &r->link);
    pthread_cond_signal(&s->locked.turn);
    pthread_mutex_unlock(&s->locked.mutex);
}

// --- words ---

static CUresult add_page_locked(struct cuda_streams *s)
{
    struct page *p = xcalloc(1, sizeof(*p));
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    p->base = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->base != MAP_FAILED) {
        r = s->cuda->d->cuMemHostRegister(
            p->base, PAGE, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
        if (r != CUDA_SUCCESS)
            munmap(p->base, PAGE);
    }
    if (r != CUDA_SUCCESS) {
        free(p);
        return r;
    }
    for (size_t i = 0; i < ARRAY_LEN(p->words); i++) {
        p->words[i].at = (_Atomic uint32_t *)(p->base + i * WORD_SPACE);
        p->words[i].next = s->locked.idle;
        s->locked.idle = &p->words[i];
    }
    p->next = s->locked.pages;
    s->locked.pages = p;
    return CUDA_SUCCESS;
}

// A context is current.
static CUresult take_word_locked(struct cuda_streams *s, struct stream_read *r, CUdeviceptr *ret_at)
{
    CUresult error = CUDA_SUCCESS;
    struct word *w;

    if (!s->locked.idle)
        error = add_page_locked(s);
    w = s->locked.idle;
    if (error == CUDA_SUCCESS)
        error = s->cuda->d->cuMemHostGetDevicePointer(ret_at, (void *)w->at, 0);
    if (error != CUDA_SUCCESS)
        return error;
    s->locked.idle = w->next;
    r->word = w;
    atomic_store(w->at, 0);
    return CUDA_SUCCESS;
}

// --- beginning ---

static void add_thread_locked(struct cuda_streams *s)
{
    if (s->locked.n_threads < MIN(s->locked.pending, THREADS_MAX) &&
        thread_start(&s->locked.threads[s->locked.n_threads], thread_main, s) == 0)
        s->locked.n_threads++;
}

// A word, a place among the pending ones and a thread.
static CUresult prepare_locked(struct cuda_streams *s, struct stream_read *r, CUdeviceptr *ret_at)
{
    CUresult error = take_word_locked(s, r, ret_at);

    if (error != CUDA_SUCCESS)
        return error;
    s->locked.pending++;
    s->cuda->d->cuCtxGetCurrent(&s->locked.context);
    add_thread_locked(s);
    if (s->locked.n_threads)
        return CUDA_SUCCESS;
    s->locked.pending--;
    r->word->next = s->locked.idle;
    s->locked.idle = r->word;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

// After the first host function was accepted: the rest. Where the driver does not take that, the
// read goes on all the same, and this thread waits for the end of it.
static CUresult wait_and_pass(struct cuda_streams *s, struct stream_read *r, CUdeviceptr at,
                              CUstream stream)
{
    const struct cuda_driver *d = s->cuda->d;
    CUresult error = d->cuStreamWaitValue32(stream, at, 1, CU_STREAM_WAIT_VALUE_GEQ);

    if (error == CUDA_SUCCESS)
        error = d->cuLaunchHostFunc(stream, on_turn, r);
    if (error == CUDA_SUCCESS)
        return error;
    error = d->cuStreamSynchronize(stream);
    if (error != CUDA_SUCCESS)
        return error; // it is lost, and r never ends
    pthread_mutex_lock(&s->locked.mutex);
    while (!r->carried_out)
        pthread_cond_wait(&s->locked.end, &s->locked.mutex);
    pthread_mutex_unlock(&s->locked.mutex);
    on_turn(r);
    return CUDA_SUCCESS;
}

// r becomes the stream's. No lock is held while the driver is called: it may wait for the turns of
// earlier reads.
static CUresult put_on_stream(struct cuda_streams *s, struct stream_read *r, CUstream stream)
{
    CUresult error, accepted;
    CUdeviceptr at;

    r->refs = 3;
    pthread_mutex_lock(&s->locked.mutex);
    error = prepare_locked(s, r, &at);
    pthread_mutex_unlock(&s->locked.mutex);
    if (error != CUDA_SUCCESS) {
        free(r);
        return error;
    }
    accepted = s->cuda->d->cuLaunchHostFunc(stream, on_turn, r);
    error = accepted == CUDA_SUCCESS ? wait_and_pass(s, r, at, stream) : accepted;
    pthread_mutex_lock(&s->locked.mutex);
    if (accepted == CUDA_SUCCESS) {
        unref_locked(r);
    } else {
        read_end_locked(s, r);
        free(r);
    }
    pthread_mutex_unlock(&s->locked.mutex);
    return error;
}

static int read_now(struct client_cuda *cuda, const struct stream_read *r, CUstream stream)
{
    CUresult error = cuda->d->cuStreamSynchronize(stream);

    if (error != CUDA_SUCCESS)
        return cuda_fail(cuda, -EIO, "waiting for the stream", error);
    *r->bytes_read = read_parameters(r);
    return 0;
}

// Whether the stream may wait for a thread of ours (the reason is at the top).
static bool may_wait(struct client_cuda *cuda, const struct os2g_buffer *b, CUstream stream)
{
    struct cuda_lanes *lanes;
    int ours, theirs;

    if (!b || b->memory != OS2G_MEMORY_CUDA || !cuda->d->cuStreamWaitValue32)
        return false;
    lanes = cuda_buffer_lanes(b);
    if (!lanes)
        return true; // no copy of this process's
    return cuda_lanes_priority(cuda, lanes, &ours) &&
           cuda->d->cuStreamGetPriority(stream, &theirs) == CUDA_SUCCESS && theirs != ours;
}

// what->to is taken over on success.
static int begin(struct client_cuda *cuda, struct stream_read *what, CUstream stream)
{
    CUresult error;
    int capturing = 0;

    if (cuda->d->cuStreamIsCapturing(stream, &capturing) == CUDA_SUCCESS && capturing)
        return client_fail(-EOPNOTSUPP, "a read cannot become a part of a CUDA graph");
    if (!may_wait(cuda, what->to.buffer, stream))
        return read_now(cuda, what, stream);
    error = put_on_stream(cuda->streams, xmemdup(what, sizeof(*what)), stream);
    if (error != CUDA_SUCCESS)
        return cuda_fail(cuda, -EIO, "a read in the order of a stream", error);
    what->to.buffer = NULL;
    return 0;
}

int os2g_read_async(struct os2g_file *f, void *buffer_base, const size_t *size,
                    const off_t *file_offset, const off_t *buffer_offset, ssize_t *bytes_read,
                    void *stream)
{
    struct os2g *c = f->client;
    struct stream_read r = {.file = f,
                            .size = size,
                            .file_offset = file_offset,
                            .buffer_offset = buffer_offset,
                            .bytes_read = bytes_read};
    struct client_cuda *cuda;
    CUcontext current = NULL;
    int rc = client_enter(c);

    if (rc == 0)
        rc = client_cuda_get(c, &cuda);
    if (rc == 0)
        rc = destination_find(c, buffer_base, 0, 0, &r.to);
    if (rc != 0)
        return rc;
    r.streams = cuda->streams;
    cuda->d->cuCtxGetCurrent(&current);
    if (current) {
        rc = begin(cuda, &r, stream);
    } else if (r.to.buffer && r.to.buffer->memory == OS2G_MEMORY_CUDA &&
               cuda->d->cuCtxPushCurrent(cuda_buffer_context(r.to.buffer)) == CUDA_SUCCESS) {
        rc = begin(cuda, &r, stream);
        cuda->d->cuCtxPopCurrent(&current);
    } else {
        rc = client_fail(-EINVAL, "this thread has no CUDA context");
    }
    destination_end(&r.to);
    return rc;
}

// --- life ---

void cuda_streams_new(struct client_cuda *cuda)
{
    struct cuda_streams *s = xcalloc(1, sizeof(*s));

    s->cuda = cuda;
    pthread_mutex_init(&s->locked.mutex, NULL);
    pthread_cond_init(&s->locked.turn, NULL);
    pthread_cond_init(&s->locked.end, NULL);
    list_init(&s->locked.ready);
    cuda->streams = s;
}

// After an error that sticks no stream gets anywhere any more.
static bool context_lost(const struct client_cuda *cuda, CUcontext context)
{
    CUresult r = cuda->d->cuCtxPushCurrent(context);
    CUcontext popped;

    if (r != CUDA_SUCCESS)
        return true;
    r = cuda->d->cuStreamQuery(NULL);
    cuda->d->cuCtxPopCurrent(&popped);
    return r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY;
}

static void wait_for_reads(struct cuda_streams *s)
{
    bool lost = false;

    pthread_mutex_lock(&s->locked.mutex);
    while (s->locked.pending && !lost) {
        CUcontext context = s->locked.context;
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_sec++;
        if (pthread_cond_clockwait(&s->locked.end, &s->locked.mutex, CLOCK_MONOTONIC, &t) == 0)
            continue;
        pthread_mutex_unlock(&s->locked.mutex);
        lost = context_lost(s->cuda, context);
        pthread_mutex_lock(&s->locked.mutex);
    }
    s->locked.closing = true;
    pthread_cond_broadcast(&s->locked.turn);
    pthread_mutex_unlock(&s->locked.mutex);
}

void cuda_streams_end(struct client_cuda *cuda)
{
    struct cuda_streams *s = cuda->streams;

    if (cuda->forks != fork_count())
        return;
    wait_for_reads(s);
    for (unsigned i = 0; i < s->locked.n_threads; i++)
        pthread_join(s->locked.threads[i], NULL);
}

static void free_pages(struct page *p)
{
    while (p) {
        struct page *next = p->next;

        munmap(p->base, PAGE);
        free(p);
        p = next;
    }
}

void cuda_streams_unpin(struct client_cuda *cuda)
{
    struct cuda_streams *s = cuda->streams;
    struct page *pages = NULL;

    pthread_mutex_lock(&s->locked.mutex);
    if (!s->locked.pending) {
        pages = s->locked.pages;
        s->locked.pages = NULL;
        s->locked.idle = NULL;
    }
    pthread_mutex_unlock(&s->locked.mutex);
    for (struct page *p = pages; p; p = p->next)
        cuda->d->cuMemHostUnregister(p->base);
    free_pages(pages);
}

// Pages are left when a stream is lost, or in a child.
void cuda_streams_free(struct client_cuda *cuda)
{
    struct cuda_streams *s = cuda->streams;

    free_pages(s->locked.pages);
    pthread_mutex_destroy(&s->locked.mutex);
    pthread_cond_destroy(&s->locked.turn);
    pthread_cond_destroy(&s->locked.end);
    free(s);
}
