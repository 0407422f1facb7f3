// SPDX-License-Identifier: Apache-2.0
#include "prefetch/plan.h"

#include "prefetch/plan_names.h"
#include "prefetch/pressure.h"

#include <stdlib.h>
#include <string.h>

#define IN_FLIGHT_DEFAULT 128
#define MEMORY_DEFAULT    (2 * GIB)
// What an entry counts until its size is known and no other has told what to expect.
#define SIZE_GUESS (128 * KIB)
// So many are asked for on no more than that: where objects are large, the window is soon exceeded.
#define GUESSED_MAX 16
// How many entries of one key an open looks at.
#define CHAIN_MAX 64
// An open this far beyond the entries asked for is still by a reader of this window.
#define NEAR_ENTRIES 1024
// So many opens in a row far from the window, close to each other: the readers have gone there.
#define FAR_OPENS 16
#define FAR_SPAN  4096

enum entry_state { WAITING, ASKED, USED, DROPPED };

// An entry in the window.
struct slot {
    uint64_t passed; // bytes asked for before this one
    uint64_t bytes;  // what it counts; 0 once consumed
    uint64_t size;   // what is fetched of it
    uint32_t entry;
    uint16_t opens;
    uint8_t lead; // enum plan_lead: what had held it back
    bool in_flight;
    bool kept; // left to the host, which has it
};

struct plan {
    struct plan_config config;
    bool committed, stalled;
    enum plan_lead lead; // of what is asked for next: by what the window was stopped last
    struct plan_names names;
    struct buf key; // of the latest action

    uint32_t n, items_size, next_size;
    uint32_t *items; // of each entry: its key
    uint32_t *same;  // of each entry: the next of the same key; of the last: the first
    uint8_t *states; // two bits each
    size_t states_size;

    // The window: slots in order of entries, a ring.
    struct slot *ring;
    uint32_t ring_size, ring_first, ring_len;
    uint32_t next; // first entry not asked for
    uint64_t passed;
    uint64_t window;   // bytes, up to config.window_bytes
    uint64_t grown_at; // `passed` when it grew last
    uint64_t furthest; // `passed` of the furthest entry opened
    uint32_t n_kept;   // entries left to the host and not opened
    uint32_t doubted;  // these are asked for from here on; PLAN_NO_ENTRY: none
    unsigned in_flight;

    uint32_t far[FAR_OPENS], far_opens;
    uint64_t sizes, sized; // of the objects seen so far: sum and number
    struct plan_stats stats;
};

struct plan *plan_new(const struct plan_config *c)
{
    struct plan *p = xcalloc(1, sizeof(*p));

    p->config = *c;
    p->lead = PLAN_IN_TIME;
    p->doubted = PLAN_NO_ENTRY;
    p->window =
        c->warm || !c->window_first ? c->window_bytes : MIN(c->window_first, c->window_bytes);
    if (!p->config.in_flight_max)
        p->config.in_flight_max = IN_FLIGHT_DEFAULT;
    if (!p->config.object_bytes_max)
        p->config.object_bytes_max = MAX(c->window_bytes / 4, 1);
    if (!p->config.memory_max)
        p->config.memory_max = MEMORY_DEFAULT;
    return p;
}

void plan_free(struct plan *p)
{
    if (!p)
        return;
    plan_names_fini(&p->names);
    buf_free(&p->key);
    free(p->items);
    free(p->same);
    free(p->states);
    free(p->ring);
    free(p);
}

static uint64_t memory(const struct plan *p)
{
    return plan_names_memory(&p->names) + p->items_size * sizeof(*p->items) +
           p->next_size * sizeof(*p->same) + p->states_size + p->ring_size * sizeof(*p->ring);
}

// --- entries ---

static enum entry_state state(const struct plan *p, uint32_t entry)
{
    return (enum entry_state)(p->states[entry / 4] >> entry % 4 * 2 & 3);
}

static void set_state(struct plan *p, uint32_t entry, enum entry_state s)
{
    uint8_t *byte = &p->states[entry / 4];

    *byte = (uint8_t)((*byte & ~(3 << entry % 4 * 2)) | s << entry % 4 * 2);
}

static int grow_entries(struct plan *p)
{
    size_t size = p->states_size ? p->states_size : 256;
    int rc;

    if ((rc = plan_grow((void **)&p->items, &p->items_size, p->n, sizeof(*p->items))) < 0 ||
        (rc = plan_grow((void **)&p->same, &p->next_size, p->n, sizeof(*p->same))) < 0)
        return rc;
    while (size <= p->n / 4)
        size *= 2;
    if (size != p->states_size) {
        uint8_t *states = realloc(p->states, size);

        if (!states)
            return -ENOMEM;
        memset(states + p->states_size, 0, size - p->states_size);
        p->states = states;
        p->states_size = size;
    }
    return 0;
}

int plan_add(struct plan *p, const char *key, size_t key_len)
{
    uint32_t entry = p->n, item;
    struct plan_item *i;
    bool is_new;
    int rc;

    assert(!p->committed);
    if (entry >= PLAN_ENTRIES_MAX)
        return -E2BIG;
    if (memory(p) > p->config.memory_max)
        return -ENOMEM;
    if ((rc = grow_entries(p)) < 0 ||
        (rc = plan_names_add(&p->names, key, key_len, &item, &is_new)) < 0)
        return rc;
    i = &p->names.items[item];
    p->items[entry] = item;
    p->same[entry] = is_new ? entry : p->same[i->tail];
    if (!is_new)
        p->same[i->tail] = entry;
    i->tail = entry;
    p->n++;
    return 0;
}

void plan_commit(struct plan *p)
{
    p->committed = true;
}

// --- the window ---

static struct slot *slot_at(const struct plan *p, uint32_t i)
{
    return &p->ring[(p->ring_first + i) & (p->ring_size - 1)];
}

// The first one of an entry that is not before this; ring_len: there is none.
static uint32_t slot_from(const struct plan *p, uint32_t entry)
{
    uint32_t low = 0, high = p->ring_len;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;

        if (slot_at(p, mid)->entry < entry)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct slot *slot_find(const struct plan *p, uint32_t entry)
{
    uint32_t i = slot_from(p, entry);

    return i < p->ring_len && slot_at(p, i)->entry == entry ? slot_at(p, i) : NULL;
}

static bool ring_push(struct plan *p, struct slot s)
{
    if (p->ring_len == p->ring_size) {
        uint32_t size = p->ring_size ? p->ring_size * 2 : 256;
        struct slot *ring = malloc(size * sizeof(*ring));

        if (!ring)
            return false;
        for (uint32_t i = 0; i < p->ring_len; i++)
            ring[i] = *slot_at(p, i);
        free(p->ring);
        p->ring = ring;
        p->ring_size = size;
        p->ring_first = 0;
    }
    *slot_at(p, p->ring_len++) = s;
    return true;
}

static void slot_count(struct plan *p, struct slot *s, uint64_t bytes)
{
    p->stats.window_used += bytes - s->bytes;
    s->bytes = bytes;
}

static void slot_landed(struct plan *p, struct slot *s)
{
    if (s->in_flight)
        p->in_flight--;
    s->in_flight = false;
}

static void slot_unkeep(struct plan *p, struct slot *s)
{
    if (s->kept)
        p->n_kept--;
    s->kept = false;
}

// Forgets what is over at the window's beginning.
static void ring_trim(struct plan *p)
{
    while (p->ring_len) {
        struct slot *s = slot_at(p, 0);

        if (s->in_flight || state(p, s->entry) == ASKED)
            return;
        p->ring_first++;
        p->ring_len--;
    }
}

static uint64_t guess(const struct plan *p)
{
    uint64_t size = p->sized ? p->sizes / p->sized : SIZE_GUESS;

    return MIN(size, p->config.object_bytes_max);
}

// --- actions ---

static void act(struct plan *p, enum plan_what what, uint32_t entry, struct plan_action *ret)
{
    plan_names_key(&p->names, p->items[entry], &p->key);
    *ret = (struct plan_action){what, entry, p->key.data, p->key.len};
}

// One worker that died or fell far behind must not hold the window for ever.
static bool drop_one(struct plan *p, struct plan_action *ret)
{
    for (uint32_t i = 0; i < p->ring_len; i++) {
        struct slot *s = slot_at(p, i);

        if (p->furthest < s->passed || p->furthest - s->passed <= 2 * p->config.window_bytes)
            return false;
        if (state(p, s->entry) != ASKED)
            continue; // landing
        set_state(p, s->entry, DROPPED);
        slot_unkeep(p, s);
        slot_count(p, s, 0);
        p->stats.dropped++;
        act(p, PLAN_DROP, s->entry, ret);
        return true;
    }
    return false;
}

static uint64_t window_under(const struct plan *p, unsigned pressure)
{
    return p->config.warm ? p->window : pressure_shrink(p->window, pressure);
}

static bool may_fetch(struct plan *p, unsigned pressure, unsigned others)
{
    uint64_t window = window_under(p, pressure);
    uint64_t used = p->stats.window_used;

    if (!p->committed)
        return false;
    if (p->stalled || (used && used + guess(p) > window)) {
        p->lead = !p->stalled && used + guess(p) > p->window ? PLAN_WINDOW_FULL : PLAN_POOL_FULL;
        return false;
    }
    if (p->in_flight + others >= p->config.in_flight_max ||
        (!p->sized && p->in_flight >= GUESSED_MAX)) {
        p->lead = PLAN_IN_TIME;
        return false;
    }
    return true;
}

// The next one that was left to the host in vain.
static struct slot *doubted(struct plan *p)
{
    for (uint32_t i = slot_from(p, p->doubted); i < p->ring_len; i++) {
        struct slot *s = slot_at(p, i);

        p->doubted = s->entry + 1;
        if (s->kept)
            return s;
    }
    p->doubted = PLAN_NO_ENTRY;
    return NULL;
}

// It is in the window as it is.
static bool ask_again(struct plan *p, unsigned pressure, unsigned others, struct plan_action *ret)
{
    struct slot *s;

    if (p->doubted == PLAN_NO_ENTRY || p->stalled ||
        p->in_flight + others >= p->config.in_flight_max ||
        p->stats.window_used > window_under(p, pressure))
        return false;
    s = doubted(p);
    if (!s)
        return false;
    slot_unkeep(p, s);
    s->in_flight = true;
    p->in_flight++;
    act(p, PLAN_FETCH, s->entry, ret);
    return true;
}

static void finish_warming(struct plan *p)
{
    p->stats.dropped += p->n - p->next;
    p->next = p->n;
}

void plan_step(struct plan *p, unsigned pressure, unsigned others, struct plan_action *ret)
{
    struct slot s;

    *ret = (struct plan_action){.what = PLAN_NOTHING};
    ring_trim(p);
    if (drop_one(p, ret) || ask_again(p, pressure, others, ret))
        return;
    while (p->next < p->n && state(p, p->next) != WAITING)
        p->next++;
    if (p->next == p->n)
        return;
    if (!may_fetch(p, pressure, others)) {
        if (p->config.warm && p->committed && !p->in_flight)
            finish_warming(p);
        return;
    }
    s = (struct slot){
        .passed = p->passed,
        .bytes = guess(p),
        .entry = p->next,
        .lead = (uint8_t)p->lead,
        .in_flight = true,
    };
    if (!ring_push(p, s))
        return;
    p->passed += s.bytes;
    p->stats.window_used += s.bytes;
    p->in_flight++;
    set_state(p, p->next, ASKED);
    act(p, PLAN_FETCH, p->next++, ret);
}

// --- what became of them ---

void plan_missing(struct plan *p, uint32_t entry)
{
    struct slot *s = slot_find(p, entry);

    if (!s || !s->in_flight)
        return;
    slot_landed(p, s);
    p->passed -= s->bytes;
    slot_count(p, s, 0);
    if (state(p, entry) != ASKED)
        return;
    set_state(p, entry, DROPPED);
    p->stats.missing++;
}

uint64_t plan_sized(struct plan *p, uint32_t entry, uint64_t size)
{
    struct slot *s = slot_find(p, entry);
    uint64_t bytes = MIN(size, p->config.object_bytes_max);

    if (!s || !s->in_flight)
        return 0;
    p->sizes += bytes;
    p->sized++;
    if (state(p, entry) != ASKED) {
        slot_landed(p, s);
        return 0;
    }
    p->passed += bytes - s->bytes;
    slot_count(p, s, bytes);
    s->size = bytes;
    if (!bytes) {
        slot_landed(p, s);
        if (p->config.warm)
            set_state(p, entry, USED);
    }
    return bytes;
}

void plan_fetched(struct plan *p, uint32_t entry, int error)
{
    struct slot *s = slot_find(p, entry);

    if (!s || !s->in_flight)
        return;
    slot_landed(p, s);
    if (error) {
        slot_count(p, s, 0);
        if (error == -EAGAIN) {
            p->stalled = true;
            if (p->config.warm)
                finish_warming(p);
        }
    } else {
        p->stats.fetched++;
        p->stats.bytes += s->size;
    }
    if (p->config.warm && state(p, entry) == ASKED)
        set_state(p, entry, error ? DROPPED : USED);
}

void plan_kept(struct plan *p, uint32_t entry)
{
    struct slot *s = slot_find(p, entry);

    if (!s || !s->in_flight)
        return;
    slot_landed(p, s);
    if (p->config.warm) {
        slot_count(p, s, 0);
        set_state(p, entry, USED);
    } else if (!s->opens && state(p, entry) == ASKED) {
        s->kept = true;
        p->n_kept++;
    }
}

bool plan_doubt(struct plan *p)
{
    if (p->n_kept)
        p->doubted = 0;
    return p->n_kept;
}

// --- readers ---

static void take(struct plan *p, uint32_t entry)
{
    struct slot *s = slot_find(p, entry);

    if (s) {
        slot_unkeep(p, s);
        slot_count(p, s, 0);
    }
    set_state(p, entry, USED);
    p->names.items[p->items[entry]].seen = 1;
    p->stats.used++;
    p->stalled = false;
}

// The readers have left the window, for good as it seems: follow them.
static void jump(struct plan *p, uint32_t to)
{
    for (uint32_t i = 0; i < FAR_OPENS; i++)
        if (state(p, p->far[i]) == WAITING)
            take(p, p->far[i]);
    for (; p->next < to; p->next++) {
        if (state(p, p->next) != WAITING)
            continue;
        set_state(p, p->next, DROPPED);
        p->stats.dropped++;
    }
    // all that is in the window now lies far behind
    p->passed += 4 * p->config.window_bytes;
    p->furthest = p->passed;
    p->far_opens = 0;
}

static void note_far(struct plan *p, uint32_t entry)
{
    uint32_t low = entry, high = entry;

    for (uint32_t i = 0; i < p->far_opens; i++) {
        low = MIN(low, p->far[i]);
        high = MAX(high, p->far[i]);
    }
    if (high - low > FAR_SPAN) {
        p->far_opens = 0;
        low = entry;
    }
    p->far[p->far_opens++] = entry;
    if (p->far_opens == FAR_OPENS)
        jump(p, low);
}

// The entry of this key that an open most likely means.
static uint32_t choose(const struct plan *p, uint32_t tail)
{
    uint32_t e = p->same[tail], shared = PLAN_NO_ENTRY;

    for (int i = 0; i < CHAIN_MAX; i++, e = p->same[e]) {
        enum entry_state st = state(p, e);

        if (st == ASKED) {
            const struct slot *s = slot_find(p, e);

            if (s && !s->opens)
                return e;
            if (shared == PLAN_NO_ENTRY)
                shared = e;
        }
        if (st == WAITING && e >= p->next)
            return shared != PLAN_NO_ENTRY ? shared : e;
        if (e == tail)
            break;
    }
    return shared;
}

// Entries that are over move behind the search: the chain's beginning is its first one alive.
static void chain_trim(struct plan *p, struct plan_item *item)
{
    uint32_t first = p->same[item->tail];

    while (first != item->tail && state(p, first) >= USED) {
        first = p->same[first];
        p->same[item->tail] = first;
    }
}

// A reader came for something that has not landed, and nothing but the window had held it back. A
// larger one is tried out for its own length before it grows again.
static void grow(struct plan *p)
{
    if (p->passed - p->grown_at < p->window)
        return;
    p->window = MIN(2 * p->window, p->config.window_bytes);
    p->grown_at = p->passed;
}

uint32_t plan_open(struct plan *p, const char *key, size_t key_len, enum plan_lead *ret_lead)
{
    uint32_t item = plan_names_find(&p->names, key, key_len), entry;
    struct slot *s;

    *ret_lead = PLAN_UNPLANNED;
    if (!p->committed || item == PLAN_NO_ITEM)
        return PLAN_NO_ENTRY;
    chain_trim(p, &p->names.items[item]);
    entry = choose(p, p->names.items[item].tail);
    if (entry == PLAN_NO_ENTRY) {
        if (state(p, p->names.items[item].tail) == DROPPED)
            *ret_lead = PLAN_WINDOW_FULL;
        return PLAN_NO_ENTRY;
    }
    s = slot_find(p, entry);
    *ret_lead = s ? (enum plan_lead)s->lead : p->lead;
    if (*ret_lead == PLAN_WINDOW_FULL && (!s || s->in_flight))
        grow(p);
    if (s) {
        slot_unkeep(p, s);
        s->opens++;
        p->furthest = MAX(p->furthest, s->passed);
        p->far_opens = 0;
        p->stalled = false;
        return entry;
    }
    if (entry - p->next <= MAX(NEAR_ENTRIES, 2 * p->ring_len)) {
        // its reader is ahead of us and fetches it itself
        take(p, entry);
        p->passed += guess(p);
        p->furthest = p->passed;
        p->far_opens = 0;
        return entry;
    }
    *ret_lead = PLAN_WINDOW_FULL;
    // a second reading of what was used already says nothing about the next round
    if (!p->names.items[item].seen)
        note_far(p, entry);
    return PLAN_NO_ENTRY;
}

void plan_unopen(struct plan *p, uint32_t entry)
{
    struct slot *s = entry < p->n && state(p, entry) == ASKED ? slot_find(p, entry) : NULL;

    if (s && s->opens)
        s->opens--;
}

bool plan_consume(struct plan *p, uint32_t entry)
{
    if (entry >= p->n || state(p, entry) != ASKED)
        return false;
    take(p, entry);
    return true;
}

void plan_stats_read(const struct plan *p, struct plan_stats *ret)
{
    *ret = p->stats;
    ret->entries = p->n;
    ret->window = p->window;
    ret->memory = memory(p);
}

bool plan_done(const struct plan *p)
{
    if (!p->committed)
        return false;
    for (uint32_t e = p->next; e < p->n; e++)
        if (state(p, e) == WAITING)
            return false;
    for (uint32_t i = 0; i < p->ring_len; i++)
        if (slot_at(p, i)->in_flight || state(p, slot_at(p, i)->entry) == ASKED)
            return false;
    return true;
}
