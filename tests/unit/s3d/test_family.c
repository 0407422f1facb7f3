// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3d/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct family_set set;

static void parse(const char *spec)
{
    char *why = NULL;

    if (family_set_parse(&set, spec, &why) < 0)
        fail_msg("%s", why);
}

static int release(void **state)
{
    family_set_fini(&set);
    return 0;
}

static void assert_refused(const char *spec, const char *part_of_why)
{
    char *why = NULL;

    assert_int_equal(family_set_parse(&set, spec, &why), -EINVAL);
    if (!strstr(why, part_of_why))
        fail_msg("\"%s\" does not say \"%s\"", why, part_of_why);
    free(why);
}

static unsigned count_in_order(void)
{
    char key[FAMILY_MAX_KEY + 1], last[FAMILY_MAX_KEY + 1] = "";
    uint64_t size;
    unsigned n = 0;

    while (family_set_next(&set, "bucket", last, n > 0, key, &size) == 0) {
        if (n > 0)
            assert_true(strcmp(last, key) < 0);
        assert_int_equal(family_set_find(&set, "bucket", key, &(uint64_t){0}), 0);
        strcpy(last, key);
        n++;
    }
    return n;
}

static void every_key_is_found_and_listed_in_order(void **state)
{
    parse("z/last 1; d%02d/f%03d 1K x 11 x 13; d03/f00 2; a 3; %d%% 4 x 100");
    assert_int_equal(count_in_order(), 1 + 11 * 13 + 1 + 1 + 100);
}

static void a_number_without_width_is_as_wide_as_the_largest(void **state)
{
    char key[FAMILY_MAX_KEY + 1];
    uint64_t size;

    parse("n%d 7 x 1001");
    assert_int_equal(family_set_next(&set, "b", "", false, key, &size), 0);
    assert_string_equal(key, "n0000");
    assert_int_equal(size, 7);
    assert_int_equal(family_set_find(&set, "b", "n1000", &size), 0);
    assert_int_equal(family_set_find(&set, "b", "n1001", &size), -ENOENT);
    assert_int_equal(family_set_find(&set, "b", "n999", &size), -ENOENT);
    assert_int_equal(family_set_find(&set, "b", "n 999", &size), -ENOENT);
}

static void a_key_between_two_leads_to_the_second(void **state)
{
    char key[FAMILY_MAX_KEY + 1];
    uint64_t size;

    parse("d%02d/f%02d 1 x 3 x 3");
    assert_int_equal(family_set_next(&set, "b", "d01/f01x", false, key, &size), 0);
    assert_string_equal(key, "d01/f02");
    assert_int_equal(family_set_next(&set, "b", "d01/f02", true, key, &size), 0);
    assert_string_equal(key, "d02/f00");
    assert_int_equal(family_set_next(&set, "b", "d02/f02", true, key, &size), -ENOENT);
}

static void of_two_families_with_one_key_the_first_counts(void **state)
{
    uint64_t size;

    parse("k%d 1 x 3; k1 2");
    assert_int_equal(family_set_find(&set, "b", "k1", &size), 0);
    assert_int_equal(size, 1);
    assert_int_equal(count_in_order(), 3);
}

static void drawn_sizes_stay_within_their_bounds(void **state)
{
    uint64_t size, low = UINT64_MAX, high = 0;
    char key[16];

    parse("k%03d uniform:100-200 x 1000");
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "k%03d", i);
        assert_int_equal(family_set_find(&set, "b", key, &size), 0);
        low = MIN(low, size);
        high = MAX(high, size);
    }
    assert_true(low >= 100 && low <= 103);
    assert_true(high <= 200 && high >= 197);
}

static void a_billion_keys_cost_nothing(void **state)
{
    char key[FAMILY_MAX_KEY + 1];
    uint64_t size;

    parse("a%03d/b%03d/c%03d 1T x 1000 x 1000 x 1000");
    assert_int_equal(family_set_next(&set, "b", "a999/b999/c998", true, key, &size), 0);
    assert_string_equal(key, "a999/b999/c999");
    assert_int_equal(size, 1024 * GIB);
}

static void mistakes_are_explained(void **state)
{
    assert_refused("k%02d 1 x 101", "need 3 digits");
    assert_refused("k 1 x 2", "0 numbers in the pattern, but 1 counts");
    assert_refused("k%s 1", "numbers are written");
    assert_refused("k%", "PATTERN SIZE");
    assert_refused("k% 1", "numbers are written");
    assert_refused("k%d", "PATTERN SIZE");
    assert_refused("k big", "a size is like");
    assert_refused("k uniform:2K-1K", "a size is like");
    assert_refused("k lognormal:1K,much", "a size is like");
    assert_refused("k%d 1 x 0", "is no count");
    assert_refused("%d%d%d%d%d%d%d%d%d 1", "at most 8");
    assert_refused("%d%d%d%d 1 x 9000000000 x 9000000000 x 9 x 9", "too many keys");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_key_is_found_and_listed_in_order, release),
        cmocka_unit_test_teardown(a_number_without_width_is_as_wide_as_the_largest, release),
        cmocka_unit_test_teardown(a_key_between_two_leads_to_the_second, release),
        cmocka_unit_test_teardown(of_two_families_with_one_key_the_first_counts, release),
        cmocka_unit_test_teardown(drawn_sizes_stay_within_their_bounds, release),
        cmocka_unit_test_teardown(a_billion_keys_cost_nothing, release),
        cmocka_unit_test(mistakes_are_explained),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
