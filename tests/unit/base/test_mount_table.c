// SPDX-License-Identifier: Apache-2.0
#include "base/mount_table.h"

#include <stdlib.h>

#include "test.h"

static const char mountinfo[] =
    "22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
    "40 22 0:35 / /data ro,nosuid,nodev,relatime shared:20 - fuse.os2g s3://a/x "
    "ro,user_id=0,group_id=0\n"
    "41 22 0:36 / /home/u/my\\040data ro,nosuid - fuse.os2g s3://b ro,user_id=1000,group_id=1000\n"
    "42 40 0:37 / /data/deep/er ro - fuse.os2g s3://c ro,user_id=0,group_id=0\n"
    "43 22 0:38 / /other rw - fuse.sshfs host: rw,user_id=0\n";

static void our_mounts_are_told_from_others(void **state)
{
    struct mount_table t;

    mount_table_parse(&t, mountinfo);
    assert_int_equal(t.n, 5);
    assert_false(t.entries[0].ours);
    assert_true(t.entries[1].ours);
    assert_string_equal(t.entries[1].source, "s3://a/x");
    assert_null(mount_table_at(&t, "/other"));
    assert_null(mount_table_find(&t, "/other/file"));
    mount_table_free(&t);
}

static void the_last_mount_at_a_place_is_the_topmost(void **state)
{
    char *text = xasprintf("%s44 40 0:39 / /data rw - tmpfs none rw\n", mountinfo);
    struct mount_table t;

    mount_table_parse(&t, text);
    assert_false(mount_table_top(&t, "/data")->ours);
    assert_string_equal(mount_table_at(&t, "/data")->source, "s3://a/x");
    assert_null(mount_table_top(&t, "/nowhere"));
    mount_table_free(&t);
    free(text);
}

static void blanks_in_directories_are_unescaped(void **state)
{
    struct mount_table t;

    mount_table_parse(&t, mountinfo);
    assert_string_equal(t.entries[2].directory, "/home/u/my data");
    assert_int_equal(t.entries[2].owner, 1000);
    mount_table_free(&t);
}

static void a_path_belongs_to_the_innermost_mount(void **state)
{
    struct mount_table t;

    mount_table_parse(&t, mountinfo);
    assert_string_equal(mount_table_find(&t, "/data/deep/er/file")->source, "s3://c");
    assert_string_equal(mount_table_find(&t, "/data/deep/erratic")->source, "s3://a/x");
    assert_string_equal(mount_table_find(&t, "/data")->source, "s3://a/x");
    assert_null(mount_table_find(&t, "/database"));
    mount_table_free(&t);
}

static void a_directory_in_a_mount_is_not_where_it_is_mounted(void **state)
{
    struct mount_table t;

    mount_table_parse(&t, mountinfo);
    assert_null(mount_table_at(&t, "/data/deep"));
    assert_non_null(mount_table_at(&t, "/data"));
    mount_table_free(&t);
}

static void lines_cut_short_do_no_harm(void **state)
{
    for (size_t len = 0; len < sizeof(mountinfo) - 1; len++) {
        char *text = xstrndup(mountinfo, len);
        struct mount_table t;

        mount_table_parse(&t, text);
        mount_table_free(&t);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_mounts_are_told_from_others),
        cmocka_unit_test(the_last_mount_at_a_place_is_the_topmost),
        cmocka_unit_test(blanks_in_directories_are_unescaped),
        cmocka_unit_test(a_path_belongs_to_the_innermost_mount),
        cmocka_unit_test(a_directory_in_a_mount_is_not_where_it_is_mounted),
        cmocka_unit_test(lines_cut_short_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
