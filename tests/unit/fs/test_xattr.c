// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <stdlib.h>
#include <string.h>

static int begin(void **state)
{
    world_begin();
    world_put("a", 10, ETAG_1);
    world_put("d/x", 10, ETAG_1);
    world_start();
    return 0;
}

static int end(void **state)
{
    world_end();
    return 0;
}

static struct host_request *get(uint64_t node, const char *name)
{
    struct host_request *r = host_begin();

    fs_ops()->getxattr(world.fs, &r->fs, node, name);
    host_wait(r);
    return r;
}

static void assert_value(const char *name, const char *value)
{
    struct host_request *r = get(host_walk("a"), name);

    assert_int_equal(r->answer, ANSWER_XATTR);
    assert_string_equal(buf_str(&r->bytes), value);
}

static void values_are_those_of_the_object(void **state)
{
    assert_value("user.os2g.etag", ETAG_1);
    assert_value("user.os2g.storage_class", "STANDARD");
    assert_value("user.os2g.content_type", "text/plain");
    assert_value("user.os2g.meta.colour", "blue");
    assert_value("user.os2g.meta.note", "two words");
}

static void etag_is_known_without_asking(void **state)
{
    uint64_t node = host_walk("a");

    world.heads = 0;
    assert_int_equal(get(node, "user.os2g.etag")->answer, ANSWER_XATTR);
    assert_int_equal(world.heads, 0);
}

static void names_of_others_are_answered_without_asking(void **state)
{
    static const char *const names[] = {"security.capability", "system.posix_acl_access",
                                        "user.os2g.",          "user.os2g.etagg",
                                        "user.os2g.met",       ""};
    uint64_t node = host_walk("a");

    world.heads = 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_int_equal(get(node, names[i])->error, -ENODATA);
    assert_int_equal(world.heads, 0);
}

static void metadata_that_is_not_there_is_enodata(void **state)
{
    assert_int_equal(get(host_walk("a"), "user.os2g.meta.none")->error, -ENODATA);
    assert_int_equal(get(host_walk("a"), "user.os2g.meta.")->error, -ENODATA);
}

static void list_names_them_all(void **state)
{
    static const char expected[] = "user.os2g.etag\0user.os2g.storage_class\0"
                                   "user.os2g.content_type\0user.os2g.meta.colour\0"
                                   "user.os2g.meta.Note";
    struct host_request *r = host_begin();

    fs_ops()->listxattr(world.fs, &r->fs, host_walk("a"));
    host_wait(r);
    assert_int_equal(r->answer, ANSWER_XATTR);
    assert_int_equal(r->bytes.len, sizeof(expected));
    assert_memory_equal(r->bytes.data, expected, sizeof(expected));
}

static void directories_and_the_control_file_have_none(void **state)
{
    static const char *const paths[] = {"d", ".os2g", ".os2g/control"};

    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct host_request *r = host_begin();
        uint64_t node = host_walk(paths[i]);

        fs_ops()->listxattr(world.fs, &r->fs, node);
        assert_int_equal(r->answer, ANSWER_XATTR);
        assert_int_equal(r->bytes.len, 0);
        assert_int_equal(get(node, "user.os2g.etag")->error, -ENODATA);
    }
}

static void answer_about_another_version_makes_the_node_stale(void **state)
{
    uint64_t node = host_walk("a");

    world_put("a", 10, ETAG_2);
    assert_int_equal(get(node, "user.os2g.storage_class")->error, -ESTALE);
    assert_int_equal(host_open(node)->error, -ESTALE);
    assert_int_equal(world.loads, 0);
}

static void interrupted_question_is_answered_at_once(void **state)
{
    struct host_request *r = host_begin();
    uint64_t node = host_walk("a");

    world.hold = true;
    fs_ops()->getxattr(world.fs, &r->fs, node, "user.os2g.meta.colour");
    world_run();
    host_cancel(r);
    assert_int_equal(r->error, -EINTR);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(values_are_those_of_the_object),
        TEST(etag_is_known_without_asking),
        TEST(names_of_others_are_answered_without_asking),
        TEST(metadata_that_is_not_there_is_enodata),
        TEST(list_names_them_all),
        TEST(directories_and_the_control_file_have_none),
        TEST(answer_about_another_version_makes_the_node_stale),
        TEST(interrupted_question_is_answered_at_once),
    };

    return cmocka_run_group_tests_name("fs/xattr", tests, NULL, NULL);
}
