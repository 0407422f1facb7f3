// SPDX-License-Identifier: Apache-2.0
// Buffers, and how a destination is found among them.
#include "host/buffer.h"

#include "host/cuda_client.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_ALIGN (2 * MIB)
#define PAGE         ((size_t)4096)
#define BUFFER_LINK  sizeof(void *) // an entry of the table

// --- the table; locked ---

// The first buffer that ends behind address.
static size_t find_locked(const struct os2g *c, uintptr_t address)
{
    size_t low = 0, high = c->locked.n;

    while (low < high) {
        size_t mid = (low + high) / 2;
        const struct os2g_buffer *b = c->locked.buffers[mid];

        if ((uintptr_t)b->base + b->size <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool overlaps(const struct os2g *c, size_t i, uintptr_t address, size_t size)
{
    return i < c->locked.n && (uintptr_t)c->locked.buffers[i]->base < address + size;
}

int buffer_insert(struct os2g_buffer *b)
{
    struct os2g *c = b->client;
    size_t i;
    bool overlap;

    pthread_mutex_lock(&c->locked.lock.mutex);
    i = find_locked(c, (uintptr_t)b->base);
    overlap = overlaps(c, i, (uintptr_t)b->base, b->size);
    if (!overlap) {
        if (c->locked.n == c->locked.size) {
            c->locked.size = c->locked.size ? 2 * c->locked.size : 16;
            c->locked.buffers = xrealloc(c->locked.buffers, c->locked.size * BUFFER_LINK);
        }
        memmove(&c->locked.buffers[i + 1], &c->locked.buffers[i], (c->locked.n - i) * BUFFER_LINK);
        c->locked.buffers[i] = b;
        c->locked.n++;
    }
    pthread_mutex_unlock(&c->locked.lock.mutex);
    return overlap ? client_fail(-EEXIST, "memory that overlaps another buffer") : 0;
}

static void take_out_locked(struct os2g *c, const struct os2g_buffer *b)
{
    size_t i = find_locked(c, (uintptr_t)b->base);

    c->locked.n--;
    memmove(&c->locked.buffers[i], &c->locked.buffers[i + 1], (c->locked.n - i) * BUFFER_LINK);
}

// It is found no more.
static void end_buffer(struct os2g_buffer *b)
{
    if (b->landing)
        transport_memory_cut(b->client->transport, b->landing);
    atomic_store(&b->gone, true);
    while (b->forks == fork_count() && atomic_load(&b->copying))
        sched_yield();
    buffer_unref(b);
}

void buffer_remove(struct os2g_buffer *b)
{
    struct os2g *c = b->client;

    pthread_mutex_lock(&c->locked.lock.mutex);
    take_out_locked(c, b);
    pthread_mutex_unlock(&c->locked.lock.mutex);
    end_buffer(b);
}

int buffer_copy(struct os2g_buffer *b, uint64_t offset, const void *from, uint64_t len)
{
    int rc = -ECANCELED;

    atomic_fetch_add(&b->copying, 1);
    if (!atomic_load(&b->gone))
        rc = b->kind->copy(b, offset, from, len);
    atomic_fetch_sub(&b->copying, 1);
    return rc;
}

void buffer_unref(struct os2g_buffer *b)
{
    if (!b || atomic_fetch_sub(&b->refs, 1) > 1)
        return;
    if (b->landing)
        transport_memory_remove(b->client->transport, b->landing);
    b->kind->release(b);
}

static bool holds(const struct os2g_buffer *b, uintptr_t address, size_t size)
{
    uintptr_t base = (uintptr_t)b->base;

    return address >= base && address - base <= b->size && size <= b->size - (address - base);
}

int destination_find(struct os2g *c, void *base, size_t size, off_t offset, struct destination *ret)
{
    uintptr_t address = (uintptr_t)base + (uintptr_t)offset;
    struct os2g_buffer *b = NULL;
    bool partly;
    size_t i;

    if (!base || size > UINTPTR_MAX - address)
        return client_fail(-EINVAL, "a destination that is no memory");
    pthread_mutex_lock(&c->locked.lock.mutex);
    // an offset is one in the buffer that base lies in, and does not lead into another
    i = find_locked(c, (uintptr_t)base);
    if (!overlaps(c, i, (uintptr_t)base, 1))
        i = find_locked(c, address);
    if (overlaps(c, i, (uintptr_t)base, 1) || overlaps(c, i, address, size ? size : 1))
        b = c->locked.buffers[i];
    partly = b && !holds(b, address, size);
    if (b && !partly)
        atomic_fetch_add(&b->refs, 1);
    pthread_mutex_unlock(&c->locked.lock.mutex);
    if (partly)
        return client_fail(-EINVAL, "a destination that begins or ends beyond its buffer");
    if (b && b->memory != OS2G_MEMORY_HOST && b->forks != fork_count()) {
        buffer_unref(b);
        return client_fail(-EPERM, "this buffer is of the process before fork()");
    }
    *ret = (struct destination){
        .buffer = b,
        .offset = b ? address - (uintptr_t)b->base : 0,
        .address = (uint8_t *)base + offset,
    };
    return 0;
}

int destination_within(const struct destination *d, size_t size, off_t offset,
                       struct destination *ret)
{
    struct os2g_buffer *b = d->buffer;
    uint64_t at = d->offset + (uint64_t)offset;

    if (at > b->size || size > b->size - at)
        return client_fail(-EINVAL, "a destination that begins or ends beyond its buffer");
    if (atomic_load(&b->gone))
        return client_fail(-ECANCELED, "the buffer to read into was freed");
    atomic_fetch_add(&b->refs, 1);
    *ret =
        (struct destination){.buffer = b, .offset = at, .address = (uint8_t *)d->address + offset};
    return 0;
}

void destination_end(struct destination *d)
{
    buffer_unref(d->buffer);
    d->buffer = NULL;
}

// --- host memory ---

static void release_mapping(struct os2g_buffer *b)
{
    munmap(b->base, ALIGN_UP(b->size, PAGE));
    free(b);
}

static void release_nothing(struct os2g_buffer *b)
{
    free(b);
}

static int copy_to_host(struct os2g_buffer *b, uint64_t offset, const void *from, uint64_t len)
{
    memcpy((uint8_t *)b->base + offset, from, len);
    return 0;
}

static const struct buffer_kind allocated = {copy_to_host, release_mapping};
static const struct buffer_kind borrowed = {copy_to_host, release_nothing};

static struct os2g_buffer *new_buffer(struct os2g *c, const struct buffer_kind *kind, void *base,
                                      size_t size)
{
    struct os2g_buffer *b = xcalloc(1, sizeof(*b));

    b->client = c;
    b->kind = kind;
    b->memory = OS2G_MEMORY_HOST;
    b->base = base;
    b->size = size;
    b->forks = fork_count();
    b->refs = 1;
    return b;
}

// Maps size bytes of fd, aligned so that the kernel may use large pages.
static void *map_aligned(size_t size, int fd)
{
    size_t room = size + BUFFER_ALIGN;
    uint8_t *p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
            *at;

    if (p == MAP_FAILED)
        return MAP_FAILED;
    at = p + (ALIGN_UP((uintptr_t)p, BUFFER_ALIGN) - (uintptr_t)p);
    if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int error = errno;

        munmap(p, room);
        errno = error;
        return MAP_FAILED;
    }
    if (at > p)
        munmap(p, (size_t)(at - p));
    munmap(at + size, (size_t)(p + room - (at + size)));
    // fewer faults on both sides, where the system lets us
    madvise(at, size, MADV_HUGEPAGE);
    return at;
}

// Shares b's memory and makes it known; on failure b is freed, with the memory if that is its own.
static int finish(struct os2g_buffer *b, int fd, off_t offset, struct os2g_buffer **ret)
{
    int rc = transport_memory_add(b->client->transport, &b->landing, b->base,
                                  ALIGN_UP(b->size, PAGE), fd, (uint64_t)offset);

    if (rc == 0)
        rc = buffer_insert(b);
    if (rc < 0)
        buffer_unref(b);
    else
        *ret = b;
    return rc;
}

static int alloc_host(struct os2g *c, struct os2g_buffer **ret, size_t size)
{
    size_t rounded = ALIGN_UP(size, PAGE);
    int fd = memfd_create("os2g-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING), rc;
    void *p;

    p = fd < 0 || ftruncate(fd, (off_t)rounded) < 0 ||
                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0
            ? MAP_FAILED
            : map_aligned(rounded, fd);
    rc = p == MAP_FAILED ? client_fail_errno(-errno, "memory for a buffer")
                         : finish(new_buffer(c, &allocated, p, size), fd, 0, ret);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int alloc_bar(struct os2g *c, struct os2g_buffer **ret, size_t size)
{
    struct transport_memory *lease;
    struct os2g_buffer *b;
    void *base;
    int rc = transport_memory_lease(c->transport, &lease, &base, size);

    if (rc == -EOPNOTSUPP)
        return client_fail(rc, "a BAR is leased in a guest only, over a mount's .os2g/gdd");
    if (rc < 0)
        return rc;
    b = new_buffer(c, &borrowed, base, size);
    b->memory = OS2G_MEMORY_BAR;
    b->landing = lease;
    rc = buffer_insert(b);
    if (rc < 0)
        buffer_unref(b);
    else
        *ret = b;
    return rc;
}

int os2g_buffer_alloc(struct os2g *c, struct os2g_buffer **ret, size_t size,
                      enum os2g_memory memory, int device)
{
    int rc = client_enter(c);

    if (rc < 0)
        return rc;
    if (!size || size > INT64_MAX / 2)
        return client_fail(-EINVAL, "a buffer of no size");
    switch (memory) {
    case OS2G_MEMORY_HOST:
        return alloc_host(c, ret, size);
    case OS2G_MEMORY_BAR:
        return alloc_bar(c, ret, size);
    case OS2G_MEMORY_CUDA:
        return cuda_buffer_alloc(c, ret, size, device);
    }
    return client_fail(-EINVAL, "a kind of memory that is not known");
}

// Whether the daemon can map it, whose only answer to memory that cannot be is to end the session.
static int try_to_map(size_t size, int fd, off_t offset)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);

    if (p == MAP_FAILED)
        return client_fail_errno(-errno, "mapping the descriptor's memory to write to it");
    munmap(p, size);
    return 0;
}

int os2g_buffer_register_fd(struct os2g *c, struct os2g_buffer **ret, void *base, size_t size,
                            int fd, off_t offset)
{
    struct stat st;
    int rc = client_enter(c);

    if (rc < 0)
        return rc;
    if (!base || !size || offset < 0 || (uintptr_t)base % PAGE || offset % (off_t)PAGE)
        return client_fail(-EINVAL, "a registration wants whole pages");
    if (size > (size_t)INT64_MAX - PAGE || size > UINTPTR_MAX - PAGE - (uintptr_t)base)
        return client_fail(-EINVAL, "a registration of more than there can be");
    if (fstat(fd, &st) < 0)
        return client_fail_errno(-errno, "the descriptor of the memory");
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size < (uint64_t)offset + ALIGN_UP(size, PAGE))
        return client_fail(-EINVAL, "the descriptor's memory is shorter than what is registered");
    rc = try_to_map(ALIGN_UP(size, PAGE), fd, offset);
    if (rc < 0)
        return rc;
    return finish(new_buffer(c, &borrowed, base, size), fd, offset, ret);
}

void *os2g_buffer_base(const struct os2g_buffer *b)
{
    return b->base;
}

size_t os2g_buffer_size(const struct os2g_buffer *b)
{
    return b->size;
}

enum os2g_memory os2g_buffer_memory(const struct os2g_buffer *b)
{
    return b->memory;
}

void os2g_buffer_free(struct os2g_buffer *b)
{
    if (b)
        buffer_remove(b);
}

// --- cuFile's shape ---

int os2g_buf_register(struct os2g *c, void *base, size_t size, int flags)
{
    struct os2g_buffer *b;
    int rc = client_enter(c);

    if (rc < 0)
        return rc;
    if (!base || !size || size > UINTPTR_MAX - (uintptr_t)base)
        return client_fail(-EINVAL, "a registration of no memory");
    if (flags)
        return client_fail(-EINVAL, "flags of os2g_buf_register are 0");
    if (cuda_is_memory(base))
        return cuda_buffer_register(c, &b, base, size, true);
    b = new_buffer(c, &borrowed, base, size);
    b->registered = true;
    rc = buffer_insert(b);
    if (rc < 0)
        buffer_unref(b);
    return rc;
}

int os2g_buf_deregister(struct os2g *c, void *base)
{
    struct os2g_buffer *b = NULL;
    size_t i;

    pthread_mutex_lock(&c->locked.lock.mutex);
    i = find_locked(c, (uintptr_t)base);
    if (i < c->locked.n && c->locked.buffers[i]->base == base && c->locked.buffers[i]->registered)
        b = c->locked.buffers[i];
    if (b)
        take_out_locked(c, b);
    pthread_mutex_unlock(&c->locked.lock.mutex);
    if (!b)
        return client_fail(-ENOENT, "memory that was not registered");
    end_buffer(b);
    return 0;
}
