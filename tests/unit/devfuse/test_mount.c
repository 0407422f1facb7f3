// SPDX-License-Identifier: Apache-2.0
// Mounting that fails says what to do; mounting by an ordinary user.
#include "test.h"

#include "base/base.h"
#include "front/devfuse/devfuse.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static const struct devfuse_mount_options plain = {.source = "s3://bucket/a,b"};

static char *error;

static int setup(void **state)
{
    char *dir = xstrdup("/tmp/os2g-test-XXXXXX");

    if (!mkdtemp(dir))
        return -1;
    *state = dir;
    return 0;
}

static int teardown(void **state)
{
    rmdir(*state);
    free(*state);
    free(error);
    error = NULL;
    return 0;
}

static void need_root_and_fuse(void)
{
    if (geteuid() == 0 && access("/dev/fuse", R_OK | W_OK) == 0)
        return;
    print_message("# needs root and /dev/fuse\n");
    skip();
}

static void a_directory_that_does_not_exist_is_named(void **state)
{
    assert_int_equal(devfuse_mount("/tmp/no-such-directory", &plain, &error), -ENOENT);
    assert_string_equal(error, "/tmp/no-such-directory does not exist; make the directory first");
}

static void a_file_is_no_place_to_mount(void **state)
{
    assert_int_equal(devfuse_mount("/etc/passwd", &plain, &error), -ENOTDIR);
    assert_string_equal(error, "/etc/passwd is not a directory");
}

static void mounting_twice_in_one_place_is_refused(void **state)
{
    const char *dir = *state;
    int fd;

    need_root_and_fuse();
    fd = devfuse_mount(dir, &plain, &error);
    if (fd == -EPERM)
        skip();
    assert_true(fd >= 0);
    assert_int_equal(devfuse_mount(dir, &plain, &error), -EBUSY);
    assert_non_null(strstr(error, "mounted there already"));
    assert_int_equal(devfuse_unmount(dir, false, &error), 0);
    close(fd);
}

static void a_mount_left_by_a_dead_daemon_is_recognised(void **state)
{
    const char *dir = *state;
    int fd;

    need_root_and_fuse();
    fd = devfuse_mount(dir, &plain, &error);
    if (fd == -EPERM)
        skip();
    close(fd);
    assert_int_equal(devfuse_mount(dir, &plain, &error), -EBUSY);
    assert_non_null(strstr(error, "os2g umount"));
    assert_int_equal(devfuse_unmount(dir, false, &error), 0);
}

static void unmounting_nothing_says_so(void **state)
{
    const char *dir = *state;

    if (geteuid() != 0)
        skip();
    assert_int_equal(devfuse_unmount(dir, false, &error), -EINVAL);
    assert_non_null(strstr(error, "nothing is mounted"));
}

static void options_the_kernel_does_not_know_are_shown(void **state)
{
    const char *dir = *state;
    struct devfuse_mount_options o = {.source = "s3://bucket", .extra = "noexec,nonsense"};

    need_root_and_fuse();
    if (devfuse_mount(dir, &o, &error) == -EPERM)
        skip();
    assert_non_null(strstr(error, "nonsense"));
}

// --- as an ordinary user ---

// Gives this process a /dev/fuse that users may open, as distributions have it; not all test
// machines do. The node is seen by this process only.
static void open_device_to_all(void)
{
    const char *node = "/mnt/fuse";

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/mnt", "tmpfs", 0, NULL) < 0 ||
        mknod(node, S_IFCHR | 0666, makedev(10, 229)) < 0 || chmod(node, 0666) < 0 ||
        mount(node, "/dev/fuse", NULL, MS_BIND, NULL) < 0)
        _exit(77);
}

static void become_nobody(void)
{
    if (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
        _exit(77);
}

// Runs fn in a process without privilege; what it returns is its exit status.
static int as_nobody(int (*fn)(const char *dir), const char *dir)
{
    int status;
    pid_t pid;

    assert_int_equal(chown(dir, NOBODY, NOBODY), 0);
    pid = fork();
    if (pid == 0) {
        open_device_to_all();
        become_nobody();
        _exit(fn(dir));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int mount_and_unmount(const char *dir)
{
    char *text = NULL;
    int fd = devfuse_mount(dir, &plain, &text);

    if (fd < 0)
        return strstr(text, "not installed") ? 77 : 1;
    if (fcntl(fd, F_GETFD) != FD_CLOEXEC)
        return 2;
    close(fd);
    return devfuse_unmount(dir, true, &text) == 0 ? 0 : 3;
}

static void an_ordinary_user_mounts_through_fusermount3(void **state)
{
    int rc;

    need_root_and_fuse();
    rc = as_nobody(mount_and_unmount, *state);
    if (rc == 77) {
        print_message("# fusermount3 is missing or may not mount here\n");
        skip();
    }
    assert_int_equal(rc, 0);
}

static int mount_for_all(const char *dir)
{
    struct devfuse_mount_options o = {.source = "s3://bucket", .allow_other = true};
    char *text = NULL;

    if (devfuse_mount(dir, &o, &text) >= 0)
        return 1;
    return strstr(text, "user_allow_other") ? 0 : 2;
}

static bool users_may_let_others_in(void)
{
    FILE *f = fopen("/etc/fuse.conf", "re");
    char line[256];
    bool found = false;

    while (f && fgets(line, sizeof(line), f))
        found |= !strncmp(line, "user_allow_other", 16);
    if (f)
        fclose(f);
    return found;
}

static void letting_others_in_names_the_line_that_is_missing(void **state)
{
    int rc;

    need_root_and_fuse();
    if (users_may_let_others_in() || access("/usr/bin/fusermount3", X_OK) < 0) {
        print_message("# user_allow_other is set, or there is no fusermount3\n");
        skip();
    }
    rc = as_nobody(mount_for_all, *state);
    if (rc == 77) {
        print_message("# no mount namespace of its own for the test\n");
        skip();
    }
    assert_int_equal(rc, 0);
}

#define in_dir(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_dir(a_directory_that_does_not_exist_is_named),
        in_dir(a_file_is_no_place_to_mount),
        in_dir(mounting_twice_in_one_place_is_refused),
        in_dir(a_mount_left_by_a_dead_daemon_is_recognised),
        in_dir(unmounting_nothing_says_so),
        in_dir(options_the_kernel_does_not_know_are_shown),
        in_dir(an_ordinary_user_mounts_through_fusermount3),
        in_dir(letting_others_in_names_the_line_that_is_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
