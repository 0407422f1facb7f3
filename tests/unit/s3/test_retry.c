// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "s3/retry.h"

#define TIMEOUT_NS (60 * NS_PER_S)

struct fixture {
    struct retry retry;
    struct rand rand;
};

static struct fixture setup(void)
{
    struct fixture f;

    retry_init(&f.retry, TIMEOUT_NS);
    rand_seed(&f.rand, 1);
    return f;
}

static void waits_grow_and_stay_within_the_longest(void **state)
{
    uint64_t longest_early = 0, longest_late = 0;

    for (uint64_t seed = 0; seed < 200; seed++) {
        struct fixture f = setup();

        rand_seed(&f.rand, seed);
        for (int i = 0; i < 12; i++) {
            uint64_t wait = retry_failed(&f.retry, S3_RETRY, 0, 1, 1, &f.rand);

            assert_true(wait <= 5 * NS_PER_S);
            if (i == 0)
                longest_early = MAX(longest_early, wait);
            if (i == 11)
                longest_late = MAX(longest_late, wait);
        }
    }
    assert_in_range(longest_early, 20 * NS_PER_MS, 25 * NS_PER_MS);
    assert_in_range(longest_late, 4 * NS_PER_S, 5 * NS_PER_S);
}

static void it_stops_when_the_time_without_progress_is_over(void **state)
{
    struct fixture f = setup();
    uint64_t now = 1000 * NS_PER_S, begun = now, tries = 0;

    for (;; tries++) {
        uint64_t wait = retry_failed(&f.retry, S3_RETRY, 0, now, now, &f.rand);

        if (wait == RETRY_STOP)
            break;
        now += wait;
        assert_true(tries < 1000);
    }
    assert_true(tries > 10);
    assert_int_equal(now - begun, TIMEOUT_NS); // the last try is made at the very end
}

static void progress_begins_the_time_anew(void **state)
{
    struct fixture f = setup();
    uint64_t late = TIMEOUT_NS - 1;

    assert_int_not_equal(retry_failed(&f.retry, S3_RETRY, 0, 0, late, &f.rand), RETRY_STOP);
    retry_progress(&f.retry);
    assert_int_not_equal(retry_failed(&f.retry, S3_RETRY, 0, 2 * late, 3 * late, &f.rand),
                         RETRY_STOP);
    assert_int_equal(retry_failed(&f.retry, S3_RETRY, 0, 3 * late, 4 * late, &f.rand), RETRY_STOP);
}

static void what_was_learned_is_tried_at_once_but_not_for_ever(void **state)
{
    struct fixture f = setup();
    int n = 0;

    while (retry_failed(&f.retry, S3_LEARNED, 0, 0, 0, &f.rand) == 0)
        n++;
    assert_in_range(n, 2, 10);
}

static void fatal_errors_stop(void **state)
{
    struct fixture f = setup();

    assert_int_equal(retry_failed(&f.retry, S3_FATAL, 0, 0, 0, &f.rand), RETRY_STOP);
}

static void waiting_for_a_turn_is_no_failure(void **state)
{
    struct fixture f = setup();

    retry_failed(&f.retry, S3_RETRY, 0, 0, 0, &f.rand);
    retry_waited(&f.retry, 2 * TIMEOUT_NS);
    assert_int_not_equal(
        retry_failed(&f.retry, S3_RETRY, 0, 2 * TIMEOUT_NS, 3 * TIMEOUT_NS - 1, &f.rand),
        RETRY_STOP);
    assert_int_equal(retry_failed(&f.retry, S3_RETRY, 0, 2 * TIMEOUT_NS, 3 * TIMEOUT_NS, &f.rand),
                     RETRY_STOP);
}

static void what_the_store_asks_for_is_waited_out_and_a_little_more(void **state)
{
    uint64_t longest = 0;

    for (uint64_t seed = 0; seed < 200; seed++) {
        struct fixture f = setup();
        uint64_t wait;

        rand_seed(&f.rand, seed);
        wait = retry_failed(&f.retry, S3_THROTTLED, 3 * NS_PER_S, 1, 1, &f.rand);
        assert_in_range(wait, 3 * NS_PER_S, 3 * NS_PER_S + 100 * NS_PER_MS);
        longest = MAX(longest, wait);
    }
    assert_true(longest > 3 * NS_PER_S + 50 * NS_PER_MS);
}

static void nobody_is_believed_who_asks_for_too_long_a_wait(void **state)
{
    struct fixture f = setup();

    assert_in_range(retry_failed(&f.retry, S3_THROTTLED, UINT64_MAX, 0, 0, &f.rand), 30 * NS_PER_S,
                    31 * NS_PER_S);
    // nor is the last attempt put off
    assert_int_equal(
        retry_failed(&f.retry, S3_THROTTLED, 20 * NS_PER_S, 0, TIMEOUT_NS - NS_PER_S, &f.rand),
        NS_PER_S);
    assert_int_equal(retry_failed(&f.retry, S3_THROTTLED, 20 * NS_PER_S, 0, TIMEOUT_NS, &f.rand),
                     RETRY_STOP);
}

static void patience_runs_out_with_the_time_left(void **state)
{
    struct fixture f = setup();

    assert_int_equal(retry_patience_ns(&f.retry, 5), TIMEOUT_NS);
    retry_failed(&f.retry, S3_RETRY, 0, 10 * NS_PER_S, 11 * NS_PER_S, &f.rand);
    assert_int_equal(retry_patience_ns(&f.retry, 40 * NS_PER_S), 30 * NS_PER_S);
    assert_int_equal(retry_patience_ns(&f.retry, 100 * NS_PER_S), NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_grow_and_stay_within_the_longest),
        cmocka_unit_test(it_stops_when_the_time_without_progress_is_over),
        cmocka_unit_test(progress_begins_the_time_anew),
        cmocka_unit_test(what_was_learned_is_tried_at_once_but_not_for_ever),
        cmocka_unit_test(fatal_errors_stop),
        cmocka_unit_test(waiting_for_a_turn_is_no_failure),
        cmocka_unit_test(what_the_store_asks_for_is_waited_out_and_a_little_more),
        cmocka_unit_test(nobody_is_believed_who_asks_for_too_long_a_wait),
        cmocka_unit_test(patience_runs_out_with_the_time_left),
    };

    return cmocka_run_group_tests_name("s3 retry", tests, NULL, NULL);
}
