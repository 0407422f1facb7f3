// SPDX-License-Identifier: Apache-2.0
#include "base/rendezvous.h"

#include "base/text.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static void root_s_sockets_lie_in_run(void **state)
{
    char *path = rendezvous_directory(0);

    assert_string_equal(path, "/run/os2g");
    free(path);
}

static void a_user_s_sockets_lie_where_the_session_says(void **state)
{
    char *path;
    uid_t before = geteuid();

    if (before == 0 && seteuid(12345) < 0)
        skip();
    setenv("XDG_RUNTIME_DIR", "/run/mine", 1);
    path = rendezvous_directory(geteuid());
    assert_string_equal(path, "/run/mine/os2g");
    free(path);
    path = rendezvous_directory(54321); // of another user's session nothing is known
    assert_string_equal(path, "/tmp/os2g-54321");
    free(path);
    assert_int_equal(seteuid(before), 0);
    prctl(PR_SET_DUMPABLE, 1); // a sanitizer looks at the process when it ends
}

static void places_and_kinds_of_socket_have_names_of_their_own(void **state)
{
    char *a = rendezvous_control(0, "/a"), *b = rendezvous_control(0, "/b"),
         *again = rendezvous_control(0, "/a"), *socket = rendezvous_socket(0, "/a");

    assert_string_equal(a, again);
    assert_string_not_equal(a, b);
    assert_string_not_equal(a, socket);
    free(a);
    free(b);
    free(again);
    free(socket);
}

static void touch(const char *directory, const char *name)
{
    char *path = xasprintf("%s/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    close(fd);
    free(path);
}

static void control_sockets_are_listed_by_name(void **state)
{
    char base[] = "/tmp/os2g-test-XXXXXX", *directory, **paths;
    static const char *const names[] = {"b.sock", "a.sock", "a.vhost", "p.lock", ".sock"};
    uid_t before = geteuid();

    if (before == 0 && seteuid(12345) < 0)
        skip();
    assert_non_null(mkdtemp(base));
    setenv("XDG_RUNTIME_DIR", base, 1);
    assert_null(rendezvous_controls(geteuid()));
    directory = rendezvous_directory(geteuid());
    assert_int_equal(mkdir(directory, 0700), 0);
    paths = rendezvous_controls(geteuid());
    assert_null(paths[0]);
    free(paths);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        touch(directory, names[i]);
    paths = rendezvous_controls(geteuid());
    assert_true(text_ends_with(paths[0], "/os2g/a.sock"));
    assert_true(text_ends_with(paths[1], "/os2g/b.sock"));
    assert_null(paths[2]);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char *path = xasprintf("%s/%s", directory, names[i]);

        unlink(path);
        free(path);
    }
    free(paths[0]);
    free(paths[1]);
    free(paths);
    rmdir(directory);
    rmdir(base);
    free(directory);
    assert_int_equal(seteuid(before), 0);
    prctl(PR_SET_DUMPABLE, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_s_sockets_lie_in_run),
        cmocka_unit_test(places_and_kinds_of_socket_have_names_of_their_own),
        cmocka_unit_test(a_user_s_sockets_lie_where_the_session_says),
        cmocka_unit_test(control_sockets_are_listed_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
