// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3/error.h"

static void is(const char *code, int status, int error, enum s3_class class)
{
    const struct s3_error_entry *e = s3_error_find(code, status);

    assert_int_equal(e->error, error);
    assert_int_equal(e->class, class);
}

static void a_missing_object_is_enoent(void **state)
{
    is("NoSuchKey", 404, ENOENT, S3_FATAL);
    is("", 404, ENOENT, S3_FATAL);
}

static void throttling_is_never_a_missing_file(void **state)
{
    is("SlowDown", 503, EIO, S3_THROTTLED);
    is("", 503, EIO, S3_THROTTLED);
    is("", 429, EIO, S3_THROTTLED);
}

static void the_code_decides_before_the_status(void **state)
{
    is("RequestTimeTooSkewed", 403, EACCES, S3_CLOCK);
    is("ExpiredToken", 400, EACCES, S3_CREDENTIALS);
    is("InvalidObjectState", 403, EIO, S3_FATAL);
    is("SomethingNew", 403, EACCES, S3_FATAL);
}

static void every_5xx_is_tried_again_except_not_implemented(void **state)
{
    is("", 500, EIO, S3_RETRY);
    is("", 502, EIO, S3_RETRY);
    is("", 504, EIO, S3_RETRY);
    is("", 520, EIO, S3_RETRY);
    is("", 501, EOPNOTSUPP, S3_FATAL);
}

static void a_changed_object_is_estale(void **state)
{
    is("PreconditionFailed", 412, ESTALE, S3_FATAL);
    is("", 412, ESTALE, S3_FATAL);
}

static void a_status_nobody_expects_is_an_error(void **state)
{
    is("", 204, EIO, S3_FATAL);
    is("", 418, EIO, S3_FATAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_object_is_enoent),
        cmocka_unit_test(throttling_is_never_a_missing_file),
        cmocka_unit_test(the_code_decides_before_the_status),
        cmocka_unit_test(every_5xx_is_tried_again_except_not_implemented),
        cmocka_unit_test(a_changed_object_is_estale),
        cmocka_unit_test(a_status_nobody_expects_is_an_error),
    };

    return cmocka_run_group_tests_name("s3 error", tests, NULL, NULL);
}
