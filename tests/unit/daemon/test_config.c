// SPDX-License-Identifier: Apache-2.0
#include "daemon/config.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

static void assert_refused(const char *text, const char *because)
{
    struct config c;
    char *error = NULL;

    assert_int_equal(config_parse(&c, text, 0, 0, &error), -EINVAL);
    if (!strstr(error, because))
        fail_msg("'%s' does not say '%s'", error, because);
    free(error);
}

static void exports_have_options_of_their_own(void **state)
{
    struct config c;
    char *error = NULL;

    assert_int_equal(config_parse(&c,
                                  "[daemon]\n"
                                  "metrics = 127.0.0.1:9464\n"
                                  "[export train]\n"
                                  "source = s3://datasets/train\n"
                                  "mount = /data/train\n"
                                  "memory = 1G\n"
                                  "[export  val]\n"
                                  "source = s3://datasets/val\n"
                                  "mount = /data/val\n"
                                  "allow_other = yes\n",
                                  1000, 1000, &error),
                     0);
    assert_int_equal(c.n, 2);
    assert_string_equal(c.metrics, "127.0.0.1:9464");
    assert_string_equal(c.exports[0].name, "train");
    assert_true(c.exports[0].options->memory == GIB);
    assert_false(c.exports[0].options->allow_other);
    assert_string_equal(c.exports[1].name, "val");
    assert_string_equal(c.exports[1].options->prefix, "val/");
    assert_true(c.exports[1].options->allow_other);
    assert_int_equal(c.exports[1].options->uid, 1000);
    config_fini(&c);
}

static void the_daemons_log_level_is_every_exports(void **state)
{
    struct config c;
    char *error = NULL;

    assert_int_equal(
        config_parse(&c,
                     "[daemon]\nlog-level = debug\n"
                     "[export a]\nsource = s3://bucket-a\nmount = /a\n"
                     "[export b]\nsource = s3://bucket-b\nmount = /b\nlog-level = error\n",
                     0, 0, &error),
        0);
    assert_string_equal(c.exports[0].options->log_level, "debug");
    assert_string_equal(c.exports[1].options->log_level, "error");
    config_fini(&c);
}

static void errors_name_their_line(void **state)
{
    assert_refused("[export a]\nsource = s3://bucket-a\nmemroy = 1G\nmount = /a\n",
                   "line 3: there is no option 'memroy'; did you mean 'memory'?");
}

static void unknown_sections_and_names_are_refused(void **state)
{
    assert_refused("[exports a]\nsource = s3://bucket-a\n", "[export NAME]");
    assert_refused("[daemon]\nmetric = 127.0.0.1:1\n", "did you mean 'metrics'?");
    assert_refused("[export a/b]\nsource = s3://bucket-a\n", "letters, digits");
}

static void an_export_needs_source_and_mount(void **state)
{
    assert_refused("[export a]\nsource = s3://bucket-a\n", "mount = DIRECTORY");
    assert_refused("[export a]\nmount = /a\n", "source = s3://bucket");
    assert_refused("[export a]\nsource = s3://bucket-a\nmount = a\n", "absolute");
    assert_refused("[daemon]\n", "no [export NAME]");
    assert_refused("", "no [export NAME]");
}

static void two_exports_cannot_share_a_place(void **state)
{
    assert_refused("[export a]\nsource = s3://bucket-a\nmount = /x\n"
                   "[export b]\nsource = s3://bucket-b\nmount = /x\n",
                   "export 'a', too");
}

static void a_name_is_used_once(void **state)
{
    assert_refused("[export a]\nsource = s3://bucket-1\nmount = /a\n"
                   "[export a]\nsource = s3://bucket-2\nmount = /b\n",
                   "used twice");
}

static void what_is_no_ini_file_is_refused(void **state)
{
    assert_refused("[export a\nsource = s3://bucket-a\n", "line 1");
    assert_refused("[export a]\njust words\n", "line 2");
}

static void an_export_may_have_a_socket_and_no_mount(void **state)
{
    struct config c;
    char *error = NULL;

    assert_int_equal(config_parse(&c, "[export a]\nsource = s3://bucket-1\nsocket = /run/a.sock\n",
                                  0, 0, &error),
                     0);
    assert_null(c.exports[0].options->directory);
    assert_string_equal(export_options_place(c.exports[0].options), "/run/a.sock");
    config_fini(&c);
    assert_refused("[export a]\nsource = s3://bucket-1\nsocket = none\n", "mount = ");
    assert_refused("[export a]\nsource = s3://bucket-1\nsocket = a.sock\n", "absolute");
}

static void two_exports_cannot_share_a_socket(void **state)
{
    assert_refused("[export a]\nsource = s3://bucket-1\nsocket = /run/s\n"
                   "[export b]\nsource = s3://bucket-2\nmount = /b\nsocket = /run/s\n",
                   "'a'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exports_have_options_of_their_own),
        cmocka_unit_test(the_daemons_log_level_is_every_exports),
        cmocka_unit_test(errors_name_their_line),
        cmocka_unit_test(unknown_sections_and_names_are_refused),
        cmocka_unit_test(an_export_needs_source_and_mount),
        cmocka_unit_test(two_exports_cannot_share_a_place),
        cmocka_unit_test(a_name_is_used_once),
        cmocka_unit_test(what_is_no_ini_file_is_refused),
        cmocka_unit_test(an_export_may_have_a_socket_and_no_mount),
        cmocka_unit_test(two_exports_cannot_share_a_socket),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
