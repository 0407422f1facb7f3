// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/os2g-test-log-XXXXXX";
static char text[64 * 1024];

static int open_log(void **state)
{
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    return log_open_file(path);
}

static int remove_log(void **state)
{
    return unlink(path);
}

// What was logged since the last call.
static const char *logged(void)
{
    static long pos;
    FILE *f = fopen(path, "r");
    size_t n;

    assert_non_null(f);
    fseek(f, pos, SEEK_SET);
    n = fread(text, 1, sizeof(text) - 1, f);
    pos = ftell(f);
    fclose(f);
    text[n] = 0;
    return text;
}

static unsigned lines_in(const char *s)
{
    unsigned n = 0;

    for (; (s = strchr(s, '\n')); s++)
        n++;
    return n;
}

static void line_has_time_level_module_and_text(void **state)
{
    log_error("s3", "it is %d", 42);
    assert_string_equal(logged() + 20, " error s3: it is 42\n");
    assert_int_equal(text[19], 'Z');
}

static void levels_are_per_module(void **state)
{
    assert_int_equal(log_configure("warning,s3=debug"), 0);
    log_info("fs", "no");
    log_warning("fs", "yes");
    log_debug("s3", "yes");
    assert_int_equal(lines_in(logged()), 2);
    assert_null(strstr(text, "no"));
    assert_true(log_enabled(LOG_LEVEL_DEBUG, "s3"));
    assert_false(log_enabled(LOG_LEVEL_DEBUG, "fs"));
}

static void what_was_configured_last_counts(void **state)
{
    assert_int_equal(log_configure("s3=debug"), 0);
    assert_int_equal(log_configure("s3=error"), 0);
    assert_false(log_enabled(LOG_LEVEL_WARNING, "s3"));
    assert_int_equal(log_configure("info"), 0);
    assert_true(log_enabled(LOG_LEVEL_INFO, "fs"));
}

static void broken_specs_are_refused_whole(void **state)
{
    static const char *const bad[] = {
        "loud", "s3=loud", "s3=", "debug,x", "info=debug=x", "a-module-of-a-very-long-name=debug"};

    assert_int_equal(log_configure("error"), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(log_configure(bad[i]), -EINVAL);
        assert_false(log_spec_valid(bad[i]));
    }
    assert_false(log_enabled(LOG_LEVEL_DEBUG, "fs"));
    assert_true(log_spec_valid("debug,s3=info"));
    assert_false(log_enabled(LOG_LEVEL_DEBUG, "fs"));
    assert_int_equal(log_configure("info"), 0);
}

static void bytes_from_outside_do_not_break_the_line(void **state)
{
    log_warning("fs", "name %s", "a\nerror fs: forged\x1b[0m");
    assert_int_equal(lines_in(logged()), 1);
    assert_non_null(strstr(text, "a?error fs: forged?[0m"));
}

static void long_lines_are_cut(void **state)
{
    char *s = calloc(1, 10001);

    memset(s, 'x', 10000);
    log_warning("fs", "%s", s);
    free(s);
    assert_int_equal(lines_in(logged()), 1);
    assert_in_range(strlen(text), 1000, 2048);
}

static void one_place_logs_ten_lines_in_a_while(void **state)
{
    for (int i = 0; i < 100; i++)
        log_warning("fs", "again");
    log_warning("fs", "another place");
    assert_int_equal(lines_in(logged()), 11);
}

static void lines_left_out_are_counted(void **state)
{
    struct log_site site = {0};

    for (int i = 0; i < 15; i++)
        log_write(&site, LOG_LEVEL_WARNING, "fs", "again");
    site.window_start_ns = 1; // long ago
    log_write(&site, LOG_LEVEL_WARNING, "fs", "again");
    assert_non_null(strstr(logged(), "again (5 like it left out)\n"));
    assert_int_equal(lines_in(text), 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_has_time_level_module_and_text),
        cmocka_unit_test(levels_are_per_module),
        cmocka_unit_test(what_was_configured_last_counts),
        cmocka_unit_test(broken_specs_are_refused_whole),
        cmocka_unit_test(bytes_from_outside_do_not_break_the_line),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(one_place_logs_ten_lines_in_a_while),
        cmocka_unit_test(lines_left_out_are_counted),
    };

    return cmocka_run_group_tests_name("base/log", tests, open_log, remove_log);
}
