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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_http_date_is_read),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(other_forms_of_http_dates_are_refused),
    };

    return cmocka_run_group_tests_name("base clock", tests, NULL, NULL);
}
