// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "loop/loop.h"

#include <stdlib.h>

#define TIMERS 5

struct fixture {
    struct loop *loop;
    struct alarm {
        struct loop_timer timer;
        struct fixture *fixture;
        uint64_t fired_ns;
        unsigned fired;
    } alarms[TIMERS];
    unsigned order[TIMERS], n_fired;
    unsigned quit_after;
};

static void on_alarm(struct loop_timer *t)
{
    struct alarm *a = container_of(t, struct alarm, timer);
    struct fixture *f = a->fixture;

    a->fired_ns = clock_monotonic_ns();
    a->fired++;
    f->order[f->n_fired++ % TIMERS] = (unsigned)(a - f->alarms);
    if (f->n_fired == f->quit_after)
        loop_quit(f->loop);
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));

    assert_int_equal(loop_new(&f->loop, "test"), 0);
    for (int i = 0; i < TIMERS; i++) {
        f->alarms[i].fixture = f;
        loop_timer_init(&f->alarms[i].timer, f->loop, on_alarm);
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    loop_stop(f->loop);
    free(f);
    return 0;
}

static void timers_fire_in_the_order_of_their_times(void **state)
{
    static const uint64_t ms[TIMERS] = {5, 1, 3, 2, 4};
    static const unsigned expected[TIMERS] = {1, 3, 2, 4, 0};
    struct fixture *f = *state;

    f->quit_after = TIMERS;
    for (int i = 0; i < TIMERS; i++)
        loop_timer_start_ns(&f->alarms[i].timer, ms[i] * NS_PER_MS);
    loop_run(f->loop);
    assert_memory_equal(f->order, expected, sizeof(expected));
}

static void a_timer_is_never_early_and_soon_after_its_time(void **state)
{
    struct fixture *f = *state;
    uint64_t best_ns = UINT64_MAX, start, late;

    // the best of some: the machine may be busy with something else
    f->quit_after = 1;
    for (int i = 0; i < 20; i++) {
        f->n_fired = 0;
        start = clock_monotonic_ns();
        loop_timer_start_ns(&f->alarms[0].timer, 300000);
        loop_run(f->loop);
        assert_true(f->alarms[0].fired_ns >= start + 300000);
        late = f->alarms[0].fired_ns - start - 300000;
        best_ns = MIN(best_ns, late);
    }
    assert_true(best_ns < 500000);
}

static void a_stopped_timer_does_not_fire(void **state)
{
    struct fixture *f = *state;

    f->quit_after = 1;
    loop_timer_start_ns(&f->alarms[0].timer, NS_PER_MS);
    loop_timer_start_ns(&f->alarms[1].timer, 5 * NS_PER_MS);
    loop_timer_stop(&f->alarms[0].timer);
    assert_false(loop_timer_active(&f->alarms[0].timer));
    loop_run(f->loop);
    assert_int_equal(f->alarms[0].fired, 0);
    assert_int_equal(f->alarms[1].fired, 1);
}

static void a_timer_started_again_fires_once_at_its_new_time(void **state)
{
    struct fixture *f = *state;

    f->quit_after = 2;
    loop_timer_start_ns(&f->alarms[0].timer, NS_PER_MS);
    loop_timer_start_ns(&f->alarms[0].timer, 4 * NS_PER_MS);
    loop_timer_start_ns(&f->alarms[1].timer, 2 * NS_PER_MS);
    loop_run(f->loop);
    assert_int_equal(f->alarms[0].fired, 1);
    assert_int_equal(f->order[0], 1);
}

static void restart(struct loop_timer *t)
{
    struct alarm *a = container_of(t, struct alarm, timer);

    if (++a->fired == 50)
        loop_quit(a->fixture->loop);
    else
        loop_timer_start_ns(t, 10000);
}

static void a_timer_may_start_itself_again(void **state)
{
    struct fixture *f = *state;

    loop_timer_init(&f->alarms[0].timer, f->loop, restart);
    loop_timer_start_ns(&f->alarms[0].timer, 0);
    loop_run(f->loop);
    assert_int_equal(f->alarms[0].fired, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(timers_fire_in_the_order_of_their_times, setup, teardown),
        cmocka_unit_test_setup_teardown(a_timer_is_never_early_and_soon_after_its_time, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_stopped_timer_does_not_fire, setup, teardown),
        cmocka_unit_test_setup_teardown(a_timer_started_again_fires_once_at_its_new_time, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_timer_may_start_itself_again, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
