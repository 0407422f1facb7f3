// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include "cache/dest.h"
#include "fs/names.h"
#include "wire/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t control;

static int begin(void **state)
{
    char key[32];

    world_begin();
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof(key), "d/f%03d", i);
        world_put(key, 1000, ETAG_1);
    }
    world_put("d/empty", 0, ETAG_1);
    world_put("d/vast", 100 * MIB, ETAG_1);
    world_put("d/sub/x", 1000, ETAG_1);
    world_put("d/vanish", 1000, ETAG_1);
    world_start();
    control = host_open(host_walk(".os2g/control"))->opened.handle;
    return 0;
}

static int end(void **state)
{
    world_end();
    return 0;
}

static struct host_request *send_plan(uint32_t op, const char *paths, size_t len)
{
    static struct os2g_plan_request p;
    struct host_request *r = host_begin();

    p = (struct os2g_plan_request){.op = op, .len = (uint32_t)len};
    if (len && len <= sizeof(p.data))
        memcpy(p.data, paths, len);
    fs_ops()->ioctl(world.fs, &r->fs, 3, control, OS2G_IOC_PLAN, &p, sizeof(p), sizeof(p));
    host_wait(r);
    return r;
}

static void ok(struct host_request *r)
{
    assert_int_equal(r->answer, ANSWER_IOCTL);
    assert_int_equal(r->error, 0);
}

static struct os2g_plan_request status(void)
{
    struct host_request *r = send_plan(OS2G_PLAN_STATUS, NULL, 0);
    struct os2g_plan_request p;

    ok(r);
    assert_int_equal(r->bytes.len, sizeof(p));
    memcpy(&p, r->bytes.data, sizeof(p));
    return p;
}

static void plan_paths(const char *paths, size_t len)
{
    ok(send_plan(OS2G_PLAN_BEGIN, NULL, 0));
    ok(send_plan(OS2G_PLAN_ADD, paths, len));
    ok(send_plan(OS2G_PLAN_COMMIT, NULL, 0));
    world_run();
}

// d/f000 to d/f<n-1>, backwards
static void plan_files(int n)
{
    struct buf b = {0};

    for (int i = n; i-- > 0;) {
        buf_printf(&b, "d/f%03d", i);
        buf_add(&b, "", 1);
    }
    plan_paths(b.data, b.len);
    buf_free(&b);
}

static uint64_t open_file(int i)
{
    char path[32];
    struct host_request *r;

    snprintf(path, sizeof(path), "d/f%03d", i);
    r = host_open(host_walk(path));
    assert_int_equal(r->answer, ANSWER_OPENED);
    return r->opened.handle;
}

static void planned_files_are_fetched_before_they_are_opened(void **state)
{
    plan_files(100);
    assert_int_equal(world.background_loads, 100);
    assert_int_equal(status().entries, 100);
    assert_int_equal(status().fetched, 100);
    assert_int_equal(status().bytes, 100000);
    // one listing found them all
    assert_int_equal(world.lists - world.exact_lists, 1);
}

static void entry_is_used_by_its_last_byte_or_by_release(void **state)
{
    uint64_t handle;

    plan_files(20);
    handle = open_file(7);
    host_read(handle, 0, 500);
    assert_int_equal(status().used, 0);
    host_read(handle, 500, 500);
    assert_int_equal(status().used, 1);
    host_release(handle);
    assert_int_equal(status().used, 1);
    host_release(open_file(8));
    assert_int_equal(status().used, 2);
}

static void few_paths_are_looked_up_one_by_one(void **state)
{
    plan_paths("d/f001\0d/f002", 14);
    assert_int_equal(status().fetched, 2);
    assert_int_equal(world.lists, world.exact_lists);
}

static void paths_may_begin_as_users_write_them(void **state)
{
    plan_paths("./d/f001\0/d/f002\0.//d/f003", 27);
    assert_int_equal(status().fetched, 3);
}

static void what_is_no_file_is_missing(void **state)
{
    static const char paths[] = "d/none\0d/sub\0d\0none/none\0d/\0d/f001\0d//f1";

    plan_paths(paths, sizeof(paths));
    assert_int_equal(status().entries, 7);
    assert_int_equal(status().missing, 6);
    assert_int_equal(status().fetched, 1);
}

static void empty_file_is_used_as_others_and_never_fetched(void **state)
{
    plan_paths("d/empty", 8);
    assert_int_equal(status().missing, 0);
    assert_int_equal(world.background_loads, 0);
    host_release(host_open(host_walk("d/empty"))->opened.handle);
    assert_int_equal(status().used, 1);
}

static void few_paths_wait_for_a_listing_that_is_under_way(void **state)
{
    struct host_request *r;
    uint64_t dir;

    world_end();
    world_begin();
    world.options.metadata_ttl_ns = 0; // nothing listed before the plan counts
    world_put("d/f001", 1000, ETAG_1);
    world_start();
    control = host_open(host_walk(".os2g/control"))->opened.handle;
    dir = host_opendir(host_walk("d"));
    world.hold = true;
    r = host_begin();
    fs_ops()->readdir(world.fs, &r->fs, dir, 0, true);
    world_run();
    plan_paths("d/f001", 7);
    world.hold = false;
    world_run_held();
    world_run();
    assert_int_equal(status().fetched, 1);
}

static void store_out_of_reach_makes_entries_missing_and_no_error(void **state)
{
    world.list_error = -EIO;
    plan_files(50);
    assert_int_equal(status().missing, 50);
}

static void plan_works_without_the_right_to_list(void **state)
{
    unsigned before = world.lists;

    world.list_error = -EACCES;
    plan_files(50);
    assert_int_equal(status().missing, 0);
    assert_int_equal(status().fetched, 50);
    // one LIST beside each HEAD, and those of the directory now and then
    assert_true(world.lists - before < 70);
}

static void object_larger_than_a_load_is_fetched_in_part(void **state)
{
    plan_paths("d/vast", 7);
    assert_true(world.prefetched >= 8 * MIB);
    assert_int_equal(status().fetched, 1);
}

static void read_whole(int i)
{
    uint64_t handle = open_file(i);

    host_read(handle, 0, 1000);
    host_release(handle);
}

static void read_files(int from, int to)
{
    for (int i = from; i < to; i++)
        read_whole(i);
}

// The host has kept them: it reads nothing.
static void open_files(int from, int to)
{
    for (int i = from; i < to; i++)
        host_release(open_file(i));
}

// As of a data set larger than the host's memory, at its second epoch.
static void object_that_the_host_may_have_let_go_is_fetched_again(void **state)
{
    read_files(0, 50);
    world.background_loads = 0;
    plan_files(50);
    assert_int_equal(world.background_loads, 50);
}

static void that_the_host_lets_pages_go_is_believed_of_the_rest(void **state)
{
    read_files(0, 50);
    open_files(0, 50);
    read_whole(49);
    world.background_loads = 0;
    plan_files(40);
    assert_int_equal(world.background_loads, 40);
}

static void object_that_the_host_has_whole_is_not_fetched(void **state)
{
    read_whole(5);
    for (int i = 0; i < 32; i++) // the host keeps what it is given
        host_release(open_file(5));
    world.background_loads = 0;
    plan_paths("d/f005", 7);
    assert_int_equal(world.background_loads, 0);
    assert_int_equal(status().missing, 0);
    host_release(open_file(5));
    assert_int_equal(status().used, 1);
}

// As by two ranks of one machine: the second finds what the first has just been given.
static void that_files_are_opened_twice_says_nothing_of_those_before(void **state)
{
    for (int i = 0; i < 100; i++) {
        read_whole(i);
        host_release(open_file(i));
    }
    world.background_loads = 0;
    plan_files(100);
    assert_int_equal(world.background_loads, 100);
}

// As of a small set that is read after each epoch of a large one.
static void what_was_left_to_the_host_is_fetched_once_it_has_let_go(void **state)
{
    read_files(0, 150);
    open_files(100, 150);
    world.background_loads = 0;
    plan_files(100);
    assert_int_equal(world.background_loads, 0);
    host_read(host_open(host_walk("d/vanish"))->opened.handle, 0, 1000); // a new one
    assert_int_equal(world.background_loads, 0);
    read_whole(99);
    assert_int_equal(world.background_loads, 99);
    for (int i = 99; i-- > 0;)
        read_whole(i);
    assert_int_equal(world.background_loads, 99);
    assert_int_equal(status().used, 100);
}

static void one_file_less_is_not_enough(void **state)
{
    read_files(0, 31);
    open_files(0, 31);
    world.background_loads = 0;
    plan_files(31);
    assert_int_equal(world.background_loads, 31);
}

// libos2g: neither what it reads nor what it only opens is kept anywhere.
static void a_host_without_a_page_cache_has_nothing(void **state)
{
    read_files(0, 40);
    world.keeps_no_pages = true;
    open_files(0, 40);
    read_files(40, 80);
    open_files(40, 80);
    world.keeps_no_pages = false;
    world.background_loads = 0;
    plan_files(80);
    assert_int_equal(world.background_loads, 80);
}

static void nor_is_it_given_what_another_has(void **state)
{
    read_files(0, 40);
    open_files(0, 40);
    world.keeps_no_pages = true;
    world.background_loads = 0;
    plan_files(40);
    assert_int_equal(world.background_loads, 40);
}

static void file_that_was_opened_first_is_not_fetched_by_the_plan(void **state)
{
    uint64_t handle = open_file(5);

    world.loads = 0;
    plan_paths("d/f005\0d/f006", 14);
    assert_true(world.loads <= 2);
    host_release(handle);
}

static void plan_ends_with_its_handle(void **state)
{
    struct fs_stats before, after;

    plan_files(50);
    fs_stats_read(world.fs, &before);
    assert_int_equal(before.plan_fetched, 50);
    host_release(control);
    assert_true(world.unwants >= 50);
    host_release(open_file(3));
    fs_stats_read(world.fs, &after);
    assert_int_equal(after.plan_used, before.plan_used);
}

static void plan_may_end_while_it_is_at_work(void **state)
{
    for (int held = 0; held < 2; held++) {
        ok(send_plan(OS2G_PLAN_BEGIN, NULL, 0));
        ok(send_plan(OS2G_PLAN_ADD, "d/f001\0d/f002\0d/f003", 21));
        world.hold = true;
        ok(send_plan(OS2G_PLAN_COMMIT, NULL, 0));
        world_run();
        if (held) {
            world_run_held(); // lookups; loads are held up now
            world_run();
        }
        ok(send_plan(OS2G_PLAN_BEGIN, NULL, 0));
        world.hold = false;
        world_run_held();
        world_run();
        world_run_held();
        world_run();
    }
    assert_int_equal(status().entries, 0);
}

static void file_system_may_close_while_a_plan_is_at_work(void **state)
{
    world.hold = true;
    plan_files(100);
    world_end();
    begin(state);
}

static void new_plan_forgets_the_one_before(void **state)
{
    plan_files(50);
    plan_paths("d/f100", 7);
    assert_int_equal(status().entries, 1);
}

static void two_plans_of_two_handles_are_both_served(void **state)
{
    uint64_t first = control, handle;

    plan_files(20);
    control = host_open(host_walk(".os2g/control"))->opened.handle;
    plan_files(20);
    handle = open_file(3);
    host_read(handle, 0, 1000);
    assert_int_equal(status().used, 1);
    control = first;
    assert_int_equal(status().used, 1);
}

// --- how far ahead ---

#define LARGE 64 // m/00 .. of 4 MiB each

static void put_large(void)
{
    char key[32];

    for (int i = 0; i < LARGE; i++) {
        snprintf(key, sizeof(key), "m/%02d", i);
        world_put(key, 4 * MIB, ETAG_1);
    }
    free(host_list(host_walk("m"), false, LARGE)); // so that sizes are known at once
}

// How many of them are fetched ahead when nobody reads.
static uint64_t plan_large(void)
{
    struct buf b = {0};

    for (int i = 0; i < LARGE; i++) {
        buf_printf(&b, "m/%02d", i);
        buf_add(&b, "", 1);
    }
    plan_paths(b.data, b.len);
    buf_free(&b);
    return status().fetched;
}

// The reader of the first that the window has kept back.
static void come_too_early(uint64_t i)
{
    char path[32];

    snprintf(path, sizeof(path), "m/%02u", (unsigned)i);
    host_release(host_open(host_walk(path))->opened.handle);
    world_run();
}

static void a_plan_begins_with_the_window_that_the_one_before_came_to_need(void **state)
{
    uint64_t first, second;

    put_large();
    first = plan_large();
    assert_in_range(first, 4, 12);
    come_too_early(first);
    second = plan_large();
    assert_in_range(second, 2 * first - 4, 2 * first + 4);
    assert_int_equal(plan_large(), second); // nobody needed more
}

static void a_plan_that_never_began_says_nothing_of_the_window(void **state)
{
    uint64_t began = control, never, first;

    put_large();
    first = plan_large();
    control = never = host_open(host_walk(".os2g/control"))->opened.handle;
    ok(send_plan(OS2G_PLAN_BEGIN, NULL, 0));
    come_too_early(first);
    host_release(began);
    host_release(never);
    control = host_open(host_walk(".os2g/control"))->opened.handle;
    assert_true(plan_large() > first + 4);
}

#define FETCHES 64

static void as_many_fetches_as_there_are_connections_take_the_plans_place(void **state)
{
    struct host_request *fetches = xcalloc(FETCHES, sizeof(*fetches));
    struct cache_dest dest = {.len = 1000, .direct = true};
    struct host_request *r;

    world.hold = true;
    for (unsigned i = 0; i < FETCHES; i++) {
        r = &fetches[i];
        r->fs = (struct fs_request){.reply = &host_reply, .unique = 1000 + i, .dest = &dest};
        fs_ops()->fetch(world.fs, &r->fs, "nothing", 7);
    }
    world_run();
    assert_int_equal(world.fetches, FETCHES);
    world.hold = false; // these go on being held
    plan_files(20);
    assert_int_equal(status().fetched, 0);
    world_run_held();
    world_run();
    for (unsigned i = 0; i < FETCHES; i++)
        assert_int_equal(fetches[i].error, -ENOENT);
    host_release(open_file(7)); // which is when the plan looks
    world_run();
    assert_in_range(status().fetched, 19, 20);
    free(fetches);
}

static void paths_that_no_file_can_have_are_missing(void **state)
{
    static const char paths[] = "/\0d/f100"; // and a zero
    char long_path[KEY_MAX_BYTES + 2];

    memset(long_path, 'x', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = 0;
    ok(send_plan(OS2G_PLAN_BEGIN, NULL, 0));
    ok(send_plan(OS2G_PLAN_ADD, paths, sizeof(paths)));
    ok(send_plan(OS2G_PLAN_ADD, long_path, sizeof(long_path)));
    ok(send_plan(OS2G_PLAN_COMMIT, NULL, 0));
    assert_int_equal(status().entries, 3);
    assert_int_equal(status().missing, 2);
}

static void malformed_requests_are_refused(void **state)
{
    struct os2g_plan_request p = {.op = OS2G_PLAN_STATUS};
    struct host_request *r;

    assert_int_equal(send_plan(OS2G_PLAN_ADD, "a", 2)->error, -ESTALE); // no plan
    assert_int_equal(send_plan(OS2G_PLAN_COMMIT, NULL, 0)->error, -ESTALE);
    assert_int_equal(send_plan(77, NULL, 0)->error, -EINVAL);
    assert_int_equal(send_plan(0, NULL, 0)->error, -EINVAL);
    ok(send_plan(OS2G_PLAN_BEGIN, NULL, 0));
    assert_int_equal(send_plan(OS2G_PLAN_ADD, "no zero", 7)->error, -EINVAL);
    assert_int_equal(send_plan(OS2G_PLAN_ADD, "a", UINT32_MAX)->error, -EINVAL);
    ok(send_plan(OS2G_PLAN_COMMIT, NULL, 0));
    assert_int_equal(send_plan(OS2G_PLAN_ADD, "a", 2)->error, -EINVAL); // committed
    assert_int_equal(send_plan(OS2G_PLAN_COMMIT, NULL, 0)->error, -EINVAL);

    r = host_begin();
    fs_ops()->ioctl(world.fs, &r->fs, 3, control, OS2G_IOC_PLAN, &p, sizeof(p) - 1, sizeof(p));
    assert_int_equal(r->error, -EINVAL);
    r = host_begin();
    fs_ops()->ioctl(world.fs, &r->fs, 3, control, OS2G_IOC_PLAN, &p, sizeof(p), 10);
    assert_int_equal(r->error, -EINVAL);
    r = host_begin();
    fs_ops()->ioctl(world.fs, &r->fs, 3, control, 1234, &p, sizeof(p), sizeof(p));
    assert_int_equal(r->error, -ENOTTY);
    r = host_begin();
    fs_ops()->ioctl(world.fs, &r->fs, 3, open_file(1), OS2G_IOC_PLAN, &p, sizeof(p), sizeof(p));
    assert_int_equal(r->error, -ENOTTY);
}

static void number_of_plans_is_bounded(void **state)
{
    uint64_t first = control;
    int error = 0;

    for (int i = 0; i < 100 && !error; i++) {
        control = host_open(host_walk(".os2g/control"))->opened.handle;
        error = send_plan(OS2G_PLAN_BEGIN, NULL, 0)->error;
    }
    assert_int_equal(error, -ENOSPC);
    control = first;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(planned_files_are_fetched_before_they_are_opened),
        TEST(entry_is_used_by_its_last_byte_or_by_release),
        TEST(few_paths_are_looked_up_one_by_one),
        TEST(paths_may_begin_as_users_write_them),
        TEST(what_is_no_file_is_missing),
        TEST(empty_file_is_used_as_others_and_never_fetched),
        TEST(few_paths_wait_for_a_listing_that_is_under_way),
        TEST(store_out_of_reach_makes_entries_missing_and_no_error),
        TEST(plan_works_without_the_right_to_list),
        TEST(object_larger_than_a_load_is_fetched_in_part),
        TEST(object_that_the_host_may_have_let_go_is_fetched_again),
        TEST(that_the_host_lets_pages_go_is_believed_of_the_rest),
        TEST(object_that_the_host_has_whole_is_not_fetched),
        TEST(that_files_are_opened_twice_says_nothing_of_those_before),
        TEST(what_was_left_to_the_host_is_fetched_once_it_has_let_go),
        TEST(one_file_less_is_not_enough),
        TEST(a_host_without_a_page_cache_has_nothing),
        TEST(nor_is_it_given_what_another_has),
        TEST(file_that_was_opened_first_is_not_fetched_by_the_plan),
        TEST(plan_ends_with_its_handle),
        TEST(plan_may_end_while_it_is_at_work),
        TEST(file_system_may_close_while_a_plan_is_at_work),
        TEST(new_plan_forgets_the_one_before),
        TEST(two_plans_of_two_handles_are_both_served),
        TEST(a_plan_begins_with_the_window_that_the_one_before_came_to_need),
        TEST(a_plan_that_never_began_says_nothing_of_the_window),
        TEST(as_many_fetches_as_there_are_connections_take_the_plans_place),
        TEST(paths_that_no_file_can_have_are_missing),
        TEST(malformed_requests_are_refused),
        TEST(number_of_plans_is_bounded),
    };

    return cmocka_run_group_tests_name("fs/plan", tests, NULL, NULL);
}
