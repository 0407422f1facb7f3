// SPDX-License-Identifier: Apache-2.0
#include "world.h"

static struct cache_object *o;

static void begin(uint64_t size, unsigned data_loops)
{
    world_begin(data_loops * 32 * MIB, data_loops);
    o = world_object("a", size);
}

static void finish(void)
{
    cache_object_unref(o);
    world_end();
}

static void pre_reading_is_cut_at_extents(void **state)
{
    begin(1 * GIB, 1);
    cache_prefetch(world, o, 2 * MIB, 16 * MIB);
    fake_wait(3);
    assert_int_equal(fake_offset(0), 2 * MIB);
    assert_int_equal(fake_len(0), 6 * MIB);
    assert_int_equal(fake_len(1), 8 * MIB);
    assert_int_equal(fake_len(2), 2 * MIB);
    assert_false(fake_is_demand(0));
    finish();
}

static void pre_reading_ends_with_the_object(void **state)
{
    begin(3 * MIB + 1, 2);
    cache_prefetch(world, o, 2 * MIB, 1 * GIB);
    assert_int_equal(fake_len(0), 1 * MIB + 1);
    cache_prefetch(world, o, 4 * MIB, 1 * GIB);
    world_settle();
    assert_int_equal(fake_count(), 1);
    finish();
}

static void what_is_there_or_coming_is_not_asked_for_again(void **state)
{
    begin(1 * GIB, 1);
    fake_set_automatic(1 * MIB);
    assert_int_equal(read_now(o, 0, 1 * MIB, NULL), 0);
    fake_set_automatic(0);
    cache_prefetch(world, o, 0, 2 * MIB);
    cache_prefetch(world, o, 0, 3 * MIB);
    cache_prefetch(world, o, 1 * MIB, 2 * MIB);
    fake_wait(3);
    world_settle();
    assert_int_equal(fake_count(), 3);
    assert_int_equal(fake_bytes_asked(), 3 * MIB);
    finish();
}

static void a_reader_raises_the_get_it_waits_for(void **state)
{
    struct reading x = {0};

    begin(1 * GIB, 1);
    cache_prefetch(world, o, 0, 8 * MIB);
    fake_wait(1);
    world_settle();
    assert_false(fake_is_demand(0));
    reading_start(&x, o, 0, 64 * KIB);
    world_settle();
    assert_true(fake_is_demand(0));
    fake_succeed(0, o->size);
    assert_int_equal(reading_wait(&x), 0);
    assert_true(x.r.preread);
    assert_int_equal(fake_count(), 1);
    finish();
}

static void a_reader_does_not_wait_for_what_has_not_started(void **state)
{
    struct reading x = {0};

    world_begin(32 * MIB, 1);
    fake_set_connections(1);
    world_end();
    fake_set_connections(1);
    begin(1 * GIB, 1);
    cache_prefetch(world, o, 0, 24 * MIB);
    fake_wait(1);
    reading_start(&x, o, 9 * MIB, 64 * KIB);
    // the reader's own GET takes the rest of what was wanted there with it
    assert_int_equal(fake_offset(1), 9 * MIB);
    assert_int_equal(fake_len(1), 7 * MIB);
    assert_true(fake_is_demand(1));
    fake_head(1, o->size);
    fake_land(1, 64 * KIB);
    assert_int_equal(reading_wait(&x), 0);
    fake_land(1, 7 * MIB - 64 * KIB);
    fake_finish(1, 0);
    fake_succeed(0, o->size);
    // what is left before it comes next, and nothing twice
    fake_wait(3);
    assert_int_equal(fake_offset(2), 8 * MIB);
    assert_int_equal(fake_len(2), 1 * MIB);
    fake_succeed(2, o->size);
    fake_succeed(3, o->size);
    world_settle();
    assert_int_equal(fake_bytes_asked(), 24 * MIB);
    finish();
}

static void only_so_many_gets_run_ahead(void **state)
{
    fake_set_connections(4);
    begin(1 * GIB, 2);
    for (uint64_t at = 0; at < 64 * MIB; at += 1 * MIB)
        cache_prefetch(world, o, at, 512 * KIB);
    fake_wait(4);
    world_settle();
    assert_int_equal(fake_count(), 4);
    fake_succeed(0, o->size);
    fake_wait(5);
    world_settle();
    assert_int_equal(fake_count(), 5);
    finish();
}

static void a_failed_get_ahead_is_asked_for_again_by_its_reader(void **state)
{
    begin(1 * GIB, 1);
    cache_prefetch(world, o, 0, 1 * MIB);
    fake_wait(1);
    fake_finish(0, -EIO);
    fake_set_automatic(1 * MIB);
    assert_int_equal(read_now(o, 0, 64 * KIB, NULL), 0);
    assert_int_equal(fake_count(), 2);
    finish();
}

static void unwanted_gets_are_cancelled_and_lines_left(void **state)
{
    fake_set_connections(2);
    begin(1 * GIB, 1);
    cache_prefetch(world, o, 0, 32 * MIB);
    fake_wait(2);
    cache_unwant(world, o, 0, 32 * MIB);
    world_settle();
    assert_true(fake_cancelled(0));
    assert_true(fake_cancelled(1));
    world_settle();
    assert_int_equal(fake_count(), 2);
    assert_int_equal(world_stats().used_bytes, 0);
    assert_int_equal(world_stats().extents, 0);
    finish();
}

static void a_get_that_a_reader_waits_for_is_not_cancelled(void **state)
{
    struct reading x = {0};

    begin(1 * GIB, 1);
    cache_prefetch(world, o, 0, 1 * MIB);
    reading_start(&x, o, 0, 64 * KIB);
    cache_unwant(world, o, 0, 1 * GIB);
    world_settle();
    assert_false(fake_cancelled(0));
    fake_succeed(0, o->size);
    assert_int_equal(reading_wait(&x), 0);
    finish();
}

static void a_load_is_done_when_its_head_is_good(void **state)
{
    struct loading l;
    struct reading x = {0};

    begin(100 * KIB, 1);
    loading_start(&l, o, false);
    fake_wait(1);
    assert_true(fake_is_demand(0));
    assert_false(loading_is_done(&l, 20));
    fake_head(0, o->size);
    assert_int_equal(loading_wait(&l), 0);
    reading_start(&x, o, 0, 100 * KIB);
    fake_land(0, 100 * KIB);
    fake_finish(0, 0);
    assert_int_equal(reading_wait(&x), 0);
    assert_true(x.r.preread);
    assert_int_equal(fake_count(), 1);
    finish();
}

static void a_load_of_a_changed_object_is_stale(void **state)
{
    struct loading l;

    begin(100 * KIB, 1);
    loading_start(&l, o, false);
    fake_wait(1);
    fake_finish(0, -ESTALE);
    assert_int_equal(loading_wait(&l), -ESTALE);
    assert_true(atomic_load(&o->stale));
    finish();
}

static void a_load_of_what_is_there_is_done_without_a_get(void **state)
{
    struct loading l;

    begin(100 * KIB, 1);
    fake_set_automatic(1 * MIB);
    loading_start(&l, o, false);
    assert_int_equal(loading_wait(&l), 0);
    assert_int_equal(read_now(o, 0, 100 * KIB, NULL), 0);
    loading_start(&l, o, false);
    assert_int_equal(loading_wait(&l), 0);
    loading_start(&l, o, true);
    assert_int_equal(loading_wait(&l), 0);
    assert_int_equal(fake_count(), 1);
    finish();
}

static void two_loads_share_a_get(void **state)
{
    struct loading l, m;

    begin(100 * KIB, 1);
    loading_start(&l, o, true);
    loading_start(&m, o, false);
    fake_wait(1);
    world_settle();
    assert_true(fake_is_demand(0));
    fake_head(0, o->size);
    assert_int_equal(loading_wait(&m), 0);
    assert_false(loading_is_done(&l, 20));
    fake_land(0, 100 * KIB);
    fake_finish(0, 0);
    assert_int_equal(loading_wait(&l), 0);
    assert_int_equal(fake_count(), 1);
    finish();
}

static void a_background_load_that_is_given_up_says_so(void **state)
{
    struct loading l;

    begin(100 * KIB, 1);
    loading_start(&l, o, true);
    fake_wait(1);
    cache_unwant(world, o, 0, o->size);
    assert_int_equal(loading_wait(&l), -ECANCELED);
    finish();
}

static void a_background_load_reports_an_error(void **state)
{
    struct loading l;

    begin(100 * KIB, 1);
    loading_start(&l, o, true);
    fake_wait(1);
    fake_finish(0, -ENOENT);
    assert_int_equal(loading_wait(&l), -ENOENT);
    assert_true(atomic_load(&o->stale));
    finish();
}

static void pre_read_bytes_are_counted_as_used_or_wasted(void **state)
{
    begin(1 * GIB, 1);
    fake_set_automatic(1 * MIB);
    cache_prefetch(world, o, 0, 2 * MIB);
    fake_wait(1);
    assert_int_equal(read_now(o, 0, 1 * MIB, NULL), 0);
    world_settle();
    assert_int_equal(world_stats().preread_bytes, 2 * MIB);
    assert_int_equal(world_stats().preread_used_bytes, 1 * MIB);
    cache_object_unref(o);
    world_settle();
    assert_int_equal(world_stats().preread_wasted_bytes, 1 * MIB);
    world_end();
}

static void closing_cancels_what_runs_ahead(void **state)
{
    begin(1 * GIB, 2);
    cache_prefetch(world, o, 0, 64 * MIB);
    fake_wait(4);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pre_reading_is_cut_at_extents),
        cmocka_unit_test(pre_reading_ends_with_the_object),
        cmocka_unit_test(what_is_there_or_coming_is_not_asked_for_again),
        cmocka_unit_test(a_reader_raises_the_get_it_waits_for),
        cmocka_unit_test(a_reader_does_not_wait_for_what_has_not_started),
        cmocka_unit_test(only_so_many_gets_run_ahead),
        cmocka_unit_test(a_failed_get_ahead_is_asked_for_again_by_its_reader),
        cmocka_unit_test(unwanted_gets_are_cancelled_and_lines_left),
        cmocka_unit_test(a_get_that_a_reader_waits_for_is_not_cancelled),
        cmocka_unit_test(a_load_is_done_when_its_head_is_good),
        cmocka_unit_test(a_load_of_a_changed_object_is_stale),
        cmocka_unit_test(a_load_of_what_is_there_is_done_without_a_get),
        cmocka_unit_test(two_loads_share_a_get),
        cmocka_unit_test(a_background_load_that_is_given_up_says_so),
        cmocka_unit_test(a_background_load_reports_an_error),
        cmocka_unit_test(pre_read_bytes_are_counted_as_used_or_wasted),
        cmocka_unit_test(closing_cancels_what_runs_ahead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
