// SPDX-License-Identifier: Apache-2.0
// plan: an order of reading that the application has declared: a numbered multiset of keys. The
// entries inside a window of bytes are fetched in that order, each once, however many processes
// read them and however they take turns.
//
//             plan_step: FETCH                plan_consume
//   WAITING ───────────────────► ASKED ─────────────────────────► USED
//      │                           │ far behind the furthest reader
//      │ opened, or passed over    └────────────────────────────► DROPPED
//      └────────────────────────────────────────────────────────► USED / DROPPED
//
// What the host is believed to have (plan_kept) takes its place in the window all the same: the
// belief reaches no further, and plan_doubt has what is left of it fetched.
//
// Memory: 8 bytes and 2 bits an entry; about 20 bytes and the last component of its name for each
// distinct key; a slot of 40 bytes for entries in the window only.
#pragma once

#include "base/base.h"

#define PLAN_NO_ENTRY    UINT32_MAX
#define PLAN_ENTRIES_MAX ((uint32_t)1 << 28)

struct plan;

struct plan_config {
    uint64_t window_bytes;     // fetched or being fetched, and not consumed
    uint64_t window_first;     // so much of it at first, more when a reader came too early; 0: all
    unsigned in_flight_max;    // entries being fetched at a time; 0: 128
    uint64_t object_bytes_max; // of one object: more is left to its readers; 0: window_bytes / 4
    uint64_t memory_max;       // of the plan itself; 0: 2 GiB
    // No reader is waited for: entries are consumed when fetched, and the plan ends when
    // window_bytes were fetched (OS2G_WARM).
    bool warm;
};

struct plan *plan_new(const struct plan_config *c);
void plan_free(struct plan *p); // NULL is allowed

// Appends an entry. Before plan_commit only. -ENOMEM (memory_max, or the machine has none),
// -E2BIG (PLAN_ENTRIES_MAX).
int plan_add(struct plan *p, const char *key, size_t key_len);
void plan_commit(struct plan *p); // plan_step has something to say from now on

// --- actions ---

enum plan_what {
    PLAN_NOTHING, // until the next event
    PLAN_FETCH,   // find the object, then plan_sized or plan_missing
    PLAN_DROP,    // bytes of this entry that nobody has read are not wanted any more
};

struct plan_action {
    enum plan_what what;
    uint32_t entry;
    const char *key; // ends with a zero; valid until the next call
    size_t key_len;
};

// The next thing to do; call until PLAN_NOTHING after each event. pressure: cache_pressure. others:
// what else is being fetched, of which the plan's in_flight_max is a part.
void plan_step(struct plan *p, unsigned pressure, unsigned others, struct plan_action *ret);

// --- what became of a PLAN_FETCH: one of missing, or sized and later fetched or kept ---

void plan_missing(struct plan *p, uint32_t entry); // no such object, or nothing to fetch
// The object has this size: returns how many of its bytes to fetch, from its beginning; 0: none,
// the entry has been consumed meanwhile (plan_fetched does not follow).
uint64_t plan_sized(struct plan *p, uint32_t entry, uint64_t size);
// Landed (error 0), or not: then its bytes no longer count. -EAGAIN (no memory): nothing more is
// asked for until a consume or an open.
void plan_fetched(struct plan *p, uint32_t entry, int error);
// It was not fetched: the host has it.
void plan_kept(struct plan *p, uint32_t entry);
// The host has let go of what it had: what was left to it and has not been opened is asked for.
// Whether there is any.
bool plan_doubt(struct plan *p);

// --- what readers do ---

// What the plan has done for whoever opens an object, in the order in which plans are preferred.
enum plan_lead {
    PLAN_UNPLANNED,   // it does not name it, or as often as it has been read already
    PLAN_POOL_FULL,   // it would have fetched it sooner, but for the pool's pressure
    PLAN_WINDOW_FULL, // or but for its window: also one that left it behind as nobody came for it
    PLAN_IN_TIME,     // it has asked for it as soon as it was declared, or fetching allowed
};

// A file was opened: its entry, or PLAN_NO_ENTRY (not in the plan, or all its entries are used,
// or so far from the others that it tells nothing). The handle keeps the number.
uint32_t plan_open(struct plan *p, const char *key, size_t key_len, enum plan_lead *ret_lead);
// What was opened is not read after all: the entry waits for another open.
void plan_unopen(struct plan *p, uint32_t entry);
// Its last byte was read, or its handle was released: true the first time.
bool plan_consume(struct plan *p, uint32_t entry);

struct plan_stats {
    uint64_t entries;
    uint64_t fetched, bytes; // entries that have landed, and their bytes
    uint64_t used;           // consumed by a reader
    uint64_t dropped, missing;
    uint64_t window_used; // bytes in the window now
    uint64_t window;      // that it may hold, as it has grown so far
    uint64_t memory;      // of the plan itself
};
void plan_stats_read(const struct plan *p, struct plan_stats *ret);
bool plan_done(const struct plan *p); // committed, and every entry is used, dropped or missing
