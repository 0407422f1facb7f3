// SPDX-License-Identifier: Apache-2.0
#include "cache/extent.h"

#include "cache/shard.h"

#include <stdlib.h>

// --- the table ---

void extent_table_init(struct extent_table *t, uint32_t n_pages)
{
    uint32_t size = 64;

    // an extent has at least a page, or a GET under way
    while (size < n_pages && size < (uint32_t)1 << 30)
        size *= 2;
    t->buckets = xcalloc(size, sizeof(struct cache_extent *));
    t->mask = size - 1;
}

void extent_table_fini(struct extent_table *t)
{
    assert(counter_read(&t->count) == 0);
    free(t->buckets);
}

static struct cache_extent **bucket(const struct extent_table *t, const struct cache_object *o,
                                    uint64_t number)
{
    uint64_t hash = (o->id * 0x9e3779b97f4a7c15u) ^ (number * 0xc2b2ae3d27d4eb4fu);

    return &t->buckets[(hash >> 32) & t->mask];
}

struct cache_extent *extent_find(const struct extent_table *t, const struct cache_object *o,
                                 uint64_t number)
{
    struct cache_extent *x = *bucket(t, o, number);

    while (x && (x->object != o || x->number != number))
        x = x->next;
    return x;
}

struct cache_extent *extent_get(struct extent_table *t, struct cache_object *o, unsigned shard,
                                uint64_t number)
{
    struct cache_extent *x = extent_find(t, o, number), **head = bucket(t, o, number);
    uint32_t len = (uint32_t)MIN(CACHE_EXTENT, o->size - number * CACHE_EXTENT);
    uint32_t n_pages = page_of(len - 1) + 1;

    if (x)
        return x;
    x = xmalloc(sizeof(*x) + n_pages * sizeof(x->pages[0]));
    *x = (struct cache_extent){
        .next = *head, .table = t, .object = o, .number = number, .len = len, .n_pages = n_pages};
    for (uint32_t i = 0; i < n_pages; i++)
        x->pages[i] = NO_PAGE;
    list_init(&x->gets);
    list_init(&x->wants);
    list_init(&x->loads);
    list_push_back(&o->extents[shard], &x->of_object);
    *head = x;
    counter_add(&t->count, 1);
    return x;
}

void extent_tidy(struct cache_extent *x)
{
    struct extent_table *t = x->table;
    struct cache_extent **at;

    if (x->held || x->resident || !list_empty(&x->gets) || !list_empty(&x->wants) ||
        !list_empty(&x->loads))
        return;
    for (at = bucket(t, x->object, x->number); *at != x; at = &(*at)->next)
        ;
    *at = x->next;
    list_remove(&x->of_object);
    counter_sub(&t->count, 1);
    free(x);
}

// Of the object's bytes, those in these blocks of page i.
static uint32_t bytes_in(const struct cache_extent *x, uint32_t i, uint16_t bits)
{
    uint32_t bytes = (uint32_t)__builtin_popcount(bits) * BLOCK, tail = x->len % BLOCK;
    bool last = tail && i == x->n_pages - 1 && bits >> x->len % CACHE_PAGE / BLOCK & 1;

    return last ? bytes - BLOCK + tail : bytes;
}

void extent_evicted(struct page *page)
{
    struct cache_extent *x = page->extent;

    counter_add(&x->table->wasted_bytes, bytes_in(x, page->index, page->unread));
    x->pages[page->index] = NO_PAGE;
    x->resident--;
    extent_tidy(x);
}

// --- pages ---

uint32_t extent_missing_pages(const struct cache_extent *x, uint32_t from, uint32_t to)
{
    uint32_t missing = 0;

    for (uint32_t i = page_of(from); i <= page_of(to - 1); i++)
        missing += x->pages[i] == NO_PAGE;
    return missing;
}

void extent_pin(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t to)
{
    for (uint32_t i = page_of(from); i <= page_of(to - 1); i++)
        if (x->pages[i] != NO_PAGE)
            pool_pin(p, x->pages[i]);
}

void extent_unpin(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t to)
{
    extent_hold(x);
    for (uint32_t i = page_of(from); i <= page_of(to - 1); i++)
        if (x->pages[i] != NO_PAGE)
            pool_unpin(p, x->pages[i]);
    extent_let_go(x);
}

// Of bytes that a page holds, for pool_take.
static uint64_t page_name(const struct cache_extent *x, uint32_t i)
{
    uint64_t h = x->object->id * 0x9e3779b97f4a7c15u;

    h = (h ^ (h >> 29) ^ (x->number << 8 | i)) * 0xbf58476d1ce4e5b9u;
    return h ^ h >> 32;
}

void extent_fill(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t to)
{
    uint32_t first = page_of(from), near = first > 0 ? x->pages[first - 1] : NO_PAGE;
    uint32_t missing = extent_missing_pages(x, from, to);

    if (!missing)
        return;
    near = near == NO_PAGE ? pool_find_run(p, missing) : near + 1;
    for (uint32_t i = first; i <= page_of(to - 1); i++) {
        if (x->pages[i] == NO_PAGE) {
            x->pages[i] = pool_take(p, near, x, i, page_name(x, i));
            x->resident++;
        }
        near = x->pages[i] + 1;
    }
}

int extent_iov(const struct pool *p, const struct cache_extent *x, uint32_t from, uint32_t to,
               struct iovec *iov, int max)
{
    int n = 0;

    while (from < to) {
        uint32_t in_page = from % CACHE_PAGE;
        uint32_t len = MIN((uint32_t)CACHE_PAGE - in_page, to - from);
        uint8_t *data = (uint8_t *)page_data(p, x->pages[page_of(from)]) + in_page;

        if (n && (uint8_t *)iov[n - 1].iov_base + iov[n - 1].iov_len == data) {
            iov[n - 1].iov_len += len;
        } else {
            if (n == max)
                break;
            iov[n++] = (struct iovec){data, len};
        }
        from += len;
    }
    return n;
}

// --- what is there ---

// The blocks of page i that [from, to) covers wholly; a block ends at the extent's end at the
// latest. touched: also those it covers in part.
static uint16_t blocks(const struct cache_extent *x, uint32_t i, uint32_t from, uint32_t to,
                       bool touched)
{
    uint32_t start = i * (uint32_t)CACHE_PAGE, first, end;

    if (touched) {
        first = from / BLOCK;
        end = (to + BLOCK - 1) / BLOCK;
    } else {
        first = (from + BLOCK - 1) / BLOCK;
        end = to == x->len ? (to + BLOCK - 1) / BLOCK : to / BLOCK;
    }
    first = MAX(first, start / BLOCK) - start / BLOCK;
    end = MIN(end, start / BLOCK + PAGE_BLOCKS);
    end = end > start / BLOCK ? end - start / BLOCK : 0;
    if (end <= first)
        return 0;
    return (uint16_t)(((1u << end) - 1) & ~((1u << first) - 1));
}

static uint16_t valid_bits(const struct pool *p, const struct cache_extent *x, uint32_t i)
{
    return x->pages[i] == NO_PAGE ? 0 : p->pages[x->pages[i]].valid;
}

// From `at` on, blocks are all valid, or all not: up to where, at most end.
static uint32_t same_until(const struct pool *p, const struct cache_extent *x, uint32_t at,
                           uint32_t end, bool valid)
{
    while (at < end) {
        uint32_t block = at % (uint32_t)CACHE_PAGE / BLOCK;
        uint32_t bits = valid_bits(p, x, page_of(at)), run;

        bits = (valid ? ~bits & 0xffff : bits) >> block;
        run = bits ? (uint32_t)__builtin_ctz(bits) : PAGE_BLOCKS - block;
        at = MIN(ALIGN_DOWN(at, BLOCK) + run * BLOCK, end);
        if (bits)
            break;
    }
    return at;
}

struct cover_span extent_cover(const struct pool *p, const struct cache_extent *x, uint32_t at,
                               uint32_t end)
{
    uint32_t next_get = end;
    bool valid;

    list_for_each (link, &x->gets) {
        struct cache_get *g = list_entry(link, struct cache_get, link);

        if (at >= g->from && at < g->at)
            return (struct cover_span){COVER_HERE, MIN(g->at, end), NULL};
        if (at >= g->at && at < g->to)
            return (struct cover_span){COVER_COMING, MIN(g->to, end), g};
        if (g->from > at)
            next_get = MIN(next_get, g->from);
    }
    valid = valid_bits(p, x, page_of(at)) >> at % CACHE_PAGE / BLOCK & 1;
    end = same_until(p, x, at, valid ? end : next_get, valid);
    return (struct cover_span){valid ? COVER_HERE : COVER_ABSENT, end, NULL};
}

bool extent_complete(const struct pool *p, const struct cache_extent *x)
{
    return x->resident == x->n_pages && same_until(p, x, 0, x->len, true) == x->len;
}

void extent_landed(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t before,
                   uint32_t at, uint32_t unread_from)
{
    uint32_t new_from = MAX(ALIGN_DOWN(before, BLOCK), from);

    for (uint32_t i = page_of(before); i <= page_of(at - 1); i++) {
        struct page *page = &p->pages[x->pages[i]];
        uint16_t bits = (uint16_t)(blocks(x, i, new_from, at, false) & ~page->valid);

        page->valid |= bits;
        if (at > unread_from) {
            bits &= blocks(x, i, MAX(unread_from, new_from), at, true);
            page->unread |= bits;
            page->unwanted = false;
        }
    }
}

uint32_t extent_read(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t to)
{
    uint32_t came_ahead = 0;

    for (uint32_t i = page_of(from); i <= page_of(to - 1); i++) {
        struct page *page = &p->pages[x->pages[i]];
        uint16_t bits = blocks(x, i, from, to, true) & page->unread;

        came_ahead += bytes_in(x, i, bits);
        page->unread &= (uint16_t)~bits;
    }
    return came_ahead;
}

void extent_unwant(struct pool *p, struct cache_extent *x, uint32_t from, uint32_t to)
{
    for (uint32_t i = page_of(from); i <= page_of(to - 1); i++) {
        struct page *page = x->pages[i] == NO_PAGE ? NULL : &p->pages[x->pages[i]];

        if (!page || !page->unread || (page->unread & ~blocks(x, i, from, to, true)))
            continue;
        page->unwanted = true;
        pool_settle(p, page);
    }
}
