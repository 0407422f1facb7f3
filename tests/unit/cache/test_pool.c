// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"
#include "cache/pool.h"

#include <stdlib.h>
#include <string.h>

#define PAGES 200

static struct pool p;
static uint32_t gone[PAGES * 4], n_gone;

static void evicted(struct page *page)
{
    gone[n_gone++] = page->index;
}

static int setup(void **state)
{
    n_gone = 0;
    pool_init(&p, NULL, PAGES, evicted);
    return 0;
}

static int teardown(void **state)
{
    pool_fini(&p);
    return 0;
}

// Takes a page, named by index, that ends in the given place.
static uint32_t page_in(enum page_place place, uint32_t index)
{
    uint32_t number = pool_take(&p, NO_PAGE, NULL, index, index);
    struct page *page = &p.pages[number];

    page->valid = 0xffff;
    page->unread = place == PAGE_READ ? 0 : 0xffff;
    page->unwanted = place == PAGE_UNWANTED;
    pool_unpin(&p, number);
    assert_int_equal(page->place, place);
    return number;
}

static void all_pages_can_be_taken_and_no_more(void **state)
{
    for (uint32_t i = 0; i < PAGES; i++)
        pool_take(&p, NO_PAGE, NULL, i, i);
    assert_int_equal(pool_available(&p, true), 0);
    assert_int_equal(pool_count(&p, PAGE_BUSY), PAGES);
}

static void pages_taken_one_after_the_other_lie_side_by_side(void **state)
{
    uint32_t at = pool_take(&p, pool_find_run(&p, 16), NULL, 0, 0);

    for (uint32_t i = 1; i < 16; i++)
        assert_int_equal(pool_take(&p, at + i, NULL, i, i), at + i);
}

static void a_run_is_found_behind_smaller_holes(void **state)
{
    uint32_t pages[PAGES];

    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = pool_take(&p, NO_PAGE, NULL, i, i);
    for (uint32_t i = 0; i < 60; i += 2)
        pool_unpin(&p, pages[i]);
    for (uint32_t i = 100; i < 180; i++)
        pool_unpin(&p, pages[i]);
    assert_int_equal(pool_find_run(&p, 80), 100);
    assert_int_equal(pool_find_run(&p, 1), 0);
    assert_int_equal(pool_find_run(&p, 81), 0);
}

static void a_page_without_valid_bytes_is_free_at_once(void **state)
{
    uint32_t number = pool_take(&p, NO_PAGE, NULL, 7, 7);

    pool_unpin(&p, number);
    assert_int_equal(p.pages[number].place, PAGE_FREE);
    assert_int_equal(gone[0], 7);
}

static void a_pinned_page_stays(void **state)
{
    uint32_t number = page_in(PAGE_READ, 1);

    pool_pin(&p, number);
    assert_int_equal(pool_available(&p, true), PAGES - 1);
    pool_reserve(&p, PAGES - 1, true);
    assert_int_equal(n_gone, 0);
    pool_unpin(&p, number);
    assert_int_equal(pool_available(&p, true), PAGES);
}

static void unwanted_goes_before_read_before_unread(void **state)
{
    page_in(PAGE_UNREAD, 1);
    page_in(PAGE_READ, 2);
    page_in(PAGE_UNWANTED, 3);
    page_in(PAGE_READ, 4);
    pool_reserve(&p, PAGES, true);
    assert_int_equal(n_gone, 4);
    assert_int_equal(gone[0], 3);
    assert_int_equal(gone[1], 2);
    assert_int_equal(gone[2], 4);
    assert_int_equal(gone[3], 1);
}

static void what_was_used_again_goes_later(void **state)
{
    uint32_t first = page_in(PAGE_READ, 1);

    page_in(PAGE_READ, 2);
    pool_pin(&p, first);
    pool_unpin(&p, first);
    pool_reserve(&p, PAGES - 1, true);
    assert_int_equal(gone[0], 2);
    assert_int_equal(n_gone, 1);
}

static void pre_reading_does_not_evict_what_nobody_has_read(void **state)
{
    page_in(PAGE_UNREAD, 1);
    page_in(PAGE_READ, 2);
    assert_int_equal(pool_available(&p, false), PAGES - 1);
    pool_reserve(&p, PAGES - 1, false);
    assert_int_equal(n_gone, 1);
    assert_int_equal(gone[0], 2);
}

// Takes it for what was named so, and has it read.
static void read_through(uint64_t name)
{
    uint32_t number;

    pool_reserve(&p, 1, true);
    number = pool_take(&p, NO_PAGE, NULL, 0, name);
    p.pages[number].valid = 1;
    pool_unpin(&p, number);
    n_gone = 0;
}

static void what_was_read_makes_room_before_new_memory_is_touched(void **state)
{
    for (uint64_t i = 0; i < 1000; i++)
        read_through(i << 32 | i);
    assert_in_range(p.touched, PAGES / 4, PAGES / 4 + 2);
}

static void scattered_pages_that_were_used_come_before_a_new_run(void **state)
{
    uint32_t pages[20];

    for (uint32_t i = 0; i < 20; i++)
        pages[i] = pool_take(&p, NO_PAGE, NULL, i, i);
    for (uint32_t i = 1; i < 20; i += 2)
        pool_unpin(&p, pages[i]);
    assert_int_equal(pool_find_run(&p, 8), pages[1]);
    for (uint32_t i = 0, at = NO_PAGE; i < 10; i++)
        at = pool_take(&p, at + 1, NULL, i, i);
    assert_int_equal(p.touched, 20);
}

static void what_is_asked_for_again_and_would_fit_is_kept(void **state)
{
    for (int round = 0; round < 4; round++)
        for (uint64_t i = 0; i < PAGES * 3 / 4; i++)
            read_through(i << 32 | i);
    assert_in_range(pool_count(&p, PAGE_READ), PAGES * 3 / 4 - 2, PAGES * 3 / 4 + 2);
}

static void what_would_not_fit_anyway_is_not(void **state)
{
    for (int round = 0; round < 4; round++)
        for (uint64_t i = 0; i < PAGES * 3; i++)
            read_through(i << 32 | i);
    assert_in_range(p.touched, PAGES / 4, PAGES / 4 + 2);
}

static void random_use_keeps_the_counts(void **state)
{
    struct rand r;
    uint32_t held[PAGES], n = 0;

    rand_seed(&r, 5);
    for (int i = 0; i < 20000; i++) {
        uint64_t total = 0;

        if (rand_below(&r, 2) && pool_available(&p, true)) {
            pool_reserve(&p, 1, true);
            held[n++] = pool_take(&p, (uint32_t)rand_below(&r, PAGES), NULL, 0, 0);
        } else if (n) {
            uint32_t k = (uint32_t)rand_below(&r, n);

            p.pages[held[k]].valid = (uint16_t)rand_below(&r, 3);
            p.pages[held[k]].unread = p.pages[held[k]].valid & 1;
            pool_unpin(&p, held[k]);
            held[k] = held[--n];
        }
        n_gone = 0;
        for (int place = 0; place < PAGE_PLACES; place++)
            total += pool_count(&p, place);
        assert_int_equal(total, PAGES);
        assert_int_equal(pool_count(&p, PAGE_BUSY), n);
    }
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_pages_can_be_taken_and_no_more),
        CASE(pages_taken_one_after_the_other_lie_side_by_side),
        CASE(a_run_is_found_behind_smaller_holes),
        CASE(a_page_without_valid_bytes_is_free_at_once),
        CASE(a_pinned_page_stays),
        CASE(unwanted_goes_before_read_before_unread),
        CASE(what_was_used_again_goes_later),
        CASE(pre_reading_does_not_evict_what_nobody_has_read),
        CASE(what_was_read_makes_room_before_new_memory_is_touched),
        CASE(scattered_pages_that_were_used_come_before_a_new_run),
        CASE(what_is_asked_for_again_and_would_fit_is_kept),
        CASE(what_would_not_fit_anyway_is_not),
        CASE(random_use_keeps_the_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
