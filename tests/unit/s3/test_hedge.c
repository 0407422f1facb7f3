// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "base/rand.h"
#include "s3/hedge.h"

static void nothing_is_late_before_100_answers(void **state)
{
    struct hedge h = {0};

    for (int i = 0; i < 99; i++)
        hedge_sample(&h, 10 * NS_PER_MS);
    assert_int_equal(hedge_delay_ns(&h), 0);
    hedge_sample(&h, 10 * NS_PER_MS);
    assert_int_equal(hedge_delay_ns(&h), 10 * NS_PER_MS);
}

static void the_delay_is_at_least_two_milliseconds(void **state)
{
    struct hedge h = {0};

    for (int i = 0; i < 1000; i++)
        hedge_sample(&h, 50000);
    assert_int_equal(hedge_delay_ns(&h), 2 * NS_PER_MS);
}

// Latencies uniform from 10 to 20 ms: the quantile is 19.9 ms.
static void the_delay_follows_the_99th_percentile(void **state)
{
    struct hedge h = {0};
    struct rand r;

    rand_seed(&r, 7);
    for (int i = 0; i < 20000; i++)
        hedge_sample(&h, 10 * NS_PER_MS + rand_below(&r, 10 * NS_PER_MS));
    assert_in_range(hedge_delay_ns(&h), 18 * NS_PER_MS, 22 * NS_PER_MS);
    // the store becomes ten times as fast
    for (int i = 0; i < 20000; i++)
        hedge_sample(&h, 1 * NS_PER_MS + rand_below(&r, 2 * NS_PER_MS));
    assert_in_range(hedge_delay_ns(&h), 2 * NS_PER_MS, 4 * NS_PER_MS);
}

static void hedges_stay_under_two_per_cent(void **state)
{
    struct hedge h = {0};
    unsigned hedges = 0;

    for (int i = 0; i < 10000; i++) {
        hedge_sent(&h);
        hedges += hedge_take(&h);
    }
    assert_in_range(hedges, 150, 199);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_late_before_100_answers),
        cmocka_unit_test(the_delay_is_at_least_two_milliseconds),
        cmocka_unit_test(the_delay_follows_the_99th_percentile),
        cmocka_unit_test(hedges_stay_under_two_per_cent),
    };

    return cmocka_run_group_tests_name("s3 hedge", tests, NULL, NULL);
}
