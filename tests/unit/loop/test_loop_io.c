// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "loop/loop.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct loop *loop;
static struct loop_io *io;
static struct loop_timer bell;
static int fds[2];
static unsigned calls, seen, quit_after;
static bool free_inside;

static void on_ready(struct loop_io *i, unsigned events, void *arg)
{
    assert_ptr_equal(arg, fds);
    calls++;
    seen |= events;
    if (free_inside) {
        loop_io_free(i);
        close(fds[0]);
        io = NULL;
        fds[0] = -1;
    }
    if (calls == quit_after) {
        if (io)
            loop_io_want(io, 0); // quitting takes another turn
        loop_quit(loop);
    }
}

static void ring(struct loop_timer *t)
{
    loop_quit(t->loop);
}

static int set_up(void **state)
{
    calls = seen = 0;
    quit_after = 1;
    free_inside = false;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0 ||
        loop_new(&loop, "test") < 0)
        return -1;
    loop_timer_init(&bell, loop, ring);
    return loop_io_new(&io, loop, fds[0], on_ready, fds);
}

static int tear_down(void **state)
{
    loop_io_free(io);
    loop_stop(loop);
    close(fds[0]);
    close(fds[1]);
    return 0;
}

// Until quit_after calls, or for a while if there are fewer.
static void run(void)
{
    loop_timer_start_ns(&bell, quit_after ? 2 * NS_PER_S : 5 * NS_PER_MS);
    loop_run(loop);
    loop_timer_stop(&bell);
}

static void readable_descriptor_is_reported(void **state)
{
    loop_io_want(io, LOOP_READ);
    assert_int_equal(write(fds[1], "x", 1), 1);
    run();
    assert_int_equal(calls, 1);
    assert_int_equal(seen, LOOP_READ);
}

static void writable_descriptor_is_reported(void **state)
{
    loop_io_want(io, LOOP_READ | LOOP_WRITE);
    run();
    assert_int_equal(calls, 1);
    assert_int_equal(seen, LOOP_WRITE);
}

static void what_is_not_read_is_reported_again(void **state)
{
    quit_after = 5;
    loop_io_want(io, LOOP_READ);
    assert_int_equal(write(fds[1], "x", 1), 1);
    run();
    assert_int_equal(calls, 5);
}

static void nothing_is_reported_unasked(void **state)
{
    quit_after = 0;
    assert_int_equal(write(fds[1], "x", 1), 1);
    run();
    assert_int_equal(calls, 0);
}

static void watching_can_be_paused(void **state)
{
    quit_after = 0;
    assert_int_equal(write(fds[1], "x", 1), 1);
    loop_io_want(io, LOOP_READ);
    loop_io_want(io, 0);
    run();
    assert_int_equal(calls, 0);
}

static void watching_goes_on_after_a_pause(void **state)
{
    assert_int_equal(write(fds[1], "x", 1), 1);
    loop_io_want(io, LOOP_READ);
    loop_io_want(io, 0);
    loop_io_want(io, LOOP_READ);
    run();
    assert_int_equal(calls, 1);
}

static void hang_up_shows_as_what_was_asked_for(void **state)
{
    loop_io_want(io, LOOP_READ);
    close(fds[1]);
    fds[1] = -1;
    run();
    assert_int_equal(seen, LOOP_READ);
}

static void io_may_be_freed_in_its_own_call_back(void **state)
{
    free_inside = true;
    loop_io_want(io, LOOP_READ);
    assert_int_equal(write(fds[1], "x", 1), 1);
    run();
    assert_int_equal(calls, 1);
}

static void descriptor_may_be_closed_and_its_number_watched_again(void **state)
{
    int number = fds[0];

    loop_io_want(io, LOOP_READ);
    loop_io_free(io);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(fds[0], number);
    assert_int_equal(loop_io_new(&io, loop, fds[0], on_ready, fds), 0);
    loop_io_want(io, LOOP_READ);
    assert_int_equal(write(fds[1], "x", 1), 1);
    run();
    assert_int_equal(calls, 1);
}

static void descriptor_that_cannot_be_watched_is_refused(void **state)
{
    struct loop_io *other = NULL;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    assert_true(loop_io_new(&other, loop, fd, on_ready, fds) < 0);
    assert_true(loop_io_new(&other, loop, -1, on_ready, fds) < 0);
    assert_null(other);
    close(fd);
}

// A TCP connection that its other side has reset after sending a byte.
static void make_reset_connection(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger now = {.l_onoff = 1};
    socklen_t len = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;

    assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    loop_io_free(io);
    close(fds[0]);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&addr, sizeof(addr)), 0);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(write(peer, "x", 1), 1);
    setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(peer);
    close(listener);
    assert_int_equal(loop_io_new(&io, loop, fds[0], on_ready, fds), 0);
}

static void descriptor_in_error_is_reported_until_it_is_freed(void **state)
{
    make_reset_connection();
    quit_after = 3;
    loop_io_want(io, LOOP_READ);
    run();
    assert_int_equal(calls, 3);
    assert_int_equal(seen, LOOP_READ);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(readable_descriptor_is_reported),
        TEST(writable_descriptor_is_reported),
        TEST(what_is_not_read_is_reported_again),
        TEST(nothing_is_reported_unasked),
        TEST(watching_can_be_paused),
        TEST(watching_goes_on_after_a_pause),
        TEST(hang_up_shows_as_what_was_asked_for),
        TEST(io_may_be_freed_in_its_own_call_back),
        TEST(descriptor_may_be_closed_and_its_number_watched_again),
        TEST(descriptor_that_cannot_be_watched_is_refused),
        TEST(descriptor_in_error_is_reported_until_it_is_freed),
    };

    return cmocka_run_group_tests_name("loop/io", tests, NULL, NULL);
}
