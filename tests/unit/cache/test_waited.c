// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "cache/waited.h"

static struct cache_waited w;

static int begin(void **state)
{
    w = (struct cache_waited){0};
    return 0;
}

static void a_request_sent_by_its_reader_is_split_where_it_was_sent_and_answered(void **state)
{
    struct cache_asked a = {.sent_ns = 110, .first_byte_ns = 140, .on_demand = true};

    cache_waited_bytes(&w, &a, 100, 200);
    assert_int_equal(w.begun_ns, 100);
    assert_int_equal(w.ended_ns, 200);
    assert_int_equal(w.ns[CACHE_WAIT_CONNECTION], 10);
    assert_int_equal(w.ns[CACHE_WAIT_FIRST_BYTE], 30);
    assert_int_equal(w.ns[CACHE_WAIT_BODY], 60);
    assert_int_equal(w.ns[CACHE_WAIT_MEMORY], 0);
    assert_memory_equal(w.ns, w.late_ns, sizeof(w.ns));
}

static void what_came_long_before_its_reader_is_not_late(void **state)
{
    struct cache_asked a = {.sent_ns = 1000, .first_byte_ns = 1500};

    cache_waited_bytes(&w, &a, 2000, 2100);
    assert_int_equal(w.ns[CACHE_WAIT_BODY], 100);
    assert_int_equal(w.late_ns[CACHE_WAIT_BODY], 0);
}

static void what_was_sent_just_before_its_reader_came_is_late(void **state)
{
    struct cache_asked a = {.sent_ns = 1990};

    cache_waited_bytes(&w, &a, 2000, 2100);
    assert_int_equal(w.ns[CACHE_WAIT_FIRST_BYTE], 100);
    assert_int_equal(w.late_ns[CACHE_WAIT_FIRST_BYTE], 100);
}

static void a_request_that_somebody_waited_for_from_the_start_is_late_for_all(void **state)
{
    struct cache_asked a = {.sent_ns = 1000, .first_byte_ns = 1900, .on_demand = true};

    cache_waited_bytes(&w, &a, 2000, 2010);
    assert_int_equal(w.late_ns[CACHE_WAIT_BODY], 10);
}

static void a_request_that_never_got_a_connection_waited_for_one(void **state)
{
    struct cache_asked a = {0};

    cache_waited_bytes(&w, &a, 100, 150);
    assert_int_equal(w.ns[CACHE_WAIT_CONNECTION], 50);
    assert_int_equal(w.late_ns[CACHE_WAIT_CONNECTION], 50);
}

static void times_that_cannot_be_count_as_little_as_they_can(void **state)
{
    // answered before it was sent: another attempt's
    struct cache_asked a = {.sent_ns = 150, .first_byte_ns = 120};

    cache_waited_bytes(&w, &a, 100, 200);
    assert_int_equal(w.ns[CACHE_WAIT_CONNECTION], 50);
    assert_int_equal(w.ns[CACHE_WAIT_FIRST_BYTE], 0);
    assert_int_equal(w.ns[CACHE_WAIT_BODY], 50);
    cache_waited_bytes(&w, &a, 300, 300);
    cache_waited_memory(&w, 400, 300);
    assert_int_equal(w.ended_ns, 200);
}

static void waits_one_after_the_other_add_up(void **state)
{
    struct cache_asked a = {.sent_ns = 300, .first_byte_ns = 300, .on_demand = true};

    cache_waited_memory(&w, 100, 200);
    cache_waited_bytes(&w, &a, 300, 350);
    assert_int_equal(w.begun_ns, 100);
    assert_int_equal(w.ended_ns, 350);
    assert_int_equal(w.ns[CACHE_WAIT_MEMORY], 100);
    assert_int_equal(w.late_ns[CACHE_WAIT_MEMORY], 0); // nobody's request was late for it
    assert_int_equal(w.ns[CACHE_WAIT_BODY], 50);
}

static void parts_are_merged_into_their_whole(void **state)
{
    struct cache_waited none = {0}, part = {0};

    cache_waited_memory(&part, 100, 200);
    cache_waited_merge(&w, &none);
    assert_int_equal(w.begun_ns, 0);
    cache_waited_merge(&w, &part);
    cache_waited_merge(&w, &none);
    assert_int_equal(w.begun_ns, 100);
    part = (struct cache_waited){0};
    cache_waited_memory(&part, 50, 150);
    cache_waited_merge(&w, &part);
    assert_int_equal(w.begun_ns, 50);
    assert_int_equal(w.ended_ns, 200);
    assert_int_equal(w.ns[CACHE_WAIT_MEMORY], 200);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
    static const struct CMUnitTest tests[] = {
        TEST(a_request_sent_by_its_reader_is_split_where_it_was_sent_and_answered),
        TEST(what_came_long_before_its_reader_is_not_late),
        TEST(what_was_sent_just_before_its_reader_came_is_late),
        TEST(a_request_that_somebody_waited_for_from_the_start_is_late_for_all),
        TEST(a_request_that_never_got_a_connection_waited_for_one),
        TEST(times_that_cannot_be_count_as_little_as_they_can),
        TEST(waits_one_after_the_other_add_up),
        TEST(parts_are_merged_into_their_whole),
    };

    return cmocka_run_group_tests_name("cache/waited", tests, NULL, NULL);
}
