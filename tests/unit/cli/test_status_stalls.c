// SPDX-License-Identifier: Apache-2.0
// What `os2g status` shows of a stall report that the daemon has given.
#include "test.h"

#include "cli/status_stalls.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char shown[8192];

// What is printed of an epoch in which one object was waited for.
static const char *show(const char *key)
{
    json_t *status =
        json_pack("{s:{s:[{s:i, s:f, s:f, s:{s:f}, s:[{s:s, s:f, s:s}]}]}}", "stalls", "epochs",
                  "epoch", 1, "waited", 2.0, "seconds", 4.0, "causes", "pool full", 2.0, "objects",
                  "key", key, "waited", 2.0, "cause", "pool full");
    int fd = memfd_create("shown", MFD_CLOEXEC), out;
    ssize_t n;

    assert_non_null(status);
    fflush(stdout);
    out = dup(STDOUT_FILENO);
    assert_true(fd >= 0 && out >= 0 && dup2(fd, STDOUT_FILENO) >= 0);
    status_show_stalls(status);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    n = pread(fd, shown, sizeof(shown) - 1, 0);
    close(fd);
    json_decref(status);
    assert_true(n >= 0);
    shown[n] = 0;
    return shown;
}

static void an_epoch_and_its_slowest_object_are_shown(void **state)
{
    const char *text = show("train/gr\xc3\xbc\xc3\x9f.jpg");

    assert_non_null(strstr(text, "epoch 1: readers waited 2.00 s of 4.0 s: pool full 100 %\n"));
    assert_non_null(strstr(text, "  2.00 s  train/gr\xc3\xbc\xc3\x9f.jpg  pool full\n"));
}

static void the_end_of_a_long_key_is_shown(void **state)
{
    const char *text = show("\xe2\x82\xac\xe2\x82\xac" // its middle is where 60 bytes begin
                            "456789012345678901234567890123456789012345678901234567890.b");

    assert_non_null(strstr(text, "  ...456789012345678901234567890123456789"));
    assert_non_null(strstr(text, "567890.b  pool full\n"));
}

static void no_key_tells_the_terminal_what_to_do(void **state)
{
    const char *text = show("a\x1b[2J\x07\x7f\xc2\x9b"
                            "1mb");

    assert_non_null(strstr(text, "  a?[2J???1mb  pool full\n"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_and_its_slowest_object_are_shown),
        cmocka_unit_test(the_end_of_a_long_key_is_shown),
        cmocka_unit_test(no_key_tells_the_terminal_what_to_do),
    };

    return cmocka_run_group_tests_name("cli/status_stalls", tests, NULL, NULL);
}
