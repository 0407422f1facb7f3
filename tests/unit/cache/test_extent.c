// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"
#include "cache/shard.h"

#include <stdlib.h>
#include <string.h>

#define LEN (3 * 64 * 1024 + 5000) // ends within a block

static struct cache *c;
static struct pool pool;
static struct extent_table table;
static struct cache_object *o;
static struct cache_extent *x;
static uint8_t *memory;

static int setup(void **state)
{
    c = xcalloc(1, sizeof(*c) + sizeof(c->shards[0]));
    c->n_shards = 1;
    memory = xcalloc(8, CACHE_PAGE);
    pool_init(&pool, memory, 8, extent_evicted);
    extent_table_init(&table, 8);
    o = cache_object_new(c, "k", 1, "", LEN);
    x = extent_get(&table, o, 0, 0);
    extent_hold(x);
    pool_reserve(&pool, 4, true);
    extent_fill(&pool, x, 0, LEN);
    return 0;
}

static int teardown(void **state)
{
    extent_unpin(&pool, x, 0, LEN);
    for (uint32_t i = 0; i < x->n_pages; i++)
        if (x->pages[i] != NO_PAGE)
            pool_drop(&pool, x->pages[i]);
    extent_let_go(x);
    extent_table_fini(&table);
    pool_fini(&pool);
    cache_object_free(o);
    free(memory);
    free(c);
    return 0;
}

static void land(uint32_t from, uint32_t to)
{
    extent_landed(&pool, x, from, from, to, to);
}

static void is(uint32_t at, enum cover what, uint32_t to)
{
    struct cover_span s = extent_cover(&pool, x, at, LEN);

    assert_int_equal(s.what, what);
    assert_int_equal(s.to, to);
}

static void an_extent_is_found_again_and_is_as_long_as_its_object(void **state)
{
    assert_ptr_equal(extent_find(&table, o, 0), x);
    assert_null(extent_find(&table, o, 1));
    assert_int_equal(x->len, LEN);
    assert_int_equal(x->n_pages, 4);
}

static void whole_blocks_are_remembered_and_parts_are_not(void **state)
{
    is(0, COVER_ABSENT, LEN);
    land(1000, 10000);
    is(0, COVER_ABSENT, 4096);
    is(4096, COVER_HERE, 8192);
    is(8192, COVER_ABSENT, LEN);
}

static void the_last_block_is_whole_when_the_object_ends(void **state)
{
    land(3 * 65536 + 4096, LEN);
    is(3 * 65536 + 4096, COVER_HERE, LEN);
    assert_false(extent_complete(&pool, x));
    land(0, 3 * 65536 + 4096);
    assert_true(extent_complete(&pool, x));
}

static void a_get_covers_its_range_landed_and_coming(void **state)
{
    struct cache_get g = {.from = 1000, .to = 100000, .at = 70000};

    list_push_back(&x->gets, &g.link);
    is(0, COVER_ABSENT, 1000);
    is(1000, COVER_HERE, 70000);
    is(70000, COVER_COMING, 100000);
    is(100000, COVER_ABSENT, LEN);
    list_remove(&g.link);
}

static void iovecs_join_pages_that_lie_side_by_side(void **state)
{
    struct iovec iov[8];

    assert_int_equal(extent_iov(&pool, x, 100, 150000, iov, 8), 1);
    assert_int_equal(iov[0].iov_len, 149900);
    assert_ptr_equal(iov[0].iov_base, memory + 100);
}

static void what_came_ahead_is_unread_until_it_is_read(void **state)
{
    extent_landed(&pool, x, 0, 0, LEN, 8192);
    assert_int_equal(extent_read(&pool, x, 0, 8192), 0);
    assert_int_equal(extent_read(&pool, x, 8192, 8192 + 4096), 4096);
    assert_int_equal(extent_read(&pool, x, 0, LEN), LEN - 8192 - 4096);
    assert_int_equal(extent_read(&pool, x, 0, LEN), 0);
}

static void what_is_unwanted_goes_first(void **state)
{
    extent_landed(&pool, x, 0, 0, LEN, 0);
    extent_unpin(&pool, x, 0, LEN);
    assert_int_equal(pool_count(&pool, PAGE_UNREAD), 4);
    extent_unwant(&pool, x, 0, 65536);
    assert_int_equal(pool_count(&pool, PAGE_UNWANTED), 1);
    pool_reserve(&pool, 5, true);
    assert_int_equal(x->pages[0], NO_PAGE);
    extent_pin(&pool, x, 0, LEN);
    assert_int_equal(counter_read(&table.wasted_bytes), 65536);
}

// Any order of landing, against a map of bytes.
static void cover_agrees_with_a_map(void **state)
{
    static bool here[LEN];
    struct rand r;

    rand_seed(&r, 11);
    memset(here, 0, sizeof(here));
    for (int i = 0; i < 300; i++) {
        uint32_t from = (uint32_t)rand_below(&r, LEN);
        uint32_t to = from + 1 + (uint32_t)rand_below(&r, MIN(LEN - from, 9000));
        uint32_t first = (from + BLOCK - 1) / BLOCK * BLOCK;
        uint32_t end = to == LEN ? LEN : to / BLOCK * BLOCK;

        land(from, to);
        for (uint32_t k = first; k < end; k++)
            here[k] = true;
        for (uint32_t at = (uint32_t)rand_below(&r, 5000); at < LEN;) {
            struct cover_span s = extent_cover(&pool, x, at, LEN);

            assert_true(s.to > at);
            for (uint32_t k = at; k < s.to; k++)
                assert_int_equal(here[k], s.what == COVER_HERE);
            assert_true(s.to == LEN || here[s.to] != here[at]);
            at = s.to;
        }
    }
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_extent_is_found_again_and_is_as_long_as_its_object),
        CASE(whole_blocks_are_remembered_and_parts_are_not),
        CASE(the_last_block_is_whole_when_the_object_ends),
        CASE(a_get_covers_its_range_landed_and_coming),
        CASE(iovecs_join_pages_that_lie_side_by_side),
        CASE(what_came_ahead_is_unread_until_it_is_read),
        CASE(what_is_unwanted_goes_first),
        CASE(cover_agrees_with_a_map),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
