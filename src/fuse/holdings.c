// SPDX-License-Identifier: Apache-2.0
// The index is a linear hash: it grows by one bucket with each record, so that millions of names
// never cause a pause.
#include "fuse/holdings.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOLDINGS_MAGIC   0x646c6f6873663273ULL // "s2fshold"
#define HOLDINGS_VERSION 1
#define HOLDINGS_MAX     ((uint32_t)16 << 20)
#define ROOM_MIN         252u // with the head, one page
#define BUCKETS_MIN      64u
#define NONE             UINT32_MAX

struct head {
    uint64_t magic;
    uint32_t version;
    uint32_t pad[13];
};
_Static_assert(sizeof(struct head) == 64, "records are aligned");

// What a record is in the upper byte of its word (0: free), how many references in the rest.
enum kind { FREE, NODE, FILE_HANDLE, DIR_HANDLE };
#define KIND_SHIFT 56
#define COUNT_MAX  (((uint64_t)1 << KIND_SHIFT) - 1)

struct record {
    uint64_t id;
    _Atomic uint64_t word;
};
_Static_assert(sizeof(struct record) == 16, "kept in memory that outlives a worker");

struct fuse_holdings {
    int fd;
    uint64_t offset;
    struct head *head; // all of it is mapped, records behind it
    uint32_t room;     // records that fit
    uint32_t used;     // records [0, used) are in use or in free
    uint32_t free;     // first of the free ones; the next is next[]
    uint64_t count;
    uint32_t taken; // records below this have been looked at by take

    uint32_t *next;   // [room]: of the same bucket, or of free
    uint32_t *bucket; // [bucket_room], first buckets ones in use
    uint32_t buckets, bucket_room;
};

static struct record *at(const struct fuse_holdings *h, uint32_t i)
{
    return (struct record *)(h->head + 1) + i;
}

static uint64_t word(const struct record *r)
{
    return atomic_load_explicit(&r->word, memory_order_relaxed);
}

static void set_word(struct record *r, enum kind kind, uint64_t n)
{
    atomic_store_explicit(&r->word, n ? (uint64_t)kind << KIND_SHIFT | n : 0, memory_order_release);
}

static enum kind kind_of(const struct record *r)
{
    uint64_t kind = word(r) >> KIND_SHIFT;

    return kind > DIR_HANDLE || !(word(r) & COUNT_MAX) ? FREE : (enum kind)kind;
}

static uint64_t count_of(const struct record *r)
{
    return word(r) & COUNT_MAX;
}

// --- the index ---

static uint32_t hash(uint64_t id, enum kind kind)
{
    uint64_t x = (id + (uint64_t)kind * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;

    return (uint32_t)((x ^ x >> 31) * 0x94d049bb133111eb >> 32);
}

static uint32_t power_of_two_from(uint32_t n)
{
    return n <= 1 ? 1 : (uint32_t)1 << (32 - __builtin_clz(n - 1));
}

static uint32_t bucket_of(const struct fuse_holdings *h, uint64_t id, enum kind kind)
{
    uint32_t size = power_of_two_from(h->buckets), b = hash(id, kind) & (size - 1);

    return b < h->buckets ? b : b & (size / 2 - 1);
}

// The link that leads to the record of id, or the one that ends its bucket.
static uint32_t *link_to(const struct fuse_holdings *h, uint64_t id, enum kind kind)
{
    uint32_t *link = &h->bucket[bucket_of(h, id, kind)];

    while (*link != NONE && (at(h, *link)->id != id || kind_of(at(h, *link)) != kind))
        link = &h->next[*link];
    return link;
}

static struct record *find(const struct fuse_holdings *h, uint64_t id, enum kind kind)
{
    uint32_t i = *link_to(h, id, kind);

    return i == NONE ? NULL : at(h, i);
}

// One bucket more: some records of the one that it parts with move there.
static int add_bucket(struct fuse_holdings *h)
{
    uint32_t b = h->buckets, from = b - power_of_two_from(b + 1) / 2, *link;

    if (b == h->bucket_room) {
        uint32_t *more = realloc(h->bucket, sizeof(*more) * 2 * b);

        if (!more)
            return -ENOMEM;
        h->bucket = more;
        h->bucket_room = 2 * b;
    }
    h->bucket[b] = NONE;
    h->buckets++;
    for (link = &h->bucket[from]; *link != NONE;) {
        uint32_t i = *link;

        if (bucket_of(h, at(h, i)->id, kind_of(at(h, i))) == from) {
            link = &h->next[i];
        } else {
            *link = h->next[i];
            h->next[i] = h->bucket[b];
            h->bucket[b] = i;
        }
    }
    return 0;
}

static int index_add(struct fuse_holdings *h, uint32_t i, uint64_t id, enum kind kind)
{
    uint32_t *link;

    if (h->count >= h->buckets && add_bucket(h) < 0)
        return -ENOMEM;
    link = &h->bucket[bucket_of(h, id, kind)];
    h->next[i] = *link;
    *link = i;
    return 0;
}

// --- the records ---

static size_t bytes_for(uint32_t room)
{
    return sizeof(struct head) + sizeof(struct record) * room;
}

static int map(struct fuse_holdings *h, uint32_t room)
{
    uint32_t *next = realloc(h->next, sizeof(*next) * room);
    void *p;

    if (!next)
        return -ENOMEM;
    h->next = next;
    if (h->head)
        p = mremap(h->head, bytes_for(h->room), bytes_for(room), MREMAP_MAYMOVE);
    else
        p = mmap(NULL, bytes_for(room), PROT_READ | PROT_WRITE, MAP_SHARED, h->fd,
                 (off_t)h->offset);
    if (p == MAP_FAILED)
        return -errno;
    h->head = p;
    h->room = room;
    return 0;
}

static int grow(struct fuse_holdings *h, uint32_t room)
{
    if (room > HOLDINGS_MAX)
        return -ENOMEM;
    if (ftruncate(h->fd, (off_t)(h->offset + bytes_for(room))) < 0)
        return -errno;
    return map(h, room);
}

// How many records are there already, in whatever size the file has.
static int open_records(struct fuse_holdings *h)
{
    struct stat st;
    uint64_t room;

    if (fstat(h->fd, &st) < 0)
        return -errno;
    if ((uint64_t)st.st_size < h->offset + bytes_for(ROOM_MIN))
        return grow(h, ROOM_MIN);
    room = ((uint64_t)st.st_size - h->offset - sizeof(struct head)) / sizeof(struct record);
    return map(h, (uint32_t)MIN(room, HOLDINGS_MAX));
}

static void give_free(struct fuse_holdings *h, uint32_t i)
{
    h->next[i] = h->free;
    h->free = i;
}

static int read_records(struct fuse_holdings *h)
{
    uint32_t end = h->room;

    while (end > 0 && kind_of(at(h, end - 1)) == FREE)
        end--;
    h->used = end;
    for (uint32_t i = end; i-- > 0;) {
        struct record *r = at(h, i);
        int rc = 0;

        if (kind_of(r) == FREE) {
            give_free(h, i);
            continue;
        }
        rc = index_add(h, i, r->id, kind_of(r));
        if (rc < 0)
            return rc;
        h->count++;
    }
    return 0;
}

static int check_head(struct head *head)
{
    if (!head->magic) {
        head->version = HOLDINGS_VERSION;
        head->magic = HOLDINGS_MAGIC;
    }
    return head->magic == HOLDINGS_MAGIC && head->version == HOLDINGS_VERSION ? 0 : -EINVAL;
}

int fuse_holdings_open(struct fuse_holdings **ret, int fd, uint64_t offset)
{
    struct fuse_holdings *h = xcalloc(1, sizeof(*h));
    int rc;

    h->fd = fd < 0 ? memfd_create("holdings", MFD_CLOEXEC) : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    h->offset = fd < 0 ? 0 : offset;
    h->free = NONE;
    h->buckets = h->bucket_room = BUCKETS_MIN;
    h->bucket = xmalloc(sizeof(*h->bucket) * BUCKETS_MIN);
    for (uint32_t i = 0; i < BUCKETS_MIN; i++)
        h->bucket[i] = NONE;
    rc = h->fd < 0 ? -errno : open_records(h);
    if (rc == 0)
        rc = check_head(h->head);
    if (rc == 0)
        rc = read_records(h);
    if (rc < 0) {
        fuse_holdings_close(h);
        return rc;
    }
    *ret = h;
    return 0;
}

void fuse_holdings_close(struct fuse_holdings *h)
{
    if (!h)
        return;
    if (h->head)
        munmap(h->head, bytes_for(h->room));
    if (h->fd >= 0)
        close(h->fd);
    free(h->next);
    free(h->bucket);
    free(h);
}

static int add_record(struct fuse_holdings *h, uint64_t id, enum kind kind, uint64_t n)
{
    uint32_t i = h->free;
    int rc;

    if (i == NONE && h->used == h->room) {
        rc = grow(h, h->room * 2 + 4); // whole pages
        if (rc < 0)
            return -ENOMEM;
    }
    if (i == NONE)
        i = h->used;
    else
        h->free = h->next[i];
    rc = index_add(h, i, id, kind);
    if (rc < 0) {
        if (i < h->used)
            give_free(h, i);
        return rc;
    }
    if (i == h->used)
        h->used++;
    at(h, i)->id = id;
    set_word(at(h, i), kind, n);
    h->taken = MIN(h->taken, i);
    h->count++;
    return 0;
}

static void drop_record(struct fuse_holdings *h, uint32_t *link)
{
    uint32_t i = *link;

    *link = h->next[i];
    set_word(at(h, i), FREE, 0);
    give_free(h, i);
    h->count--;
}

// --- nodes and handles ---

int fuse_holdings_add_node(struct fuse_holdings *h, uint64_t node, uint64_t n)
{
    struct record *r = find(h, node, NODE);

    if (!n)
        return 0;
    if (!r)
        return add_record(h, node, NODE, MIN(n, COUNT_MAX));
    set_word(r, NODE, MIN(n, COUNT_MAX - count_of(r)) + count_of(r));
    return 0;
}

uint64_t fuse_holdings_drop_node(struct fuse_holdings *h, uint64_t node, uint64_t n)
{
    uint32_t *link = link_to(h, node, NODE);
    uint64_t held;

    if (*link == NONE)
        return 0;
    held = count_of(at(h, *link));
    n = MIN(n, held);
    if (n == held)
        drop_record(h, link);
    else
        set_word(at(h, *link), NODE, held - n);
    return n;
}

bool fuse_holdings_has_node(const struct fuse_holdings *h, uint64_t node)
{
    return find(h, node, NODE) != NULL;
}

static enum kind handle_kind(bool dir)
{
    return dir ? DIR_HANDLE : FILE_HANDLE;
}

int fuse_holdings_add_handle(struct fuse_holdings *h, uint64_t handle, bool dir)
{
    if (find(h, handle, handle_kind(dir)))
        return 0;
    return add_record(h, handle, handle_kind(dir), 1);
}

bool fuse_holdings_has_handle(const struct fuse_holdings *h, uint64_t handle, bool dir)
{
    return find(h, handle, handle_kind(dir)) != NULL;
}

bool fuse_holdings_drop_handle(struct fuse_holdings *h, uint64_t handle, bool dir)
{
    uint32_t *link = link_to(h, handle, handle_kind(dir));

    if (*link == NONE)
        return false;
    drop_record(h, link);
    return true;
}

bool fuse_holdings_take(struct fuse_holdings *h, enum fuse_holding *ret_what, uint64_t *ret_id,
                        uint64_t *ret_n)
{
    static const enum fuse_holding what[] = {
        [NODE] = FUSE_HOLDS_NODE, [FILE_HANDLE] = FUSE_HOLDS_FILE, [DIR_HANDLE] = FUSE_HOLDS_DIR};

    for (; h->taken < h->used; h->taken++) {
        struct record *r = at(h, h->taken);
        enum kind kind = kind_of(r);

        if (kind == FREE)
            continue;
        *ret_what = what[kind];
        *ret_id = r->id;
        *ret_n = count_of(r);
        drop_record(h, link_to(h, r->id, kind));
        return true;
    }
    return false;
}

uint64_t fuse_holdings_count(const struct fuse_holdings *h)
{
    return h->count;
}
