// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <stdlib.h>
#include <string.h>

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

static void a_read_fetches_exactly_its_bytes(void **state)
{
    struct reading x = {0};

    begin(1 * GIB, 1);
    reading_start(&x, o, 12345, 6789);
    assert_int_equal(fake_offset(0), 12345);
    assert_int_equal(fake_len(0), 6789);
    assert_true(fake_is_demand(0));
    fake_succeed(0, o->size);
    assert_int_equal(reading_wait(&x), 0);
    assert_false(x.r.hit);
    assert_int_equal(fake_count(), 1);
    finish();
}

static void bytes_that_are_there_are_not_fetched_again(void **state)
{
    bool hit;

    begin(1 * GIB, 1);
    fake_set_automatic(100000);
    assert_int_equal(read_now(o, 1 * MIB, 128 * KIB, NULL), 0);
    assert_int_equal(read_now(o, 1 * MIB + 5000, 100000, &hit), 0);
    assert_true(hit);
    assert_int_equal(fake_count(), 1);
    finish();
}

static void only_the_gap_is_fetched(void **state)
{
    begin(1 * GIB, 1);
    fake_set_automatic(1 * MIB);
    assert_int_equal(read_now(o, 0, 64 * KIB, NULL), 0);
    assert_int_equal(read_now(o, 128 * KIB, 64 * KIB, NULL), 0);
    assert_int_equal(read_now(o, 0, 192 * KIB, NULL), 0);
    assert_int_equal(fake_count(), 3);
    assert_int_equal(fake_offset(2), 64 * KIB);
    assert_int_equal(fake_len(2), 64 * KIB);
    finish();
}

static void parts_of_a_page_are_fetched_and_remembered(void **state)
{
    begin(1 * GIB, 1);
    fake_set_automatic(1 * MIB);
    assert_int_equal(read_now(o, 8 * KIB, 4 * KIB, NULL), 0);
    assert_int_equal(read_now(o, 16 * KIB, 4 * KIB, NULL), 0);
    assert_int_equal(read_now(o, 8 * KIB, 12 * KIB, NULL), 0);
    assert_int_equal(fake_bytes_asked(), 12 * KIB);
    finish();
}

static void unaligned_edges_around_valid_bytes_are_both_fetched_once(void **state)
{
    struct reading x = {0};

    begin(1 * GIB, 1);
    fake_set_automatic(1 * MIB);
    assert_int_equal(read_now(o, 4 * KIB, 4 * KIB, NULL), 0);
    fake_set_automatic(0);
    reading_start(&x, o, 1000, 9000);
    fake_wait(3);
    // the later one first: its bytes wait for the other's
    fake_succeed(2, o->size);
    fake_succeed(1, o->size);
    assert_int_equal(reading_wait(&x), 0);
    assert_int_equal(fake_count(), 3);
    finish();
}

static void many_gaps_in_one_read_are_all_fetched(void **state)
{
    begin(1 * GIB, 1);
    fake_set_automatic(1 * MIB);
    for (uint64_t at = 0; at < 1 * MIB; at += 64 * KIB)
        assert_int_equal(read_now(o, at, 4 * KIB, NULL), 0);
    assert_int_equal(read_now(o, 1, 1 * MIB - 2, NULL), 0);
    assert_int_equal(fake_bytes_asked(), 1 * MIB - 2 + 1);
    finish();
}

static void the_last_byte_of_an_object_is_read(void **state)
{
    bool hit;

    begin(8 * MIB + 100, 1);
    fake_set_automatic(1 * MIB);
    assert_int_equal(read_now(o, 8 * MIB, 100, NULL), 0);
    assert_int_equal(read_now(o, 8 * MIB + 99, 1, &hit), 0);
    assert_true(hit);
    finish();
}

static void a_reader_is_answered_before_the_get_ends(void **state)
{
    struct reading x = {0}, y = {0};

    begin(1 * GIB, 1);
    cache_prefetch(world, o, 0, 4 * MIB);
    reading_start(&x, o, 0, 128 * KIB);
    reading_start(&y, o, 128 * KIB, 128 * KIB);
    fake_head(0, o->size);
    fake_land(0, 130 * KIB);
    assert_int_equal(reading_wait(&x), 0);
    assert_false(reading_is_done(&y, 20));
    fake_land(0, 126 * KIB);
    assert_int_equal(reading_wait(&y), 0);
    assert_int_equal(fake_count(), 1);
    fake_land(0, 4 * MIB - 256 * KIB);
    fake_finish(0, 0);
    finish();
}

static void two_readers_of_the_same_bytes_cause_one_get(void **state)
{
    struct reading x = {0}, y = {0};

    begin(1 * GIB, 1);
    reading_start(&x, o, 0, 1 * MIB);
    reading_start(&y, o, 0, 1 * MIB);
    fake_succeed(0, o->size);
    assert_int_equal(reading_wait(&x), 0);
    assert_int_equal(reading_wait(&y), 0);
    assert_int_equal(fake_count(), 1);
    finish();
}

static void a_read_across_two_extents_of_one_loop(void **state)
{
    begin(1 * GIB, 1);
    fake_set_automatic(300000);
    assert_int_equal(read_now(o, 8 * MIB - 500000, 1 * MIB, NULL), 0);
    assert_int_equal(fake_count(), 2);
    finish();
}

static void reads_across_extents_of_several_loops(void **state)
{
    begin(1 * GIB, 3);
    fake_set_automatic(300000);
    // whichever loop comes first
    for (uint64_t n = 1; n < 8; n++)
        assert_int_equal(read_now(o, n * 8 * MIB - 333333, 1 * MIB, NULL), 0);
    world_settle();
    assert_int_equal(world_stats().pinned_bytes, 0);
    finish();
}

static void both_loops_of_a_read_fetch_at_the_same_time(void **state)
{
    struct reading x = {0};

    begin(1 * GIB, 2);
    reading_start(&x, o, 8 * MIB - 1000, 5000);
    fake_wait(2);
    fake_succeed(1, o->size);
    fake_succeed(0, o->size);
    assert_int_equal(reading_wait(&x), 0);
    assert_int_equal(fake_count(), 2);
    assert_in_range(fake_bytes_asked(), 5000, 5000 + 4 * KIB);
    finish();
}

static void an_error_reaches_the_reader(void **state)
{
    struct reading x = {0};

    begin(1 * GIB, 1);
    reading_start(&x, o, 0, 4 * KIB);
    fake_wait(1);
    fake_finish(0, -EACCES);
    assert_int_equal(reading_wait(&x), -EACCES);
    assert_int_equal(world_stats().used_bytes, 0);
    finish();
}

static void a_broken_get_keeps_what_has_landed(void **state)
{
    struct reading x = {0}, y = {0};
    bool hit;

    begin(1 * GIB, 1);
    cache_prefetch(world, o, 0, 1 * MIB);
    reading_start(&x, o, 0, 64 * KIB);
    reading_start(&y, o, 512 * KIB, 64 * KIB);
    fake_head(0, o->size);
    fake_land(0, 300 * KIB);
    assert_int_equal(reading_wait(&x), 0);
    fake_finish(0, -EIO);
    assert_int_equal(reading_wait(&y), -EIO);
    assert_int_equal(read_now(o, 200 * KIB, 100 * KIB, &hit), 0);
    assert_true(hit);
    finish();
}

static void another_version_marks_the_object_stale(void **state)
{
    struct reading x = {0};

    begin(1 * GIB, 1);
    reading_start(&x, o, 0, 4 * KIB);
    fake_wait(1);
    fake_finish(0, -ESTALE);
    assert_int_equal(reading_wait(&x), -ESTALE);
    assert_true(atomic_load(&o->stale));
    finish();
}

static void another_size_is_another_version(void **state)
{
    struct reading x = {0};

    begin(1 * GIB, 1);
    reading_start(&x, o, 0, 4 * KIB);
    fake_head(0, o->size - 1);
    assert_int_equal(reading_wait(&x), -ESTALE);
    assert_true(atomic_load(&o->stale));
    finish();
}

static void a_cancelled_read_ends_and_so_does_its_get(void **state)
{
    struct reading x = {0};

    begin(1 * GIB, 1);
    reading_start(&x, o, 0, 1 * MIB);
    fake_wait(1);
    cache_read_cancel(&x.r);
    assert_int_equal(reading_wait(&x), -ECANCELED);
    assert_true(fake_cancelled(0));
    finish();
}

static void a_get_goes_on_when_another_reader_wants_it(void **state)
{
    struct reading x = {0}, y = {0};

    begin(1 * GIB, 1);
    reading_start(&x, o, 0, 1 * MIB);
    reading_start(&y, o, 0, 64 * KIB);
    fake_wait(1);
    world_settle();
    cache_read_cancel(&x.r);
    assert_int_equal(reading_wait(&x), -ECANCELED);
    assert_false(fake_cancelled(0));
    fake_succeed(0, o->size);
    assert_int_equal(reading_wait(&y), 0);
    finish();
}

static void a_get_goes_on_when_most_of_it_has_landed(void **state)
{
    struct reading x = {0};

    begin(1 * GIB, 1);
    reading_start(&x, o, 0, 1 * MIB);
    fake_head(0, o->size);
    fake_land(0, 900 * KIB);
    cache_read_cancel(&x.r);
    assert_int_equal(reading_wait(&x), -ECANCELED);
    assert_false(fake_cancelled(0));
    fake_land(0, 124 * KIB);
    fake_finish(0, 0);
    finish();
}

static void who_joins_a_get_that_is_being_cancelled_is_served(void **state)
{
    struct reading x = {0}, y = {0};

    begin(1 * GIB, 1);
    reading_start(&x, o, 0, 1 * MIB);
    fake_wait(1);
    world_settle();
    cache_read_cancel(&x.r);
    reading_start(&y, o, 0, 1 * MIB);
    assert_int_equal(reading_wait(&x), -ECANCELED);
    fake_succeed(1, o->size);
    assert_int_equal(reading_wait(&y), 0);
    finish();
}

static void a_late_cancel_does_nothing(void **state)
{
    struct reading x = {0}, y = {0};

    begin(1 * GIB, 1);
    fake_set_automatic(1 * MIB);
    x.hold = true;
    reading_start(&x, o, 0, 64 * KIB);
    assert_int_equal(reading_wait(&x), 0);
    cache_read_cancel(&x.r);
    reading_release(&x);
    // the same memory, another read
    x.hold = false;
    reading_start(&x, o, 64 * KIB, 64 * KIB);
    assert_int_equal(reading_wait(&x), 0);
    reading_start(&y, o, 0, 4 * KIB);
    assert_int_equal(reading_wait(&y), 0);
    finish();
}

static void pages_go_with_the_last_reference(void **state)
{
    begin(1 * GIB, 2);
    fake_set_automatic(1 * MIB);
    for (uint64_t at = 0; at < 32 * MIB; at += 8 * MIB)
        assert_int_equal(read_now(o, at, 1 * MIB, NULL), 0);
    assert_int_equal(world_stats().used_bytes, 4 * MIB);
    assert_int_equal(world_stats().extents, 4);
    cache_object_ref(o);
    cache_object_unref(o);
    world_settle();
    assert_int_equal(world_stats().extents, 4);
    cache_object_unref(o);
    world_settle();
    assert_int_equal(world_stats().used_bytes, 0);
    assert_int_equal(world_stats().extents, 0);
    world_end();
}

static void two_versions_do_not_share_pages(void **state)
{
    struct cache_object *p;

    begin(1 * MIB, 1);
    fake_set_automatic(1 * MIB);
    p = world_object("b", 1 * MIB);
    assert_int_equal(read_now(o, 0, 1 * MIB, NULL), 0);
    assert_int_equal(read_now(p, 0, 1 * MIB, NULL), 0);
    assert_int_equal(read_now(o, 0, 1 * MIB, NULL), 0);
    assert_int_equal(fake_count(), 2);
    cache_object_unref(p);
    finish();
}

struct making {
    struct cache_config config;
    struct cache *cache;
    int rc;
};

static void make(void *arg)
{
    struct making *m = arg;
    char *error = NULL;

    m->rc = cache_new(&m->cache, &m->config, &error);
}

static void a_loop_that_is_given_is_used_and_goes_on(void **state)
{
    struct making m = {.config = {.memory = 16 * MIB, .data_loops = 1}};
    struct reading x = {0};

    assert_int_equal(loop_start(&m.config.loop, "test"), 0);
    loop_call(m.config.loop, make, &m); // as a program does whose only loop it is
    assert_int_equal(m.rc, 0);
    world = m.cache;
    fake_set_automatic(MIB);
    o = world_object("a", 3 * MIB);
    reading_start(&x, o, MIB, MIB);
    assert_int_equal(reading_wait(&x), 0);
    assert_ptr_equal(x.loop, m.config.loop);
    finish();
    make(&m); // from another thread
    assert_int_equal(m.rc, 0);
    cache_free(m.cache);
    loop_stop(m.config.loop);
}

// What is asked for by the one loop that a cache was given.
struct asking {
    struct reading read;
    struct loading load;
    struct cache_fence fence;
    sem_t fenced;
    bool within; // something had ended before the call returned
};

static void on_fenced(struct cache_fence *f)
{
    sem_post(&container_of(f, struct asking, fence)->fenced);
}

static void ask_for_what_is_here(void *arg)
{
    struct asking *a = arg;
    int fenced;

    reading_start(&a->read, o, 0, MIB);
    a->within |= a->read.error != 1;
    loading_start(&a->load, o, false);
    a->within |= a->load.error != 1;
    a->fence.done = on_fenced;
    cache_fence_start(world, &a->fence);
    sem_getvalue(&a->fenced, &fenced);
    a->within |= fenced != 0;
}

static void nothing_ends_within_the_call_on_a_loop_that_is_given(void **state)
{
    struct making m = {.config = {.memory = 16 * MIB, .data_loops = 1}};
    struct asking a = {0};

    assert_int_equal(loop_start(&m.config.loop, "test"), 0);
    make(&m);
    assert_int_equal(m.rc, 0);
    world = m.cache;
    fake_set_automatic(MIB);
    o = world_object("a", MIB);
    assert_int_equal(read_now(o, 0, MIB, NULL), 0);
    sem_init(&a.fenced, 0, 0);
    loop_call(m.config.loop, ask_for_what_is_here, &a);
    assert_int_equal(reading_wait(&a.read), 0);
    assert_true(a.read.r.hit);
    assert_int_equal(loading_wait(&a.load), 0);
    sem_wait(&a.fenced);
    assert_false(a.within);
    finish();
    loop_stop(m.config.loop);
}

static void little_memory_is_refused_with_a_sentence(void **state)
{
    struct cache *c;
    char *error = NULL;

    assert_int_equal(
        cache_new(&c, &(struct cache_config){.memory = 31 * MIB, .data_loops = 2}, &error),
        -EINVAL);
    assert_non_null(strstr(error, "16 MiB"));
    free(error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_fetches_exactly_its_bytes),
        cmocka_unit_test(bytes_that_are_there_are_not_fetched_again),
        cmocka_unit_test(only_the_gap_is_fetched),
        cmocka_unit_test(parts_of_a_page_are_fetched_and_remembered),
        cmocka_unit_test(unaligned_edges_around_valid_bytes_are_both_fetched_once),
        cmocka_unit_test(many_gaps_in_one_read_are_all_fetched),
        cmocka_unit_test(the_last_byte_of_an_object_is_read),
        cmocka_unit_test(a_reader_is_answered_before_the_get_ends),
        cmocka_unit_test(two_readers_of_the_same_bytes_cause_one_get),
        cmocka_unit_test(a_read_across_two_extents_of_one_loop),
        cmocka_unit_test(reads_across_extents_of_several_loops),
        cmocka_unit_test(both_loops_of_a_read_fetch_at_the_same_time),
        cmocka_unit_test(an_error_reaches_the_reader),
        cmocka_unit_test(a_broken_get_keeps_what_has_landed),
        cmocka_unit_test(another_version_marks_the_object_stale),
        cmocka_unit_test(another_size_is_another_version),
        cmocka_unit_test(a_cancelled_read_ends_and_so_does_its_get),
        cmocka_unit_test(a_get_goes_on_when_another_reader_wants_it),
        cmocka_unit_test(a_get_goes_on_when_most_of_it_has_landed),
        cmocka_unit_test(who_joins_a_get_that_is_being_cancelled_is_served),
        cmocka_unit_test(a_late_cancel_does_nothing),
        cmocka_unit_test(pages_go_with_the_last_reference),
        cmocka_unit_test(two_versions_do_not_share_pages),
        cmocka_unit_test(a_loop_that_is_given_is_used_and_goes_on),
        cmocka_unit_test(nothing_ends_within_the_call_on_a_loop_that_is_given),
        cmocka_unit_test(little_memory_is_refused_with_a_sentence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
