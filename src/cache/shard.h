// SPDX-License-Identifier: Apache-2.0
// A shard: one data loop's part of the cache, and what its files share. Only for cache/.
//
// Everything here is on the shard's loop but for counters, which any thread may read. No call-back
// of a user runs while one of these structs is half changed.
#pragma once

#include "cache/extent.h"

#include <semaphore.h>

struct shard {
    struct cache *cache;
    unsigned index;
    struct loop *loop;
    bool loop_given; // not ours to stop
    struct s3_client *s3;
    struct pool pool;
    struct extent_table extents;

    // Demand that waits for memory holds none: cache_op, first come first served.
    struct list queue;
    struct list reads;    // cache_op of reads that have their memory, waiting for bytes
    struct list wants;    // struct want, first come first served
    struct list landings; // struct landing_op, under way
    unsigned n_wants;
    unsigned ahead_running, ahead_max; // GETs started for wants
    unsigned gets;
    struct loop_msg pump_msg;
    bool pump_posted;
    bool closing;
    sem_t closed;

    struct counter waiting; // in queue
    struct counter read_bytes, hit_bytes, demand_bytes, preread_bytes, preread_used_bytes;
    struct counter direct_bytes;
};

struct cache {
    struct s3_bucket *bucket;
    uint8_t *arena;
    uint64_t arena_len;
    int arena_fd; // or -1
    unsigned n_shards;
    _Atomic uint64_t next_id;
    struct shard shards[];
};

// Bytes of an extent to be fetched ahead, as memory and connections allow.
struct want {
    struct list link, of_extent;
    struct cache_extent *extent;
    uint32_t from, to;
    bool demand; // a read will come for it at once
};

static inline unsigned shard_of(const struct cache *c, const struct cache_object *o,
                                uint64_t number)
{
    // neighbouring extents on different loops; beginnings of objects spread
    return (unsigned)(((o->id * 0x9e3779b97f4a7c15u >> 32) + number) % c->n_shards);
}

// So much is received at a time at most. Less costs more: each receive also works off what came in
// meanwhile, and tells the sender.
#define ROOM_MAX (1 * MIB)
// GETs that s3/ may send twice. Of the two requests only the one that wins asks for room.
#define HEDGE_MAX (1 * MIB)

// --- get.c: one GET into an extent's pages ---

struct cache_get {
    struct s3_get get;
    struct shard *shard;
    struct cache_extent *extent;
    struct list link;      // of the extent's
    struct list waits;     // struct cache_wait
    uint32_t from, to, at; // landed up to at
    uint32_t unread_from;
    bool ahead;      // counts in ahead_running
    bool background; // not raised yet
    bool on_demand;  // somebody waited when it was started
    bool headed, cancelled;
};

// [from, to) is absent and its pages are there. What lies from unread_from on was not asked for by
// a reader. ahead: for a want.
struct cache_get *get_start(struct shard *s, struct cache_extent *x, uint32_t from, uint32_t to,
                            uint32_t unread_from, bool background, bool ahead);
void get_raise(struct cache_get *g); // a reader wants it
// op has waited for bytes of g, which are there now, or never come.
void get_waited(const struct cache_get *g, struct cache_op *op, struct cache_waited *w);
// Cancels it if nobody waits for it and most of it is still to come.
void get_abandon(struct cache_get *g);
// Why whoever asked is told error, where that is only -EIO: a line of the log.
void get_tell(const struct s3_get *get, int error);

// --- read.c ---

// Gets the memory it needs and goes on; false: there is not enough, and nothing is held. first: it
// is the first in line, or there is no line.
bool read_try(struct shard *s, struct cache_read *r, bool first);
void read_landed(struct cache_wait *w);            // all that w waits for is there
void read_failed(struct cache_wait *w, int error); // -EAGAIN: ask again

// --- load.c ---

bool load_try(struct shard *s, struct cache_load *l, bool first); // as read_try
// Something has become of x's bytes: loads may be done. error: of a GET that failed, or 0. The
// caller holds x.
void loads_check(struct shard *s, struct cache_extent *x, int error);

// --- ahead.c ---

// Gets the pages of [from, the result), as much of [from, to) as can be had without dropping
// unread ones, and pins them.
uint32_t pages_ahead(struct shard *s, struct cache_extent *x, uint32_t from, uint32_t to);
// Wants what is absent of [from, to); the caller holds x. false: the line is full.
bool want_add(struct shard *s, struct cache_extent *x, uint32_t from, uint32_t to, bool demand);
struct want *want_at(const struct cache_extent *x, uint32_t at); // or NULL
void want_free(struct shard *s, struct want *w);
void wants_pump(struct shard *s);
// The part of a read that it will come for later is asked for now.
void ahead_of_read(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len);

// --- fence.c: what land.c and fetch.c have in common ---

// A cache_land or cache_fetch under way, in shard->landings.
struct landing_op {
    struct list link;
    const void *user; // the cache_land or cache_fetch
    uint64_t id;
    struct cache_dest *dest;
    // Nothing more is written but by an engine that is at work already, and it ends soon with
    // -ECANCELED. Idempotent.
    void (*cancel)(struct landing_op *op);
};

static inline bool dest_is_cut(const struct cache_dest *d)
{
    return atomic_load_explicit(&d->cut, memory_order_acquire);
}

// A place in a destination that only moves forward.
struct dest_place {
    int piece;     // of dest->iov
    uint64_t from; // of that piece, in the destination
};

// The memory of [at, at + len), as much of it as max iovecs can name.
int dest_iov(const struct cache_dest *d, struct dest_place *place, uint64_t at, uint64_t len,
             struct iovec *iov, int max);
// Has the landing of this user cancelled, if it is there.
void landing_cancel(struct shard *s, const void *user, uint64_t id);
int landing_error(int error); // of a GET, as whoever asked for the landing is told
// A GET that was received directly, started for whoever waits for it, has ended.
void direct_waited(const struct s3_get *get, uint64_t since_ns, struct cache_waited *w);

// --- shard.c ---

// l: to run on; NULL: on a loop of its own.
int shard_init(struct shard *s, struct cache *c, unsigned index, struct loop *l, void *base,
               uint32_t n_pages);
void shard_close(struct shard *s); // from outside: cancels what is under way and waits for it
void shard_stop(struct shard *s);  // then: after the messages already posted, nothing more runs
void shard_fini(struct shard *s);
// Hands memory that has become available to those who wait for it, soon.
void shard_pump(struct shard *s);
void shard_enqueue(struct shard *s, struct cache_op *op); // waits for memory
// It has got it, perhaps at once.
void shard_waited(struct cache_op *op, struct cache_waited *w);
// An object's last reference has gone: its pages follow, shard after shard.
void shard_drop_object(struct loop_msg *msg);

// --- cache.c ---

void cache_object_free(struct cache_object *o);
