// SPDX-License-Identifier: Apache-2.0
#include "daemon/open_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "test.h"

static struct rlimit before;

static int keep(void **state)
{
    return getrlimit(RLIMIT_NOFILE, &before);
}

static int restore(void **state)
{
    return setrlimit(RLIMIT_NOFILE, &before);
}

static void set_soft(rlim_t n)
{
    const struct rlimit r = {n, before.rlim_max};

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
}

static void the_limit_is_raised_to_what_is_allowed(void **state)
{
    struct rlimit r;

    set_soft(50);
    open_files_raise();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    assert_int_equal(r.rlim_cur, before.rlim_max);
    assert_int_equal(r.rlim_max, before.rlim_max);
}

static void a_limit_that_is_too_low_for_a_worker_is_named(void **state)
{
    char *error = NULL;

    set_soft(50);
    assert_int_equal(open_files_check(2, 0, &error), -EMFILE);
    assert_non_null(strstr(error, "only 50 files"));
    assert_non_null(strstr(error, "ulimit"));
    free(error);
    error = NULL;
    set_soft(64);
    assert_int_equal(open_files_check(2, 8, &error), 0);
    assert_int_equal(open_files_check(20, 8, &error), -EMFILE);
    free(error);
}

static void what_is_open_already_is_counted(void **state)
{
    char *error = NULL;
    int fds[48];

    set_soft(64);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(open_files_check(1, 8, &error), -EMFILE);
    free(error);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    assert_int_equal(open_files_check(1, 8, &error), 0);
}

static void even_without_room_for_a_look_it_is_said(void **state)
{
    int fds[64], n = 0;
    char *error = NULL;

    set_soft(32);
    while (n < (int)ARRAY_LEN(fds) && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    assert_int_equal(open_files_check(1, 0, &error), -EMFILE);
    free(error);
    while (n > 0)
        close(fds[--n]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_limit_is_raised_to_what_is_allowed, keep, restore),
        cmocka_unit_test_setup_teardown(a_limit_that_is_too_low_for_a_worker_is_named, keep,
                                        restore),
        cmocka_unit_test_setup_teardown(what_is_open_already_is_counted, keep, restore),
        cmocka_unit_test_setup_teardown(even_without_room_for_a_look_it_is_said, keep, restore),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
