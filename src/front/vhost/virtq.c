// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/virtq_impl.h"

#include "front/vhost/eventfd.h"

#include <endian.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- the host's memory ---
//
// Sequentially consistent, each: where one side says something and then looks at what the other
// says, one of them at least sees the other (virtio 1.2, 2.7.13.4.1 and 2.7.7).

// ThreadSanitizer's own atomics hold a lock when they touch the memory, which a fault would leave
// locked.
#define HOST_ATOMIC __attribute__((no_sanitize_thread, noinline))

HOST_ATOMIC static int load16(const void *host, uint16_t *ret)
{
    struct region_guard g;

    if (region_guard(&g)) {
        region_unguard(&g);
        return -EFAULT;
    }
    *ret = le16toh(__atomic_load_n((const uint16_t *)host, __ATOMIC_SEQ_CST));
    region_unguard(&g);
    return 0;
}

HOST_ATOMIC static int store16(void *host, uint16_t value)
{
    struct region_guard g;

    if (region_guard(&g)) {
        region_unguard(&g);
        return -EFAULT;
    }
    __atomic_store_n((uint16_t *)host, htole16(value), __ATOMIC_SEQ_CST);
    region_unguard(&g);
    return 0;
}

static struct vring_avail *avail_of(const struct virtq *q)
{
    return q->avail;
}

static struct vring_used *used_of(const struct virtq *q)
{
    return q->used;
}

// With EVENT_IDX the index from which on the other side wants to be told lies behind each ring.
static void *used_event_of(const struct virtq *q)
{
    return &avail_of(q)->ring[q->size];
}

static void *avail_event_of(const struct virtq *q)
{
    return &used_of(q)->ring[q->size];
}

// --- the log ---

static bool busy(const struct virtq_log *log, uint16_t head)
{
    return __atomic_load_n(&log->entry[head].busy, __ATOMIC_ACQUIRE) != 0;
}

static void set_busy(struct virtq_log *log, uint16_t head, bool b)
{
    __atomic_store_n(&log->entry[head].busy, b, __ATOMIC_RELEASE);
}

static unsigned count_busy(const struct virtq_log *log)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < log->size; i++)
        n += busy(log, (uint16_t)i);
    return n;
}

// The worker before has died. Its last push may have got as far as the used index, but not to the
// log.
static int settle(struct virtq_log *log, uint16_t used_idx)
{
    uint16_t pushed = (uint16_t)(used_idx - log->used_idx);

    if (pushed > 1 || log->last_head >= log->size)
        return -EBADMSG;
    if (pushed == 1)
        set_busy(log, log->last_head, false);
    __atomic_store_n(&log->used_idx, used_idx, __ATOMIC_RELEASE);
    return 0;
}

// A death in between leaves a log without a size, which is as empty.
static void log_empty(struct virtq_log *log, const struct vhost_command *start, uint16_t used_idx)
{
    __atomic_store_n(&log->size, 0, __ATOMIC_SEQ_CST);
    memset(log, 0, sizeof(*log));
    log->used_idx = used_idx;
    log->start = start->start;
    __atomic_store_n(&log->size, start->ring.size, __ATOMIC_RELEASE);
}

// It goes on where it was stopped. A death in between leaves a log that is of this start.
static void log_go_on(struct virtq_log *log, const struct vhost_command *start)
{
    __atomic_store_n(&log->start, start->start, __ATOMIC_RELEASE);
    __atomic_store_n(&log->stopped_base, 0, __ATOMIC_RELEASE);
}

static int older(const void *a, const void *b, void *arg)
{
    const struct virtq_log *log = arg;
    uint64_t x = log->entry[*(const uint16_t *)a].counter;
    uint64_t y = log->entry[*(const uint16_t *)b].counter;

    return x < y ? -1 : x > y;
}

// The oldest are at the end: they are taken from there.
static void collect_pending(struct virtq *q)
{
    unsigned n = 0;
    uint16_t *heads = xcalloc(q->size, sizeof(*heads));

    for (uint32_t i = 0; i < q->size; i++)
        if (busy(q->log, (uint16_t)i))
            heads[n++] = (uint16_t)i;
    qsort_r(heads, n, sizeof(*heads), older, q->log);
    for (unsigned i = 0; i < n / 2; i++) {
        uint16_t h = heads[i];

        heads[i] = heads[n - 1 - i];
        heads[n - 1 - i] = h;
    }
    q->pending = heads;
    q->n_pending = n;
    atomic_store_explicit(&q->in_progress, n, memory_order_relaxed);
}

// Decides what of the log still holds, see virtq_start. The ring says how far answers have got.
static int read_log(struct virtq *q, const struct vhost_command *start)
{
    struct virtq_log *log = q->log;
    uint16_t used_idx, base = (uint16_t)start->ring.base;
    int rc = load16(&used_of(q)->idx, &used_idx);

    if (rc < 0)
        return rc;
    if (log->size > VHOST_RING_MAX)
        return -EBADMSG;
    if (log->size != 0 && log->start == start->start) {
        if (log->size != q->size)
            return -EINVAL;
        rc = settle(log, used_idx);
        if (rc < 0)
            return rc;
        log_go_on(log, start);
        base = (uint16_t)(used_idx + count_busy(log));
    } else if (log->size == q->size && log->stopped_base == (uint32_t)base + 1 &&
               log->used_idx == used_idx && (uint16_t)(used_idx + count_busy(log)) == base) {
        log_go_on(log, start);
    } else {
        log_empty(log, start, used_idx);
    }
    q->last_avail = q->seen_avail = base;
    q->locked.used_idx = used_idx;
    collect_pending(q);
    return 0;
}

// --- starting and stopping ---

static void *part(struct virtq *q, unsigned i, uint64_t user_addr, uint64_t align, uint64_t len)
{
    if (user_addr % align != 0)
        return NULL;
    return region_translate_user(q->map, user_addr, len, &q->regions[i]);
}

static int find_ring(struct virtq *q, const struct vhost_command *start)
{
    size_t n = q->size;

    if (n == 0 || n > VHOST_RING_MAX || (n & (n - 1)) != 0)
        return -EINVAL;
    q->desc = part(q, 0, start->ring.desc, VRING_DESC_ALIGN_SIZE, n * sizeof(struct vring_desc));
    q->avail = part(q, 1, start->ring.avail, VRING_AVAIL_ALIGN_SIZE,
                    offsetof(struct vring_avail, ring) + (n + 1) * sizeof(uint16_t));
    q->used = part(q, 2, start->ring.used, VRING_USED_ALIGN_SIZE,
                   offsetof(struct vring_used, ring) + n * sizeof(struct vring_used_elem) +
                       sizeof(uint16_t));
    return q->desc && q->avail && q->used ? 0 : -EINVAL;
}

int virtq_start(struct virtq *q, const struct region_map *map, struct virtq_log *log,
                const struct vhost_command *start, int kick_fd)
{
    int rc;

    *q = (struct virtq){
        .size = start->ring.size,
        .features = start->ring.features,
        .map = map,
        .log = log,
        .kick_fd = kick_fd,
        .locked = {.call_fd = -1},
    };
    rc = find_ring(q, start);
    if (rc == 0)
        rc = store16(&used_of(q)->flags, 0);
    q->asks_kicks = true;
    if (rc == 0)
        rc = read_log(q, start);
    if (rc < 0)
        return rc;
    pthread_mutex_init(&q->locked.mutex, NULL);
    return 0;
}

uint32_t virtq_stop(struct virtq *q)
{
    uint32_t base = q->last_avail;

    __atomic_store_n(&q->log->stopped_base, base + 1, __ATOMIC_RELEASE);
    if (q->kick_fd >= 0)
        close(q->kick_fd);
    if (q->locked.call_fd >= 0)
        close(q->locked.call_fd);
    pthread_mutex_destroy(&q->locked.mutex);
    free(q->pending);
    q->pending = NULL;
    q->n_pending = 0;
    q->kick_fd = q->locked.call_fd = -1;
    return base;
}

bool virtq_touches(const struct virtq *q, uint64_t region_id)
{
    for (size_t i = 0; i < ARRAY_LEN(q->regions); i++)
        if (q->regions[i] == region_id)
            return true;
    return false;
}

// --- telling each other ---

static void call_locked(struct virtq *q)
{
    if (q->locked.call_fd >= 0)
        vhost_eventfd_signal(q->locked.call_fd);
}

int virtq_set_call(struct virtq *q, int call_fd)
{
    int old, rc = call_fd >= 0 ? vhost_eventfd_signal(call_fd) : 0;

    if (rc < 0) {
        close(call_fd);
        return rc;
    }
    pthread_mutex_lock(&q->locked.mutex);
    old = q->locked.call_fd;
    q->locked.call_fd = call_fd;
    // again: what was pushed between the two went to the old one
    call_locked(q);
    pthread_mutex_unlock(&q->locked.mutex);
    if (old >= 0)
        close(old);
    return 0;
}

bool virtq_kicked(struct virtq *q)
{
    return vhost_eventfd_take(q->kick_fd);
}

// Asks the host to kick, or, where it can be said, not to.
static int ask_kicks(struct virtq *q, bool ask)
{
    int rc = 0;

    if (FEATURE(q, VIRTIO_RING_F_EVENT_IDX)) {
        // an index that it passes but once; there is nothing to take back
        if (ask)
            rc = store16(avail_event_of(q), q->last_avail);
    } else if (ask != q->asks_kicks) {
        rc = store16(&used_of(q)->flags, ask ? 0 : VRING_USED_F_NO_NOTIFY);
        q->asks_kicks = ask;
    }
    return rc;
}

// --- taking a chain ---

// How many chains there are that have not been taken.
static int available(struct virtq *q)
{
    uint16_t n = (uint16_t)(q->seen_avail - q->last_avail);
    int rc;

    if (n > 0)
        return n;
    rc = load16(&avail_of(q)->idx, &q->seen_avail);
    if (rc < 0)
        return rc;
    n = (uint16_t)(q->seen_avail - q->last_avail);
    return n <= q->size ? n : -EBADMSG;
}

static int available_or_ask(struct virtq *q)
{
    int n = available(q), rc;

    if (n < 0)
        return n;
    rc = ask_kicks(q, n == 0);
    if (rc < 0 || n > 0)
        return rc < 0 ? rc : n;
    return available(q); // what came before the host could see that
}

static int pop_pending(struct virtq *q, struct virtq_chain *ret, const char **ret_why)
{
    int rc = virtq_walk(q, q->pending[q->n_pending - 1], ret, ret_why);

    if (rc < 0)
        return rc;
    q->n_pending--;
    ret->replayed = true;
    return 1;
}

// The host may offer a head again as soon as it sees the used index, while the push that gave it
// back (last_head's) is not through with the log yet: its end is waited for. Then the request is
// not taken for one in progress, nor does settle() undo its mark if the worker dies now.
static bool is_in_progress(struct virtq *q, uint16_t head)
{
    bool b = busy(q->log, head);

    if (!b && __atomic_load_n(&q->log->last_head, __ATOMIC_ACQUIRE) != head)
        return false;
    pthread_mutex_lock(&q->locked.mutex);
    b = busy(q->log, head);
    pthread_mutex_unlock(&q->locked.mutex);
    return b;
}

int virtq_pop(struct virtq *q, struct virtq_chain *ret, const char **ret_why)
{
    uint16_t head;
    int rc;

    if (q->n_pending > 0)
        return pop_pending(q, ret, ret_why);
    rc = available_or_ask(q);
    if (rc > 0)
        rc = load16(&avail_of(q)->ring[q->last_avail & (q->size - 1)], &head) < 0 ? -EFAULT : 1;
    if (rc < 0)
        *ret_why = rc == -EFAULT ? "the ring is not there any more"
                                 : "more available than the ring is large";
    if (rc <= 0)
        return rc;
    if (head >= q->size) {
        *ret_why = "a head outside the ring";
        return -EBADMSG;
    }
    if (is_in_progress(q, head)) {
        *ret_why = "a head that is in progress";
        return -EBADMSG;
    }
    rc = virtq_walk(q, head, ret, ret_why);
    if (rc < 0)
        return rc;
    ret->replayed = false;
    q->last_avail++;
    atomic_fetch_add_explicit(&q->in_progress, 1, memory_order_relaxed);
    q->log->entry[head].counter = ++q->log->counter;
    set_busy(q->log, head, true);
    return 1;
}

// --- answering ---

// The used ring's entry, then its index.
static int put_used(struct virtq *q, uint16_t head, uint32_t len)
{
    struct vring_used *used = used_of(q);
    uint16_t at = q->locked.used_idx;
    struct vring_used_elem e = {htole32(head), htole32(len)};
    int rc = region_copy_out(&used->ring[at & (q->size - 1)], &e, sizeof(e));

    return rc < 0 ? rc : store16(&used->idx, (uint16_t)(at + 1));
}

static int wants_call_locked(struct virtq *q)
{
    uint16_t now = q->locked.used_idx, before = q->locked.signalled_idx, word;
    bool valid = q->locked.signalled_valid;
    int rc;

    if (!FEATURE(q, VIRTIO_RING_F_EVENT_IDX)) {
        rc = load16(&avail_of(q)->flags, &word);
        return rc < 0 ? rc : !(word & VRING_AVAIL_F_NO_INTERRUPT);
    }
    rc = load16(used_event_of(q), &word);
    if (rc < 0)
        return rc;
    q->locked.signalled_idx = now;
    q->locked.signalled_valid = true;
    return !valid || vring_need_event(word, now, before);
}

static int push_locked(struct virtq *q, uint16_t head, uint32_t len)
{
    struct virtq_log *log = q->log;
    int rc;

    __atomic_store_n(&log->last_head, head, __ATOMIC_RELEASE);
    rc = put_used(q, head, len);
    if (rc < 0)
        return rc;
    q->locked.used_idx++;
    set_busy(log, head, false);
    __atomic_store_n(&log->used_idx, q->locked.used_idx, __ATOMIC_RELEASE);
    rc = wants_call_locked(q);
    if (rc > 0)
        call_locked(q);
    return MIN(rc, 0);
}

int virtq_push(struct virtq *q, uint16_t head, uint32_t len)
{
    int rc;

    assert(head < q->size);
    pthread_mutex_lock(&q->locked.mutex);
    rc = push_locked(q, head, len);
    pthread_mutex_unlock(&q->locked.mutex);
    atomic_fetch_sub_explicit(&q->in_progress, 1, memory_order_relaxed);
    return rc;
}
