// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "s3d/latency.h"
#include "s3d/pacer.h"

#define DRAWS 20000

static struct latency latency;
static uint64_t drawn[DRAWS];

static void draw(const char *spec)
{
    struct rand r;

    rand_seed(&r, 1);
    assert_int_equal(latency_parse(&latency, spec), 0);
    for (int i = 0; i < DRAWS; i++)
        drawn[i] = latency_draw_ns(&latency, &r);
}

static unsigned count_at_most(uint64_t ns)
{
    unsigned n = 0;

    for (int i = 0; i < DRAWS; i++)
        n += drawn[i] <= ns;
    return n;
}

static void a_fixed_latency_is_always_the_same(void **state)
{
    draw("10ms");
    for (int i = 0; i < DRAWS; i++)
        assert_int_equal(drawn[i], 10 * NS_PER_MS);
}

static void a_uniform_latency_fills_its_range(void **state)
{
    draw("uniform:5ms-15ms");
    assert_int_equal(count_at_most(5 * NS_PER_MS - 1), 0);
    assert_int_equal(count_at_most(15 * NS_PER_MS), DRAWS);
    assert_in_range(count_at_most(10 * NS_PER_MS), DRAWS * 48 / 100, DRAWS * 52 / 100);
}

static void a_lognormal_latency_has_its_median_and_spread(void **state)
{
    draw("lognormal:10ms,0.5");
    assert_in_range(count_at_most(10 * NS_PER_MS), DRAWS * 48 / 100, DRAWS * 52 / 100);
    // one sigma above: 10 ms * e^0.5
    assert_in_range(count_at_most(16487212), DRAWS * 82 / 100, DRAWS * 86 / 100);
}

static void a_tail_is_as_rare_as_it_says(void **state)
{
    draw("10ms,p99=200ms");
    assert_in_range(count_at_most(10 * NS_PER_MS), DRAWS * 986 / 1000, DRAWS * 994 / 1000);
    assert_int_equal(count_at_most(200 * NS_PER_MS), DRAWS);
}

static void a_wrong_specification_is_refused_and_changes_nothing(void **state)
{
    static const char *const wrong[] = {"",
                                        "fast",
                                        "10ms,p100=1s",
                                        "10ms,99=1s",
                                        "uniform:5ms",
                                        "uniform:5ms-1ms",
                                        "lognormal:1ms",
                                        "lognormal:1ms,",
                                        "lognormal:1ms,x",
                                        "10ms,"};

    assert_int_equal(latency_parse(&latency, "7ms"), 0);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(latency_parse(&latency, wrong[i]), -EINVAL);
    assert_int_equal(latency.a_ns, 7 * NS_PER_MS);
}

static void a_pacer_lets_through_its_rate(void **state)
{
    struct pacer p = {.bytes_per_s = 1000000};
    uint64_t now = 5 * NS_PER_S;

    // the slack goes first, and is not more than it is
    for (uint64_t i = 0; i < PACER_SLACK_NS / NS_PER_MS; i++)
        assert_true(pacer_reserve_ns(&p, now, 1000) < now);
    assert_int_equal(pacer_reserve_ns(&p, now, 1000), now);
    assert_int_equal(pacer_reserve_ns(&p, now, 1000), now + NS_PER_MS);
    assert_int_equal(pacer_reserve_ns(&p, now, 500), now + 2 * NS_PER_MS);
    now += NS_PER_S;
    assert_int_equal(pacer_reserve_ns(&p, now, 500), now - PACER_SLACK_NS);
}

static void a_late_timer_is_made_up_for(void **state)
{
    struct pacer p = {.bytes_per_s = 1000000};
    uint64_t start = 5 * NS_PER_S, now = start, sent = 0;

    // each wait takes 3 ms longer than it should
    while (now < start + NS_PER_S) {
        uint64_t when = pacer_reserve_ns(&p, now, 5000);

        sent += 5000;
        if (when > now)
            now = when + 3 * NS_PER_MS;
    }
    assert_in_range(sent, 980000, 1040000);
}

static void a_pacer_without_a_rate_never_waits(void **state)
{
    struct pacer p = {0};

    assert_int_equal(pacer_reserve_ns(&p, 5, GIB), 5);
    assert_int_equal(pacer_reserve_ns(&p, 6, GIB), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fixed_latency_is_always_the_same),
        cmocka_unit_test(a_uniform_latency_fills_its_range),
        cmocka_unit_test(a_lognormal_latency_has_its_median_and_spread),
        cmocka_unit_test(a_tail_is_as_rare_as_it_says),
        cmocka_unit_test(a_wrong_specification_is_refused_and_changes_nothing),
        cmocka_unit_test(a_pacer_lets_through_its_rate),
        cmocka_unit_test(a_late_timer_is_made_up_for),
        cmocka_unit_test(a_pacer_without_a_rate_never_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
