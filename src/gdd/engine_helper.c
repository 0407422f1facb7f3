// SPDX-License-Identifier: Apache-2.0
// The helper process: drives a GPU's copy engine for one session of a host, so that a CUDA error,
// after which a process can do nothing more with the GPU, ends that session alone.
//
// One thread takes commands and calls the driver; host functions, which the driver calls on
// threads of its own when a stream gets there (and which must not call the driver), report
// results. Each memory has a stream. A memory's end is a host function, too: whatever was put on
// the stream before has ended then.
#include "gdd/engine.h"

#include "base/list.h"
#include "cuda/cuda.h"
#include "gdd/engine_wire.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH    64  // requests that one host function reports
#define CHECK_MS 100 // while copies are under way: has the driver met an error?

struct memory {
    uint32_t number;
    uint64_t size;
    CUcontext context;
    CUdevice device;
    CUstream stream;
    CUdeviceptr base;           // of the allocation or reservation
    CUdeviceptr window;         // of the memory's first byte
    bool mapped, reserved, ipc; // what is to be undone
    CUresult error;             // of opening it
    struct batch *batch;        // not on the stream yet
    _Atomic unsigned in_flight; // batches
    uint32_t close_slot;        // of its end, once it was asked for
    struct memory *closed_next; // of helper.locked.closed
    struct list link;           // of helper.touched, while it has a batch
};

struct batch {
    struct memory *memory;
    unsigned n;
    uint32_t slots[BATCH];
};

static struct {
    const struct cuda_driver *d;
    const char *no_driver;
    struct engine_shared *shared;
    uint8_t *arena;
    uint64_t arena_len;
    bool arena_registered;
    struct memory *memories[ENGINE_MEMORIES];
    struct list touched;

    struct { // host functions and the main thread
        pthread_mutex_t mutex;
        struct memory *closed;
    } locked;
} helper = {.locked.mutex = PTHREAD_MUTEX_INITIALIZER};

// --- to the engine ---

static void say(uint32_t kind, uint32_t memory, int error, const char *text)
{
    struct engine_event event = {.kind = kind, .memory = memory, .error = error};

    snprintf(event.text, sizeof(event.text), "%s", text);
    while (send(ENGINE_FD_SOCKET, &event, sizeof(event), MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

static _Noreturn void fail(const char *what, CUresult r)
{
    char text[ENGINE_TEXT];

    snprintf(text, sizeof(text), "%s: %s", what, cuda_error(helper.d, r));
    say(ENGINE_FAILED, 0, -EIO, text);
    // the driver's destructors may hang on a GPU that has failed
    _exit(1);
}

static void wake(int fd)
{
    uint64_t one = 1;

    if (write(fd, &one, sizeof(one)) < 0)
        _exit(1);
}

static void results_push_locked(const uint32_t *slots, unsigned n, int error)
{
    struct engine_shared *s = helper.shared;
    uint32_t at = atomic_load_explicit(&s->ended, memory_order_relaxed);

    for (unsigned i = 0; i < n; i++)
        s->results[at++ % ENGINE_RING] = (struct engine_result){slots[i], error};
    atomic_store(&s->ended, at);
    if (atomic_exchange(&s->engine_sleeps, 0))
        wake(ENGINE_FD_DONE);
}

static void results_push(const uint32_t *slots, unsigned n, int error)
{
    pthread_mutex_lock(&helper.locked.mutex);
    results_push_locked(slots, n, error);
    pthread_mutex_unlock(&helper.locked.mutex);
}

// --- host functions ---

static void on_batch(void *arg)
{
    struct batch *b = arg;

    results_push(b->slots, b->n, 0);
    atomic_fetch_sub(&b->memory->in_flight, 1);
    free(b);
}

static void on_last(void *arg)
{
    struct memory *m = arg;

    pthread_mutex_lock(&helper.locked.mutex);
    m->closed_next = helper.locked.closed;
    helper.locked.closed = m;
    pthread_mutex_unlock(&helper.locked.mutex);
    wake(ENGINE_FD_KICK);
}

// --- opening ---

// The arena is pinned once, for all GPUs: without that the driver would copy each piece to memory
// of its own first, with this process's CPU.
static void register_arena(void)
{
    CUresult r;
    char text[ENGINE_TEXT];

    if (helper.arena_registered)
        return;
    helper.arena_registered = true;
    r = helper.d->cuMemHostRegister(helper.arena, helper.arena_len, CU_MEMHOSTREGISTER_PORTABLE);
    if (r == CUDA_SUCCESS)
        return;
    snprintf(text, sizeof(text), "copies to the GPU are slow: its driver can't pin %llu MiB: %s",
             (unsigned long long)(helper.arena_len / MIB), cuda_error(helper.d, r));
    say(ENGINE_NOTE, 0, 0, text);
}

static CUresult map_descriptor(struct memory *m, int fd)
{
    const struct cuda_driver *d = helper.d;
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, m->device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    void *os_handle = (void *)(intptr_t)fd; // NOLINT(performance-no-int-to-ptr): the driver's way
    CUresult r = d->cuMemImportFromShareableHandle(&handle, os_handle,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    if (r != CUDA_SUCCESS)
        return r;
    r = d->cuMemAddressReserve(&m->base, m->size, 0, 0, 0);
    if (r == CUDA_SUCCESS) {
        m->reserved = true;
        r = d->cuMemMap(m->base, m->size, 0, handle, 0);
    }
    if (r == CUDA_SUCCESS) {
        m->mapped = true;
        r = d->cuMemSetAccess(m->base, m->size, &access, 1);
    }
    d->cuMemRelease(handle); // the mapping keeps the memory
    m->window = m->base;
    return r;
}

static CUresult open_handle(struct memory *m, const struct engine_open_message *o)
{
    const struct cuda_driver *d = helper.d;
    CUipcMemHandle handle;
    CUdeviceptr base;
    size_t size;
    CUresult r;

    memcpy(handle.reserved, o->handle, sizeof(handle.reserved));
    r = d->cuIpcOpenMemHandle(&m->base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (r != CUDA_SUCCESS)
        return r;
    m->ipc = true;
    m->window = m->base + o->handle_offset;
    // What the host says of its memory is not to be believed. Where the driver does not tell the
    // size it refuses each copy that goes beyond.
    if (d->cuMemGetAddressRange(&base, &size, m->base) == CUDA_SUCCESS &&
        (o->handle_offset > size || m->size > size - o->handle_offset))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult open_on_device(struct memory *m, const struct engine_open_message *o, int fd)
{
    const struct cuda_driver *d = helper.d;
    CUresult r = d->cuDevicePrimaryCtxRetain(&m->context, m->device);

    if (r == CUDA_SUCCESS)
        r = d->cuCtxSetCurrent(m->context);
    if (r != CUDA_SUCCESS)
        return r;
    register_arena();
    r = d->cuStreamCreate(&m->stream, CU_STREAM_NON_BLOCKING);
    if (r != CUDA_SUCCESS)
        return r;
    return fd >= 0 ? map_descriptor(m, fd) : open_handle(m, o);
}

static void release(struct memory *m)
{
    const struct cuda_driver *d = helper.d;

    if (!m->context)
        return;
    d->cuCtxSetCurrent(m->context);
    if (m->mapped)
        d->cuMemUnmap(m->base, m->size);
    if (m->reserved)
        d->cuMemAddressFree(m->base, m->size);
    if (m->ipc)
        d->cuIpcCloseMemHandle(m->base);
    if (m->stream)
        d->cuStreamDestroy(m->stream);
    d->cuDevicePrimaryCtxRelease(m->device);
    m->context = NULL;
}

static void open_memory(const struct engine_open_message *o, int fd)
{
    struct memory *m = calloc(1, sizeof(*m));
    bool no_device;

    if (!m)
        _exit(1);
    m->number = o->memory;
    m->size = o->size;
    m->close_slot = ENGINE_NO_SLOT;
    list_init(&m->link);
    helper.memories[o->memory] = m;
    if (!helper.d) {
        m->error = CUDA_ERROR_NO_DEVICE;
        say(ENGINE_OPENED, m->number, -ENODEV, helper.no_driver);
        return;
    }
    m->error = cuda_device_find(helper.d, o->uuid, &m->device);
    no_device = m->error == CUDA_ERROR_NO_DEVICE;
    if (m->error == CUDA_SUCCESS)
        m->error = open_on_device(m, o, fd);
    if (m->error == CUDA_SUCCESS) {
        say(ENGINE_OPENED, m->number, 0, "");
        return;
    }
    release(m);
    say(ENGINE_OPENED, m->number, no_device ? -ENODEV : -EIO,
        no_device ? "that GPU is not visible here" : cuda_error(helper.d, m->error));
}

// One message; false: there is none. The engine's end is this process's.
static bool take_message(void)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct engine_open_message o;
    struct iovec iov = {&o, sizeof(o)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(ENGINE_FD_SOCKET, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    int fd = -1;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n != (ssize_t)sizeof(o))
        _exit(0);
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    if (o.memory >= ENGINE_MEMORIES || helper.memories[o.memory] || (o.has_fd && fd < 0))
        _exit(1);
    open_memory(&o, fd);
    if (fd >= 0)
        close(fd);
    return true;
}

// --- commands ---

static void flush(struct memory *m)
{
    struct batch *b = m->batch;
    CUresult r;

    if (!b)
        return;
    m->batch = NULL;
    list_remove(&m->link);
    atomic_fetch_add(&m->in_flight, 1);
    r = helper.d->cuLaunchHostFunc(m->stream, on_batch, b);
    if (r != CUDA_SUCCESS)
        fail("a copy to the GPU has failed", r);
}

static void copy(struct memory *m, const struct engine_command *c)
{
    CUresult r;

    if (c->from > helper.arena_len || c->len > helper.arena_len - c->from || c->at > m->size ||
        c->len > m->size - c->at)
        _exit(1);
    r = helper.d->cuMemcpyHtoDAsync(m->window + c->at, helper.arena + c->from, c->len, m->stream);
    if (r != CUDA_SUCCESS)
        fail("a copy to the GPU has failed", r);
    if (c->slot == ENGINE_NO_SLOT)
        return;
    if (!m->batch) {
        m->batch = calloc(1, sizeof(*m->batch));
        if (!m->batch)
            _exit(1);
        m->batch->memory = m;
        list_push_back(&helper.touched, &m->link);
    }
    m->batch->slots[m->batch->n++] = c->slot;
    if (m->batch->n == BATCH)
        flush(m);
}

static void forget(struct memory *m)
{
    helper.memories[m->number] = NULL;
    release(m);
    results_push(&m->close_slot, 1, 0);
    free(m);
}

static void begin_close(struct memory *m, uint32_t slot)
{
    CUresult r;

    m->close_slot = slot;
    if (m->error != CUDA_SUCCESS) {
        forget(m);
        return;
    }
    flush(m);
    r = helper.d->cuLaunchHostFunc(m->stream, on_last, m);
    if (r != CUDA_SUCCESS)
        fail("the end of copies to the GPU can't be known", r);
}

static void carry_out(const struct engine_command *c)
{
    struct memory *m = c->memory < ENGINE_MEMORIES ? helper.memories[c->memory] : NULL;
    CUresult r;

    if (!m || m->close_slot != ENGINE_NO_SLOT)
        _exit(1);
    r = m->error == CUDA_SUCCESS ? helper.d->cuCtxSetCurrent(m->context) : CUDA_SUCCESS;
    // an error that sticks may show here first
    if (r != CUDA_SUCCESS)
        fail("the GPU's context is lost", r);
    if (c->kind == ENGINE_CLOSE)
        begin_close(m, c->slot);
    else if (m->error == CUDA_SUCCESS)
        copy(m, c);
    else if (c->slot != ENGINE_NO_SLOT)
        results_push(&c->slot, 1, -EIO);
}

static void finish_closed(void)
{
    struct memory *m;

    pthread_mutex_lock(&helper.locked.mutex);
    m = helper.locked.closed;
    helper.locked.closed = NULL;
    pthread_mutex_unlock(&helper.locked.mutex);
    while (m) {
        struct memory *next = m->closed_next;

        forget(m);
        m = next;
    }
}

// Whatever there is; whether there was anything.
static bool work(void)
{
    struct engine_shared *s = helper.shared;
    // a memory's OPEN was sent before its first command
    uint32_t until = atomic_load(&s->submitted);
    uint32_t at = atomic_load_explicit(&s->taken, memory_order_relaxed);
    bool any = at != until;
    struct memory *m;

    while (take_message())
        any = true;
    for (; at != until; at++) {
        struct engine_command c = s->commands[at % ENGINE_RING];

        atomic_store_explicit(&s->taken, at + 1, memory_order_release);
        carry_out(&c);
    }
    while ((m = list_first(&helper.touched, struct memory, link)))
        flush(m);
    finish_closed();
    return any;
}

// --- sleeping ---

static bool busy(const struct memory *m)
{
    return m && m->error == CUDA_SUCCESS &&
           (atomic_load(&m->in_flight) || m->close_slot != ENGINE_NO_SLOT);
}

static bool anything_busy(void)
{
    for (int i = 0; i < ENGINE_MEMORIES; i++)
        if (busy(helper.memories[i]))
            return true;
    return false;
}

// An error on a stream is told to nobody: its host functions are not called.
static void check_streams(void)
{
    for (int i = 0; i < ENGINE_MEMORIES; i++) {
        struct memory *m = helper.memories[i];
        CUresult r;

        if (!busy(m))
            continue;
        helper.d->cuCtxSetCurrent(m->context);
        r = helper.d->cuStreamQuery(m->stream);
        if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY)
            fail("a copy to the GPU has failed", r);
    }
}

static void sleep_until_there_is_work(void)
{
    struct pollfd fds[] = {{ENGINE_FD_KICK, POLLIN, 0}, {ENGINE_FD_SOCKET, POLLIN, 0}};
    struct engine_shared *s = helper.shared;
    uint64_t n;

    atomic_store(&s->helper_sleeps, 1);
    if (atomic_load(&s->submitted) == atomic_load_explicit(&s->taken, memory_order_relaxed) &&
        poll(fds, ARRAY_LEN(fds), anything_busy() ? CHECK_MS : -1) == 0)
        check_streams();
    atomic_store(&s->helper_sleeps, 0);
    if ((fds[0].revents & POLLIN) && read(ENGINE_FD_KICK, &n, sizeof(n)) < 0 && errno != EAGAIN)
        _exit(1);
}

static int map_shared(void)
{
    struct stat st;

    if (fstat(ENGINE_FD_ARENA, &st) < 0)
        return -errno;
    helper.arena_len = (uint64_t)st.st_size;
    helper.arena =
        mmap(NULL, helper.arena_len, PROT_READ | PROT_WRITE, MAP_SHARED, ENGINE_FD_ARENA, 0);
    helper.shared =
        mmap(NULL, sizeof(*helper.shared), PROT_READ | PROT_WRITE, MAP_SHARED, ENGINE_FD_SHARED, 0);
    if (helper.arena == MAP_FAILED || helper.shared == MAP_FAILED)
        return -errno;
    close(ENGINE_FD_ARENA);
    close(ENGINE_FD_SHARED);
    return 0;
}

int engine_helper_main(int argc, char **argv)
{
    // with the engine, however it ends; if it has ended already the socket says so
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "os2g-gpu");
    if (map_shared() < 0) {
        fprintf(stderr, "%s is started by os2gd itself\n", ENGINE_ARGUMENT);
        return 2;
    }
    list_init(&helper.touched);
    helper.d = cuda_driver_get(&helper.no_driver);
    for (;;)
        if (!work())
            sleep_until_there_is_work();
}
