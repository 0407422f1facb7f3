// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3d/dir_walk.h"
#include "s3d/store.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    char path[64];
    int fd;
    struct dir_walk walk;
};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));

    strcpy(f->path, "/tmp/os2g-dir-walk-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(f->fd >= 0);
    dir_walk_init(&f->walk, f->fd);
    *state = f;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    dir_walk_fini(&f->walk);
    close(f->fd);
    nftw(f->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(f);
    return 0;
}

static void make_file(struct fixture *f, const char *path)
{
    char *copy = xstrdup(path);
    int fd;

    for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdirat(f->fd, copy, 0755);
        *slash = '/';
    }
    fd = openat(f->fd, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    close(fd);
    free(copy);
}

static void assert_walk(struct fixture *f, const char *const *keys)
{
    char key[KEY_MAX_BYTES + 1], last[KEY_MAX_BYTES + 1] = "";

    dir_walk_begin(&f->walk);
    for (; *keys; keys++) {
        assert_int_equal(dir_walk_next(&f->walk, last, true, key), 0);
        assert_string_equal(key, *keys);
        strcpy(last, key);
    }
    assert_int_equal(dir_walk_next(&f->walk, last, true, key), -ENOENT);
}

static void keys_come_in_the_order_of_their_bytes(void **state)
{
    static const char *const keys[] = {"a!", "a.txt", "a/x", "a/y/z", "a/y0", "a0", "b", NULL};
    struct fixture *f = *state;

    for (size_t i = ARRAY_LEN(keys) - 1; i-- > 0;)
        make_file(f, keys[i]);
    mkdirat(f->fd, "a/empty", 0755);
    assert_walk(f, keys);
}

static void escaped_keys_are_merged_in(void **state)
{
    static const char *const keys[] = {"..", "a//b", "b", NULL};
    struct fixture *f = *state;

    make_file(f, "b");
    make_file(f, DIR_KEYS "/a%2F%2Fb=");
    make_file(f, DIR_KEYS "/%2E%2E=");
    // not what the server writes
    make_file(f, DIR_KEYS "/%2=");
    make_file(f, DIR_KEYS "/plain");
    make_file(f, DIR_KEYS "/%00=");
    assert_walk(f, keys);
}

static void pieces_of_a_long_key_are_put_together(void **state)
{
    static const char *const keys[] = {"abcdef", NULL};
    struct fixture *f = *state;

    make_file(f, DIR_KEYS "/abc+/de+/f=");
    assert_walk(f, keys);
}

static void a_walk_begins_anywhere(void **state)
{
    struct fixture *f = *state;
    char key[KEY_MAX_BYTES + 1];

    make_file(f, "a/b/c");
    make_file(f, "d");
    dir_walk_begin(&f->walk);
    assert_int_equal(dir_walk_next(&f->walk, "a/b/", false, key), 0);
    assert_string_equal(key, "a/b/c");
    assert_int_equal(dir_walk_next(&f->walk, "a/b/c", false, key), 0);
    assert_string_equal(key, "a/b/c");
    assert_int_equal(dir_walk_next(&f->walk, "a/b/c/d", false, key), 0);
    assert_string_equal(key, "d");
    assert_int_equal(dir_walk_next(&f->walk, "a0", false, key), 0);
    assert_string_equal(key, "d");
}

static void the_next_walk_sees_what_has_changed(void **state)
{
    static const char *const before[] = {"a/x", NULL}, *const after[] = {"a/x", "a/y", NULL};
    struct fixture *f = *state;
    struct timespec long_ago[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};

    make_file(f, "a/x");
    // settled: what is read of it now is kept
    assert_int_equal(utimensat(f->fd, "a", long_ago, 0), 0);
    assert_walk(f, before);
    make_file(f, "a/y");
    assert_walk(f, after);
    assert_int_equal(unlinkat(f->fd, "a/y", 0), 0);
    assert_walk(f, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_come_in_the_order_of_their_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(escaped_keys_are_merged_in, setup, teardown),
        cmocka_unit_test_setup_teardown(pieces_of_a_long_key_are_put_together, setup, teardown),
        cmocka_unit_test_setup_teardown(a_walk_begins_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(the_next_walk_sees_what_has_changed, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
