// SPDX-License-Identifier: Apache-2.0
// Fetching objects of which nothing is known into a host's memory.
#include "land_fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool fetched_right(const struct fetch *x, const struct host_memory *m, uint64_t size)
{
    struct s3d_name name;
    char etag[40];

    s3d_name_hash(&name, LAND_BUCKET, x->fetch.key, 0);
    snprintf(etag, sizeof(etag), "\"%s\"", name.etag);
    return x->error == 0 && x->fetch.size == size && !strcmp(x->fetch.etag, etag) &&
           host_memory_holds(m, 0, &fixture.table, name.start, 0, MIN(size, CACHE_EXTENT)) &&
           host_memory_untouched(m, MIN(size, CACHE_EXTENT), m->dest.len);
}

static uint64_t connections(void)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < cache_data_loops(cache); i++)
        n += counter_read(&s3_client_http_stats(cache_s3_client(cache, i))->connections_opened);
    return n;
}

static void an_object_arrives_by_one_get(void **state)
{
    struct host_memory m;
    struct fetch x;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 200 * KIB, 7, true);
    fetch_now(&x, "small", &m);
    assert_true(fetched_right(&x, &m, 100 * KIB));
    host_memory_wipe(&m);
    fetch_now(&x, "one", &m);
    assert_true(fetched_right(&x, &m, 1));
    assert_int_equal(land_gets(), 2);
    assert_int_equal(land_stats().used_bytes, 0);
    host_memory_free(&m);
    land_end();
}

static void a_buffer_of_just_its_size_is_enough(void **state)
{
    struct host_memory m;
    struct fetch x;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 100 * KIB, 3, true);
    fetch_now(&x, "small", &m);
    assert_true(fetched_right(&x, &m, 100 * KIB));
    host_memory_free(&m);
    land_end();
}

static void an_empty_object_is_empty_and_no_error(void **state)
{
    static const uint64_t rooms[] = {1, 1 * MIB, CACHE_EXTENT + 1};

    land_begin(32 * MIB, 2, "");
    for (size_t i = 0; i < ARRAY_LEN(rooms); i++) {
        struct host_memory m;
        struct fetch x;

        host_memory_new(&m, rooms[i], 1, true);
        fetch_now(&x, "empty", &m);
        assert_true(fetched_right(&x, &m, 0));
        host_memory_free(&m);
    }
    land_end();
}

static void of_a_large_object_the_first_extent_lands_and_its_size_is_told(void **state)
{
    struct host_memory m;
    struct fetch x;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, BIG, 3, true);
    fetch_now(&x, "big", &m);
    assert_true(fetched_right(&x, &m, BIG));
    host_memory_wipe(&m);
    fetch_now(&x, "small", &m);
    assert_true(fetched_right(&x, &m, 100 * KIB));
    assert_int_equal(land_gets(), 2);
    host_memory_free(&m);
    land_end();
}

static void an_object_that_is_too_large_tells_its_size(void **state)
{
    struct host_memory m;
    struct fetch x;

    land_begin(32 * MIB, 1, "");
    host_memory_new(&m, 4095, 1, true);
    assert_int_equal(fetch_now(&x, "big", &m), -EFBIG);
    assert_int_equal(x.fetch.size, BIG);
    // of a small one the body is received and thrown away: the connection stays
    assert_int_equal(fetch_now(&x, "page", &m), -EFBIG);
    assert_int_equal(x.fetch.size, 4 * KIB);
    assert_int_equal(fetch_now(&x, "page", &m), -EFBIG);
    assert_int_equal(connections(), 2);
    assert_int_equal(land_gets(), 3);
    assert_true(host_memory_untouched(&m, 0, 4095));
    host_memory_free(&m);
    host_memory_new(&m, 10 * MIB, 1, true);
    assert_int_equal(fetch_now(&x, "mid", &m), -EFBIG);
    assert_int_equal(x.fetch.size, 12 * MIB);
    host_memory_free(&m);
    land_end();
}

static void no_room_at_all_fits_an_empty_object_only(void **state)
{
    struct host_memory m;
    struct fetch x;

    land_begin(32 * MIB, 1, "");
    host_memory_new(&m, 1, 1, true);
    m.dest.len = 0;
    assert_int_equal(fetch_now(&x, "empty", &m), 0);
    assert_int_equal(fetch_now(&x, "one", &m), -EFBIG);
    host_memory_free(&m);
    land_end();
}

static void a_key_that_is_not_there_is_not_there(void **state)
{
    struct host_memory m;
    struct fetch x;

    land_begin(32 * MIB, 2, "");
    host_memory_new(&m, 1 * MIB, 1, true);
    assert_int_equal(fetch_now(&x, "nothing", &m), -ENOENT);
    assert_int_equal(fetch_now(&x, "small/", &m), -ENOENT);
    assert_true(host_memory_untouched(&m, 0, 1 * MIB));
    host_memory_free(&m);
    land_end();
}

static void a_late_one_is_asked_for_twice_and_lands_once(void **state)
{
    struct host_memory m;
    uint64_t before, gets;
    struct fetch x;

    s3_fixture_reconnect(
        &fixture, (struct s3_settings){.bucket = LAND_BUCKET, .retry_timeout_ns = 20 * NS_PER_S});
    land_begin(32 * MIB, 1, "GET land/s07 nth=1 delay 3s\n");
    host_memory_new(&m, 1 * MIB, 3, true);
    for (int i = 0; i < 150; i++)
        assert_int_equal(fetch_now(&x, "small", &m), 0);
    host_memory_wipe(&m);
    gets = land_gets(); // 150, and a few where the machine was slow
    before = clock_monotonic_ns();
    fetch_now(&x, "s07", &m);
    assert_true(fetched_right(&x, &m, 100 * KIB));
    assert_true(clock_monotonic_ns() - before < 2 * NS_PER_S);
    assert_int_equal(land_gets() - gets, 2);
    host_memory_free(&m);
    land_end();
}

static void a_fence_cuts_a_fetch_off(void **state)
{
    struct host_memory m;
    struct fetch x;

    land_begin(32 * MIB, 2, "GET * nth=1 stall 50% 150ms\n");
    host_memory_new(&m, 12 * MIB, 3, true);
    fetch_start(&x, "mid", &m);
    usleep(50000);
    atomic_store(&m.dest.cut, true);
    fence_now();
    host_memory_wipe(&m);
    usleep(200000);
    assert_true(host_memory_untouched(&m, 0, 12 * MIB));
    assert_int_equal(fetch_wait(&x), -ECANCELED);
    host_memory_free(&m);
    land_end();
}

static void a_cancelled_fetch_writes_nothing_more(void **state)
{
    struct host_memory m;
    struct fetch x;

    land_begin(32 * MIB, 2, "GET * nth=1 stall 50% 5s\n");
    host_memory_new(&m, 1 * MIB, 3, true);
    fetch_start(&x, "small", &m);
    usleep(50000);
    cache_fetch_cancel(&x.fetch);
    assert_int_equal(fetch_wait(&x), -ECANCELED);
    host_memory_wipe(&m);
    usleep(100000);
    assert_true(host_memory_untouched(&m, 0, 1 * MIB));
    host_memory_free(&m);
    land_end();
}

static void a_body_that_breaks_off_is_gone_on_with(void **state)
{
    struct host_memory m;
    struct fetch x;

    land_begin(32 * MIB, 2, "GET * nth=1,3 close 30%\n");
    host_memory_new(&m, 1 * MIB, 3, true);
    fetch_now(&x, "small", &m);
    assert_true(fetched_right(&x, &m, 100 * KIB));
    assert_int_equal(land_gets(), 4);
    host_memory_free(&m);
    land_end();
}

// A length that is wrong, but the same in the head and of the body, is none of these: of a whole
// object nothing else tells its size.
#define FAULTS                                                                                     \
    "seed 11\n"                                                                                    \
    "GET * 4% status 500\n"                                                                        \
    "GET * 4% status 503 SlowDown\n"                                                               \
    "GET * 4% reset head\n"                                                                        \
    "GET * 4% reset 50%\n"                                                                         \
    "GET * 4% close 30%\n"                                                                         \
    "GET * 4% xml200\n"

static void faults_never_reach_a_host(void **state)
{
    struct host_memory m[32];
    struct fetch x[32];
    char keys[32][8];

    land_begin(32 * MIB, 2, FAULTS);
    for (int i = 0; i < 32; i++)
        host_memory_new(&m[i], 150 * KIB, 1 + i % 5, true);
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 32; i++) {
            snprintf(keys[i], sizeof(keys[i]), "s%02d", i);
            host_memory_wipe(&m[i]);
            fetch_start(&x[i], keys[i], &m[i]);
        }
        for (int i = 0; i < 32; i++) {
            assert_int_equal(fetch_wait(&x[i]), 0);
            assert_true(fetched_right(&x[i], &m[i], 100 * KIB));
        }
    }
    for (int i = 0; i < 32; i++)
        host_memory_free(&m[i]);
    land_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_arrives_by_one_get),
        cmocka_unit_test(a_buffer_of_just_its_size_is_enough),
        cmocka_unit_test(an_empty_object_is_empty_and_no_error),
        cmocka_unit_test(of_a_large_object_the_first_extent_lands_and_its_size_is_told),
        cmocka_unit_test(an_object_that_is_too_large_tells_its_size),
        cmocka_unit_test(no_room_at_all_fits_an_empty_object_only),
        cmocka_unit_test(a_key_that_is_not_there_is_not_there),
        cmocka_unit_test(a_fence_cuts_a_fetch_off),
        cmocka_unit_test(a_cancelled_fetch_writes_nothing_more),
        cmocka_unit_test(a_body_that_breaks_off_is_gone_on_with),
        cmocka_unit_test(faults_never_reach_a_host),
        cmocka_unit_test(a_late_one_is_asked_for_twice_and_lands_once),
    };

    return cmocka_run_group_tests(tests, land_fixture_start, land_fixture_stop);
}
