// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "s3/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_words(const char *command, const char *joined)
{
    char text[256] = "", **words;

    assert_int_equal(process_words(command, &words), 0);
    for (char **w = words; *w; w++) {
        strcat(text, *w);
        strcat(text, "|");
    }
    assert_string_equal(text, joined);
    process_words_free(words);
}

static void command_is_split_at_white_space(void **state)
{
    assert_words("  get \t keys\n--fast ", "get|keys|--fast|");
}

static void quotes_and_backslashes_work_as_in_a_shell(void **state)
{
    assert_words("'a b' \"c d\" e\\ f", "a b|c d|e f|");
    assert_words("a'b'\"c\"d", "abcd|");
    assert_words("\"a\\\"b\\\\c\\d\"", "a\"b\\c\\d|");
    assert_words("'a\\b' ''", "a\\b||");
}

static void nothing_is_expanded(void **state)
{
    assert_words("echo $HOME *.c ~ `x`", "echo|$HOME|*.c|~|`x`|");
}

static void unclosed_quote_or_empty_command_is_refused(void **state)
{
    char **words;

    assert_int_equal(process_words("a 'b", &words), -EINVAL);
    assert_int_equal(process_words("a \"b\\\"", &words), -EINVAL);
    assert_int_equal(process_words("a\\", &words), -EINVAL);
    assert_int_equal(process_words("  ", &words), -EINVAL);
}

static void output_comes_back_whole(void **state)
{
    struct buf out = {0};
    char *error;

    assert_int_equal(process_run("sh -c 'head -c 300000 /dev/zero; echo end'", 2 * NS_PER_S, false,
                                 &out, &error),
                     0);
    assert_int_equal(out.len, 300004);
    assert_string_equal(out.data + 300000, "end\n");
    buf_free(&out);
}

static void assert_fails(const char *command, uint64_t timeout_ns, int expected, const char *word)
{
    struct buf out = {0};
    char *error;

    assert_int_equal(process_run(command, timeout_ns, false, &out, &error), expected);
    assert_non_null(strstr(error, "credential_process"));
    assert_non_null(strstr(error, word));
    free(error);
    buf_free(&out);
}

static void failure_tells_the_status_and_what_the_process_said(void **state)
{
    assert_fails("sh -c 'echo no such account >&2; exit 3'", 2 * NS_PER_S, -EACCES,
                 "exit status 3: no such account");
    assert_fails("sh -c 'kill -9 $$'", 2 * NS_PER_S, -EACCES, "signal 9");
}

static void command_that_is_not_there_cannot_be_started(void **state)
{
    assert_fails("/nonexistent/os2g-keys", 2 * NS_PER_S, -ENOENT, "cannot be started");
}

// Ended, though nobody may have waited for it yet.
static bool has_ended(int pid)
{
    char path[64], line[128] = "";
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    f = fopen(path, "r");
    if (!f)
        return true;
    if (!fgets(line, sizeof(line), f))
        line[0] = 0;
    fclose(f);
    return !line[0] || strstr(line, ") Z ");
}

static void slow_process_is_ended_with_all_it_started(void **state)
{
    char path[] = "/tmp/os2g-test-XXXXXX", command[128], pid[32] = "";
    uint64_t start = clock_monotonic_ns();
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    snprintf(command, sizeof(command), "sh -c 'sleep 100 & echo $! > %s; wait'", path);
    assert_fails(command, 200 * NS_PER_MS, -ETIMEDOUT, "too long");
    assert_true(clock_monotonic_ns() - start < NS_PER_S);

    assert_true(read(fd, pid, sizeof(pid) - 1) > 0);
    for (int i = 0; i < 100 && !has_ended(atoi(pid)); i++)
        usleep(10000);
    assert_true(has_ended(atoi(pid)));
    close(fd);
    unlink(path);
}

static void endless_output_is_ended(void **state)
{
    assert_fails("cat /dev/zero", 2 * NS_PER_S, -EFBIG, "too much");
}

static void what_a_process_leaves_running_is_not_waited_for(void **state)
{
    struct buf out = {0};
    uint64_t start = clock_monotonic_ns();
    char *error;

    assert_int_equal(process_run("sh -c 'sleep 3 & echo done'", 2 * NS_PER_S, false, &out, &error),
                     0);
    assert_string_equal(buf_str(&out), "done\n");
    assert_true(clock_monotonic_ns() - start < NS_PER_S);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_is_split_at_white_space),
        cmocka_unit_test(quotes_and_backslashes_work_as_in_a_shell),
        cmocka_unit_test(nothing_is_expanded),
        cmocka_unit_test(unclosed_quote_or_empty_command_is_refused),
        cmocka_unit_test(output_comes_back_whole),
        cmocka_unit_test(failure_tells_the_status_and_what_the_process_said),
        cmocka_unit_test(command_that_is_not_there_cannot_be_started),
        cmocka_unit_test(slow_process_is_ended_with_all_it_started),
        cmocka_unit_test(endless_output_is_ended),
        cmocka_unit_test(what_a_process_leaves_running_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
