// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "s3/load.h"

static struct load loaded(struct load_config c)
{
    struct load l;

    load_init(&l, &c, 0);
    return l;
}

static unsigned fill(struct load *l, bool demand, uint64_t now)
{
    unsigned n = 0;

    while (load_enter(l, demand, now) == 0)
        n++;
    return n;
}

static void requests_in_flight_are_limited(void **state)
{
    struct load l = loaded((struct load_config){.max_in_flight = 64});

    assert_int_equal(fill(&l, true, 0), 64);
    assert_int_equal(load_enter(&l, true, 0), LOAD_FULL);
    load_leave(&l, LOAD_GOOD, 0, 1);
    assert_int_equal(load_enter(&l, true, 0), 0);
}

static void some_room_is_kept_for_demand(void **state)
{
    struct load l = loaded((struct load_config){.max_in_flight = 64});

    assert_int_equal(fill(&l, false, 0), 60);
    assert_int_equal(fill(&l, true, 0), 4);
}

static void too_much_halves_the_limit_once_per_round(void **state)
{
    struct load l = loaded((struct load_config){.max_in_flight = 64});

    fill(&l, true, 100);
    for (int i = 0; i < 32; i++)
        load_leave(&l, LOAD_TOO_MUCH, 100, 200);
    assert_int_equal((int)l.limit, 32);
    // this one was sent after the cut, and was still too much
    load_leave(&l, LOAD_TOO_MUCH, 300, 400);
    assert_int_equal((int)l.limit, 16);
}

static void the_limit_never_falls_below_one(void **state)
{
    struct load l = loaded((struct load_config){.max_in_flight = 8});

    for (uint64_t t = 0; t < 20; t++) {
        assert_int_equal(load_enter(&l, true, t), 0);
        load_leave(&l, LOAD_TOO_MUCH, t, t);
    }
    assert_int_equal(fill(&l, true, 100), 1);
}

static void good_answers_add_a_step_per_round(void **state)
{
    struct load l = loaded((struct load_config){.max_in_flight = 64});

    load_enter(&l, true, 0);
    load_leave(&l, LOAD_TOO_MUCH, 1, 1);
    assert_int_equal((int)l.limit, 32);
    for (int i = 0; i < 34; i++) {
        load_enter(&l, true, 2);
        load_leave(&l, LOAD_GOOD, 2, 3);
    }
    assert_int_equal((int)l.limit, 36);
    for (int i = 0; i < 10000; i++) {
        load_enter(&l, true, 2);
        load_leave(&l, LOAD_GOOD, 2, 3);
    }
    assert_int_equal((int)l.limit, 64);
}

static void requests_per_second_are_limited(void **state)
{
    struct load l = loaded((struct load_config){.max_in_flight = 1000, .max_requests_per_s = 100});
    uint64_t now = 0, sent = 0;

    while (now < 10 * NS_PER_S) {
        uint64_t wait = load_enter(&l, true, now);

        if (wait == 0) {
            sent++;
            load_leave(&l, LOAD_GOOD, now, now);
        } else {
            assert_int_not_equal(wait, LOAD_FULL);
            now += wait;
        }
    }
    assert_in_range(sent, 1000, 1012);
}

static void bytes_per_second_are_limited(void **state)
{
    struct load l = loaded((struct load_config){.max_in_flight = 4, .max_bytes_per_s = 10 * MIB});
    uint64_t now = 0, bytes = 0;

    while (now < 10 * NS_PER_S) {
        uint64_t wait = load_bytes_wait(&l, true, now);

        if (wait == 0) {
            load_bytes_take(&l, 256 * KIB);
            bytes += 256 * KIB;
        } else {
            now += wait;
        }
    }
    assert_in_range(bytes, 100 * MIB, 102 * MIB);
}

static void background_bytes_wait_for_demand(void **state)
{
    struct load l = loaded((struct load_config){.max_in_flight = 4, .max_bytes_per_s = 10 * MIB});

    load_bytes_take(&l, 700 * KIB); // the burst is a mebibyte
    assert_int_equal(load_bytes_wait(&l, true, 0), 0);
    assert_int_not_equal(load_bytes_wait(&l, false, 0), 0);
}

static void without_limits_nothing_waits(void **state)
{
    struct load l = loaded((struct load_config){.max_in_flight = 4});

    load_bytes_take(&l, GIB);
    assert_int_equal(load_bytes_wait(&l, false, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_in_flight_are_limited),
        cmocka_unit_test(some_room_is_kept_for_demand),
        cmocka_unit_test(too_much_halves_the_limit_once_per_round),
        cmocka_unit_test(the_limit_never_falls_below_one),
        cmocka_unit_test(good_answers_add_a_step_per_round),
        cmocka_unit_test(requests_per_second_are_limited),
        cmocka_unit_test(bytes_per_second_are_limited),
        cmocka_unit_test(background_bytes_wait_for_demand),
        cmocka_unit_test(without_limits_nothing_waits),
    };

    return cmocka_run_group_tests_name("s3 load", tests, NULL, NULL);
}
