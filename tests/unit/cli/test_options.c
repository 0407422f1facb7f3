// SPDX-License-Identifier: Apache-2.0
// cli_parse ends the program when something is wrong: those tests run it in a child.
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

struct target {
    bool lazy, force;
    const char *name;
};

static int set_lazy(void *target, const char *value, char **ret_error)
{
    ((struct target *)target)->lazy = true;
    return 0;
}

static int set_force(void *target, const char *value, char **ret_error)
{
    ((struct target *)target)->force = true;
    return 0;
}

static int set_name(void *target, const char *value, char **ret_error)
{
    if (!strcmp(value, "bad")) {
        *ret_error = xstrdup("that is a bad name");
        return -EINVAL;
    }
    ((struct target *)target)->name = value;
    return 0;
}

static const struct cli_option options[] = {
    {"lazy", 'z', NULL, "be lazy", set_lazy},
    {"force", 'f', NULL, "use force", set_force},
    {"name", 'n', "NAME", "call it that", set_name},
    {NULL},
};

static const struct cli_command command = {
    .name = "test",
    .synopsis = "DIR",
    .summary = "Tests",
    .options = options,
    .export_groups = EXPORT_GROUP_STORE | EXPORT_GROUP_MEMORY,
};

static struct target target;
static struct export_options export;
static struct cli_arguments words;

static void parse(char *const *argv)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    cli_parse(&command, argc, (char **)argv, &target, &export, &words);
}

#define PARSE(...) parse((char *[]){(char *)"test", __VA_ARGS__, NULL})

static int set_up(void **state)
{
    target = (struct target){0};
    export_options_init(&export);
    return 0;
}

static int tear_down(void **state)
{
    export_options_fini(&export);
    free(words.words);
    words = (struct cli_arguments){0};
    return 0;
}

// What the command prints, on both outputs, before it exits with status.
static void assert_exits(char *const *argv, int status, const char *saying)
{
    char text[16384];
    size_t len = 0;
    int fds[2], rc;
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        parse(argv);
        _exit(99);
    }
    close(fds[1]);
    while ((n = read(fds[0], text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = 0;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &rc, 0), pid);
    assert_true(WIFEXITED(rc));
    assert_int_equal(WEXITSTATUS(rc), status);
    if (!strstr(text, saying))
        fail_msg("'%s' does not say '%s'", text, saying);
}

#define EXITS(status, saying, ...)                                                                 \
    assert_exits((char *[]){(char *)"test", __VA_ARGS__, NULL}, status, saying)

static void options_and_words_may_be_mixed(void **state)
{
    PARSE("one", "--lazy", "two", "--name", "x", "three");
    assert_int_equal(words.n, 3);
    assert_string_equal(words.words[1], "two");
    assert_null(words.words[3]);
    assert_true(target.lazy);
    assert_string_equal(target.name, "x");
}

static void a_value_may_stand_behind_an_equals_sign(void **state)
{
    PARSE("--name=a=b", "--memory=64M");
    assert_string_equal(target.name, "a=b");
    assert_true(export.memory == 64 * MIB);
}

static void letters_may_be_joined(void **state)
{
    PARSE("-zfnx", "-n", "y");
    assert_true(target.lazy && target.force);
    assert_string_equal(target.name, "y");
}

static void after_two_dashes_all_is_words(void **state)
{
    PARSE("--", "--lazy", "-z");
    assert_int_equal(words.n, 2);
    assert_false(target.lazy);
}

static void a_single_dash_is_a_word(void **state)
{
    PARSE("-");
    assert_int_equal(words.n, 1);
}

static void an_unknown_option_is_answered_with_the_nearest(void **state)
{
    EXITS(EXIT_USAGE, "did you mean --lazy?", "--lasy");
    EXITS(EXIT_USAGE, "did you mean --endpoint-url?", "--endpoint-ulr=x");
    EXITS(EXIT_USAGE, "no option -q", "-q");
}

static void options_of_exports_that_a_command_does_not_take_are_unknown(void **state)
{
    EXITS(EXIT_USAGE, "there is no option --allow-other", "--allow-other");
}

static void values_are_asked_for_and_checked(void **state)
{
    EXITS(EXIT_USAGE, "--name needs a value (NAME)", "--name");
    EXITS(EXIT_USAGE, "that is a bad name", "--name", "bad");
    EXITS(EXIT_USAGE, "--lazy takes no value", "--lazy=yes");
    EXITS(EXIT_USAGE, "256M", "--memory", "much");
}

static void help_shows_own_options_and_those_of_exports(void **state)
{
    EXITS(0, "--lazy", "--help");
    EXITS(0, "--endpoint-url URL", "-h");
    EXITS(0, "Memory and speed:", "--help");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(options_and_words_may_be_mixed),
        TEST(a_value_may_stand_behind_an_equals_sign),
        TEST(letters_may_be_joined),
        TEST(after_two_dashes_all_is_words),
        TEST(a_single_dash_is_a_word),
        TEST(an_unknown_option_is_answered_with_the_nearest),
        TEST(options_of_exports_that_a_command_does_not_take_are_unknown),
        TEST(values_are_asked_for_and_checked),
        TEST(help_shows_own_options_and_those_of_exports),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
