// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "s3/refusal.h"

#include <string.h>

#define NOW_S 1796000943 // Sun, 29 Nov 2026 23:09:03 GMT

static uint64_t asked_with(int status, const char *retry_after, const char *date)
{
    struct http_head head = {.status = status};

    if (date)
        head.headers[head.n_headers++] = (struct http_header){"Date", date};
    if (retry_after)
        head.headers[head.n_headers++] = (struct http_header){"Retry-After", retry_after};
    return s3_retry_after_ns(&head, NOW_S);
}

static uint64_t asked(const char *retry_after, const char *date)
{
    return asked_with(503, retry_after, date);
}

static void a_wait_is_asked_for_by_who_is_too_busy_alone(void **state)
{
    assert_int_equal(asked_with(429, "7", NULL), 7 * NS_PER_S);
    assert_int_equal(asked_with(500, "7", NULL), 0);
    assert_int_equal(asked_with(301, "7", NULL), 0);
}

static void a_wait_may_be_asked_for_in_seconds(void **state)
{
    assert_int_equal(asked(NULL, NULL), 0);
    assert_int_equal(asked("0", NULL), 0);
    assert_int_equal(asked("120", NULL), 120 * NS_PER_S);
    assert_int_equal(asked("9999999999", NULL), 86400 * NS_PER_S);
}

static void a_wait_may_be_asked_for_by_a_date(void **state)
{
    char now[30], then[30];

    clock_format_http_date(NOW_S, now);
    clock_format_http_date(NOW_S + 7, then);
    assert_int_equal(asked(then, NULL), 7 * NS_PER_S);
    assert_int_equal(asked(now, NULL), 0);
    assert_int_equal(asked(now, then), 0); // it has passed
    // by the clock of whoever said it
    clock_format_http_date(NOW_S + 3600, now);
    clock_format_http_date(NOW_S + 3605, then);
    assert_int_equal(asked(then, now), 5 * NS_PER_S);
}

static void nonsense_asks_for_nothing(void **state)
{
    assert_int_equal(asked("", NULL), 0);
    assert_int_equal(asked("soon", NULL), 0);
    assert_int_equal(asked("-5", NULL), 0);
    assert_int_equal(asked("1.5", NULL), 0);
    assert_int_equal(asked("99999999999999999999999", NULL), 0);
    assert_int_equal(asked("Sun, 29 Nov 2026 25:09:03 GMT", NULL), 0);
    assert_int_equal(asked("Sun, 29 Nov 2026 23:09:09 GMT", "yesterday"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_may_be_asked_for_in_seconds),
        cmocka_unit_test(a_wait_may_be_asked_for_by_a_date),
        cmocka_unit_test(nonsense_asks_for_nothing),
        cmocka_unit_test(a_wait_is_asked_for_by_who_is_too_busy_alone),
    };

    return cmocka_run_group_tests_name("s3 refusal", tests, NULL, NULL);
}
