// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Time passes at once, so that no machine is too slow for a lifetime: the linker puts this in the
// clock's place. No timer runs here, which would be late by as much.
static uint64_t passed_ns;

uint64_t __real_clock_monotonic_ns(void);
uint64_t __wrap_clock_monotonic_ns(void);

uint64_t __wrap_clock_monotonic_ns(void)
{
    return __real_clock_monotonic_ns() + passed_ns;
}

static void pass_s(unsigned seconds)
{
    passed_ns += seconds * NS_PER_S;
}

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

static void assert_file(struct host_request *r, uint64_t size)
{
    assert_int_equal(r->answer, ANSWER_ENTRY);
    assert_int_not_equal(r->entry.attr.node, 0);
    assert_true(S_ISREG(r->entry.attr.mode));
    assert_int_equal(r->entry.attr.size, size);
}

static void assert_directory(struct host_request *r)
{
    assert_int_equal(r->answer, ANSWER_ENTRY);
    assert_int_not_equal(r->entry.attr.node, 0);
    assert_true(S_ISDIR(r->entry.attr.mode));
}

static void assert_absent(struct host_request *r)
{
    assert_int_equal(r->answer, ANSWER_ENTRY);
    assert_int_equal(r->entry.attr.node, 0);
}

static void assert_error(struct host_request *r, int error)
{
    assert_int_equal(r->answer, ANSWER_ERROR);
    assert_int_equal(r->error, error);
}

static void attributes_are_those_of_the_mount(void **state)
{
    struct host_request *r;

    world_put("a", 12, ETAG_1);
    world_start();
    r = host_lookup(FS_ROOT, "a");
    assert_file(r, 12);
    assert_int_equal(r->entry.attr.mode, S_IFREG | 0644);
    assert_int_equal(r->entry.attr.uid, 1000);
    assert_int_equal(r->entry.attr.gid, 1001);
    assert_int_equal(r->entry.attr.mtime_s, 1700000000);
    assert_true(r->entry.entry_valid_ns == world.options.metadata_ttl_ns);
    assert_true(r->entry.attr_valid_ns == world.options.metadata_ttl_ns);
}

static void cold_lookup_asks_head_beside_list_and_never_lists_the_directory(void **state)
{
    world_put("d/a", 1, ETAG_1);
    world_put("d/b", 1, ETAG_1);
    world_put("f", 3, ETAG_1);
    world_start();
    assert_file(host_lookup(FS_ROOT, "f"), 3);
    assert_int_equal(world.heads, 1);
    assert_int_equal(world.lists, 1);
    assert_directory(host_lookup(FS_ROOT, "d"));
    assert_absent(host_lookup(FS_ROOT, "x"));
    assert_int_equal(world.heads, 3);
    assert_int_equal(world.lists, 3);
    assert_int_equal(world.exact_lists, 3);
}

static void export_prefix_is_in_front_of_every_key(void **state)
{
    world.options.prefix = "data/train/";
    world_put("data/train/a", 1, ETAG_1);
    world_put("data/train/d/b", 2, ETAG_1);
    world_put("a2", 3, ETAG_1);
    world_start();
    assert_file(host_lookup(FS_ROOT, "a"), 1);
    assert_file(host_lookup(host_walk("d"), "b"), 2);
    assert_absent(host_lookup(FS_ROOT, "a2"));
}

static void absent_name_is_negative_for_the_negative_ttl(void **state)
{
    struct host_request *r;

    world_start();
    r = host_lookup(FS_ROOT, "a");
    assert_absent(r);
    assert_true(r->entry.entry_valid_ns == world.options.negative_ttl_ns);
}

static void directory_is_listed_after_several_lookups_in_it(void **state)
{
    unsigned heads;

    for (int i = 0; i < 20; i++) {
        char key[16];

        snprintf(key, sizeof(key), "d/%02d", i);
        world_put(key, 5, ETAG_1);
    }
    world_start();
    for (int i = 0; i < 5; i++) {
        char path[16];

        snprintf(path, sizeof(path), "d/%02d", i);
        assert_int_not_equal(host_walk(path), 0);
    }
    world_run();
    heads = world.heads;
    for (int i = 0; i < 20; i++) {
        char path[16];

        snprintf(path, sizeof(path), "d/%02d", i);
        assert_int_not_equal(host_walk(path), 0);
    }
    // d itself is looked up in the root, which is not listed for one name
    assert_true(world.heads - heads <= 20);
    assert_int_equal(world.lists - world.exact_lists, 2);
}

static void listed_directory_answers_without_the_store(void **state)
{
    unsigned before;

    world_put("a", 7, ETAG_1);
    world_put("d/x", 1, ETAG_1);
    world_start();
    free(host_list(FS_ROOT, false, 100));
    before = world.heads + world.lists;
    assert_file(host_lookup(FS_ROOT, "a"), 7);
    assert_directory(host_lookup(FS_ROOT, "d"));
    assert_absent(host_lookup(FS_ROOT, "b"));
    assert_int_equal(world.heads + world.lists, before);
}

static void name_from_a_listing_stays_valid_for_the_rest_of_the_ttl(void **state)
{
    struct host_request *r;

    world.options.metadata_ttl_ns = 500 * NS_PER_S;
    world_put("a", 7, ETAG_1);
    world_start();
    free(host_list(FS_ROOT, false, 100));
    pass_s(50);
    r = host_lookup(FS_ROOT, "a");
    assert_true(r->entry.entry_valid_ns <= 450 * NS_PER_S);
    assert_true(r->entry.entry_valid_ns > 0);
    assert_int_equal(world.heads, 0);
}

static void old_listing_is_not_believed_about_absent_names(void **state)
{
    world.options.negative_ttl_ns = 20 * NS_PER_S;
    world_put("a", 7, ETAG_1);
    world_start();
    free(host_list(FS_ROOT, false, 100));
    world_put("new", 8, ETAG_1);
    assert_absent(host_lookup(FS_ROOT, "new"));
    pass_s(30);
    assert_file(host_lookup(FS_ROOT, "new"), 8);
    assert_int_equal(world.heads, 1);
}

static void directory_in_use_is_listed_again_before_its_time(void **state)
{
    world.options.metadata_ttl_ns = 1000 * NS_PER_S;
    world_put("a", 7, ETAG_1);
    world_put("c", 7, ETAG_1);
    world_start();
    free(host_list(FS_ROOT, true, 100));
    world_put("c", 8, ETAG_2);
    pass_s(800);
    for (int i = 0; i < 20; i++)
        assert_file(host_lookup(FS_ROOT, "c"), 7);
    world_run();
    assert_int_equal(world.lists, 2);
    pass_s(250);
    assert_file(host_lookup(FS_ROOT, "a"), 7);
    assert_file(host_lookup(FS_ROOT, "c"), 8);
    assert_int_equal(world.heads, 0);
    assert_int_equal(world.lists, 2);
}

static void directory_that_is_not_used_is_not_listed_again(void **state)
{
    world.options.metadata_ttl_ns = 100 * NS_PER_S;
    world_put("a", 7, ETAG_1);
    world_start();
    free(host_list(FS_ROOT, true, 100));
    pass_s(85);
    host_lookup(FS_ROOT, "a");
    world_run();
    assert_int_equal(world.lists, 1);
}

static void refresh_that_fails_leaves_the_listing_its_time(void **state)
{
    world.options.metadata_ttl_ns = 200 * NS_PER_S;
    world_put("a", 7, ETAG_1);
    world_start();
    free(host_list(FS_ROOT, true, 100));
    for (int i = 0; i < 20; i++)
        host_lookup(FS_ROOT, "a");
    world.list_error = -EIO;
    pass_s(155);
    host_lookup(FS_ROOT, "a");
    world_run();
    assert_int_equal(world.lists, 2);
    assert_file(host_lookup(FS_ROOT, "a"), 7);
    world_run();
    world.list_error = 0;
    pass_s(50);
    assert_file(host_lookup(FS_ROOT, "a"), 7);
    assert_int_equal(world.heads, 1);
}

static void refresh_that_fails_is_not_tried_with_every_lookup(void **state)
{
    world.options.metadata_ttl_ns = 1000 * NS_PER_S;
    world_put("a", 7, ETAG_1);
    world_start();
    free(host_list(FS_ROOT, true, 100));
    pass_s(800);
    world.list_error = -EACCES;
    for (int i = 0; i < 30; i++) {
        assert_file(host_lookup(FS_ROOT, "a"), 7);
        world_run();
    }
    assert_int_equal(world.lists, 2);
}

// It has grown, and does not fit beside the one that is in use.
static void refresh_that_becomes_too_large_leaves_the_listing_its_time(void **state)
{
    char name[16];

    world.options.metadata_ttl_ns = 1000 * NS_PER_S;
    world.options.metadata_memory = 64 * KIB;
    world.page = 100;
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "f%03d", i);
        world_put(name, 7, ETAG_1);
    }
    world_start();
    free(host_list(FS_ROOT, true, 4000));
    assert_int_equal(world.lists, 2);
    for (int i = 200; i < 900; i++) {
        snprintf(name, sizeof(name), "f%03d", i);
        world_put(name, 7, ETAG_1);
    }
    pass_s(800);
    for (int i = 0; i < 60; i++) {
        assert_file(host_lookup(FS_ROOT, "f100"), 7);
        world_run();
    }
    assert_true(world.lists > 2 && world.lists < 9);
    assert_int_equal(world.heads, 0);
    pass_s(250);
    assert_file(host_lookup(FS_ROOT, "f100"), 7);
    assert_int_equal(world.heads, 1);
}

static void without_ttl_every_lookup_asks(void **state)
{
    struct host_request *r;

    world.options.metadata_ttl_ns = 0;
    world_put("a", 7, ETAG_1);
    world_start();
    free(host_list(FS_ROOT, true, 100));
    for (int i = 0; i < 6; i++) {
        r = host_lookup(FS_ROOT, "a");
        assert_file(r, 7);
        assert_int_equal(r->entry.entry_valid_ns, 0);
    }
    assert_int_equal(world.heads, 6);
}

static void object_and_prefix_of_one_name_are_the_directory(void **state)
{
    char *names;

    world_put("x", 1, ETAG_1);
    world_put("x-1", 1, ETAG_1);
    world_put("x/y", 2, ETAG_1);
    world_start();
    assert_directory(host_lookup(FS_ROOT, "x"));
    names = host_list(FS_ROOT, false, 100);
    assert_string_equal(names, "x-1 x/");
    free(names);
    assert_directory(host_lookup(FS_ROOT, "x"));
}

static void marker_of_zero_bytes_makes_an_empty_directory(void **state)
{
    char *names;

    world_put("d/", 0, ETAG_1);
    world_start();
    assert_directory(host_lookup(FS_ROOT, "d"));
    names = host_list(host_walk("d"), false, 100);
    assert_string_equal(names, "");
    free(names);
}

static void server_errors_are_never_taken_for_absence(void **state)
{
    world_put("a", 7, ETAG_1);
    world_put("d/x", 7, ETAG_1);
    world_start();
    world.head_error = -EIO;
    assert_error(host_lookup(FS_ROOT, "a"), -EIO);
    assert_error(host_lookup(FS_ROOT, "nothing"), -EIO);
    assert_directory(host_lookup(FS_ROOT, "d")); // that much is certain
    world.head_error = 0;
    world.list_error = -EIO;
    assert_error(host_lookup(FS_ROOT, "nothing"), -EIO);
    assert_error(host_lookup(FS_ROOT, "a"), -EIO); // it could be a directory too
    world.list_error = 0;
    assert_file(host_lookup(FS_ROOT, "a"), 7);
}

static void file_is_found_by_listing_where_head_is_refused(void **state)
{
    world_put("a", 7, ETAG_1);
    world_put("ab", 8, ETAG_1);
    world_start();
    world.head_error = -EACCES;
    assert_file(host_lookup(FS_ROOT, "a"), 7);
    assert_absent(host_lookup(FS_ROOT, "aa"));
}

static void file_is_found_by_head_where_listing_is_refused(void **state)
{
    world_put("a", 7, ETAG_1);
    world_start();
    world.list_error = -EACCES;
    assert_file(host_lookup(FS_ROOT, "a"), 7);
    assert_absent(host_lookup(FS_ROOT, "b"));
    world.head_error = -EACCES;
    assert_error(host_lookup(FS_ROOT, "a"), -EACCES);
}

static void same_name_is_asked_for_once_however_many_wait(void **state)
{
    struct host_request *r[5];

    world_put("a", 7, ETAG_1);
    world_start();
    world.hold = true;
    for (int i = 0; i < 5; i++) {
        r[i] = host_begin();
        fs_ops()->lookup(world.fs, &r[i]->fs, FS_ROOT, "a", 1);
    }
    world_run();
    host_cancel(r[2]);
    assert_error(r[2], -EINTR);
    world.hold = false;
    world_run_held();
    for (int i = 0; i < 5; i++)
        if (i != 2)
            assert_file(r[i], 7);
    assert_int_equal(world.heads, 1);
}

static void interrupted_lookup_ends_its_requests(void **state)
{
    struct host_request *r;

    world_start();
    world.hold = true;
    r = host_begin();
    fs_ops()->lookup(world.fs, &r->fs, FS_ROOT, "a", 1);
    world_run();
    host_cancel(r);
    assert_error(r, -EINTR);
    world_run();
    assert_true(list_empty(&world.held));
    world.hold = false;
    assert_absent(host_lookup(FS_ROOT, "a"));
}

static void new_version_is_a_new_node_and_the_old_one_is_stale(void **state)
{
    uint64_t old, new;

    world_put("a", 7, ETAG_1);
    world_start();
    old = host_walk("a");
    world_put("a", 7, ETAG_2);
    new = host_walk("a");
    assert_int_not_equal(old, new);
    assert_error(host_open(old), -ESTALE);
    assert_int_equal(host_open(new)->answer, ANSWER_OPENED);
}

static void old_version_written_again_is_current_again(void **state)
{
    uint64_t old;

    world_put("a", 7, ETAG_1);
    world_start();
    old = host_walk("a");
    world_put("a", 7, ETAG_2);
    assert_error(host_open(old), -ESTALE);
    world_put("a", 7, ETAG_1);
    assert_int_equal(host_walk("a"), old);
    assert_int_equal(host_open(old)->answer, ANSWER_OPENED);
}

static void listing_that_shows_another_etag_makes_the_node_stale(void **state)
{
    uint64_t old;

    world_put("a", 7, ETAG_1);
    world_start();
    old = host_walk("a");
    world_put("a", 7, ETAG_2);
    free(host_list(FS_ROOT, false, 100));
    assert_int_equal(world.loads, 0);
    assert_error(host_open(old), -ESTALE);
    assert_int_equal(world.loads, 0);
}

static void forgotten_nodes_are_not_known_any_more(void **state)
{
    struct host_request *r = host_begin();
    struct fs_stats before, after;
    uint64_t node;

    world_put("d/a", 7, ETAG_1);
    world_start();
    fs_stats_read(world.fs, &before);
    node = host_walk("d/a");
    assert_int_equal(host_walk("d/a"), node);
    fs_ops()->forget(world.fs, node, 1);
    fs_ops()->unlookup(world.fs, node, 1);
    fs_ops()->forget(world.fs, host_walk("d"), 3);
    fs_ops()->getattr(world.fs, &r->fs, node);
    assert_error(r, -ESTALE);
    fs_stats_read(world.fs, &after);
    assert_int_equal(after.nodes, before.nodes);
}

static void unknown_nodes_from_the_host_are_answered_with_estale(void **state)
{
    static const uint64_t nodes[] = {0, 77, 1ull << 32 | 1, UINT64_MAX, 6, 1ull << 31};

    world_start();
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        struct host_request *r = host_begin();

        assert_error(host_lookup(nodes[i], "a"), -ESTALE);
        assert_error(host_open(nodes[i]), -ESTALE);
        fs_ops()->forget(world.fs, nodes[i], 1);
        fs_ops()->getattr(world.fs, &r->fs, nodes[i]);
        assert_error(r, -ESTALE);
    }
}

static void lookup_below_a_file_is_refused(void **state)
{
    world_put("a", 7, ETAG_1);
    world_start();
    assert_error(host_lookup(host_walk("a"), "b"), -ENOTDIR);
}

static void key_beyond_the_limit_of_s3_is_refused_without_asking(void **state)
{
    uint64_t node = FS_ROOT;
    struct buf key = {0};
    char name[256];

    memset(name, 'n', 255);
    name[255] = 0;
    for (int i = 0; i < 4; i++)
        buf_printf(&key, "%s/", name);
    world_put(buf_str(&key), 0, ETAG_1); // of just the 1024 bytes allowed
    buf_free(&key);
    world_start();
    for (int i = 0; i < 4; i++)
        node = host_lookup(node, name)->entry.attr.node;
    assert_int_not_equal(node, 0);
    world.heads = 0;
    assert_error(host_lookup(node, "x"), -ENAMETOOLONG);
    assert_int_equal(world.heads, 0);
}

static void names_with_odd_characters_are_looked_up_as_they_are(void **state)
{
    static const char *const names[] = {
        "a?b",        "a#b",       "100%",     "a+b",
        "with space", "new\nline", "\"q'&<>;", "\xc3\xa4\xe2\x82\xac",
        "\x01\x7f",   ".hidden",   "...",      "*"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        world_put(names[i], i + 1, ETAG_1);
    world_start();
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_file(host_lookup(FS_ROOT, names[i]), i + 1);
}

static void names_that_are_not_utf8_are_not_there(void **state)
{
    world_put("\xff\xfe", 1, ETAG_1);
    world_start();
    assert_error(host_lookup(FS_ROOT, "\xff\xfe"), -ENOENT);
    assert_int_equal(world.heads, 0);
}

static void control_directory_hides_a_key_of_its_name(void **state)
{
    struct host_request *r;

    world_put(".os2g/control", 99, ETAG_1);
    world_put(".os2g/other", 99, ETAG_1);
    world_start();
    assert_directory(host_lookup(FS_ROOT, ".os2g"));
    r = host_lookup(host_walk(".os2g"), "control");
    assert_file(r, 0);
    assert_absent(host_lookup(host_walk(".os2g"), "other"));
    assert_int_equal(world.heads, 0);
    r = host_lookup(host_walk(".os2g"), "control");
    r = host_open(r->entry.attr.node);
    assert_int_equal(r->answer, ANSWER_OPENED);
    assert_int_equal(host_read(r->opened.handle, 0, 100)->bytes.len, 0);
    host_release(r->opened.handle);
}

static void access_knows_the_mode_and_that_nothing_can_be_written(void **state)
{
    static const struct {
        uint32_t uid, gid;
        int mask, error;
    } cases[] = {
        {1000, 5, R_OK, 0},       {1000, 5, W_OK, -EROFS}, {7, 1001, R_OK, 0},
        {7, 7, R_OK, -EACCES},    {0, 0, R_OK, 0},         {0, 0, X_OK, -EACCES},
        {1000, 5, X_OK, -EACCES}, {7, 7, F_OK, 0},
    };
    uint64_t node;

    world.options.file_mode = 0640;
    world_put("a", 7, ETAG_1);
    world_start();
    node = host_walk("a");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct host_request *r = host_begin();

        r->fs.uid = cases[i].uid;
        r->fs.gid = cases[i].gid;
        fs_ops()->access(world.fs, &r->fs, node, cases[i].mask);
        assert_error(r, cases[i].error);
    }
}

static void nodes_are_as_before_after_the_worker_died(void **state)
{
    struct host_request *r = host_begin();
    uint64_t node, dir;

    world_put("d/a", 7, ETAG_1);
    world_start();
    node = host_walk("d/a");
    dir = host_walk("d");
    world_restart();
    fs_ops()->getattr(world.fs, &r->fs, node);
    assert_int_equal(r->answer, ANSWER_ATTR);
    assert_int_equal(r->attr.size, 7);
    assert_int_equal(host_lookup(dir, "a")->entry.attr.node, node);
    assert_int_equal(host_open(node)->answer, ANSWER_OPENED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(attributes_are_those_of_the_mount),
        TEST(cold_lookup_asks_head_beside_list_and_never_lists_the_directory),
        TEST(export_prefix_is_in_front_of_every_key),
        TEST(absent_name_is_negative_for_the_negative_ttl),
        TEST(directory_is_listed_after_several_lookups_in_it),
        TEST(listed_directory_answers_without_the_store),
        TEST(name_from_a_listing_stays_valid_for_the_rest_of_the_ttl),
        TEST(old_listing_is_not_believed_about_absent_names),
        TEST(directory_in_use_is_listed_again_before_its_time),
        TEST(directory_that_is_not_used_is_not_listed_again),
        TEST(refresh_that_fails_leaves_the_listing_its_time),
        TEST(refresh_that_fails_is_not_tried_with_every_lookup),
        TEST(refresh_that_becomes_too_large_leaves_the_listing_its_time),
        TEST(without_ttl_every_lookup_asks),
        TEST(object_and_prefix_of_one_name_are_the_directory),
        TEST(marker_of_zero_bytes_makes_an_empty_directory),
        TEST(server_errors_are_never_taken_for_absence),
        TEST(file_is_found_by_listing_where_head_is_refused),
        TEST(file_is_found_by_head_where_listing_is_refused),
        TEST(same_name_is_asked_for_once_however_many_wait),
        TEST(interrupted_lookup_ends_its_requests),
        TEST(new_version_is_a_new_node_and_the_old_one_is_stale),
        TEST(old_version_written_again_is_current_again),
        TEST(listing_that_shows_another_etag_makes_the_node_stale),
        TEST(forgotten_nodes_are_not_known_any_more),
        TEST(unknown_nodes_from_the_host_are_answered_with_estale),
        TEST(lookup_below_a_file_is_refused),
        TEST(key_beyond_the_limit_of_s3_is_refused_without_asking),
        TEST(names_with_odd_characters_are_looked_up_as_they_are),
        TEST(names_that_are_not_utf8_are_not_there),
        TEST(control_directory_hides_a_key_of_its_name),
        TEST(access_knows_the_mode_and_that_nothing_can_be_written),
        TEST(nodes_are_as_before_after_the_worker_died),
    };

    return cmocka_run_group_tests_name("fs/lookup", tests, NULL, NULL);
}
