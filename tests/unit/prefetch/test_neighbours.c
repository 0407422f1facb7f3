// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "base/rand.h"
#include "prefetch/neighbours.h"
#include "prefetch/whole.h"

#include <string.h>

#define FILES 5000

static struct neighbours n;
static uint64_t now_ns;
static uint8_t asked[FILES];
static unsigned fetched;

static void begin(void)
{
    neighbours_init(&n);
    now_ns = NS_PER_S;
    fetched = 0;
    memset(asked, 0, sizeof(asked));
}

static uint32_t open_file(uint32_t position, unsigned pressure)
{
    uint32_t first = 0, count = neighbours_open(&n, position, FILES, now_ns, pressure, &first);

    for (uint32_t i = 0; i < count; i++) {
        assert_true(first + i < FILES);
        assert_false(asked[first + i]);
        asked[first + i] = 1;
    }
    fetched += count;
    return count;
}

static void files_opened_in_order_are_run_ahead_of(void **state)
{
    unsigned late = 0;

    begin();
    for (uint32_t i = 0; i < FILES; i++) {
        late += !asked[i];
        open_file(i, 0);
        now_ns += NS_PER_MS;
        neighbours_fetched(&n, 10 * NS_PER_MS);
    }
    assert_true(late < 8);
}

static void as_many_as_the_rate_needs(void **state)
{
    begin();
    for (uint32_t i = 0; i < 1000; i++) {
        open_file(i, 0);
        now_ns += NS_PER_MS;
        neighbours_fetched(&n, 10 * NS_PER_MS);
    }
    // 10 ms at 1 ms each, doubled for safety
    assert_in_range(fetched, 1000 + 10, 1000 + 30);
}

static void a_slow_reader_needs_few(void **state)
{
    begin();
    for (uint32_t i = 0; i < 100; i++) {
        open_file(i, 0);
        now_ns += 100 * NS_PER_MS;
        neighbours_fetched(&n, 10 * NS_PER_MS);
    }
    assert_true(fetched <= 104);
}

static void threads_that_take_turns_are_in_order(void **state)
{
    static const uint32_t order[] = {3, 0, 1, 2, 5, 7, 4, 6};
    unsigned late = 0;

    begin();
    for (uint32_t i = 0; i < FILES - 8; i += 8) {
        for (int k = 0; k < 8; k++) {
            late += !asked[i + order[k]];
            open_file(i + order[k], 0);
            now_ns += NS_PER_MS;
            neighbours_fetched(&n, 10 * NS_PER_MS);
        }
    }
    assert_true(late < 24);
}

static void random_opens_fetch_next_to_nothing(void **state)
{
    struct rand r;

    begin();
    rand_seed(&r, 3);
    for (int i = 0; i < 5000; i++)
        open_file((uint32_t)rand_below(&r, FILES), 0);
    assert_true(fetched < 50);
}

static void every_twentieth_file_is_not_in_order(void **state)
{
    begin();
    for (uint32_t i = 0; i < FILES; i += 20)
        open_file(i, 0);
    assert_int_equal(fetched, 0);
}

static void every_fifth_file_is_too_thin(void **state)
{
    begin();
    for (uint32_t i = 0; i < FILES; i += 5)
        open_file(i, 0);
    assert_true(fetched <= 8);
}

static void a_full_pool_stops_it(void **state)
{
    begin();
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(open_file(i, 100), 0);
}

static void a_run_that_begins_elsewhere_is_followed(void **state)
{
    begin();
    for (uint32_t i = 0; i < 100; i++)
        open_file(i, 0);
    fetched = 0;
    for (uint32_t i = 3000; i < 3100; i++)
        open_file(i, 0);
    assert_true(fetched >= 90);
    assert_true(asked[3099]);
}

static void one_stray_open_does_not_end_a_run(void **state)
{
    begin();
    for (uint32_t i = 0; i < 100; i++)
        open_file(i, 0);
    open_file(4000, 0);
    fetched = 0;
    open_file(100, 0);
    open_file(101, 0);
    assert_true(fetched >= 1);
}

static void a_small_object_is_loaded_at_open(void **state)
{
    struct whole w;

    assert_true(whole_open(&w, 1, false));
    assert_true(whole_open(&w, WHOLE_MAX, false));
    assert_false(whole_read(&w, 0));
}

static void an_object_beyond_one_extent_or_empty_is_not(void **state)
{
    struct whole w;

    assert_false(whole_open(&w, WHOLE_MAX + 1, false));
    assert_false(w.applies);
    assert_false(whole_open(&w, 0, false));
    assert_false(w.applies);
}

static void pages_the_kernel_has_are_fetched_only_when_it_asks(void **state)
{
    struct whole w;

    assert_false(whole_open(&w, 1000, true));
    assert_true(w.applies);
    assert_false(whole_read(&w, 95));
    assert_true(whole_read(&w, 0));
    assert_false(whole_read(&w, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_opened_in_order_are_run_ahead_of),
        cmocka_unit_test(as_many_as_the_rate_needs),
        cmocka_unit_test(a_slow_reader_needs_few),
        cmocka_unit_test(threads_that_take_turns_are_in_order),
        cmocka_unit_test(random_opens_fetch_next_to_nothing),
        cmocka_unit_test(every_twentieth_file_is_not_in_order),
        cmocka_unit_test(every_fifth_file_is_too_thin),
        cmocka_unit_test(a_full_pool_stops_it),
        cmocka_unit_test(a_run_that_begins_elsewhere_is_followed),
        cmocka_unit_test(one_stray_open_does_not_end_a_run),
        cmocka_unit_test(a_small_object_is_loaded_at_open),
        cmocka_unit_test(an_object_beyond_one_extent_or_empty_is_not),
        cmocka_unit_test(pages_the_kernel_has_are_fetched_only_when_it_asks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
