// SPDX-License-Identifier: Apache-2.0
#include "host/staging.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNIT (64 * KIB)

struct staging {
    struct os2g *client;
    struct transport_memory *memory;
    uint8_t *base;
    uint64_t size;
    unsigned n_units;

    struct {
        struct fork_lock lock; // FORK_STAGING
        unsigned next;         // where to look first
        bool *taken;           // by unit
    } locked;
};

int staging_new(struct staging **ret, struct os2g *c, uint64_t size)
{
    struct staging *s = xcalloc(1, sizeof(*s));
    int fd = memfd_create("os2g-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING), rc;

    s->client = c;
    s->size = ALIGN_UP(size, UNIT);
    s->n_units = (unsigned)(s->size / UNIT);
    s->base = fd < 0 || ftruncate(fd, (off_t)s->size) < 0 ||
                      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0
                  ? MAP_FAILED
                  : mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    rc = s->base == MAP_FAILED
             ? client_fail_errno(-errno, "memory that is shared with the daemon")
             : transport_memory_add(c->transport, &s->memory, s->base, s->size, fd, 0);
    if (fd >= 0)
        close(fd);
    if (rc < 0) {
        if (s->base != MAP_FAILED)
            munmap(s->base, s->size);
        free(s);
        return rc;
    }
    fork_lock_init(&s->locked.lock, FORK_STAGING);
    s->locked.taken = xcalloc(s->n_units, sizeof(bool));
    *ret = s;
    return 0;
}

void staging_free(struct staging *s)
{
    if (!s)
        return;
    transport_memory_remove(s->client->transport, s->memory);
    munmap(s->base, s->size);
    fork_lock_fini(&s->locked.lock);
    free(s->locked.taken);
    free(s);
}

void staging_cut(struct staging *s)
{
    transport_memory_cut(s->client->transport, s->memory);
}

void *staging_base(const struct staging *s)
{
    return s->base;
}

uint64_t staging_size(const struct staging *s)
{
    return s->size;
}

// The first of n free units in a row from at on, before end; end: there are none.
static unsigned find_locked(const struct staging *s, unsigned at, unsigned end, unsigned n)
{
    unsigned run = 0;

    for (; at < end; at++) {
        run = s->locked.taken[at] ? 0 : run + 1;
        if (run == n)
            return at + 1 - n;
    }
    return end;
}

int staging_take(struct staging *s, uint64_t len, struct staging_chunk *ret)
{
    uint64_t units = len / UNIT + (len % UNIT != 0);
    unsigned n = (unsigned)MAX(units, 1), at;

    if (len > s->size)
        return -E2BIG;
    pthread_mutex_lock(&s->locked.lock.mutex);
    at = find_locked(s, s->locked.next, s->n_units, n);
    if (at == s->n_units) {
        at = find_locked(s, 0, s->n_units, n);
        if (at == s->n_units) {
            pthread_mutex_unlock(&s->locked.lock.mutex);
            return -EAGAIN;
        }
    }
    for (unsigned i = 0; i < n; i++)
        s->locked.taken[at + i] = true;
    s->locked.next = (at + n) % s->n_units;
    pthread_mutex_unlock(&s->locked.lock.mutex);
    *ret = (struct staging_chunk){
        .staging = s,
        .base = s->base + at * UNIT,
        .len = len,
        .memory = s->memory,
        .offset = at * UNIT,
    };
    return 0;
}

void staging_give(struct staging_chunk *chunk)
{
    struct staging *s = chunk->staging;
    unsigned at, n;

    if (!s)
        return;
    at = (unsigned)(chunk->offset / UNIT);
    n = (unsigned)MAX(chunk->len / UNIT + (chunk->len % UNIT != 0), 1);
    pthread_mutex_lock(&s->locked.lock.mutex);
    for (unsigned i = 0; i < n; i++)
        s->locked.taken[at + i] = false;
    // what was used last is in the caches still
    s->locked.next = at;
    pthread_mutex_unlock(&s->locked.lock.mutex);
    chunk->staging = NULL;
}
