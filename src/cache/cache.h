// SPDX-License-Identifier: Apache-2.0
// cache/: object bytes in memory. A bounded pool of 64 KiB pages; extents (8 MiB aligned pieces of
// an object version), each owned by one data loop with its pages, its GETs and those who wait for
// them. Uses s3/, net/, loop/, base/.
//
// The cache starts its data loops itself. Calls come from any loop; they are messages to the loop
// that owns the extent. Nothing fails for lack of memory and nothing exceeds it: demand reads
// wait in line, pre-reading is dropped.
#pragma once

#include "base/counter.h"
#include "loop/loop.h"
#include "s3/s3.h"

#include <stdatomic.h>
#include <sys/uio.h>

#define CACHE_PAGE ((uint64_t)64 << 10)
#define CACHE_EXTENT ((uint64_t)8 << 20)
#define CACHE_READ_MAX ((uint32_t)1 << 20) // largest cache_read

struct cache;

struct cache_config {
    uint64_t memory;     // bytes of the pool, at least 16 MiB per data loop
    unsigned data_loops; // at least 1
    struct s3_bucket *bucket;
};

int cache_new(struct cache **ret, const struct cache_config *c, char **ret_error);
// Ends the data loops. Every read has been released and every load has ended; GETs of pre-reading
// are cancelled.
void cache_free(struct cache *c);

// --- object versions ---

// One version of one object: immutable but for the reference count, any thread. The pages of a
// version that nobody refers to any more are dropped.
struct cache_object {
    atomic_int refs;
    atomic_bool stale; // the store has another version: a GET said 412 or showed another ETag
    struct cache *cache;
    uint64_t id;   // never used again by another
    uint64_t size; // > 0
    size_t key_len;
    char *key;
    char *etag; // sent as If-Match
};

struct cache_object *cache_object_new(struct cache *c, const char *key, size_t key_len,
                                      const char *etag, uint64_t size);
struct cache_object *cache_object_ref(struct cache_object *o);
void cache_object_unref(struct cache_object *o); // NULL is allowed

// --- reading ---

#define CACHE_READ_IOVS 40

// Embedded in the caller's request.
struct cache_read {
    // set by the caller
    struct cache_object *object; // a reference that stays the caller's until the release
    uint64_t offset;             // offset + len <= object->size
    uint32_t len;                // 1 .. CACHE_READ_MAX
    // On some data loop, once: 0 and the bytes in iov (pinned, read-only, until
    // cache_read_release, on this same thread, soon), or -ESTALE, -EACCES, -ENOENT, -EIO, -ECANCELED with nothing to release.
    void (*done)(struct cache_read *r, int error);

    // result
    struct iovec iov[CACHE_READ_IOVS];
    int n_iov;
    // how it went, for the policy and metrics: every byte was there when asked for / came with pre-reading
    bool hit, preread;

    // private
    struct loop_msg msg;
    struct list link;
    void *state[8];
};

void cache_read_start(struct cache *c, struct cache_read *r);
void cache_read_release(struct cache_read *r);
// done(-ECANCELED) follows unless it is under way already. Any thread. The GET goes on if others want its bytes
// or most of it has landed.
void cache_read_cancel(struct cache_read *r);

// --- pre-reading ---

// Fetch what is absent of [offset, offset + len), as memory allows, in GETs of up to an extent.
// Fire and forget, any thread; takes a reference of its own.
void cache_prefetch(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len);

// Whole object of at most one extent, from OPEN on: starts its GET (demand priority, may be hedged) unless resident,
// and calls done on the owning data loop as soon as the head of the answer is good (or the bytes
// are there): 0, or the error of a cache_read. Embedded; once.
struct cache_load {
    struct cache_object *object; // a reference, the caller's until done
    bool background; // for pre-reading that wants to know how it went: lower priority, done when all has landed
    void (*done)(struct cache_load *l, int error);
    struct loop_msg msg;
    struct list link;
    void *state[4];
};
void cache_load_start(struct cache *c, struct cache_load *l);

// Pre-read bytes of o in [offset, offset+len) that nobody has read are not wanted any more (a plan's entry was
// dropped, a stream was closed or sought away): they may go first.
void cache_unwant(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len);

// 0 (idle) .. 100 (the pool is full of bytes that are loading, pinned or not yet read): windows
// shrink from 75 on. Any thread, a load of an atomic.
unsigned cache_pressure(const struct cache *c);

struct cache_stats {
    uint64_t pool_bytes, used_bytes, unread_bytes, pinned_bytes, peak_bytes;
    uint64_t read_bytes, hit_bytes;                       // given to readers / resident or loading when asked for
    uint64_t demand_bytes;                                // fetched because a reader waited
    uint64_t preread_bytes, preread_used_bytes, preread_wasted_bytes;
    uint64_t waiting;                                     // reads in line for memory
    uint64_t extents;
};
void cache_stats_read(const struct cache *c, struct cache_stats *ret); // any thread
unsigned cache_data_loops(const struct cache *c);
const struct s3_client *cache_s3_client(const struct cache *c, unsigned data_loop); // for its stats
