// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE (100 * MIB)

static int begin(void **state)
{
    world_begin();
    return 0;
}

static int end(void **state)
{
    world_end();
    return 0;
}

static struct host_request *open_path(const char *path)
{
    return host_open(host_walk(path));
}

static uint64_t opened(struct host_request *r)
{
    assert_int_equal(r->answer, ANSWER_OPENED);
    return r->opened.handle;
}

static void assert_error(struct host_request *r, int error)
{
    assert_int_equal(r->answer, ANSWER_ERROR);
    assert_int_equal(r->error, error);
}

static void assert_bytes(struct host_request *r, uint64_t offset, size_t len)
{
    assert_int_equal(r->answer, ANSWER_DATA);
    assert_int_equal(r->bytes.len, len);
    for (size_t i = 0; i < len; i++)
        assert_int_equal((uint8_t)r->bytes.data[i], (uint8_t)(offset + i));
}

static void small_object_is_fetched_from_open_on(void **state)
{
    struct host_request *r;

    world_put("a", 1000, ETAG_1);
    world_start();
    r = open_path("a");
    assert_int_equal(world.loads, 1);
    assert_int_equal(world.background_loads, 0);
    assert_true(r->opened.keep_cache);
    assert_false(r->opened.direct_io);
    assert_bytes(host_read(opened(r), 0, 4096), 0, 1000);
    assert_int_equal(world.prefetched, 0);
}

static void open_waits_for_the_head_of_the_answer(void **state)
{
    struct host_request *r = host_begin();
    uint64_t node;

    world_put("a", 1000, ETAG_1);
    world_start();
    node = host_walk("a");
    world.hold = true;
    fs_ops()->open(world.fs, &r->fs, node, 0);
    world_run();
    assert_int_equal(r->answer, ANSWER_NONE);
    world.hold = false;
    world_run_held();
    host_wait(r);
    opened(r);
}

static void large_object_is_opened_at_once(void **state)
{
    world_put("a", LARGE, ETAG_1);
    world_start();
    opened(open_path("a"));
    assert_int_equal(world.loads + world.reads, 0);
}

static void reads_end_at_the_size(void **state)
{
    uint64_t handle;

    world_put("a", 1000, ETAG_1);
    world_start();
    handle = opened(open_path("a"));
    assert_bytes(host_read(handle, 990, 4096), 990, 10);
    assert_bytes(host_read(handle, 1000, 4096), 0, 0);
    assert_bytes(host_read(handle, UINT64_MAX, 4096), 0, 0);
    assert_bytes(host_read(handle, 10, 0), 0, 0);
    assert_bytes(host_read(handle, 17, 5), 17, 5);
}

static void empty_file_never_asks_the_store(void **state)
{
    unsigned asked;
    uint64_t node;

    world_put("a", 0, ETAG_1);
    world_start();
    node = host_walk("a");
    asked = world.heads + world.lists;
    assert_bytes(host_read(opened(host_open(node)), 0, 4096), 0, 0);
    assert_int_equal(world.loads + world.reads, 0);
    assert_int_equal(world.heads + world.lists, asked);
}

static void read_larger_than_a_wire_may_ask_is_refused(void **state)
{
    world_put("a", LARGE, ETAG_1);
    world_start();
    assert_error(host_read(opened(open_path("a")), 0, 2 << 20), -EINVAL);
}

static void sequential_reads_run_ahead_and_a_close_gives_up_the_rest(void **state)
{
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    handle = opened(open_path("a"));
    for (uint64_t i = 0; i < 8; i++)
        assert_bytes(host_read(handle, i << 20, 1 << 20), i << 20, 1 << 20);
    assert_true(world.prefetched > 8 * MIB);
    assert_int_equal(world.unwants, 0);
    host_release(handle);
    assert_true(world.unwanted >= world.prefetched - 8 * MIB);
}

static void scattered_reads_fetch_nothing_more(void **state)
{
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    handle = opened(open_path("a"));
    for (uint64_t i = 1; i < 40; i++)
        host_read(handle, i * 7919 * 4096 % (LARGE - 4096), 4096);
    assert_true(world.prefetched <= 40 * 4096);
}

static void object_the_host_has_whole_is_not_fetched_again(void **state)
{
    uint64_t node, handle;

    world_put("a", 200000, ETAG_1);
    world_start();
    node = host_walk("a");
    handle = opened(host_open(node));
    host_read(handle, 131072, 131072);
    host_read(handle, 0, 131072);
    host_release(handle);
    world.loads = 0;
    opened(host_open(node));
    assert_int_equal(world.loads, 0);
}

static void object_read_in_part_is_fetched_at_the_next_open(void **state)
{
    uint64_t node, handle;

    world_put("a", 200000, ETAG_1);
    world_start();
    node = host_walk("a");
    handle = opened(host_open(node));
    host_read(handle, 0, 131072);
    host_release(handle);
    world.loads = 0;
    opened(host_open(node));
    assert_int_equal(world.loads, 1);
}

static void pages_that_the_host_has_let_go_are_fetched_whole_again(void **state)
{
    uint64_t node, handle;

    world_put("a", 200000, ETAG_1);
    world_start();
    node = host_walk("a");
    handle = opened(host_open(node));
    host_read(handle, 0, 200000);
    host_release(handle);
    handle = opened(host_open(node));
    host_read(handle, 4096, 4096);
    assert_int_equal(world.prefetched, 200000);
    host_release(handle);
    world.loads = 0;
    opened(host_open(node));
    assert_int_equal(world.loads, 1);
}

static void with_direct_io_the_host_keeps_nothing(void **state)
{
    struct host_request *r;
    uint64_t node;

    world.options.direct_io = true;
    world_put("a", 1000, ETAG_1);
    world_start();
    node = host_walk("a");
    for (int i = 0; i < 2; i++) {
        r = host_open(node);
        assert_true(r->opened.direct_io);
        assert_false(r->opened.keep_cache);
        host_read(opened(r), 0, 4096);
    }
    assert_int_equal(world.loads, 2);
}

static void changed_object_is_opened_anew_after_estale(void **state)
{
    uint64_t node, new;

    world_put("a", 1000, ETAG_1);
    world_start();
    free(host_list(FS_ROOT, true, 100)); // what lookups would believe
    node = host_walk("a");
    world_put("a", 1000, ETAG_2);
    assert_error(host_open(node), -ESTALE);
    new = host_walk("a"); // as the kernel does
    assert_int_not_equal(new, node);
    opened(host_open(new));
    assert_int_equal(world.heads, 1);
    // and the listing is right again about it
    assert_int_equal(host_walk("a"), new);
    assert_int_equal(world.heads, 1);
}

static void deleted_object_is_gone_after_estale(void **state)
{
    uint64_t node;

    world_put("a", 1000, ETAG_1);
    world_start();
    free(host_list(FS_ROOT, true, 100));
    node = host_walk("a");
    world_delete("a");
    assert_error(host_open(node), -ESTALE);
    assert_int_equal(host_lookup(FS_ROOT, "a")->entry.attr.node, 0);
}

static uint64_t tried_again;
static struct host_request *opened_again;

static void open_again(void)
{
    opened_again = host_begin();
    fs_ops()->open(world.fs, &opened_again->fs, tried_again, 0);
}

static void node_is_stale_before_its_reader_knows(void **state)
{
    struct host_request *r;
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    tried_again = host_walk("a");
    handle = opened(host_open(tried_again));
    world_put("a", LARGE, ETAG_2);
    r = host_begin();
    r->failed = open_again;
    fs_ops()->read(world.fs, &r->fs, handle, 50 << 20, 4096);
    host_wait(r);
    assert_error(r, -ESTALE);
    host_wait(opened_again);
    assert_error(opened_again, -ESTALE);
    host_release(handle);
}

static void handle_stays_on_its_version(void **state)
{
    uint64_t node, handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    node = host_walk("a");
    handle = opened(host_open(node));
    assert_bytes(host_read(handle, 0, 4096), 0, 4096);
    world_put("a", LARGE, ETAG_2);
    assert_error(host_read(handle, 50 << 20, 4096), -ESTALE);
    assert_error(host_open(node), -ESTALE);
    world_delete("a");
    assert_error(host_read(handle, 60 << 20, 4096), -ESTALE);
    host_release(handle);
}

static void archived_object_is_an_error_at_open(void **state)
{
    world_put("small", 1000, ETAG_1);
    world.objects[0].storage_class = "GLACIER";
    world_put("vast", LARGE, ETAG_1);
    world.objects[1].storage_class = "DEEP_ARCHIVE";
    world_start();
    world.load_error = -EIO;
    assert_error(open_path("small"), -EIO);
    assert_error(open_path("vast"), -EIO);
    world.load_error = -EACCES;
    assert_error(open_path("vast"), -EIO);
    world.load_error = 0; // restored; the class stays
    opened(open_path("small"));
    opened(open_path("vast"));
}

static void refused_object_is_eacces_and_one_out_of_reach_is_eio(void **state)
{
    world_put("a", 1000, ETAG_1);
    world_start();
    world.load_error = -EACCES;
    assert_error(open_path("a"), -EACCES);
    world.load_error = -EIO;
    assert_error(open_path("a"), -EIO);
    world.load_error = 0;
    opened(open_path("a"));
}

static void interrupted_open_is_answered_at_once(void **state)
{
    struct host_request *r = host_begin();
    struct fs_stats stats;
    uint64_t node;

    world_put("a", 1000, ETAG_1);
    world_start();
    node = host_walk("a");
    world.hold = true;
    fs_ops()->open(world.fs, &r->fs, node, 0);
    world_run();
    host_cancel(r);
    assert_error(r, -EINTR);
    world.hold = false;
    world_run_held();
    world_run();
    fs_stats_read(world.fs, &stats);
    assert_int_equal(stats.handles, 0);
}

static void interrupted_read_is_cancelled_in_the_cache(void **state)
{
    struct host_request *r = host_begin(), *other = host_begin();
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    handle = opened(open_path("a"));
    world.hold = true;
    fs_ops()->read(world.fs, &r->fs, handle, 0, 4096);
    fs_ops()->read(world.fs, &other->fs, handle, 4096, 4096);
    world_run();
    host_cancel(r);
    assert_int_equal(world.cancelled_reads, 1);
    host_wait(r);
    assert_error(r, -EINTR);
    world.hold = false;
    world_run_held();
    host_wait(other);
    assert_bytes(other, 4096, 4096);
    // an interrupt that comes after the answer finds nothing
    other->fs.cancel(&other->fs, other->fs.cancel_arg);
    assert_true(world.cancelled_reads <= 2);
    world_run();
}

static void release_may_overtake_reads(void **state)
{
    struct host_request *r = host_begin();
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    handle = opened(open_path("a"));
    world.hold = true;
    fs_ops()->read(world.fs, &r->fs, handle, 0, 4096);
    world_run();
    host_release(handle);
    world.hold = false;
    world_run_held();
    host_wait(r);
    assert_bytes(r, 0, 4096);
    assert_error(host_read(handle, 0, 4096), -EBADF);
}

static void open_file_outlives_the_worker(void **state)
{
    uint64_t small, large;

    world_put("a", 1000, ETAG_1);
    world_put("b", LARGE, ETAG_1);
    world_start();
    small = opened(open_path("a"));
    large = opened(open_path("b"));
    world_restart();
    world.loads = 0;
    assert_bytes(host_read(small, 100, 50), 100, 50);
    assert_int_equal(world.loads, 0);
    assert_int_equal(world.prefetched, 1000); // nothing was asked for at an OPEN here
    assert_bytes(host_read(large, 1000, 50), 1000, 50);
    // on its version
    world_put("b", LARGE, ETAG_2);
    assert_error(host_read(large, 50 << 20, 50), -ESTALE);
    host_release(small);
    host_release(large);
}

static void node_lives_while_a_handle_is_open(void **state)
{
    struct fs_stats before, after;
    uint64_t node, handle;

    world_put("a", 1000, ETAG_1);
    world_start();
    fs_stats_read(world.fs, &before);
    node = host_walk("a");
    handle = opened(host_open(node));
    fs_ops()->forget(world.fs, node, 1);
    world_restart();
    assert_bytes(host_read(handle, 0, 10), 0, 10);
    host_release(handle);
    fs_stats_read(world.fs, &after);
    assert_int_equal(after.nodes, before.nodes);
    assert_int_equal(after.handles, 0);
}

static void replayed_open_and_release_find_their_work_done(void **state)
{
    struct host_request *first = host_begin(), *again = host_begin(), *release = host_begin();
    struct fs_stats stats;
    uint64_t node;

    world_put("a", 1000, ETAG_1);
    world_start();
    node = host_walk("a");
    fs_ops()->open(world.fs, &first->fs, node, 0);
    host_wait(first);
    world_restart();
    again->fs.unique = first->fs.unique;
    again->fs.replayed = true;
    fs_ops()->open(world.fs, &again->fs, node, 0);
    host_wait(again);
    assert_int_equal(opened(again), opened(first));
    assert_true(again->opened.known);
    assert_false(first->opened.known);
    host_release(opened(first));
    release->fs.replayed = true;
    fs_ops()->release(world.fs, &release->fs, opened(first));
    assert_error(release, 0);
    fs_stats_read(world.fs, &stats);
    assert_int_equal(stats.handles, 0);
}

static void open_that_nobody_heard_of_is_undone(void **state)
{
    struct fs_stats stats;

    world_put("a", 1000, ETAG_1);
    world_start();
    fs_ops()->unopen(world.fs, opened(open_path("a")));
    fs_ops()->unopen(world.fs, host_opendir(FS_ROOT));
    fs_ops()->unopen(world.fs, 12345);
    fs_stats_read(world.fs, &stats);
    assert_int_equal(stats.handles, 0);
}

static void directories_are_not_opened_as_files(void **state)
{
    world_put("d/a", 1000, ETAG_1);
    world_start();
    assert_error(open_path("d"), -EISDIR);
}

static void version_without_etag_is_told_by_its_time(void **state)
{
    uint64_t node;

    world_put("a", 1000, "");
    world_start();
    node = host_walk("a");
    assert_int_equal(host_walk("a"), node);
    assert_bytes(host_read(opened(host_open(node)), 0, 10), 0, 10);
    world_put("a", 1001, "");
    assert_int_not_equal(host_walk("a"), node);
}

// n small files in a directory that has been listed.
static void listed_files(uint64_t *ret_nodes, unsigned n)
{
    char name[16];

    for (unsigned i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "f%03u", i);
        world_put(name, 1000, ETAG_1);
    }
    world_start();
    free(host_list(FS_ROOT, true, n + 1));
    for (unsigned i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "f%03u", i);
        ret_nodes[i] = host_walk(name);
    }
}

static void files_opened_in_listing_order_have_the_next_ones_fetched(void **state)
{
    uint64_t nodes[60];

    listed_files(nodes, 60);
    for (int i = 0; i < 20; i++) {
        host_release(opened(host_open(nodes[i])));
        world_run();
    }
    assert_true(world.background_loads > 0);
    assert_true(world.background_loads <= 60);
}

static void read_in_order(uint64_t *nodes, unsigned n, bool kept)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t handle = opened(host_open(nodes[i]));

        if (!kept)
            host_read(handle, 0, 1000);
        host_release(handle);
        world_run();
    }
}

static void files_read_in_order_again_are_fetched_ahead_if_the_host_has_let_go(void **state)
{
    uint64_t nodes[150];

    listed_files(nodes, 150);
    read_in_order(nodes, 150, false);
    world.background_loads = 0;
    read_in_order(nodes, 150, true);
    assert_int_equal(world.background_loads, 0);
    read_in_order(nodes, 150, false);
    assert_true(world.background_loads > 100);
    read_in_order(nodes, 150, true); // sure again, after a part of them
    world.background_loads = 0;
    read_in_order(nodes, 150, true);
    assert_int_equal(world.background_loads, 0);
}

static void files_opened_in_random_order_have_not(void **state)
{
    char name[16];

    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "f%02d", i);
        world_put(name, 1000, ETAG_1);
    }
    world_start();
    free(host_list(FS_ROOT, true, 100));
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "f%02d", i * 37 % 60);
        host_release(opened(open_path(name)));
        world_run();
    }
    assert_true(world.background_loads < 6);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(small_object_is_fetched_from_open_on),
        TEST(open_waits_for_the_head_of_the_answer),
        TEST(large_object_is_opened_at_once),
        TEST(reads_end_at_the_size),
        TEST(empty_file_never_asks_the_store),
        TEST(read_larger_than_a_wire_may_ask_is_refused),
        TEST(sequential_reads_run_ahead_and_a_close_gives_up_the_rest),
        TEST(scattered_reads_fetch_nothing_more),
        TEST(object_the_host_has_whole_is_not_fetched_again),
        TEST(object_read_in_part_is_fetched_at_the_next_open),
        TEST(pages_that_the_host_has_let_go_are_fetched_whole_again),
        TEST(with_direct_io_the_host_keeps_nothing),
        TEST(changed_object_is_opened_anew_after_estale),
        TEST(deleted_object_is_gone_after_estale),
        TEST(node_is_stale_before_its_reader_knows),
        TEST(handle_stays_on_its_version),
        TEST(archived_object_is_an_error_at_open),
        TEST(refused_object_is_eacces_and_one_out_of_reach_is_eio),
        TEST(interrupted_open_is_answered_at_once),
        TEST(interrupted_read_is_cancelled_in_the_cache),
        TEST(release_may_overtake_reads),
        TEST(open_file_outlives_the_worker),
        TEST(node_lives_while_a_handle_is_open),
        TEST(replayed_open_and_release_find_their_work_done),
        TEST(open_that_nobody_heard_of_is_undone),
        TEST(directories_are_not_opened_as_files),
        TEST(version_without_etag_is_told_by_its_time),
        TEST(files_opened_in_listing_order_have_the_next_ones_fetched),
        TEST(files_read_in_order_again_are_fetched_ahead_if_the_host_has_let_go),
        TEST(files_opened_in_random_order_have_not),
    };

    return cmocka_run_group_tests_name("fs/open", tests, NULL, NULL);
}
