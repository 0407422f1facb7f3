// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

#define assert_names(node, plus, room, expected)                                                   \
    do {                                                                                           \
        char *names_ = host_list(node, plus, room);                                                \
        assert_string_equal(names_, expected);                                                     \
        free(names_);                                                                              \
    } while (0)

static void put_many(const char *format, unsigned n)
{
    char key[64];

    for (unsigned i = 0; i < n; i++) {
        snprintf(key, sizeof(key), format, i);
        world_put(key, i, ETAG_1);
    }
}

// All names in the order given, one after the other: f00000 …
static void assert_all_files(uint64_t node, unsigned room, unsigned n)
{
    uint64_t handle = host_opendir(node), offset = 0;
    unsigned at = 0;

    for (;;) {
        struct host_request *r = host_readdir(handle, offset, false, room);

        assert_int_equal(r->answer, ANSWER_DIRENTS);
        if (!r->n_names)
            break;
        for (unsigned i = offset ? 0 : 2; i < r->n_names; i++, at++) {
            char name[64];

            snprintf(name, sizeof(name), "f%05u", at);
            assert_string_equal(r->names[i].name, name);
            offset = r->names[i].cookie;
        }
    }
    assert_int_equal(at, n);
    host_releasedir(handle);
}

static void dots_come_first_and_carry_no_attributes_of_the_store(void **state)
{
    struct host_request *r;
    uint64_t dir;

    world_put("d/e/a", 1, ETAG_1);
    world_start();
    dir = host_walk("d/e");
    r = host_readdir(host_opendir(dir), 0, true, 100);
    assert_int_equal(r->n_names, 3);
    assert_string_equal(r->names[0].name, ".");
    assert_int_equal(r->names[0].e.attr.node, dir);
    assert_string_equal(r->names[1].name, "..");
    assert_int_equal(r->names[1].e.attr.node, host_walk("d"));
}

static void names_come_in_the_order_of_keys_whatever_room_there_is(void **state)
{
    world_put("a/x", 1, ETAG_1);
    world_put("a-b", 1, ETAG_1);
    world_put("a0", 1, ETAG_1);
    world_put("a", 1, ETAG_1);
    world_put("b", 1, ETAG_1);
    world_put("c/", 0, ETAG_1);
    world_start();
    for (unsigned page = 1; page < 8; page++) {
        world.page = page;
        world_restart();
        for (unsigned room = 1; room < 8; room++) {
            assert_names(FS_ROOT, false, room, "a-b a/ a0 b c/");
            assert_names(FS_ROOT, true, room, "a-b a/ a0 b c/");
        }
    }
}

static void attributes_come_with_the_names_and_no_head(void **state)
{
    struct host_request *r, *attr = host_begin();
    uint64_t handle;

    world_put("a", 5, ETAG_1);
    world_put("d/x", 5, ETAG_1);
    world_start();
    handle = host_opendir(FS_ROOT);
    r = host_readdir(handle, 2, true, 100);
    assert_int_equal(r->n_names, 2);
    assert_int_equal(r->names[0].e.attr.size, 5);
    assert_true(S_ISREG(r->names[0].e.attr.mode));
    assert_true(S_ISDIR(r->names[1].e.attr.mode));
    assert_true(r->names[0].e.entry_valid_ns > 0);
    assert_int_equal(world.heads, 0);
    // each name was one reference
    fs_ops()->forget(world.fs, r->names[0].e.attr.node, 1);
    fs_ops()->getattr(world.fs, &attr->fs, r->names[0].e.attr.node);
    assert_int_equal(attr->error, -ESTALE);
    host_releasedir(handle);
}

static void name_without_room_makes_no_node(void **state)
{
    struct fs_stats before, after;
    uint64_t handle;

    world_put("a", 5, ETAG_1);
    world_put("b", 5, ETAG_1);
    world_start();
    fs_stats_read(world.fs, &before);
    handle = host_opendir(FS_ROOT);
    assert_int_equal(host_readdir(handle, 2, true, 1)->n_names, 1);
    fs_stats_read(world.fs, &after);
    assert_int_equal(after.nodes, before.nodes + 1);
    host_releasedir(handle);
}

static void one_listing_serves_all_who_ask(void **state)
{
    struct host_request *r[8];

    put_many("f%05u", 50);
    world_start();
    world.hold = true;
    for (int i = 0; i < 8; i++) {
        uint64_t handle = host_opendir(FS_ROOT);

        r[i] = host_begin();
        fs_ops()->readdir(world.fs, &r[i]->fs, handle, 2, i & 1);
    }
    world_run();
    world.hold = false;
    world_run_held();
    for (int i = 0; i < 8; i++)
        assert_int_equal(r[i]->n_names, 50);
    assert_int_equal(world.lists, 1);
}

static void reading_begins_before_the_listing_has_ended(void **state)
{
    struct host_request *r;

    world.page = 10;
    put_many("f%05u", 100);
    world_start();
    r = host_readdir(host_opendir(FS_ROOT), 2, false, 1000);
    assert_true(r->n_names > 0 && r->n_names <= 10);
    assert_true(world.lists <= 2);
}

static void interrupted_reading_leaves_the_listing_to_the_others(void **state)
{
    struct host_request *r;
    uint64_t handle;

    put_many("f%05u", 5);
    world_start();
    world.hold = true;
    handle = host_opendir(FS_ROOT);
    r = host_begin();
    fs_ops()->readdir(world.fs, &r->fs, handle, 2, false);
    world_run();
    host_cancel(r);
    assert_int_equal(r->error, -EINTR);
    world.hold = false;
    world_run_held();
    assert_int_equal(host_readdir(handle, 2, false, 100)->n_names, 5);
    assert_int_equal(world.lists, 1);
}

static void listing_that_fails_is_an_error_and_is_tried_again(void **state)
{
    uint64_t handle;

    put_many("f%05u", 5);
    world_start();
    world.list_error = -EIO;
    handle = host_opendir(FS_ROOT);
    assert_int_equal(host_readdir(handle, 2, false, 100)->error, -EIO);
    world.list_error = -EACCES;
    assert_int_equal(host_readdir(handle, 2, false, 100)->error, -EACCES);
    world.list_error = 0;
    assert_int_equal(host_readdir(handle, 2, false, 100)->n_names, 5);
}

static void listing_that_fails_half_way_never_looks_complete(void **state)
{
    struct host_request *r;
    uint64_t handle, offset = 2;
    unsigned names = 0;

    world.page = 10;
    put_many("f%05u", 100);
    world_start();
    world.list_error = -EIO;
    world.list_error_after = 3;
    handle = host_opendir(FS_ROOT);
    for (;;) {
        r = host_readdir(handle, offset, false, 1000);
        if (r->answer == ANSWER_ERROR)
            break;
        assert_true(r->n_names > 0);
        names += r->n_names;
        offset = r->names[r->n_names - 1].cookie;
    }
    assert_int_equal(r->error, -EIO);
    world.list_error = 0;
    // and the reader goes on where it was
    for (;;) {
        r = host_readdir(handle, offset, false, 1000);
        assert_int_equal(r->answer, ANSWER_DIRENTS);
        if (!r->n_names)
            break;
        names += r->n_names;
        offset = r->names[r->n_names - 1].cookie;
    }
    assert_int_equal(names, 100);
}

static void fresh_listing_is_used_again_and_an_old_one_is_not(void **state)
{
    put_many("f%05u", 5);
    world_start();
    assert_all_files(FS_ROOT, 100, 5);
    assert_all_files(FS_ROOT, 100, 5);
    assert_int_equal(world.lists, 1);
    world_end();

    world_begin();
    world.options.metadata_ttl_ns = 0;
    put_many("f%05u", 5);
    world_start();
    assert_all_files(FS_ROOT, 100, 5);
    world_put("f00005", 1, ETAG_1);
    assert_all_files(FS_ROOT, 100, 6);
    assert_int_equal(world.lists, 2);
}

static void directory_too_large_for_memory_is_read_to_its_end(void **state)
{
    struct fs_stats stats;

    world.options.metadata_memory = 256 << 10;
    put_many("f%05u", 20000);
    world_start();
    for (unsigned room = 100; room < 5000; room *= 7)
        assert_all_files(FS_ROOT, room, 20000);
    fs_stats_read(world.fs, &stats);
    assert_true(stats.snapshot_bytes <= 256 << 10);
}

static void large_directory_with_twins_at_its_page_ends_is_read_right(void **state)
{
    struct buf expected = {0};
    char *names;

    world.options.metadata_memory = 64 << 10;
    world.page = 7;
    for (unsigned i = 0; i < 900; i++) {
        char key[64];

        snprintf(key, sizeof(key), "n%04u", i);
        world_put(key, 1, ETAG_1);
        snprintf(key, sizeof(key), "n%04u-more", i);
        world_put(key, 1, ETAG_1);
        buf_printf(&expected, "%s%s n%04u/", expected.len ? " " : "", key, i);
        snprintf(key, sizeof(key), "n%04u/x", i);
        world_put(key, 1, ETAG_1);
    }
    world_start();
    names = host_list(FS_ROOT, false, 5);
    assert_string_equal(names, buf_str(&expected));
    free(names);
    buf_free(&expected);
}

static void many_listings_stay_within_their_memory(void **state)
{
    struct fs_stats stats;

    world.options.metadata_memory = 256 << 10;
    for (unsigned d = 0; d < 40; d++) {
        char format[32];

        snprintf(format, sizeof(format), "d%02u/f%%05u", d);
        put_many(format, 300);
    }
    world_start();
    for (unsigned d = 0; d < 40; d++) {
        char name[8];

        snprintf(name, sizeof(name), "d%02u", d);
        assert_all_files(host_walk(name), 100, 300);
        fs_stats_read(world.fs, &stats);
        assert_true(stats.snapshot_bytes <= 256 << 10);
    }
}

static void host_may_go_back_to_any_name_it_was_given(void **state)
{
    struct host_request *r;
    uint64_t handle, cookies[300];

    world.options.metadata_memory = 16 << 10; // so that handles read pages of their own
    world.page = 20;
    put_many("f%05u", 300);
    world_start();
    handle = host_opendir(FS_ROOT);
    for (unsigned at = 0; at < 300;) {
        r = host_readdir(handle, at ? cookies[at - 1] : 2, false, 13);
        for (unsigned i = 0; i < r->n_names; i++)
            cookies[at++] = r->names[i].cookie;
    }
    for (unsigned i = 0; i < 299; i += 7) {
        char name[64];

        snprintf(name, sizeof(name), "f%05u", i + 1);
        r = host_readdir(handle, cookies[i], false, 1);
        assert_int_equal(r->n_names, 1);
        assert_string_equal(r->names[0].name, name);
    }
    assert_int_equal(host_readdir(handle, cookies[299], false, 1)->n_names, 0);
}

static void reading_goes_on_behind_the_same_name_in_a_new_worker(void **state)
{
    struct host_request *r;
    uint64_t handle, last, first;

    put_many("f%05u", 100);
    world_start();
    handle = host_opendir(FS_ROOT);
    r = host_readdir(handle, 2, false, 40);
    last = r->names[39].cookie;
    first = r->names[9].cookie;
    world_delete("f00003");
    world_delete("f00039"); // the very name
    world_put("f00000-new", 1, ETAG_1);
    world_restart();
    r = host_readdir(handle, last, false, 1);
    assert_string_equal(r->names[0].name, "f00040");
    r = host_readdir(handle, first, false, 1);
    assert_string_equal(r->names[0].name, "f00010");
    host_releasedir(handle);
}

static void handles_of_the_worker_before_are_released_as_usual(void **state)
{
    struct fs_stats before, after;
    uint64_t handle;

    world_put("d/a", 1, ETAG_1);
    world_start();
    fs_stats_read(world.fs, &before);
    handle = host_opendir(host_walk("d"));
    world_restart();
    host_releasedir(handle);
    fs_ops()->forget(world.fs, host_walk("d"), 2);
    fs_stats_read(world.fs, &after);
    assert_int_equal(after.handles, before.handles);
    assert_int_equal(after.nodes, before.nodes);
}

static void replayed_opendir_finds_its_handle(void **state)
{
    struct host_request *r = host_begin(), *again = host_begin();

    world_start();
    fs_ops()->opendir(world.fs, &r->fs, FS_ROOT);
    world_restart();
    again->fs.unique = r->fs.unique;
    again->fs.replayed = true;
    fs_ops()->opendir(world.fs, &again->fs, FS_ROOT);
    assert_int_equal(again->opened.handle, r->opened.handle);
}

static void unknown_handles_from_the_host_are_answered_with_ebadf(void **state)
{
    static const uint64_t handles[] = {0, 1, 5, 1ull << 32 | 7, UINT64_MAX};

    world_put("a", 1, ETAG_1);
    world_start();
    for (size_t i = 0; i < ARRAY_LEN(handles); i++)
        assert_int_equal(host_readdir(handles[i], 0, false, 10)->error, -EBADF);
    assert_int_equal(host_readdir(host_open(host_walk("a"))->opened.handle, 0, false, 10)->error,
                     -EBADF);
}

static void odd_offsets_from_the_host_do_no_harm(void **state)
{
    static const uint64_t offsets[] = {
        3, 7, 1ull << 32, 3ull << 32, 900ull << 32, 1ull << 62, (1ull << 63) - 1, UINT64_MAX};
    uint64_t handle;

    put_many("f%05u", 30);
    world_start();
    handle = host_opendir(FS_ROOT);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < ARRAY_LEN(offsets); i++)
            assert_int_equal(host_readdir(handle, offsets[i], true, 10)->answer, ANSWER_DIRENTS);
}

static void keys_without_a_name_are_hidden_and_counted(void **state)
{
    struct fs_stats stats;
    struct buf key = {0};

    world_put("d//b", 1, ETAG_1);  // empty component
    world_put("d/./b", 1, ETAG_1); // dots
    world_put("d/../b", 1, ETAG_1);
    world_put("d/.", 1, ETAG_1);
    world_put("d/\xff", 1, ETAG_1); // not UTF-8
    world_put("d/", 5, ETAG_1);     // bytes in the directory's own key
    buf_add_str(&key, "d/");
    for (int i = 0; i < 256; i++)
        buf_add_str(&key, "n");
    world_put(buf_str(&key), 1, ETAG_1); // too long
    buf_free(&key);
    world_put("d/...", 1, ETAG_1);
    world_put("d/good", 1, ETAG_1);
    world_put(".os2g/x", 1, ETAG_1);   // at the root
    world_put("d/.os2g/x", 1, ETAG_1); // a name as others, elsewhere
    world_start();
    assert_names(host_walk("d"), true, 100, "... .os2g/ good");
    fs_stats_read(world.fs, &stats);
    assert_int_equal(stats.hidden_keys, 7);
    assert_names(FS_ROOT, true, 100, "d/");
    assert_names(FS_ROOT, true, 100, "d/");
    fs_stats_read(world.fs, &stats);
    assert_int_equal(stats.hidden_keys, 8);
}

static void odd_characters_are_listed_as_they_are(void **state)
{
    world_put("a?b", 1, ETAG_1);
    world_put("#/x", 1, ETAG_1);
    world_put("100%25", 1, ETAG_1);
    world_put("q+r", 1, ETAG_1);
    world_put("new\nline", 1, ETAG_1);
    world_put("\xc3\xa4", 1, ETAG_1);
    world_start();
    assert_names(FS_ROOT, true, 3, "#/ 100%25 a?b new\nline q+r \xc3\xa4");
}

static void control_directory_has_its_files_and_is_not_listed(void **state)
{
    world_put("a", 1, ETAG_1);
    world_start();
    assert_names(FS_ROOT, true, 100, "a");
    assert_names(host_walk(".os2g"), true, 1, "control gdd stalls");
    assert_names(host_walk(".os2g"), false, 100, "control gdd stalls");
}

static void walk_over_sibling_directories_is_listed_ahead(void **state)
{
    uint64_t nodes[30];

    for (unsigned d = 0; d < 30; d++) {
        char format[32];

        snprintf(format, sizeof(format), "d%02u/f%%05u", d);
        put_many(format, 10);
    }
    world_start();
    free(host_list(FS_ROOT, true, 1000));
    for (unsigned d = 0; d < 30; d++) {
        char name[8];

        snprintf(name, sizeof(name), "d%02u", d);
        nodes[d] = host_walk(name);
    }
    for (unsigned d = 0; d < 30; d++)
        assert_all_files(nodes[d], 1000, 10);
    assert_int_equal(world.lists, 31);
    assert_true(world.most_lists_at_once >= 4);
    assert_true(world.most_lists_at_once <= 9);
}

static void walk_with_hardly_any_memory_reads_every_name(void **state)
{
    for (unsigned d = 0; d < 30; d++) {
        char format[32];

        snprintf(format, sizeof(format), "d%02u/f%%05u", d);
        put_many(format, 100);
    }
    for (uint64_t memory = 2048; memory < 100000; memory *= 2) {
        world.options.metadata_memory = memory;
        if (world.fs)
            world_restart();
        else
            world_start();
        free(host_list(FS_ROOT, true, 1000));
        for (unsigned d = 0; d < 30; d++) {
            char name[8];

            snprintf(name, sizeof(name), "d%02u", d);
            assert_all_files(host_walk(name), 30, 100);
        }
    }
}

static void scattered_directories_are_not_listed_ahead(void **state)
{
    for (unsigned d = 0; d < 30; d++) {
        char format[32];

        snprintf(format, sizeof(format), "d%02u/f%%05u", d);
        put_many(format, 10);
    }
    world_start();
    free(host_list(FS_ROOT, true, 1000));
    for (unsigned i = 0; i < 5; i++) {
        char name[8];

        snprintf(name, sizeof(name), "d%02u", 29 - i * 6);
        assert_all_files(host_walk(name), 1000, 10);
    }
    assert_int_equal(world.lists, 6);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

static void store_that_sends_the_same_page_again_is_an_error_and_no_endless_loop(void **state)
{
    uint64_t handle;

    put_many("f%05u", 3);
    world_start();
    handle = host_opendir(FS_ROOT);
    world.page = 0;
    assert_int_equal(host_readdir(handle, 0, false, 100)->error, -EIO);
    world.page = 2;
    assert_all_files(FS_ROOT, 100, 3);
    host_releasedir(handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(dots_come_first_and_carry_no_attributes_of_the_store),
        TEST(names_come_in_the_order_of_keys_whatever_room_there_is),
        TEST(attributes_come_with_the_names_and_no_head),
        TEST(name_without_room_makes_no_node),
        TEST(one_listing_serves_all_who_ask),
        TEST(reading_begins_before_the_listing_has_ended),
        TEST(interrupted_reading_leaves_the_listing_to_the_others),
        TEST(listing_that_fails_is_an_error_and_is_tried_again),
        TEST(listing_that_fails_half_way_never_looks_complete),
        TEST(fresh_listing_is_used_again_and_an_old_one_is_not),
        TEST(directory_too_large_for_memory_is_read_to_its_end),
        TEST(large_directory_with_twins_at_its_page_ends_is_read_right),
        TEST(many_listings_stay_within_their_memory),
        TEST(host_may_go_back_to_any_name_it_was_given),
        TEST(reading_goes_on_behind_the_same_name_in_a_new_worker),
        TEST(handles_of_the_worker_before_are_released_as_usual),
        TEST(replayed_opendir_finds_its_handle),
        TEST(unknown_handles_from_the_host_are_answered_with_ebadf),
        TEST(odd_offsets_from_the_host_do_no_harm),
        TEST(keys_without_a_name_are_hidden_and_counted),
        TEST(odd_characters_are_listed_as_they_are),
        TEST(control_directory_has_its_files_and_is_not_listed),
        TEST(walk_over_sibling_directories_is_listed_ahead),
        TEST(walk_with_hardly_any_memory_reads_every_name),
        TEST(scattered_directories_are_not_listed_ahead),
        TEST(store_that_sends_the_same_page_again_is_an_error_and_no_endless_loop),
    };

    return cmocka_run_group_tests_name("fs/readdir", tests, NULL, NULL);
}
