// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/counter.h"

#include <string.h>

static struct histogram h, other;

static int clear(void **state)
{
    memset(&h, 0, sizeof(h));
    memset(&other, 0, sizeof(other));
    return 0;
}

static void counter_goes_up_and_down(void **state)
{
    struct counter c = {0};

    counter_add(&c, 5);
    counter_sub(&c, 2);
    assert_int_equal(counter_read(&c), 3);
}

static void empty_histogram_has_no_quantiles(void **state)
{
    assert_int_equal(histogram_count(&h), 0);
    assert_int_equal(histogram_quantile_ns(&h, 0.5), 0);
}

static void each_value_is_known_to_an_eighth(void **state)
{
    for (uint64_t ns = 1100; ns < (uint64_t)60000000000; ns = ns * 17 / 16 + 3) {
        uint64_t bound;

        clear(NULL);
        histogram_add(&h, ns);
        bound = histogram_quantile_ns(&h, 0.5);
        if (bound <= ns || bound - ns > ns / 8 + 1)
            fail_msg("%lu is said to be below %lu", (unsigned long)ns, (unsigned long)bound);
    }
}

static void smallest_and_largest_values_have_a_place(void **state)
{
    histogram_add(&h, 0);
    histogram_add(&h, UINT64_MAX / 2);
    assert_int_equal(histogram_count(&h), 2);
    assert_in_range(histogram_quantile_ns(&h, 0), 1, 2000);
    assert_true(histogram_quantile_ns(&h, 1) >= (uint64_t)64000000000);
}

static void quantiles_follow_the_order(void **state)
{
    for (uint64_t i = 1; i <= 1000; i++)
        histogram_add(&h, i * 1000000);
    assert_int_equal(histogram_count(&h), 1000);
    assert_int_equal(histogram_sum_ns(&h), (uint64_t)500500 * 1000000);
    assert_in_range(histogram_quantile_ns(&h, 0.5), 500000000, 570000000);
    assert_in_range(histogram_quantile_ns(&h, 0.99), 990000000, 1120000000);
    assert_true(histogram_quantile_ns(&h, 0) < histogram_quantile_ns(&h, 1));
}

static void merging_adds_everything(void **state)
{
    histogram_add(&h, 5000);
    histogram_add(&other, 5000);
    histogram_add(&other, 7000000);
    histogram_merge(&h, &other);
    assert_int_equal(histogram_count(&h), 3);
    assert_int_equal(histogram_sum_ns(&h), 7010000);
    assert_int_equal(histogram_count(&other), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counter_goes_up_and_down),
        cmocka_unit_test_setup(empty_histogram_has_no_quantiles, clear),
        cmocka_unit_test_setup(each_value_is_known_to_an_eighth, clear),
        cmocka_unit_test_setup(smallest_and_largest_values_have_a_place, clear),
        cmocka_unit_test_setup(quantiles_follow_the_order, clear),
        cmocka_unit_test_setup(merging_adds_everything, clear),
    };

    return cmocka_run_group_tests_name("base/counter", tests, NULL, NULL);
}
