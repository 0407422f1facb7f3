// SPDX-License-Identifier: Apache-2.0
#include "host_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GAP 4096

// --- put ---

static void copy(struct host_memory *m, uint64_t at, const struct iovec *iov, int n)
{
    struct iovec *to = m->iov;

    while (at >= to->iov_len)
        at -= to++->iov_len;
    for (int i = 0; i < n; i++) {
        size_t done = 0;

        while (done < iov[i].iov_len) {
            size_t part = MIN(iov[i].iov_len - done, to->iov_len - at);

            memcpy((uint8_t *)to->iov_base + at, (uint8_t *)iov[i].iov_base + done, part);
            done += part;
            at += part;
            if (at == to->iov_len) {
                to++;
                at = 0;
            }
        }
    }
}

struct engine_copy {
    struct loop_msg msg;
    struct host_memory *memory;
    struct cache_put *put;
    uint64_t at;
    const struct iovec *iov;
    int n;
};

static void on_engine(struct loop_msg *msg)
{
    struct engine_copy *c = container_of(msg, struct engine_copy, msg);
    struct cache_put *p = c->put;
    bool cut = atomic_load(&c->memory->dest.cut);

    if (!cut)
        copy(c->memory, c->at, c->iov, c->n);
    free(c);
    p->done(p, cut ? -ECANCELED : 0);
}

static int put(struct cache_dest *d, uint64_t at, const struct iovec *iov, int n,
               struct cache_put *p)
{
    struct host_memory *m = container_of(d, struct host_memory, dest);
    struct engine_copy *c;

    atomic_fetch_add(&m->puts, 1);
    if (atomic_load(&d->cut))
        return -ECANCELED;
    if (!m->engine) {
        copy(m, at, iov, n);
        return 0;
    }
    c = xmalloc(sizeof(*c));
    *c = (struct engine_copy){.memory = m, .put = p, .at = at, .iov = iov, .n = n};
    loop_post(loop_self(), &c->msg, on_engine);
    return -EINPROGRESS;
}

static const struct cache_dest_ops ops = {.put = put};

// --- life ---

void host_memory_wipe(struct host_memory *m)
{
    memset(m->base, HOST_PATTERN, m->size);
}

void host_memory_new(struct host_memory *m, uint64_t len, int pieces, bool direct)
{
    uint64_t each = len / (uint64_t)pieces, at = GAP;

    *m = (struct host_memory){.size = len + (uint64_t)(pieces + 1) * GAP};
    m->fd = memfd_create("host", MFD_CLOEXEC);
    if (m->fd < 0 || ftruncate(m->fd, (off_t)m->size) < 0) {
        perror("memfd");
        exit(1);
    }
    m->base = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->base == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    host_memory_wipe(m);
    for (int i = 0; i < pieces; i++) {
        uint64_t n = i == pieces - 1 ? len - (uint64_t)i * each : each;

        m->iov[i] = (struct iovec){m->base + at, n};
        at += n + GAP;
    }
    m->dest = (struct cache_dest){
        .ops = &ops, .len = len, .direct = direct, .iov = m->iov, .n_iov = pieces};
}

void host_memory_free(struct host_memory *m)
{
    munmap(m->base, m->size);
    close(m->fd);
}

// --- checks ---

bool host_memory_holds(const struct host_memory *m, uint64_t at, const struct s3d_table *t,
                       uint64_t object_start, uint64_t offset, uint64_t len)
{
    for (int i = 0; len && i < m->dest.n_iov; i++) {
        const struct iovec *v = &m->iov[i];
        uint64_t part;

        if (at >= v->iov_len) {
            at -= v->iov_len;
            continue;
        }
        part = MIN(len, v->iov_len - at);
        if (s3d_synthetic_check(t, object_start, offset, (uint8_t *)v->iov_base + at, part) >= 0)
            return false;
        offset += part;
        len -= part;
        at = 0;
    }
    return len == 0;
}

static bool is_pattern(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p == HOST_PATTERN)
        p++;
    return p >= end;
}

bool host_memory_untouched(const struct host_memory *m, uint64_t at, uint64_t len)
{
    const uint8_t *gap = m->base;

    for (int i = 0; i < m->dest.n_iov; i++) {
        const uint8_t *p = m->iov[i].iov_base;
        uint64_t from = MIN(at, (uint64_t)m->iov[i].iov_len);
        uint64_t n = MIN(len, m->iov[i].iov_len - from);

        if (!is_pattern(gap, p) || !is_pattern(p + from, p + from + n))
            return false;
        at -= from;
        len -= n;
        gap = p + m->iov[i].iov_len;
    }
    return is_pattern(gap, m->base + m->size);
}
