// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"

static void an_http_date_is_read(void **state)
{
    int64_t s;

    assert_int_equal(clock_parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT", &s), 0);
    assert_int_equal(s, 784111777);
}

static void what_is_written_is_read_again(void **state)
{
    for (int64_t t = 0; t < 4000000000; t += 86400 * 37 + 4321) {
        char http[30], iso[25];
        int64_t s;

        clock_format_http_date(t, http);
        assert_int_equal(clock_parse_http_date(http, &s), 0);
        assert_int_equal(s, t);
        clock_format_iso8601(t, iso);
        assert_int_equal(clock_parse_iso8601(iso, &s), 0);
        assert_int_equal(s, t);
    }
}

static void other_forms_of_http_dates_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Sun, 6  Nov 1994 08:49:37 GMT",
        "Sun, 06 Xyz 1994 08:49:37 GMT",
        "Sun, 32 Nov 1994 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 199x 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:-9:37 GMT",
    };
    int64_t s = 7;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(clock_parse_http_date(bad[i], &s), -EINVAL);
    assert_int_equal(s, 7);
}

static void iso_dates_may_have_fractions_and_an_offset_of_zero(void **state)
{
    int64_t s;

    assert_int_equal(clock_parse_iso8601("2026-11-29T18:29:03Z", &s), 0);
    assert_int_equal(s, 1795976943);
    assert_int_equal(clock_parse_iso8601("2026-11-29T18:29:03.123456Z", &s), 0);
    assert_int_equal(s, 1795976943);
    assert_int_equal(clock_parse_iso8601("2026-11-29T18:29:03+00:00", &s), 0);
    assert_int_equal(s, 1795976943);
}

static void other_forms_of_iso_dates_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "2026-11-29",
        "2026-11-29T18:29:03",
        "2026-11-29T18:29:03+01:00",
        "2026-11-29T18:29:03Zx",
        "2026-11-29 18:29:03Z",
        "2026-13-29T18:29:03Z",
        "2026-11-00T18:29:03Z",
        "2026-11-29T24:29:03Z",
        "2026-11-29T-1:29:03Z",
        "-026-11-29T18:29:03Z",
        " 026-11-29T18:29:03Z",
        "2026-1-29T18:29:03Z",
    };
    int64_t s = 7;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (clock_parse_iso8601(bad[i], &s) != -EINVAL)
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(s, 7);
}

static void dates_are_written_as_protocols_want_them(void **state)
{
    char http[30], amz[17], iso[25];

    clock_format_http_date(784111777, http);
    assert_string_equal(http, "Sun, 06 Nov 1994 08:49:37 GMT");
    clock_format_amz_date(1795976943, amz);
    assert_string_equal(amz, "20261129T182903Z");
    clock_format_iso8601(0, iso);
    assert_string_equal(iso, "1970-01-01T00:00:00.000Z");
}

static void monotonic_time_does_not_go_back(void **state)
{
    uint64_t last = clock_monotonic_ns();

    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_monotonic_ns();

        assert_true(now >= last);
        last = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_http_date_is_read),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(other_forms_of_http_dates_are_refused),
        cmocka_unit_test(iso_dates_may_have_fractions_and_an_offset_of_zero),
        cmocka_unit_test(other_forms_of_iso_dates_are_refused),
        cmocka_unit_test(dates_are_written_as_protocols_want_them),
        cmocka_unit_test(monotonic_time_does_not_go_back),
    };

    return cmocka_run_group_tests_name("base clock", tests, NULL, NULL);
}
