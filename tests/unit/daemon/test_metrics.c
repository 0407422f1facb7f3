// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

static json_t *status(void)
{
    json_t *o = json_loads("{\"store\":{\"requests\":{\"get\":12,\"head\":0,\"list\":3},"
                           "\"first_byte\":{\"get\":{\"p50\":0.25,\"sum\":1.5,\"count\":6}}},"
                           "\"stalls\":{\"totals\":{\"reads\":{\"waited\":2.5,"
                           "\"causes\":{\"pool full\":0.75}}}},"
                           "\"worker\":{\"restarts\":2}}",
                           0, NULL);

    assert_non_null(o);
    return o;
}

static char *format(const struct metrics_export *exports, size_t n)
{
    struct buf out = {0};

    metrics_format(&out, exports, n);
    return buf_steal(&out);
}

static void values_carry_their_exports_name(void **state)
{
    struct metrics_export e = {.name = "train", .status = status()};
    char *text = format(&e, 1);

    assert_non_null(strstr(text, "\nos2g_up{export=\"train\"} 1\n"));
    assert_non_null(strstr(text, "\nos2g_requests_total{export=\"train\",kind=\"get\"} 12\n"));
    assert_non_null(strstr(text, "\nos2g_worker_restarts_total{export=\"train\"} 2\n"));
    assert_non_null(strstr(text, "{export=\"train\",kind=\"get\",quantile=\"0.5\"} 0.25\n"));
    assert_non_null(
        strstr(text, "\nos2g_first_byte_seconds_sum{export=\"train\",kind=\"get\"} 1.5\n"));
    assert_non_null(strstr(text, "\nos2g_stalled_seconds_total{export=\"train\",way=\"read\","
                                 "cause=\"pool full\"} 0.75\n"));
    assert_non_null(
        strstr(text, "\nos2g_stalled_wall_seconds_total{export=\"train\",way=\"read\"} 2.5\n"));
    json_decref(e.status);
    free(text);
}

static void an_export_that_does_not_answer_is_down(void **state)
{
    const struct metrics_export e = {.name = "train"};
    char *text = format(&e, 1);

    assert_non_null(strstr(text, "os2g_up{export=\"train\"} 0\n"));
    assert_null(strstr(text, "requests_total{"));
    free(text);
}

static void samples_of_a_family_stand_together(void **state)
{
    struct metrics_export e[] = {{"a", status()}, {"b", status()}};
    char *text = format(e, 2), *type = text, *seen[256];
    size_t n = 0;

    // each family has one TYPE line, and no other comes between its samples
    while ((type = strstr(type, "# TYPE "))) {
        type += strlen("# TYPE ");
        assert_true(n < ARRAY_LEN(seen));
        seen[n] = xstrndup(type, strcspn(type, " "));
        for (size_t i = 0; i < n; i++)
            assert_string_not_equal(seen[i], seen[n]);
        n++;
    }
    assert_true(n > 20);
    while (n)
        free(seen[--n]);
    json_decref(e[0].status);
    json_decref(e[1].status);
    free(text);
}

static void only_loopback_is_listened_at(void **state)
{
    static const char *const bad[] = {"0.0.0.0:9464", "192.168.1.1:9464", "[::]:9464",    "9464",
                                      "127.0.0.1",    "127.0.0.1:0",      "unix:relative"};
    char *error = NULL;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(metrics_listen(bad[i], &error), -EINVAL);
        free(error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_carry_their_exports_name),
        cmocka_unit_test(an_export_that_does_not_answer_is_down),
        cmocka_unit_test(samples_of_a_family_stand_together),
        cmocka_unit_test(only_loopback_is_listened_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
