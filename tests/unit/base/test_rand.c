// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"

static void same_seed_gives_the_same_numbers(void **state)
{
    struct rand a, b;

    rand_seed(&a, 42);
    rand_seed(&b, 42);
    for (int i = 0; i < 100; i++)
        assert_true(rand_u64(&a) == rand_u64(&b));
    rand_seed(&b, 43);
    assert_true(rand_u64(&a) != rand_u64(&b));
}

static void systems_seeds_differ(void **state)
{
    struct rand a, b;

    rand_seed_from_system(&a);
    rand_seed_from_system(&b);
    assert_true(rand_u64(&a) != rand_u64(&b));
}

static void numbers_below_a_limit_are_spread_evenly(void **state)
{
    unsigned seen[10] = {0};
    struct rand r;

    rand_seed(&r, 1);
    for (int i = 0; i < 10000; i++) {
        uint64_t v = rand_below(&r, 10);

        assert_in_range(v, 0, 9);
        seen[v]++;
    }
    for (int i = 0; i < 10; i++)
        assert_in_range(seen[i], 850, 1150);
    assert_int_equal(rand_below(&r, 1), 0);
}

static void unit_numbers_are_below_one(void **state)
{
    struct rand r;
    double sum = 0;

    rand_seed(&r, 2);
    for (int i = 0; i < 10000; i++) {
        double v = rand_unit(&r);

        assert_true(v >= 0 && v < 1);
        sum += v;
    }
    assert_true(sum > 4850 && sum < 5150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_gives_the_same_numbers),
        cmocka_unit_test(systems_seeds_differ),
        cmocka_unit_test(numbers_below_a_limit_are_spread_evenly),
        cmocka_unit_test(unit_numbers_are_below_one),
    };

    return cmocka_run_group_tests_name("base/rand", tests, NULL, NULL);
}
