// SPDX-License-Identifier: Apache-2.0
#include "daemon/listen.h"

#include "base/unix_address.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static char directory[] = "/tmp/os2g-test-XXXXXX";
static char *path;

static int set_up(void **state)
{
    strcpy(directory + sizeof(directory) - 7, "XXXXXX");
    assert_non_null(mkdtemp(directory));
    path = xasprintf("%s/socket", directory);
    return 0;
}

static int tear_down(void **state)
{
    unlink(path);
    free(path);
    return rmdir(directory);
}

static int open_it(struct listener *l)
{
    return listener_open(l, path, 0640, (uid_t)-1, (gid_t)-1);
}

static void a_socket_has_the_mode_that_was_asked_for(void **state)
{
    mode_t mask = umask(077);
    struct listener l;
    struct stat st;

    assert_int_equal(open_it(&l), 0);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode, S_IFSOCK | 0640);
    assert_int_equal(umask(mask), 077); // as it was
    listener_close(&l);
    assert_int_equal(access(path, F_OK), -1);
}

static void what_a_killed_process_left_is_replaced(void **state)
{
    struct listener l;

    assert_int_equal(open_it(&l), 0);
    close(l.fd);
    free(l.path);
    assert_int_equal(open_it(&l), 0);
    listener_close(&l);
}

static void a_socket_in_use_is_left_alone(void **state)
{
    struct listener l, other;

    assert_int_equal(open_it(&l), 0);
    assert_int_equal(open_it(&other), -EADDRINUSE);
    listener_close(&other);
    assert_int_equal(access(path, F_OK), 0);
    listener_close(&l);
}

static void a_file_is_left_alone(void **state)
{
    struct listener l;

    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(open_it(&l), -EEXIST);
    assert_int_equal(access(path, F_OK), 0);
}

static void the_name_goes_only_if_it_is_still_ours(void **state)
{
    struct listener l, next;

    assert_int_equal(open_it(&l), 0);
    unlink(path);
    assert_int_equal(open_it(&next), 0);
    listener_close(&l);
    assert_int_equal(access(path, F_OK), 0);
    listener_close(&next);
    assert_int_equal(access(path, F_OK), -1);
}

static void a_directory_that_is_not_there_is_an_error(void **state)
{
    struct listener l;

    assert_int_equal(listener_open(&l, "/no/such/place", 0600, (uid_t)-1, (gid_t)-1), -ENOENT);
    assert_int_equal(l.fd, -1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_socket_has_the_mode_that_was_asked_for),
        TEST(what_a_killed_process_left_is_replaced),
        TEST(a_socket_in_use_is_left_alone),
        TEST(a_file_is_left_alone),
        TEST(the_name_goes_only_if_it_is_still_ours),
        TEST(a_directory_that_is_not_there_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
