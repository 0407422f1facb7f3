// SPDX-License-Identifier: Apache-2.0
// A host that writes what it likes into a ring, at any moment, and shrinks and takes away its
// memory.
//
// Input: one byte of the ring's size (1 << 0..4), one of features (1: EVENT_IDX, 2: indirect), then
// steps: a byte of what (its low three bits) and how, see step().
#include "base/base.h"
#include "front/vhost/virtq.h"

#include <fcntl.h>
#include <linux/virtio_ring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY 0x10000u
#define DESC   0x0u // the ring's parts, as offsets
#define AVAIL  0x100u
#define USED   0x200u
#define PIECES 64

// Two neighbours, and one that begins within a page.
static const struct region_info regions[] = {
    {.addr = 0x10000, .user_addr = 0, .size = 0x4000, .fd_offset = 0},
    {.addr = 0x14000, .user_addr = 0x4000, .size = 0x4000, .fd_offset = 0x4000},
    {.addr = 0x100000, .user_addr = 0x100000, .size = 0x1234, .fd_offset = 0x8010},
};

struct world {
    int fd;
    struct region_map *map;
    uint64_t ids[ARRAY_LEN(regions)];
    struct vhost_command start;
    struct virtq_log log;
    struct virtq q;
    bool running, bad;
    uint16_t taken[1 << 4];
    unsigned n_taken;
    const uint8_t *data;
    size_t left;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static uint8_t next(struct world *w)
{
    if (w->left == 0)
        return 0;
    w->left--;
    return *w->data++;
}

static uint16_t next16(struct world *w)
{
    uint16_t low = next(w);

    return (uint16_t)(low | next(w) << 8);
}

static void share(struct world *w, size_t i)
{
    int fd = fcntl(w->fd, F_DUPFD_CLOEXEC, 0);

    must(fd >= 0);
    // refused while the file is too short
    if (region_add(w->map, &regions[i], fd, &w->ids[i]) < 0) {
        w->ids[i] = 0;
        close(fd);
    }
}

static void start(struct world *w, uint32_t base, bool resumed)
{
    w->start.ring.base = base;
    w->start.start += !resumed;
    w->n_taken = 0;
    w->running = virtq_start(&w->q, w->map, &w->log, &w->start, -1) == 0;
}

// --- what comes out has been checked ---

static void use_piece(const struct world *w, const struct region_piece *p, bool writable)
{
    char bytes[256];
    bool known = false;

    for (size_t i = 0; i < ARRAY_LEN(regions); i++) {
        if (p->id != w->ids[i])
            continue;
        known = true;
        must(p->len > 0 && p->offset < regions[i].size && p->len <= regions[i].size - p->offset);
    }
    must(known && p->kind == REGION_HOST && !p->sealed);
    // either way is right: the memory may not be there any more
    memset(bytes, 0xa5, sizeof(bytes));
    for (uint64_t at = 0; at < p->len; at += sizeof(bytes)) {
        size_t n = MIN(sizeof(bytes), p->len - at);

        if (writable)
            region_copy_out((char *)p->base + at, bytes, n);
        else
            region_copy_in(bytes, (char *)p->base + at, n);
    }
}

static void use_chain(const struct world *w, const struct virtq_chain *c)
{
    uint64_t in = 0, out = 0;

    must(c->head < w->q.size && c->n_in + c->n_out <= c->max && c->n_in + c->n_out > 0);
    for (unsigned i = 0; i < c->n_in + c->n_out; i++) {
        const struct region_piece *p = &c->pieces[i];

        *(i < c->n_in ? &in : &out) += p->len;
        if (p->base)
            use_piece(w, p, i >= c->n_in);
        else
            must(c->nowhere && p->id == 0 && i >= c->n_in);
    }
    must(in == c->in_len && out == c->out_len);
}

static void pop(struct world *w)
{
    struct region_piece pieces[PIECES];
    struct virtq_chain c = {.max = PIECES, .pieces = pieces};
    const char *why = NULL;
    int rc;

    if (!w->running || w->bad)
        return;
    rc = virtq_pop(&w->q, &c, &why);
    must(rc <= 1);
    w->bad = rc < 0;
    if (rc < 0)
        must(why != NULL);
    if (rc != 1)
        return;
    for (unsigned i = 0; i < w->n_taken; i++)
        must(w->taken[i] != c.head);
    must(w->n_taken < w->q.size);
    w->taken[w->n_taken++] = c.head;
    use_chain(w, &c);
}

static void push(struct world *w, unsigned which)
{
    uint16_t head;

    if (!w->running || w->n_taken == 0)
        return;
    which %= w->n_taken;
    head = w->taken[which];
    w->taken[which] = w->taken[--w->n_taken];
    if (virtq_push(&w->q, head, which) < 0)
        w->bad = true;
}

// --- what the host does ---

static void write_memory(struct world *w)
{
    uint8_t bytes[64];
    uint16_t at = next16(w);
    size_t n = next(w) % sizeof(bytes);

    for (size_t i = 0; i < n; i++)
        bytes[i] = next(w);
    must(pwrite(w->fd, bytes, n, at) == (ssize_t)n);
}

// The host has looked at the ring and offers a head, so that not every input must count.
static void offer(struct world *w, uint16_t head)
{
    uint16_t idx;

    if (pread(w->fd, &idx, sizeof(idx), AVAIL + 2) != sizeof(idx))
        return;
    must(pwrite(w->fd, &head, sizeof(head), AVAIL + 4 + 2 * (idx % w->start.ring.size)) == 2);
    idx++;
    must(pwrite(w->fd, &idx, sizeof(idx), AVAIL + 2) == sizeof(idx));
}

static void take_away_or_share(struct world *w, size_t i)
{
    if (w->ids[i] && w->running && virtq_touches(&w->q, w->ids[i]))
        return; // the wire ends the session
    if (!w->ids[i]) {
        share(w, i);
        return;
    }
    region_remove_begin(w->map, w->ids[i]);
    region_remove_end(w->map, w->ids[i]);
    w->ids[i] = 0;
}

static void step(struct world *w)
{
    uint8_t what = next(w), how = what >> 3;
    uint32_t base;

    switch (what & 7) {
    case 0:
        write_memory(w);
        break;
    case 1:
        offer(w, how);
        break;
    case 2:
        pop(w);
        break;
    case 3:
        push(w, how);
        break;
    case 4:
        must(ftruncate(w->fd, how < 16 ? MEMORY : how * (MEMORY / 32)) == 0);
        break;
    case 5:
        take_away_or_share(w, how % ARRAY_LEN(regions));
        break;
    case 6: // stops, and goes on where it was or anew
        if (!w->running || w->bad)
            break;
        base = virtq_stop(&w->q);
        start(w, how ? base : 0, false);
        break;
    default: // the worker dies
        if (w->running)
            virtq_stop(&w->q);
        w->log.stopped_base = 0;
        start(w, 0, true);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world *w;

    if (size < 2)
        return 0;
    w = xcalloc(1, sizeof(*w));
    w->data = data + 2;
    w->left = size - 2;
    w->fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(w->fd >= 0 && ftruncate(w->fd, MEMORY) == 0);
    w->map = region_map_new(NULL, 0);
    for (size_t i = 0; i < ARRAY_LEN(regions); i++)
        share(w, i);
    w->start = (struct vhost_command){
        .ring = {.desc = DESC, .avail = AVAIL, .used = USED, .size = 1u << data[0] % 5}};
    w->start.ring.features = (data[1] & 1 ? 1ULL << VIRTIO_RING_F_EVENT_IDX : 0) |
                             (data[1] & 2 ? 1ULL << VIRTIO_RING_F_INDIRECT_DESC : 0);
    start(w, 0, false);
    while (w->left > 0 && !w->bad)
        step(w);
    if (w->running)
        virtq_stop(&w->q);
    region_map_free(w->map);
    close(w->fd);
    free(w);
    return 0;
}
