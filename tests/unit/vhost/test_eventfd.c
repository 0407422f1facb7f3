// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "front/vhost/eventfd.h"
#include "loop/loop.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void signals_are_counted(void **state)
{
    int fd = eventfd(0, 0);
    eventfd_t n;

    for (int i = 0; i < 1000; i++)
        assert_int_equal(vhost_eventfd_signal(fd), 0);
    assert_return_code(eventfd_read(fd, &n), errno);
    assert_int_equal(n, 1000);
    close(fd);
}

static void a_full_counter_does_not_make_us_wait(void **state)
{
    int fd = eventfd(0, 0); // blocking

    assert_return_code(eventfd_write(fd, UINT64_MAX - 1), errno);
    assert_int_equal(vhost_eventfd_signal(fd), 0);
    close(fd);
}

static void an_empty_counter_does_not_make_us_wait(void **state)
{
    int fd = eventfd(2, 0);

    assert_true(vhost_eventfd_take(fd));
    assert_true(vhost_eventfd_take(fd));
    close(fd);
}

static void only_an_eventfd_is_signalled(void **state)
{
    int pipes[2];

    assert_return_code(pipe(pipes), errno);
    assert_int_equal(vhost_eventfd_signal(pipes[1]), -EINVAL);
    close(pipes[0]);
    close(pipes[1]);
}

static void a_closed_descriptor_is_an_error(void **state)
{
    assert_int_equal(vhost_eventfd_signal(1000), -EBADF);
    assert_false(vhost_eventfd_take(1000));
}

static int shared;

static void signal_often(void *arg)
{
    for (int i = 0; i < 5000; i++)
        vhost_eventfd_signal(shared);
}

static void signal_often_too(struct loop_msg *msg)
{
    signal_often(NULL);
}

static void no_signal_is_lost_among_threads(void **state)
{
    struct loop *a = NULL, *b = NULL;
    struct loop_msg msg;
    eventfd_t n;

    shared = eventfd(0, 0);
    assert_int_equal(loop_start(&a, "a"), 0);
    assert_int_equal(loop_start(&b, "b"), 0);
    loop_post(a, &msg, signal_often_too);
    loop_call(b, signal_often, NULL);
    loop_stop(a);
    loop_stop(b);
    assert_return_code(eventfd_read(shared, &n), errno);
    assert_int_equal(n, 10000);
    close(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_are_counted),
        cmocka_unit_test(a_full_counter_does_not_make_us_wait),
        cmocka_unit_test(an_empty_counter_does_not_make_us_wait),
        cmocka_unit_test(only_an_eventfd_is_signalled),
        cmocka_unit_test(a_closed_descriptor_is_an_error),
        cmocka_unit_test(no_signal_is_lost_among_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
