// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include "base/rand.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL (16 * MIB)

static void readers_in_line_are_served_in_order(void **state)
{
    struct reading held[15], x = {0}, y = {0};
    struct cache_object *o;

    world_begin(POOL, 1);
    o = world_object("a", 1 * GIB);
    fake_set_automatic(1 * MIB);
    for (uint64_t i = 0; i < 15; i++) {
        held[i] = (struct reading){.hold = true};
        reading_start(&held[i], o, i * 2 * MIB, 1 * MIB);
        assert_int_equal(reading_wait(&held[i]), 0);
    }
    // 16 of 17 pages are left for it; the later one would fit, but waits its turn
    reading_start(&x, o, 100 * MIB + 1, 1 * MIB);
    reading_start(&y, o, 200 * MIB, 64 * KIB);
    assert_false(reading_is_done(&y, 30));
    assert_false(reading_is_done(&x, 0));
    assert_int_equal(world_stats().waiting, 2);
    assert_int_equal(cache_pressure(world), 100);
    reading_release(&held[3]);
    assert_int_equal(reading_wait(&x), 0);
    assert_int_equal(reading_wait(&y), 0);
    for (int i = 0; i < 15; i++)
        if (i != 3)
            reading_release(&held[i]);
    cache_object_unref(o);
    world_end();
}

static void what_is_there_is_read_without_waiting_in_line(void **state)
{
    struct reading held[16], x = {0}, y = {0};
    struct cache_object *o;

    world_begin(POOL, 1);
    o = world_object("a", 1 * GIB);
    fake_set_automatic(1 * MIB);
    for (uint64_t i = 0; i < 16; i++) {
        held[i] = (struct reading){.hold = true};
        reading_start(&held[i], o, i * 2 * MIB, 1 * MIB);
        assert_int_equal(reading_wait(&held[i]), 0);
    }
    reading_start(&x, o, 100 * MIB, 1 * MIB);
    world_settle();
    reading_start(&y, o, 2 * MIB, 1 * MIB);
    assert_int_equal(reading_wait(&y), 0);
    assert_false(reading_is_done(&x, 0));
    cache_read_cancel(&x.r);
    assert_int_equal(reading_wait(&x), -ECANCELED);
    assert_int_equal(world_stats().waiting, 0);
    for (int i = 0; i < 16; i++)
        reading_release(&held[i]);
    cache_object_unref(o);
    world_end();
}

static void demand_takes_the_memory_of_unread_bytes(void **state)
{
    struct cache_object *o;

    world_begin(POOL, 1);
    o = world_object("a", 1 * GIB);
    fake_set_automatic(1 * MIB);
    cache_prefetch(world, o, 0, 16 * MIB);
    fake_wait(2);
    while (world_stats().unread_bytes < POOL)
        world_settle();
    assert_int_equal(cache_pressure(world), 100);
    assert_int_equal(read_now(o, 100 * MIB, 1 * MIB, NULL), 0);
    assert_int_equal(world_stats().preread_wasted_bytes, 1 * MIB);
    cache_object_unref(o);
    world_end();
}

static void pre_reading_waits_for_memory_and_then_goes_on(void **state)
{
    struct cache_object *o;

    world_begin(POOL, 1);
    o = world_object("a", 1 * GIB);
    fake_set_automatic(1 * MIB);
    cache_prefetch(world, o, 0, 32 * MIB);
    fake_wait(2);
    while (world_stats().unread_bytes < POOL)
        world_settle();
    assert_int_equal(fake_count(), 2);
    for (uint64_t at = 0; at < 32 * MIB; at += 1 * MIB)
        assert_int_equal(read_now(o, at, 1 * MIB, NULL), 0);
    assert_int_equal(fake_bytes_asked(), 32 * MIB);
    assert_int_equal(world_stats().preread_wasted_bytes, 0);
    cache_object_unref(o);
    world_end();
}

static void unwanted_bytes_make_room_for_pre_reading(void **state)
{
    struct cache_object *o;

    world_begin(POOL, 1);
    o = world_object("a", 1 * GIB);
    fake_set_automatic(1 * MIB);
    cache_prefetch(world, o, 0, 24 * MIB);
    fake_wait(2);
    while (world_stats().unread_bytes < POOL)
        world_settle();
    cache_unwant(world, o, 0, 8 * MIB);
    fake_wait(3);
    assert_int_equal(fake_offset(2), 16 * MIB);
    world_settle();
    cache_object_unref(o);
    world_end();
}

static void a_load_is_content_with_a_mebibyte_when_all_is_unread(void **state)
{
    struct cache_object *o, *p;
    struct loading l;

    world_begin(POOL, 1);
    o = world_object("a", 1 * GIB);
    p = world_object("b", 8 * MIB);
    fake_set_automatic(1 * MIB);
    cache_prefetch(world, o, 0, 16 * MIB);
    fake_wait(2);
    while (world_stats().unread_bytes < POOL)
        world_settle();
    loading_start(&l, p, false);
    assert_int_equal(loading_wait(&l), 0);
    assert_int_equal(fake_len(2), 1 * MIB);
    for (uint64_t at = 0; at < 8 * MIB; at += 1 * MIB)
        assert_int_equal(read_now(p, at, 1 * MIB, NULL), 0);
    cache_object_unref(o);
    cache_object_unref(p);
    world_end();
}

// The rest of the object is in line for memory that only its reader can free.
static void a_load_of_what_is_partly_there_does_not_wait_for_memory(void **state)
{
    struct cache_object *o, *p;
    struct loading l;

    world_begin(POOL, 1);
    o = world_object("a", 1 * GIB);
    p = world_object("b", 8 * MIB);
    fake_set_automatic(1 * MIB);
    cache_prefetch(world, o, 0, 15 * MIB);
    cache_prefetch(world, p, 0, 8 * MIB);
    while (world_stats().unread_bytes < POOL)
        world_settle();
    assert_int_equal(fake_bytes_asked(), 16 * MIB);
    loading_start(&l, p, false);
    assert_int_equal(loading_wait(&l), 0);
    for (uint64_t at = 0; at < 8 * MIB; at += 1 * MIB)
        assert_int_equal(read_now(p, at, 1 * MIB, NULL), 0);
    cache_object_unref(o);
    cache_object_unref(p);
    world_end();
}

static void a_cancelled_read_lets_those_behind_it_go_on(void **state)
{
    struct reading held[15], x = {0}, y = {0};
    struct cache_object *o;

    world_begin(POOL, 1);
    o = world_object("a", 1 * GIB);
    fake_set_automatic(1 * MIB);
    for (uint64_t i = 0; i < 15; i++) {
        held[i] = (struct reading){.hold = true};
        reading_start(&held[i], o, i * 2 * MIB, 1 * MIB);
        assert_int_equal(reading_wait(&held[i]), 0);
    }
    reading_start(&x, o, 100 * MIB + 1, 1 * MIB);
    reading_start(&y, o, 200 * MIB, 64 * KIB);
    assert_false(reading_is_done(&y, 30));
    cache_read_cancel(&x.r);
    assert_int_equal(reading_wait(&x), -ECANCELED);
    assert_int_equal(reading_wait(&y), 0);
    for (int i = 0; i < 15; i++)
        reading_release(&held[i]);
    cache_object_unref(o);
    world_end();
}

// --- 64 readers of 64 objects, many times what the pool holds ---

struct reader {
    pthread_t thread;
    unsigned number;
    int error;
};

static void *run_reader(void *arg)
{
    struct reader *me = arg;
    char name[2] = {(char)('0' + me->number), 0};
    struct cache_object *o = world_object(name, 20 * MIB + me->number * 4097);
    struct rand r;

    rand_seed(&r, me->number);
    for (int i = 0; i < 5 && !me->error; i++) {
        uint64_t at = rand_below(&r, o->size);
        uint32_t len =
            (uint32_t)(1 + rand_below(&r, MIN(CACHE_READ_MAX - 1, o->size - at) / 2 + 1));

        if (i % 4 == 0)
            cache_prefetch(world, o, at, 1 * MIB);
        if (i % 3 == 2)
            cache_unwant(world, o, 0, o->size);
        me->error = read_now(o, at, len, NULL);
    }
    cache_object_unref(o);
    return NULL;
}

static void readers_of_more_than_there_is_memory(unsigned data_loops)
{
    struct reader readers[64];

    world_begin(POOL * data_loops, data_loops);
    fake_set_automatic(200000);
    for (unsigned i = 0; i < ARRAY_LEN(readers); i++) {
        readers[i] = (struct reader){.number = i};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]), 0);
    }
    for (unsigned i = 0; i < ARRAY_LEN(readers); i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].error, 0);
    }
    assert_true(world_stats().peak_bytes <= POOL * data_loops);
    for (int i = 0; i < 1000 && world_stats().extents; i++)
        world_settle();
    assert_int_equal(world_stats().extents, 0);
    assert_int_equal(world_stats().used_bytes, 0);
    world_end();
}

static void sixty_four_readers_share_sixteen_mebibytes(void **state)
{
    readers_of_more_than_there_is_memory(1);
}

static void sixty_four_readers_on_three_loops_do_not_deadlock(void **state)
{
    readers_of_more_than_there_is_memory(3);
}

static void a_shared_pool_lies_in_its_descriptor(void **state)
{
    struct cache_config config = {.memory = POOL, .data_loops = 1, .shared = true};
    char *error = NULL;
    struct cache *c;
    uint64_t len;
    void *base;
    char byte;
    int fd;

    assert_int_equal(cache_new(&c, &config, &error), 0);
    cache_arena(c, &fd, &base, &len);
    assert_true(fd >= 0);
    assert_int_equal(len, POOL);
    memcpy((char *)base + 12345, "x", 1);
    assert_int_equal(pread(fd, &byte, 1, 12345), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(ftruncate(fd, 4096), -1); // nobody can take it away
    cache_free(c);
}

static void a_pool_that_is_not_shared_has_no_descriptor(void **state)
{
    uint64_t len;
    void *base;
    int fd;

    world_begin(POOL, 1);
    cache_arena(world, &fd, &base, &len);
    assert_int_equal(fd, -1);
    world_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_in_line_are_served_in_order),
        cmocka_unit_test(what_is_there_is_read_without_waiting_in_line),
        cmocka_unit_test(demand_takes_the_memory_of_unread_bytes),
        cmocka_unit_test(pre_reading_waits_for_memory_and_then_goes_on),
        cmocka_unit_test(unwanted_bytes_make_room_for_pre_reading),
        cmocka_unit_test(a_load_is_content_with_a_mebibyte_when_all_is_unread),
        cmocka_unit_test(a_load_of_what_is_partly_there_does_not_wait_for_memory),
        cmocka_unit_test(a_cancelled_read_lets_those_behind_it_go_on),
        cmocka_unit_test(sixty_four_readers_share_sixteen_mebibytes),
        cmocka_unit_test(sixty_four_readers_on_three_loops_do_not_deadlock),
        cmocka_unit_test(a_shared_pool_lies_in_its_descriptor),
        cmocka_unit_test(a_pool_that_is_not_shared_has_no_descriptor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
