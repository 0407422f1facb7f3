// SPDX-License-Identifier: Apache-2.0
// Landing while the store behaves: what comes directly, what through pages, and that each byte is
// where it belongs and nothing else is touched.
#include "land_fixture.h"

#include <string.h>

static void what_is_absent_is_received_straight_into_the_host(void **state)
{
    struct host_memory m;
    struct object o;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 9 * MIB, 7, true);
    object_open(&o, "big", BIG);
    assert_int_equal(land_now(&o, 8 * MIB, 8 * MIB, &m, 12345), 0);
    assert_true(landed_right(&o, 8 * MIB, 8 * MIB, &m, 12345));
    assert_int_equal(land_gets(), 1);
    assert_int_equal(land_stats().direct_bytes, 8 * MIB);
    assert_int_equal(land_stats().used_bytes, 0);
    assert_int_equal(atomic_load(&m.puts), 0);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void odd_ranges_land_to_the_byte(void **state)
{
    static const struct {
        uint64_t offset;
        uint32_t len;
    } ranges[] = {{0, 1},
                  {1, 4095},
                  {65535, 2},
                  {8 * MIB - 1, 1},
                  {8 * MIB, 100001},
                  {BIG - 1, 1},
                  {BIG - 77777, 77777},
                  {3 * MIB + 1, 1 * MIB}};
    struct host_memory m;
    struct object o;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 2 * MIB, 61, true);
    object_open(&o, "big", BIG);
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++) {
        assert_int_equal(land_now(&o, ranges[i].offset, ranges[i].len, &m, 333), 0);
        assert_true(landed_right(&o, ranges[i].offset, ranges[i].len, &m, 333));
        host_memory_wipe(&m);
    }
    assert_int_equal(land_gets(), ARRAY_LEN(ranges));
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void what_is_here_is_copied_and_not_fetched_again(void **state)
{
    struct host_memory m;
    struct object o;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 3 * MIB, 5, true);
    object_open(&o, "big", BIG);
    for (uint64_t at = 0; at < 3 * MIB; at += 1 * MIB)
        assert_int_equal(read_now(&o, at, 1 * MIB), 0);
    s3d_process_reset_counters(&fixture.server);
    assert_int_equal(land_now(&o, 0, 3 * MIB, &m, 0), 0);
    assert_true(landed_right(&o, 0, 3 * MIB, &m, 0));
    assert_int_equal(land_gets(), 0);
    assert_int_equal(land_stats().direct_bytes, 0);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void what_is_coming_is_waited_for(void **state)
{
    struct host_memory m;
    struct landing x;
    struct object o;

    land_begin(32 * MIB, 2, "GET * nth=1 stall 50% 300ms\n");
    host_memory_new(&m, 8 * MIB, 1, true);
    object_open(&o, "big", BIG);
    cache_prefetch(cache, o.cache, 0, 8 * MIB);
    landing_start(&x, &o, 0, 8 * MIB, &m, 0);
    assert_false(landing_is_done(&x, 100));
    assert_int_equal(landing_wait(&x), 0);
    assert_true(landed_right(&o, 0, 8 * MIB, &m, 0));
    assert_int_equal(land_gets(), 1);
    assert_int_equal(land_stats().direct_bytes, 0);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void a_range_that_is_here_in_part_is_fetched_in_part(void **state)
{
    struct host_memory m;
    struct object o;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 8 * MIB, 3, true);
    object_open(&o, "big", BIG);
    assert_int_equal(read_now(&o, 3 * MIB, 1 * MIB), 0);
    assert_int_equal(read_now(&o, 6 * MIB, 4 * KIB), 0);
    s3d_process_reset_counters(&fixture.server);
    assert_int_equal(land_now(&o, 0, 8 * MIB, &m, 0), 0);
    assert_true(landed_right(&o, 0, 8 * MIB, &m, 0));
    // before and behind the mebibyte; the page behind is not worth a detour
    assert_int_equal(land_gets(), 2);
    assert_int_equal(land_stats().direct_bytes, 7 * MIB);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void readers_of_the_same_bytes_fetch_for_themselves(void **state)
{
    struct host_memory m;
    struct reading r;
    struct landing x;
    struct object o;

    land_begin(32 * MIB, 2, "GET * nth=1 stall 50% 300ms\n");
    host_memory_new(&m, 8 * MIB, 1, true);
    object_open(&o, "big", BIG);
    landing_start(&x, &o, 0, 8 * MIB, &m, 0);
    assert_false(landing_is_done(&x, 100));
    reading_start(&r, &o, 1 * MIB, 1 * MIB);
    assert_int_equal(reading_wait(&r), 0);
    assert_int_equal(landing_wait(&x), 0);
    assert_true(landed_right(&o, 0, 8 * MIB, &m, 0));
    // what has landed is never given to anyone else
    memset(m.base, 0, m.size);
    assert_int_equal(read_now(&o, 0, 1 * MIB), 0);
    assert_int_equal(land_gets(), 3);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void memory_that_is_not_direct_is_written_through_pages(void **state)
{
    struct host_memory m;
    struct object o;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 8 * MIB, 3, false);
    object_open(&o, "big", BIG);
    assert_int_equal(land_now(&o, 8 * MIB, 8 * MIB, &m, 0), 0);
    assert_true(landed_right(&o, 8 * MIB, 8 * MIB, &m, 0));
    assert_true(land_gets() <= 2);
    assert_int_equal(land_stats().direct_bytes, 0);
    assert_int_equal(atomic_load(&m.puts), 8);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void pages_stay_pinned_while_an_engine_copies(void **state)
{
    struct host_memory m;
    struct object o;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 8 * MIB, 3, false);
    m.engine = true;
    object_open(&o, "big", BIG);
    for (uint64_t at = 0; at < BIG; at += 8 * MIB) {
        assert_int_equal(land_now(&o, at, 8 * MIB, &m, 0), 0);
        assert_true(landed_right(&o, at, 8 * MIB, &m, 0));
        host_memory_wipe(&m);
    }
    assert_int_equal(land_stats().pinned_bytes, 0);
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

static void an_end_of_an_object_that_is_not_whole_pages_lands(void **state)
{
    struct host_memory m;
    struct object o;

    land_begin(32 * MIB, 1, "");
    host_memory_new(&m, 100 * KIB, 2, false);
    object_open(&o, "small", 100 * KIB);
    assert_int_equal(land_now(&o, 0, 100 * KIB, &m, 0), 0);
    assert_true(landed_right(&o, 0, 100 * KIB, &m, 0));
    object_close(&o);
    object_open(&o, "one", 1);
    host_memory_wipe(&m);
    assert_int_equal(land_now(&o, 0, 1, &m, 7), 0);
    assert_true(landed_right(&o, 0, 1, &m, 7));
    object_close(&o);
    host_memory_free(&m);
    land_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_absent_is_received_straight_into_the_host),
        cmocka_unit_test(odd_ranges_land_to_the_byte),
        cmocka_unit_test(what_is_here_is_copied_and_not_fetched_again),
        cmocka_unit_test(what_is_coming_is_waited_for),
        cmocka_unit_test(a_range_that_is_here_in_part_is_fetched_in_part),
        cmocka_unit_test(readers_of_the_same_bytes_fetch_for_themselves),
        cmocka_unit_test(memory_that_is_not_direct_is_written_through_pages),
        cmocka_unit_test(pages_stay_pinned_while_an_engine_copies),
        cmocka_unit_test(an_end_of_an_object_that_is_not_whole_pages_lands),
    };

    return cmocka_run_group_tests(tests, land_fixture_start, land_fixture_stop);
}
