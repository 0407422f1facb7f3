// SPDX-License-Identifier: Apache-2.0
#include "front/devfuse/slots.h"

#include "front/devfuse/devfuse.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SLOTS_MAGIC   0x746c736632736fULL // "os2fslt"
#define SLOTS_VERSION 1

struct slots_head {
    uint64_t magic; // 0: new
    uint32_t version;
    uint32_t slots;
    struct fuse_negotiated negotiated;
};

#define HEAD_BYTES 4096
_Static_assert(sizeof(struct slots_head) <= HEAD_BYTES, "one page");

size_t devfuse_slots_size(void)
{
    return HEAD_BYTES + (size_t)SLOTS * SLOT_BYTES;
}

// NULL with errno set.
static struct slots_head *map(int fd)
{
    size_t size = devfuse_slots_size();
    struct stat st;
    void *p;

    if (fd >= 0 && fstat(fd, &st) < 0)
        return NULL;
    if (fd >= 0 && (size_t)st.st_size < size) {
        errno = EINVAL;
        return NULL;
    }
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS,
             fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void set_state(struct slot *slot, enum slot_state state)
{
    atomic_store_explicit(&slot->shared->state, state, memory_order_release);
}

static enum slot_state state(const struct slot *slot)
{
    return atomic_load_explicit(&slot->shared->state, memory_order_acquire);
}

static size_t message_len(const struct slot *slot)
{
    return ((const struct fuse_in_header *)slot->shared->message)->len;
}

static bool slot_holds_request(const struct slot *slot)
{
    size_t len = message_len(slot);

    return (state(slot) == SLOT_BUSY || state(slot) == SLOT_READING) &&
           len >= sizeof(struct fuse_in_header) && len <= SLOT_MESSAGE;
}

int slots_init(struct slots *s, int fd, struct devfuse *d)
{
    struct slots_head *head = map(fd);
    struct slot_shared *shared;

    if (!head)
        return -errno;
    if (!head->magic) {
        head->version = SLOTS_VERSION;
        head->slots = SLOTS;
        head->magic = SLOTS_MAGIC;
    }
    if (head->magic != SLOTS_MAGIC || head->version != SLOTS_VERSION || head->slots != SLOTS) {
        munmap(head, devfuse_slots_size());
        return -EINVAL;
    }
    *s = (struct slots){.head = head, .slot = xcalloc(SLOTS, sizeof(*s->slot))};
    shared = (struct slot_shared *)((char *)head + HEAD_BYTES);
    for (int i = SLOTS - 1; i >= 0; i--) {
        struct slot *slot = &s->slot[i];

        slot->devfuse = d;
        slot->shared = &shared[i];
        if (slot_holds_request(slot))
            continue; // for slots_recover
        set_state(slot, SLOT_FREE);
        slot->next = s->free;
        s->free = slot;
    }
    return 0;
}

void slots_fini(struct slots *s)
{
    if (s->head)
        munmap(s->head, devfuse_slots_size());
    free(s->slot);
    *s = (struct slots){0};
}

struct fuse_negotiated *slots_negotiated(struct slots *s)
{
    return &s->head->negotiated;
}

void slots_empty_message(struct slot *slot)
{
    memset(slot->shared->message, 0, sizeof(struct fuse_in_header));
}

// The slots given back last are taken first, while their memory is in the CPU's cache.
static void collect_freed(struct slots *s)
{
    struct slot *slot;

    if (!atomic_load_explicit(&s->freed, memory_order_relaxed))
        return;
    slot = atomic_exchange_explicit(&s->freed, NULL, memory_order_acquire);
    while (slot) {
        struct slot *next = slot->next;

        slot->next = s->free;
        s->free = slot;
        slot = next;
    }
}

// The kernel's copy into a page that this process lacks fails if the process is being killed at
// that moment, and the request fails with it.
static void touch_pages(struct slot *slot)
{
    for (size_t at = 0; at < SLOT_MESSAGE; at += 4096)
        *(volatile unsigned char *)&slot->shared->message[at] = 0;
    *(volatile unsigned char *)&slot->shared->message[SLOT_MESSAGE - 1] = 0;
    slot->touched = true;
}

struct slot *slots_take(struct slots *s)
{
    struct slot *slot;

    collect_freed(s);
    slot = s->free;
    if (!slot)
        return NULL;
    s->free = slot->next;
    if (!slot->touched)
        touch_pages(slot);
    slots_empty_message(slot);
    set_state(slot, SLOT_READING);
    return slot;
}

void slots_give_back(struct slots *s, struct slot *slot)
{
    struct slot *head = atomic_load_explicit(&s->freed, memory_order_relaxed);

    set_state(slot, SLOT_FREE);
    do {
        slot->next = head;
    } while (!atomic_compare_exchange_weak(&s->freed, &head, slot));
}

void slots_busy(struct slot *slot)
{
    set_state(slot, SLOT_BUSY);
}

struct slot *slots_find(struct slots *s, uint64_t unique)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *slot = &s->slot[i];

        if (state(slot) == SLOT_BUSY && slot->request.unique == unique)
            return slot;
    }
    return NULL;
}

unsigned slots_in_use(struct slots *s)
{
    unsigned n = 0;

    for (unsigned i = 0; i < SLOTS; i++)
        n += state(&s->slot[i]) == SLOT_BUSY;
    return n;
}

static uint64_t message_unique(const struct slot *slot)
{
    return ((const struct fuse_in_header *)slot->shared->message)->unique;
}

static int by_unique(const void *a, const void *b)
{
    uint64_t x = message_unique(*(struct slot *const *)a);
    uint64_t y = message_unique(*(struct slot *const *)b);

    return x < y ? -1 : x > y;
}

void slots_recover(struct slots *s, void (*fn)(void *arg, struct slot *slot, size_t len), void *arg)
{
    struct slot *left[SLOTS];
    unsigned n = 0;

    for (unsigned i = 0; i < SLOTS; i++)
        if (slot_holds_request(&s->slot[i]))
            left[n++] = &s->slot[i];
    qsort(left, n, sizeof(struct slot *), by_unique);
    for (unsigned i = 0; i < n; i++) {
        slots_busy(left[i]);
        fn(arg, left[i], message_len(left[i]));
    }
}
