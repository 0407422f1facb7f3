// SPDX-License-Identifier: Apache-2.0
// The pages of one data loop: which are free, and in what order the others may go. Only the
// owning loop calls; counts may be read by any thread. Only for cache/.
//
//          pool_take                 pool_unpin, nothing valid
//   FREE ────────────► BUSY ─────────────────────────────────────► FREE
//                     ▲    │ pool_unpin                              ▲
//            pool_pin │    ▼                                         │ pool_reserve
//                  UNWANTED, READ, UNREAD ───────────────────────────┘
//
// BUSY: a read has pinned it or a GET lands in it. The others go in this order: UNWANTED bytes
// that came ahead and were given up; READ bytes, which readers (and their kernel's page cache)
// have had; and, for demand only, UNREAD ones that came ahead. Within each the longest unused
// first.
//
// Memory that was never used is slow (the kernel has to find and clear it, no cache holds it), and
// bytes that were read are seldom asked for again. So READ pages beyond `keep` go before a page
// that was never used is taken; and each page that is asked for again, and would still be here if
// all memory were used, raises keep by one.
#pragma once

#include "base/counter.h"
#include "base/list.h"
#include "cache/cache.h"

#define BLOCK       ((uint32_t)4 << 10) // what validity is counted in: the kernel's page
#define PAGE_BLOCKS ((uint32_t)(CACHE_PAGE / BLOCK))
#define NO_PAGE     UINT32_MAX

enum page_place { PAGE_FREE, PAGE_BUSY, PAGE_UNWANTED, PAGE_READ, PAGE_UNREAD, PAGE_PLACES };

struct page {
    struct list link;
    struct cache_extent *extent;
    uint32_t index;  // in the extent
    uint32_t busy;   // pins and GETs
    uint64_t name;   // a hash of what it holds
    uint16_t valid;  // bit i: block i holds the object's bytes (all it has of them)
    uint16_t unread; // of these: came ahead, nobody has read them
    uint8_t place;
    bool unwanted;
};

// What a READ page held that has gone, and when.
struct ghost {
    uint32_t tag, evictions;
};

struct pool {
    uint8_t *base;
    struct page *pages;
    uint64_t *free;               // a bit for each page
    uint32_t n_pages, first_free; // no page below is free
    uint32_t touched;             // no page from here on was ever used
    uint32_t keep;
    struct ghost *ghosts;            // n_pages of them
    uint32_t evictions;              // of READ pages
    struct list places[PAGE_PLACES]; // of all but FREE and BUSY
    struct counter counts[PAGE_PLACES];
    struct counter peak;
    // The extent forgets the page, which is going; valid and unread are as they were.
    void (*evicted)(struct page *page);
};

#define POOL_KEEP ((uint32_t)(16 * MIB / CACHE_PAGE)) // at first

// base: n_pages of CACHE_PAGE bytes, the caller's.
void pool_init(struct pool *p, void *base, uint32_t n_pages, void (*evicted)(struct page *page));
void pool_fini(struct pool *p);

static inline void *page_data(const struct pool *p, uint32_t page)
{
    return p->base + (uint64_t)page * CACHE_PAGE;
}

// How many pages can be had, by evicting what may go.
uint32_t pool_available(const struct pool *p, bool demand);
// Sees that n pages are free; pool_available has said that there are so many.
void pool_reserve(struct pool *p, uint32_t n, bool demand);
// The first of n free pages that lie side by side, or where there are any. Memory that was used
// before is worth more than that.
uint32_t pool_find_run(const struct pool *p, uint32_t n);
// Takes a free page, near if that is free; it is BUSY once and empty. name: a hash of what it will
// hold.
uint32_t pool_take(struct pool *p, uint32_t near, struct cache_extent *x, uint32_t index,
                   uint64_t name);

void pool_pin(struct pool *p, uint32_t page);
void pool_unpin(struct pool *p, uint32_t page);
// After valid, unread or unwanted of a page have changed: to its place, if it is not busy.
void pool_settle(struct pool *p, struct page *page);
// Drops a page that is not busy, whatever it holds.
void pool_drop(struct pool *p, uint32_t page);

static inline uint64_t pool_count(const struct pool *p, enum page_place place)
{
    return counter_read(&p->counts[place]);
}
