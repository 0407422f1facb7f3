// SPDX-License-Identifier: Apache-2.0
#include "gdd/region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

// Of one host, of each kind. A memfd may claim any size, and a process has 128 TiB of addresses for
// all its hosts.
#define BYTES_MAX (8192 * GIB)
// Of all hosts: what is left must do for everything else, or no memory is to be had.
#define MAPPED_MAX (64 * 1024 * GIB)
static _Atomic uint64_t mapped_bytes;

struct region {
    struct region_info info;
    uint64_t id;
    enum region_kind kind;
    bool sealed;
    char *base; // of info.addr; NULL: a window
    void *mapping;
    size_t mapping_len;
    struct region_file file;
    void *engine_memory;
};

struct room { // what the regions of one kind take of it, those that are leaving, too
    size_t n;
    uint64_t bytes;
};

struct region_map {
    struct region *live[REGIONS_MAX + WINDOWS_MAX]; // by address
    size_t n_live;
    struct region *leaving[REGIONS_MAX + WINDOWS_MAX];
    size_t n_leaving;
    struct room mapped, windows;
    uint64_t last_id;
    size_t n_gpu_memory;
    struct region_file gpu_memory[];
};

struct region_map *region_map_new(const struct region_file *gpu_memory, size_t n)
{
    struct region_map *m = xcalloc(1, sizeof(*m) + n * sizeof(*gpu_memory));

    region_guard_install();
    m->n_gpu_memory = n;
    if (n > 0)
        memcpy(m->gpu_memory, gpu_memory, n * sizeof(*gpu_memory));
    return m;
}

static void region_free(struct region *r)
{
    if (r->mapping) {
        munmap(r->mapping, r->mapping_len);
        atomic_fetch_sub(&mapped_bytes, r->mapping_len);
    }
    free(r);
}

void region_map_free(struct region_map *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_live; i++)
        region_free(m->live[i]);
    for (size_t i = 0; i < m->n_leaving; i++)
        region_free(m->leaving[i]);
    free(m);
}

// --- finding ---

// How many live regions begin at or before addr.
static size_t upper_bound(const struct region_map *m, uint64_t addr)
{
    size_t low = 0, high = m->n_live;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (m->live[middle]->info.addr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct region *region_at(const struct region_map *m, uint64_t addr)
{
    size_t i = upper_bound(m, addr);
    const struct region *r = i > 0 ? m->live[i - 1] : NULL;

    return r && addr - r->info.addr < r->info.size ? r : NULL;
}

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
    return a < b + b_size && b < a + a_size;
}

// user_addr counts only where both are mapped: a window has none.
static bool collides(const struct region_map *m, const struct region_info *info, bool mapped)
{
    for (size_t i = 0; i < m->n_live; i++) {
        const struct region *r = m->live[i];

        if (overlap(r->info.addr, r->info.size, info->addr, info->size))
            return true;
        if (mapped && r->base &&
            overlap(r->info.user_addr, r->info.size, info->user_addr, info->size))
            return true;
    }
    return false;
}

uint64_t region_find(const struct region_map *m, const struct region_info *info)
{
    const struct region *r = region_at(m, info->addr);

    if (!r || r->info.addr != info->addr || r->info.size != info->size ||
        r->info.user_addr != info->user_addr)
        return 0;
    return r->id;
}

size_t region_count(const struct region_map *m)
{
    return m->n_live;
}

// --- coming ---

static bool valid(const struct region_info *i)
{
    return i->size > 0 && i->addr <= UINT64_MAX - i->size && i->user_addr <= UINT64_MAX - i->size &&
           i->fd_offset <= INT64_MAX && i->size <= INT64_MAX - i->fd_offset;
}

static struct room *room_of(struct region_map *m, bool mapped)
{
    return mapped ? &m->mapped : &m->windows;
}

static int admit(struct region_map *m, const struct region_info *info, bool mapped)
{
    const struct room *room = room_of(m, mapped);

    if (!valid(info))
        return -EINVAL;
    if (collides(m, info, mapped))
        return -EEXIST;
    if (room->n >= (mapped ? REGIONS_MAX : WINDOWS_MAX) || info->size > BYTES_MAX - room->bytes)
        return -ENOBUFS;
    return 0;
}

static uint64_t insert(struct region_map *m, struct region *r)
{
    size_t at = upper_bound(m, r->info.addr);
    struct room *room = room_of(m, r->base);

    memmove(&m->live[at + 1], &m->live[at], (m->n_live - at) * sizeof(struct region *));
    m->live[at] = r;
    m->n_live++;
    room->n++;
    room->bytes += r->info.size;
    r->id = ++m->last_id;
    return r->id;
}

static bool declared(const struct region_map *m, const struct region_file *f)
{
    for (size_t i = 0; i < m->n_gpu_memory; i++)
        if (m->gpu_memory[i].dev == f->dev && m->gpu_memory[i].ino == f->ino)
            return true;
    return false;
}

// Under strict overcommit (vm.overcommit_memory 2) a page that a sealed memfd never had can be
// refused: then no memory counts as sealed, and every access keeps its guard.
static bool pages_come(void)
{
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    char mode = '2';

    if (fd < 0 || read(fd, &mode, 1) != 1)
        mode = '2';
    if (fd >= 0)
        close(fd);
    return mode != '2';
}

// What kind of memory it is, and whether all of it is there. Only files whose pages are memory: a
// page of another file may come from a server (FUSE, NFS) that never answers, and the loop that
// touched it would wait for it. What the operator has declared is believed.
static int examine(const struct region_map *m, struct region *r, int fd, uint64_t *page)
{
    struct stat st;
    struct statfs fs;
    bool tmpfs, hugetlbfs;
    int seals;

    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return -errno;
    r->file = (struct region_file){.dev = st.st_dev, .ino = st.st_ino};
    tmpfs = fs.f_type == TMPFS_MAGIC;
    hugetlbfs = fs.f_type == HUGETLBFS_MAGIC;
    if (declared(m, &r->file))
        r->kind = REGION_BAR;
    else if (!S_ISREG(st.st_mode) || !(tmpfs || hugetlbfs))
        return -ENOTSUP;
    if (S_ISREG(st.st_mode) && (st.st_size < 0 || (uint64_t)st.st_size < r->info.fd_offset ||
                                (uint64_t)st.st_size - r->info.fd_offset < r->info.size))
        return -EINVAL;
    // A seal cannot be taken back. Huge pages can fail to come even so, after a hole was punched.
    seals = fcntl(fd, F_GET_SEALS);
    r->sealed = tmpfs && seals >= 0 && (seals & F_SEAL_SHRINK) && pages_come();
    if (hugetlbfs)
        *page = (uint64_t)fs.f_bsize;
    return 0;
}

// The offset may lie within a page, and in huge ones often does.
static int map_file(struct region *r, int fd, uint64_t page)
{
    uint64_t begin = ALIGN_DOWN(r->info.fd_offset, page);
    uint64_t before = r->info.fd_offset - begin;
    size_t len = ALIGN_UP(before + r->info.size, page);
    char *p;

    if (atomic_fetch_add(&mapped_bytes, len) > MAPPED_MAX - len) {
        atomic_fetch_sub(&mapped_bytes, len);
        return -ENOBUFS;
    }
    // MAP_NORESERVE: it is for the host to set huge pages aside
    p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)begin);

    if (p == MAP_FAILED) {
        int rc = -errno;

        atomic_fetch_sub(&mapped_bytes, len);
        return rc;
    }
    // the host's data is in no core file of ours, and a child has no business with it
    madvise(p, len, MADV_DONTDUMP);
    madvise(p, len, MADV_DONTFORK);
    r->mapping = p;
    r->mapping_len = len;
    r->base = p + before;
    return 0;
}

int region_add(struct region_map *m, const struct region_info *info, int fd, uint64_t *ret_id)
{
    struct region *r;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE); // or that of huge ones
    int rc = admit(m, info, true);

    if (rc < 0)
        return rc;
    r = xcalloc(1, sizeof(*r));
    r->info = *info;
    rc = examine(m, r, fd, &page);
    if (rc == 0)
        rc = map_file(r, fd, page);
    if (rc < 0) {
        region_free(r);
        return rc;
    }
    close(fd); // the mapping holds it
    *ret_id = insert(m, r);
    return 0;
}

int region_add_window(struct region_map *m, const struct region_info *info, void *engine_memory,
                      uint64_t *ret_id)
{
    struct region *r;
    int rc = admit(m, info, false);

    if (rc < 0)
        return rc;
    r = xcalloc(1, sizeof(*r));
    r->info = *info;
    r->kind = REGION_CUDA;
    r->engine_memory = engine_memory;
    *ret_id = insert(m, r);
    return 0;
}

// --- going ---

void region_remove_begin(struct region_map *m, uint64_t id)
{
    for (size_t i = 0; i < m->n_live; i++) {
        if (m->live[i]->id != id)
            continue;
        m->leaving[m->n_leaving++] = m->live[i];
        m->n_live--;
        memmove(&m->live[i], &m->live[i + 1], (m->n_live - i) * sizeof(struct region *));
        return;
    }
}

void region_remove_end(struct region_map *m, uint64_t id)
{
    for (size_t i = 0; i < m->n_leaving; i++) {
        struct room *room = room_of(m, m->leaving[i]->base);

        if (m->leaving[i]->id != id)
            continue;
        room->n--;
        room->bytes -= m->leaving[i]->info.size;
        region_free(m->leaving[i]);
        m->leaving[i] = m->leaving[--m->n_leaving];
        return;
    }
}

// --- translating ---

static void piece_of(const struct region *r, uint64_t offset, uint64_t len,
                     struct region_piece *ret)
{
    *ret = (struct region_piece){
        .base = r->base ? r->base + offset : NULL,
        .len = MIN(len, r->info.size - offset),
        .id = r->id,
        .offset = offset,
        .kind = r->kind,
        .sealed = r->sealed,
        .engine_memory = r->engine_memory,
    };
}

int region_translate(const struct region_map *m, uint64_t addr, uint64_t len,
                     struct region_piece *ret)
{
    const struct region *r = region_at(m, addr);

    if (!r || r->kind == REGION_BAR)
        return -EFAULT;
    piece_of(r, addr - r->info.addr, len, ret);
    return 0;
}

void *region_translate_user(const struct region_map *m, uint64_t user_addr, uint64_t len,
                            uint64_t *ret_id)
{
    for (size_t i = 0; i < m->n_live; i++) {
        const struct region *r = m->live[i];
        uint64_t offset = user_addr - r->info.user_addr;

        if (r->kind != REGION_HOST || user_addr < r->info.user_addr || offset >= r->info.size)
            continue;
        if (len > r->info.size - offset)
            return NULL;
        *ret_id = r->id;
        return r->base + offset;
    }
    return NULL;
}

// The first of the declared memory, in order of registration.
static const struct region *first_bar(const struct region_map *m)
{
    const struct region *first = NULL;

    for (size_t i = 0; i < m->n_live; i++)
        if (m->live[i]->kind == REGION_BAR && (!first || m->live[i]->id < first->id))
            first = m->live[i];
    return first;
}

// A front-end may share one BAR in several parts.
static bool is_part(const struct region *r, const struct region *first)
{
    return r->kind == REGION_BAR && r->file.dev == first->file.dev &&
           r->file.ino == first->file.ino;
}

int region_translate_bar(const struct region_map *m, uint64_t offset, uint64_t len,
                         struct region_piece *ret)
{
    const struct region *first = first_bar(m);

    if (!first)
        return -ENXIO;
    for (size_t i = 0; i < m->n_live; i++) {
        const struct region *r = m->live[i];

        if (!is_part(r, first) || offset < r->info.fd_offset)
            continue;
        if (offset - r->info.fd_offset < r->info.size &&
            len <= r->info.size - (offset - r->info.fd_offset)) {
            piece_of(r, offset - r->info.fd_offset, len, ret);
            return 0;
        }
    }
    return -EFAULT;
}

uint64_t region_bar_size(const struct region_map *m)
{
    const struct region *first = first_bar(m);
    uint64_t end = 0;

    for (size_t i = 0; first && i < m->n_live; i++)
        if (is_part(m->live[i], first))
            end = MAX(end, m->live[i]->info.fd_offset + m->live[i]->info.size);
    return end;
}
