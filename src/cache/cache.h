// SPDX-License-Identifier: Apache-2.0
// cache/: object bytes in memory. A bounded pool of 64 KiB pages; extents (8 MiB aligned pieces of
// an object version), each owned by one data loop with its pages, its GETs and those who wait for
// them. Uses s3/, net/, loop/, base/.
//
// The cache starts its data loops itself, or is given the one. Calls come from any loop; they are
// messages to the loop that owns the extent. Nothing fails for lack of memory and nothing exceeds
// it: demand reads wait in line, pre-reading is dropped.
#pragma once

#include "base/counter.h"
#include "cache/dest.h"
#include "cache/waited.h"
#include "loop/loop.h"
#include "s3/s3.h"

#include <stdatomic.h>
#include <sys/uio.h>

#define CACHE_PAGE     ((uint64_t)64 << 10)
#define CACHE_EXTENT   ((uint64_t)8 << 20)
#define CACHE_READ_MAX ((uint32_t)1 << 20) // largest cache_read

struct cache;

struct cache_config {
    uint64_t memory;     // bytes of the pool, at least 16 MiB per data loop
    unsigned data_loops; // at least 1
    // Or NULL. It is the data loop then, which there is one of: where one core has all the work, a
    // thread more only means changing between them.
    struct loop *loop;
    struct s3_bucket *bucket;
    bool shared; // the pool is a memfd, so that a copy engine's process can have it (gdd/engine.h)
};

// From any thread; config->loop's own is one.
int cache_new(struct cache **ret, const struct cache_config *c, char **ret_error);
// Ends the data loops, not one that was given, from any other thread than theirs. Every read has
// been released and every load has ended; GETs of pre-reading are cancelled.
void cache_free(struct cache *c);
// The whole pool and its descriptor, which stays the cache's: -1 unless it is shared. Any thread.
void cache_arena(const struct cache *c, int *ret_fd, void **ret_base, uint64_t *ret_len);

// --- object versions ---

// One version of one object: immutable but for the reference count, any thread. The pages of a
// version that nobody refers to any more are dropped: whoever wants bytes to stay between a close
// and the next open keeps a reference.
struct cache_object {
    atomic_int refs;
    // The store has another version or none any more: a GET said 412 or 404, or showed another
    // ETag or size.
    atomic_bool stale;
    struct cache *cache;
    uint64_t id;   // never used again by another
    uint64_t size; // > 0
    size_t key_len;
    char *key;
    char *etag; // sent as If-Match; "": the store gives none

    // private
    struct loop_msg msg;
    unsigned dropped;      // shards that have let go of it
    struct list extents[]; // for each data loop
};

// Strings are copied; size > 0.
struct cache_object *cache_object_new(struct cache *c, const char *key, size_t key_len,
                                      const char *etag, uint64_t size);
struct cache_object *cache_object_ref(struct cache_object *o);
void cache_object_unref(struct cache_object *o); // NULL is allowed

// --- private parts of operations ---

struct cache_extent;
struct cache_get;

struct cache_op {
    struct loop_msg msg;
    struct list link;
    struct cache *cache;
    bool is_load;      // else a read
    uint64_t since_ns; // it waits for memory, or for bytes; 0: for neither
};

// A read waits for bytes [from, to) of an extent from a GET under way.
struct cache_wait {
    struct list link;
    struct cache_read *read; // NULL: not in use
    struct cache_get *get;
    unsigned part;
    uint32_t from, to;
};

// What a read wants of one extent.
struct cache_part {
    struct cache_extent *extent; // while its pages are pinned
    uint64_t number;
    uint32_t from, to; // in the extent
    uint32_t scanned;  // up to here every byte is there or waited for
    unsigned shard;
};

// --- reading ---

#define CACHE_READ_IOVS 40

// Embedded in the caller's request.
struct cache_read {
    // set by the caller
    struct cache_object *object; // a reference that stays the caller's until the release
    uint64_t offset;             // offset + len <= object->size
    uint32_t len;                // 1 .. CACHE_READ_MAX
    // On some data loop, once: 0 and the bytes in iov (pinned, read-only, until cache_read_release,
    // on this same thread, soon), or -ESTALE, -EACCES, -ENOENT, -EIO, -ECANCELED with nothing to
    // release.
    void (*done)(struct cache_read *r, int error);

    // result
    struct iovec iov[CACHE_READ_IOVS];
    int n_iov;
    // how it went, for the policy and metrics: every byte was there when asked for / came with
    // pre-reading
    bool hit, preread;
    struct cache_waited waited;

    // private
    struct cache_op op;
    uint64_t id;                // tells it from a later read in the same memory
    struct cache_part parts[2]; // in the order they are visited
    unsigned n_parts, stage;
    struct cache_wait waits[4];
    unsigned waiting; // how many of them are in use
};

// Any thread. Takes a struct with the caller's part set; the rest need not be zeroed.
void cache_read_start(struct cache *c, struct cache_read *r);
// On the thread that done came on. r may be freed right after, and object's reference dropped.
void cache_read_release(struct cache_read *r);
// done(-ECANCELED) follows unless it is under way already. Any thread, while r cannot be freed
// during this very call; it need not live until the cancelling has been noticed. On the thread
// that called cache_read_start, or after it in time. The GET goes on if others want its bytes,
// if it was pre-reading or if most of it has landed.
void cache_read_cancel(struct cache_read *r);

// --- landing ---

// Bytes of one extent into a host's memory. Those that are here or coming are copied from their
// pages; those that are absent and that nobody else wants are, when dest allows it, received
// straight into it and leave no trace here.
struct cache_land {
    // set by the caller
    struct cache_object *object; // a reference that stays the caller's until done
    uint64_t offset;             // in the object
    uint32_t len;                // > 0, within the object and within one extent
    struct cache_dest *dest;     // the caller's until done; [dest_at, dest_at + len) of it is used
    uint64_t dest_at;
    // On some data loop, once: 0; -ECANCELED (cache_land_cancel, or dest was cut); -EFAULT; or an
    // error of a cache_read. Nothing of it writes to dest any more.
    void (*done)(struct cache_land *l, int error);

    // result
    struct cache_waited waited;

    // private
    struct cache_op op;
    uint64_t id;
};
// Any thread.
void cache_land_start(struct cache *c, struct cache_land *l);
// As cache_read_cancel.
void cache_land_cancel(struct cache_land *l);

// An object of which nothing is known, from its first byte into dest, which is direct: one GET of
// at most an extent. What is not pinned to a version is not kept.
struct cache_fetch {
    // set by the caller, valid until done
    const char *key; // as the store has it
    size_t key_len;
    struct cache_dest *dest;
    // On some data loop, once. 0: the head of the answer is good and min(size, CACHE_EXTENT)
    // bytes have landed; what lies beyond is the caller's, by cache_land with size and etag.
    // -EFBIG: it is larger than dest, size says how large. Else as cache_land, -ENOENT.
    void (*done)(struct cache_fetch *f, int error);

    // result
    uint64_t size;
    char etag[256]; // "": the store gives none, or one too long to be kept
    struct cache_waited waited;

    // private
    struct cache_op op;
    uint64_t id;
    unsigned shard;
};
void cache_fetch_start(struct cache *c, struct cache_fetch *f); // any thread
void cache_fetch_cancel(struct cache_fetch *f);                 // as cache_read_cancel

// done on the calling loop, once every data loop has come round: whoever had not seen what was set
// before (cache_dest.cut) is done with it.
struct cache_fence {
    void (*done)(struct cache_fence *f);

    // private
    struct loop_msg msg;
    struct cache *cache;
    struct loop *loop;
    unsigned at;
};
void cache_fence_start(struct cache *c, struct cache_fence *f);

// --- pre-reading ---

// Fetch what is absent of [offset, offset + len), as memory allows, in GETs of up to an extent.
// Fire and forget, any thread; takes a reference of its own. A cache_read started after it by the
// same thread finds it under way: one GET serves both. What cannot start yet for lack of memory
// or connections waits behind earlier pre-reading and is overtaken by demand.
void cache_prefetch(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len);

// Whole object of at most one extent, from OPEN on: starts its GET (demand priority, may be
// hedged) unless resident, and calls done on the owning data loop as soon as the head of the
// answer is good (or the bytes are there): 0, or the error of a cache_read. Embedded; once. Under
// pressure only the object's first mebibyte may be fetched; reads fetch the rest as they come.
struct cache_load {
    struct cache_object *object; // a reference, the caller's until done; size <= CACHE_EXTENT
    // For pre-reading that wants to know how it went: lower priority, waits for memory, done when
    // all has landed; -ECANCELED when it was given up (cache_unwant), -EAGAIN when there is no
    // room in the line.
    bool background;
    void (*done)(struct cache_load *l, int error);

    // result, unless it is background
    struct cache_waited waited;

    // private
    struct cache_op op;
    uint64_t id;
};
void cache_load_start(struct cache *c, struct cache_load *l);

// Pre-read bytes of o in [offset, offset + len) that nobody has read are not wanted any more (a
// plan's entry was dropped, a stream was closed or sought away): they may go first, and GETs of
// them that have not got far are cancelled.
void cache_unwant(struct cache *c, struct cache_object *o, uint64_t offset, uint64_t len);

// 0 (idle) .. 100 (the pool is full of bytes that are loading, pinned or not yet read): windows
// shrink from 75 on. Any thread, a few loads of atomics.
unsigned cache_pressure(const struct cache *c);

struct cache_stats {
    uint64_t pool_bytes, used_bytes, unread_bytes, pinned_bytes, peak_bytes;
    uint64_t read_bytes, hit_bytes; // given to readers / resident or loading when asked for
    uint64_t demand_bytes;          // fetched because a reader waited
    uint64_t direct_bytes;          // of these: received straight into a host's memory
    uint64_t preread_bytes, preread_used_bytes, preread_wasted_bytes;
    uint64_t waiting; // reads in line for memory
    uint64_t extents;
};
void cache_stats_read(const struct cache *c, struct cache_stats *ret); // any thread
unsigned cache_data_loops(const struct cache *c);
const struct s3_client *cache_s3_client(const struct cache *c, unsigned data_loop); // for its stats
