// SPDX-License-Identifier: Apache-2.0
#include "cache/pool.h"

#include <stdlib.h>
#include <string.h>

void pool_init(struct pool *p, void *base, uint32_t n_pages, void (*evicted)(struct page *page))
{
    *p = (struct pool){.base = base, .n_pages = n_pages, .evicted = evicted};
    p->keep = MIN(POOL_KEEP, n_pages / 4);
    p->ghosts = xcalloc(n_pages, sizeof(*p->ghosts));
    p->pages = xcalloc(n_pages, sizeof(*p->pages));
    p->free = xcalloc((n_pages + 63) / 64, sizeof(*p->free));
    for (uint32_t i = 0; i < n_pages; i++) {
        p->free[i / 64] |= (uint64_t)1 << i % 64;
        list_init(&p->pages[i].link);
    }
    for (int i = 0; i < PAGE_PLACES; i++)
        list_init(&p->places[i]);
    counter_add(&p->counts[PAGE_FREE], n_pages);
}

void pool_fini(struct pool *p)
{
    free(p->pages);
    free(p->free);
    free(p->ghosts);
}

static uint32_t page_number(const struct pool *p, const struct page *page)
{
    return (uint32_t)(page - p->pages);
}

static bool is_free(const struct pool *p, uint32_t page)
{
    return page < p->n_pages && p->free[page / 64] >> page % 64 & 1;
}

static void move(struct pool *p, struct page *page, enum page_place to)
{
    uint32_t number = page_number(p, page);
    uint64_t used;

    counter_sub(&p->counts[page->place], 1);
    counter_add(&p->counts[to], 1);
    list_remove(&page->link);
    page->place = (uint8_t)to;
    if (to == PAGE_FREE) {
        p->free[number / 64] |= (uint64_t)1 << number % 64;
        p->first_free = MIN(p->first_free, number);
    } else if (to != PAGE_BUSY) {
        list_push_back(&p->places[to], &page->link);
    }
    used = p->n_pages - counter_read(&p->counts[PAGE_FREE]);
    if (used > counter_read(&p->peak))
        counter_add(&p->peak, used - counter_read(&p->peak));
}

// --- what was asked for again ---

static struct ghost *ghost_of(const struct pool *p, uint64_t name)
{
    return &p->ghosts[name % p->n_pages];
}

static void ghost_add(struct pool *p, const struct page *page)
{
    *ghost_of(p, page->name) = (struct ghost){(uint32_t)(page->name >> 32), ++p->evictions};
}

static void ghost_check(struct pool *p, uint64_t name)
{
    struct ghost *g = ghost_of(p, name);

    if (!g->evictions || g->tag != (uint32_t)(name >> 32))
        return;
    // it went so many evictions ago; with all of the pool for READ pages it would be here yet
    if (p->keep < p->n_pages && p->evictions - g->evictions < p->n_pages - p->keep)
        p->keep++;
    g->evictions = 0;
}

// --- going ---

static void evict(struct pool *p, struct page *page)
{
    if (page->place == PAGE_READ)
        ghost_add(p, page);
    move(p, page, PAGE_FREE);
    p->evicted(page);
    page->extent = NULL;
}

void pool_settle(struct pool *p, struct page *page)
{
    if (page->busy)
        return;
    if (!page->valid)
        evict(p, page);
    else if (!page->unread)
        move(p, page, PAGE_READ);
    else
        move(p, page, page->unwanted ? PAGE_UNWANTED : PAGE_UNREAD);
}

void pool_pin(struct pool *p, uint32_t page)
{
    if (p->pages[page].busy++ == 0)
        move(p, &p->pages[page], PAGE_BUSY);
}

void pool_unpin(struct pool *p, uint32_t page)
{
    assert(p->pages[page].busy > 0);
    if (--p->pages[page].busy == 0)
        pool_settle(p, &p->pages[page]);
}

void pool_drop(struct pool *p, uint32_t page)
{
    assert(!p->pages[page].busy);
    evict(p, &p->pages[page]);
}

// --- taking ---

uint32_t pool_available(const struct pool *p, bool demand)
{
    uint64_t n = pool_count(p, PAGE_FREE) + pool_count(p, PAGE_UNWANTED) + pool_count(p, PAGE_READ);

    return (uint32_t)(n + (demand ? pool_count(p, PAGE_UNREAD) : 0));
}

// Free pages that were used before.
static uint64_t free_touched(const struct pool *p)
{
    return pool_count(p, PAGE_FREE) - (p->n_pages - p->touched);
}

void pool_reserve(struct pool *p, uint32_t n, bool demand)
{
    int last = demand ? PAGE_UNREAD : PAGE_READ;
    struct page *page;

    for (int place = PAGE_UNWANTED; place <= last; place++)
        while (pool_count(p, PAGE_FREE) < n &&
               (page = list_first(&p->places[place], struct page, link)))
            evict(p, page);
    while (free_touched(p) < n && pool_count(p, PAGE_READ) > p->keep &&
           (page = list_first(&p->places[PAGE_READ], struct page, link)))
        evict(p, page);
    assert(pool_count(p, PAGE_FREE) >= n);
}

static uint32_t next_free(const struct pool *p, uint32_t from)
{
    uint32_t word = from / 64, words = (p->n_pages + 63) / 64;
    uint64_t bits = word < words ? p->free[word] & UINT64_MAX << from % 64 : 0;

    while (!bits && ++word < words)
        bits = p->free[word];
    return bits ? word * 64 + (uint32_t)__builtin_ctzll(bits) : NO_PAGE;
}

// One past the free pages that begin at from, at most n of them.
static uint32_t run_end(const struct pool *p, uint32_t from, uint32_t n)
{
    uint32_t end = from;

    while (end < from + n && end < p->n_pages) {
        uint64_t used = ~p->free[end / 64] >> end % 64;
        uint32_t rest = 64 - end % 64;

        if (used)
            return MIN(MIN(end + (uint32_t)__builtin_ctzll(used), from + n), p->n_pages);
        end += rest;
    }
    return MIN(MIN(end, from + n), p->n_pages);
}

uint32_t pool_find_run(const struct pool *p, uint32_t n)
{
    uint32_t first = next_free(p, p->first_free), at = first;
    bool used = free_touched(p) >= n;

    while (at != NO_PAGE && !(used && at + n > p->touched)) {
        uint32_t end = run_end(p, at, n);

        if (end - at == n)
            return at;
        at = next_free(p, end);
    }
    return first;
}

uint32_t pool_take(struct pool *p, uint32_t near, struct cache_extent *x, uint32_t index,
                   uint64_t name)
{
    bool near_good = is_free(p, near) && (near < p->touched || !free_touched(p));
    uint32_t number = near_good ? near : next_free(p, p->first_free);
    struct page *page = &p->pages[number];

    assert(number != NO_PAGE);
    p->free[number / 64] &= ~((uint64_t)1 << number % 64);
    if (number == p->first_free)
        p->first_free++;
    p->touched = MAX(p->touched, number + 1);
    ghost_check(p, name);
    move(p, page, PAGE_BUSY);
    page->extent = x;
    page->index = index;
    page->busy = 1;
    page->valid = page->unread = 0;
    page->unwanted = false;
    page->name = name;
    return number;
}
