// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3d/faults.h"

#include <stdlib.h>
#include <string.h>

static struct fault_set *set;

static void parse(const char *text)
{
    char *why = NULL;

    if (fault_set_parse(&set, text, &why) < 0)
        fail_msg("%s", why);
}

static int release(void **state)
{
    fault_set_unref(set);
    set = NULL;
    return 0;
}

static enum fault_action decide(enum op op, const char *key)
{
    enum fault_action action;
    struct fault f = {0};

    fault_set_decide(set, op, "bucket", key, &f);
    action = f.action;
    fault_release(&f);
    return action;
}

static void a_rule_matches_operation_class_or_all(void **state)
{
    parse("GetObject a always hangup\nHEAD b always reset\n* c always delay 1ms\n");
    assert_int_equal(decide(OP_GET, "a"), FAULT_HANGUP);
    assert_int_equal(decide(OP_HEAD, "a"), FAULT_NONE);
    assert_int_equal(decide(OP_HEAD, "b"), FAULT_RESET);
    assert_int_equal(decide(OP_HEAD_BUCKET, "b"), FAULT_RESET);
    assert_int_equal(decide(OP_LIST_V2, "c"), FAULT_DELAY);
}

static void a_pattern_matches_the_key_or_bucket_and_key(void **state)
{
    parse("GET dir/*.bin always hangup\nGET bucket/x? always reset\n");
    assert_int_equal(decide(OP_GET, "dir/sub/a.bin"), FAULT_HANGUP);
    assert_int_equal(decide(OP_GET, "other/a.bin"), FAULT_NONE);
    assert_int_equal(decide(OP_GET, "x1"), FAULT_RESET);
    assert_int_equal(decide(OP_GET, "x12"), FAULT_NONE);
}

static void the_first_rule_that_fires_counts(void **state)
{
    parse("GET * nth=2 hangup\nGET * always reset\n");
    assert_int_equal(decide(OP_GET, "k"), FAULT_RESET);
    assert_int_equal(decide(OP_GET, "k"), FAULT_HANGUP);
    assert_int_equal(decide(OP_GET, "k"), FAULT_RESET);
}

static void a_probability_is_met(void **state)
{
    unsigned n = 0;

    parse("seed 42\nGET * 2% hangup\n");
    for (int i = 0; i < 20000; i++)
        n += decide(OP_GET, "k") == FAULT_HANGUP;
    assert_in_range(n, 340, 460);
}

static void the_seed_alone_decides(void **state)
{
    enum fault_action first[200];
    unsigned same = 0;

    parse("seed 7\nGET * 0.5 hangup\n");
    for (unsigned i = 0; i < ARRAY_LEN(first); i++)
        first[i] = decide(OP_GET, "k");
    release(NULL);
    parse("seed 7\nGET * 0.5 hangup\n");
    for (unsigned i = 0; i < ARRAY_LEN(first); i++)
        assert_int_equal(decide(OP_GET, "k"), first[i]);
    release(NULL);
    parse("seed 8\nGET * 0.5 hangup\n");
    for (unsigned i = 0; i < ARRAY_LEN(first); i++)
        same += decide(OP_GET, "k") == first[i];
    assert_in_range(same, 50, 150);
}

static void arguments_are_understood(void **state)
{
    struct fault f = {0};

    parse("GET a always status 503 Busy retry-after=3\nGET b always stall 25% 1.5s\n"
          "GET c always close 10K\nGET d always redirect 307 http://x\n");
    fault_set_decide(set, OP_GET, "bucket", "a", &f);
    assert_int_equal(f.number, 503);
    assert_string_equal(f.text, "Busy");
    assert_int_equal(f.retry_after_s, 3);
    fault_release(&f);
    fault_set_decide(set, OP_GET, "bucket", "b", &f);
    assert_int_equal(f.at.kind, FAULT_AT_FRACTION);
    assert_true(f.at.fraction == 0.25);
    assert_int_equal(f.ns, 1500000000);
    fault_release(&f);
    fault_set_decide(set, OP_GET, "bucket", "c", &f);
    assert_int_equal(f.at.kind, FAULT_AT_BYTE);
    assert_int_equal(f.at.byte, 10240);
    fault_release(&f);
    fault_set_decide(set, OP_GET, "bucket", "d", &f);
    assert_int_equal(f.number, 307);
    assert_string_equal(f.text, "http://x");
    fault_release(&f);
}

static void a_fault_outlives_its_set(void **state)
{
    struct fault f = {0};

    parse("GET * always region eu-test-1\n");
    fault_set_decide(set, OP_GET, "bucket", "a", &f);
    release(NULL);
    assert_string_equal(f.text, "eu-test-1");
    fault_release(&f);
}

static void comments_and_empty_lines_are_passed_over(void **state)
{
    parse("# nothing\n\n   \nGET * always hangup # really\n");
    assert_int_equal(decide(OP_GET, "k"), FAULT_HANGUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_rule_matches_operation_class_or_all, release),
        cmocka_unit_test_teardown(a_pattern_matches_the_key_or_bucket_and_key, release),
        cmocka_unit_test_teardown(the_first_rule_that_fires_counts, release),
        cmocka_unit_test_teardown(a_probability_is_met, release),
        cmocka_unit_test_teardown(the_seed_alone_decides, release),
        cmocka_unit_test_teardown(arguments_are_understood, release),
        cmocka_unit_test_teardown(a_fault_outlives_its_set, release),
        cmocka_unit_test_teardown(comments_and_empty_lines_are_passed_over, release),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
