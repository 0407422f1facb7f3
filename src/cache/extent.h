// SPDX-License-Identifier: Apache-2.0
// An extent: which bytes of an 8 MiB aligned piece of an object are there, coming or absent. And
// the table of a data loop's extents. Only for cache/.
//
// A byte of an extent is
//   absent ──► coming (in the range of a cache_get) ──► landed ──► valid, when its block is whole
// Bytes of a block that no GET covers wholly are there only for the reads that waited for them:
// what is asked for by the byte is fetched by the byte and not remembered.
#pragma once

#include "cache/pool.h"

struct cache_get;

struct extent_table;

struct cache_extent {
    struct cache_extent *next; // in the table's bucket
    struct extent_table *table;
    struct cache_object *object;
    uint64_t number;
    uint32_t len;      // CACHE_EXTENT, less at the object's end
    uint32_t n_pages;  // of len
    uint32_t resident; // pages it has
    uint32_t held;     // by a function that goes on to use it
    struct list of_object;
    struct list gets;  // struct cache_get, under way
    struct list wants; // struct want, to be fetched ahead
    struct list loads; // struct cache_load, waiting
    uint32_t pages[];  // NO_PAGE or a page of the pool
};

struct extent_table {
    struct cache_extent **buckets;
    uint32_t mask;
    struct counter count;
    struct counter wasted_bytes; // of pages that went unread
};

void extent_table_init(struct extent_table *t, uint32_t n_pages);
void extent_table_fini(struct extent_table *t); // all extents are gone
struct cache_extent *extent_find(const struct extent_table *t, const struct cache_object *o,
                                 uint64_t number);
struct cache_extent *extent_get(struct extent_table *t, struct cache_object *o, unsigned shard,
                                uint64_t number); // makes it
// Frees it if it holds nothing and nothing is under way. Whoever takes, unpins or evicts pages and
// uses an extent afterwards holds it meanwhile.
void extent_tidy(struct cache_extent *x);
static inline void extent_hold(struct cache_extent *x)
{
    x->held++;
}
static inline void extent_let_go(struct cache_extent *x)
{
    x->held--;
    extent_tidy(x);
}
void extent_evicted(struct page *page); // for pool_init

static inline uint32_t page_of(uint32_t at)
{
    return (uint32_t)(at / CACHE_PAGE);
}

// --- pages of [from, to), to > from ---

uint32_t extent_missing_pages(const struct cache_extent *x, uint32_t from, uint32_t to);
void extent_pin(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t to); // those it has
void extent_unpin(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t to); // and tidies
// Takes the missing ones, each pinned once; pool_reserve has made room.
void extent_fill(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t to);
// Their memory as few iovecs as possible, at most max; returns how many.
int extent_iov(const struct pool *p, const struct cache_extent *x, uint32_t from, uint32_t to,
               struct iovec *iov, int max);

// --- what is there ---

enum cover { COVER_ABSENT, COVER_COMING, COVER_HERE };

struct cover_span {
    enum cover what;
    uint32_t to;           // it is so from where was asked up to here, at most end
    struct cache_get *get; // COVER_COMING
};

struct cover_span extent_cover(const struct pool *p, const struct cache_extent *x, uint32_t at,
                               uint32_t end);
bool extent_complete(const struct pool *p, const struct cache_extent *x);

// Bytes up to `at` of a GET that began at `from` have landed, up to `before` they had already:
// whole blocks become valid; those from unread_from on are unread.
void extent_landed(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t before,
                   uint32_t at, uint32_t unread_from);
// A reader has had [from, to); returns how many bytes had come ahead, of the blocks it touches.
uint32_t extent_read(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t to);
// Unread bytes of [from, to) may go first.
void extent_unwant(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t to);
