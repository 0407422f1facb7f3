// SPDX-License-Identifier: Apache-2.0
// Messages between threads and loops, and the life of loops.
#include "test.h"

#include "base/clock.h"
#include "loop/loop.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct note {
    struct loop_msg msg;
    unsigned sender, number;
};

static struct loop *loop;
static unsigned next_of[4]; // per sender, touched on the loop only
static unsigned received, out_of_order;

static void on_note(struct loop_msg *msg)
{
    struct note *n = container_of(msg, struct note, msg);

    if (loop_self() != loop || next_of[n->sender] != n->number)
        out_of_order++;
    next_of[n->sender] = n->number + 1;
    received++;
    free(n);
}

static int start(void **state)
{
    memset(next_of, 0, sizeof(next_of));
    received = out_of_order = 0;
    return loop_start(&loop, "test");
}

static int stop(void **state)
{
    loop_stop(loop);
    return 0;
}

static void post_note(unsigned sender, unsigned number)
{
    struct note *n = xcalloc(1, sizeof(*n));

    n->sender = sender;
    n->number = number;
    loop_post(loop, &n->msg, on_note);
}

static void *post_many(void *arg)
{
    for (unsigned i = 0; i < 10000; i++)
        post_note((unsigned)(uintptr_t)arg, i);
    return NULL;
}

static void messages_of_each_thread_arrive_once_and_in_order(void **state)
{
    pthread_t threads[4];

    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, (void *)i), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    loop_stop(loop); // after what was posted
    loop = NULL;
    assert_int_equal(received, 40000);
    assert_int_equal(out_of_order, 0);
}

static void note_thread(void *arg)
{
    *(pthread_t *)arg = pthread_self();
    assert(loop_self() == loop);
}

static void call_runs_on_the_loops_thread_and_is_waited_for(void **state)
{
    pthread_t thread = pthread_self();

    assert_null(loop_self());
    loop_call(loop, note_thread, &thread);
    assert_false(pthread_equal(thread, pthread_self()));
}

static bool inside, ran_inside, ran;

static void note_run(struct loop_msg *msg)
{
    ran = true;
    ran_inside = inside;
}

static void post_to_self(void *arg)
{
    inside = true;
    loop_post(loop, arg, note_run);
    inside = false;
}

static void message_to_oneself_runs_later(void **state)
{
    static struct loop_msg msg;

    ran = ran_inside = false;
    loop_call(loop, post_to_self, &msg);
    loop_stop(loop);
    loop = NULL;
    assert_true(ran);
    assert_false(ran_inside);
}

static struct loop_msg chain_msg;
static unsigned chain_left;

static void on_chain(struct loop_msg *msg)
{
    if (--chain_left)
        loop_post(loop, msg, on_chain);
    else
        loop_quit(loop);
}

static void message_may_be_posted_again_by_its_receiver(void **state)
{
    assert_int_equal(loop_new(&loop, "test"), 0);
    chain_left = 1000;
    loop_post(loop, &chain_msg, on_chain);
    loop_run(loop);
    assert_int_equal(chain_left, 0);
    loop_stop(loop);
}

static unsigned turns;

static void on_endless(struct loop_msg *msg)
{
    if (++turns < 100000)
        loop_post(loop, msg, on_endless);
    else
        loop_quit(loop);
}

static void on_readable(struct loop_io *io, unsigned events, void *arg)
{
    *(unsigned *)arg = turns;
    loop_io_want(io, 0);
    turns = 100000; // that will do
}

static void messages_to_oneself_without_end_leave_descriptors_their_turn(void **state)
{
    unsigned read_after = UINT_MAX;
    struct loop_io *io;
    int fds[2];

    assert_int_equal(loop_new(&loop, "test"), 0);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(loop_io_new(&io, loop, fds[0], on_readable, &read_after), 0);
    loop_io_want(io, LOOP_READ);
    turns = 0;
    loop_post(loop, &chain_msg, on_endless);
    loop_run(loop);
    assert_in_range(read_after, 0, 3);
    loop_io_free(io);
    loop_stop(loop);
    close(fds[0]);
    close(fds[1]);
}

static void quit_waits_for_messages_to_oneself(void **state)
{
    assert_int_equal(loop_new(&loop, "test"), 0);
    chain_left = 1000;
    loop_post(loop, &chain_msg, on_chain);
    loop_quit(loop);
    loop_run(loop);
    assert_int_equal(chain_left, 0);
    loop_stop(loop);
}

static void a_loop_may_be_run_again(void **state)
{
    assert_int_equal(loop_new(&loop, "test"), 0);
    for (int i = 0; i < 3; i++) {
        chain_left = 10;
        loop_post(loop, &chain_msg, on_chain);
        loop_run(loop);
        assert_int_equal(chain_left, 0);
    }
    loop_stop(loop);
}

static void what_is_posted_after_a_loop_has_ended_runs_when_it_is_stopped(void **state)
{
    assert_int_equal(loop_new(&loop, "test"), 0);
    loop_quit(loop);
    loop_run(loop);
    received = 0;
    post_note(0, 0);
    loop_stop(loop);
    assert_int_equal(received, 1);
}

static void read_signals(void *arg)
{
    pthread_sigmask(SIG_SETMASK, NULL, arg);
}

static void loops_threads_leave_signals_to_the_main_thread(void **state)
{
    sigset_t on_loop, here;

    loop_call(loop, read_signals, &on_loop);
    assert_int_equal(sigismember(&on_loop, SIGTERM), 1);
    assert_int_equal(sigismember(&on_loop, SIGPIPE), 1);
    pthread_sigmask(SIG_SETMASK, NULL, &here);
    assert_int_equal(sigismember(&here, SIGTERM), 0);
}

static void stopping_nothing_is_harmless(void **state)
{
    loop_stop(NULL);
    assert_int_equal(loop_new(&loop, "test"), 0);
    loop_stop(loop); // that never ran
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(messages_of_each_thread_arrive_once_and_in_order, start,
                                        stop),
        cmocka_unit_test_setup_teardown(call_runs_on_the_loops_thread_and_is_waited_for, start,
                                        stop),
        cmocka_unit_test_setup_teardown(message_to_oneself_runs_later, start, stop),
        cmocka_unit_test(message_may_be_posted_again_by_its_receiver),
        cmocka_unit_test(messages_to_oneself_without_end_leave_descriptors_their_turn),
        cmocka_unit_test(quit_waits_for_messages_to_oneself),
        cmocka_unit_test(a_loop_may_be_run_again),
        cmocka_unit_test(what_is_posted_after_a_loop_has_ended_runs_when_it_is_stopped),
        cmocka_unit_test_setup_teardown(loops_threads_leave_signals_to_the_main_thread, start,
                                        stop),
        cmocka_unit_test(stopping_nothing_is_harmless),
    };

    return cmocka_run_group_tests_name("loop/loop", tests, NULL, NULL);
}
