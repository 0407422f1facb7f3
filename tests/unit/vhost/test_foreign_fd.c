// SPDX-License-Identifier: Apache-2.0
// Descriptors of hosts, some of a FUSE file system that never answers: this test's own, in a name
// space of its own.
#include "front/vhost/foreign_fd.h"

#include "base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static void assert_kind(int fd, enum foreign_kind kind)
{
    assert_true(fd >= 0);
    assert_int_equal(foreign_fd_kind(fd), kind);
    foreign_fd_close(fd);
}

static void what_can_be_used_is_known(void **state)
{
    assert_kind(memfd_create("memory", 0), FOREIGN_MEMORY);
    assert_kind(memfd_create("memory", MFD_ALLOW_SEALING), FOREIGN_MEMORY);
    assert_kind(eventfd(0, 0), FOREIGN_EVENTFD);
    assert_kind(open("/dev/null", O_RDWR), FOREIGN_DEVICE);
}

static void all_else_is_something_else(void **state)
{
    int pipes[2];

    assert_return_code(pipe(pipes), errno);
    assert_kind(pipes[0], FOREIGN_OTHER);
    assert_kind(pipes[1], FOREIGN_OTHER);
    assert_kind(socket(AF_UNIX, SOCK_STREAM, 0), FOREIGN_OTHER);
    assert_kind(open("/", O_RDONLY | O_DIRECTORY), FOREIGN_OTHER);
    assert_kind(open("/proc/self/status", O_RDONLY), FOREIGN_OTHER);
    assert_kind(open("/dev/shm", O_PATH), FOREIGN_OTHER);
}

static void the_same_file_is_known_by_another_descriptor(void **state)
{
    int a = memfd_create("a", 0), b = memfd_create("b", 0), c = dup(a);

    assert_true(foreign_fd_same(a, c));
    assert_false(foreign_fd_same(a, b));
    close(a);
    close(b);
    close(c);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void whatever_it_is_it_is_closed(void **state)
{
    int fd = open("/proc/self/status", O_RDONLY);

    foreign_fd_close(fd);
    for (int i = 0; i < 5000 && is_open(fd); i++)
        usleep(1000);
    assert_false(is_open(fd));
    foreign_fd_close(-1);
}

// --- a file system that answers nothing in time but what is needed to open a file of it ---

static void serve_one(int fuse, const struct fuse_in_header *in)
{
    struct {
        struct fuse_out_header h;
        union {
            struct fuse_init_out init;
            struct fuse_entry_out entry;
            struct fuse_open_out open;
        };
    } out = {.h.unique = in->unique};

    if (in->opcode == FUSE_INIT) {
        out.init = (struct fuse_init_out){.major = 7, .minor = 31, .max_write = 4096};
        out.h.len = sizeof(out.h) + sizeof(out.init);
    } else if (in->opcode == FUSE_LOOKUP) {
        out.entry = (struct fuse_entry_out){.nodeid = 2, .attr = {.ino = 2, .nlink = 1}};
        out.entry.attr.mode = S_IFREG | 0666;
        out.h.len = sizeof(out.h) + sizeof(out.entry);
    } else if (in->opcode == FUSE_FLUSH) {
        sleep(6); // who waits for this cannot be killed: a failure must come to an end
        out.h.error = -ENOSYS;
        out.h.len = sizeof(out.h);
    } else if (in->opcode == FUSE_OPEN) {
        out.h.len = sizeof(out.h) + sizeof(out.open);
    } else {
        return;
    }
    if (write(fuse, &out, out.h.len) < 0)
        _exit(3);
}

static void *serve(void *arg)
{
    static _Alignas(8) char in[64 * 1024];

    while (read(*(int *)arg, in, sizeof(in)) > 0)
        serve_one(*(int *)arg, (const void *)in);
    return NULL;
}

#define SKIPPED 77

// Ends the process: its exit would wait for the file system, too.
static void use_silent_file(const char *directory)
{
    static int fuse;
    char options[100], path[100];
    pthread_t thread;
    uint64_t before;
    int fd;

    fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof(options), "fd=%d,rootmode=040000,user_id=0,group_id=0", fuse);
    snprintf(path, sizeof(path), "%s/file", directory);
    if (fuse < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("silent", directory, "fuse", MS_NOSUID | MS_NODEV, options) < 0)
        _exit(SKIPPED);
    pthread_create(&thread, NULL, serve, &fuse);
    fd = open(path, O_RDONLY);
    if (fd < 0)
        _exit(2);
    before = clock_monotonic_ns();
    if (foreign_fd_kind(fd) != FOREIGN_OTHER)
        _exit(4);
    foreign_fd_close(fd);
    if (clock_monotonic_ns() - before > 5 * NS_PER_S)
        _exit(5);
    // what waits is let go
    umount2(directory, MNT_FORCE | MNT_DETACH);
    _exit(0);
}

static void a_file_system_that_never_answers_holds_nobody_up(void **state)
{
    char directory[] = "/tmp/os2g-test-XXXXXX";
    int status;
    pid_t pid;

    assert_non_null(mkdtemp(directory));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(20);
        use_silent_file(directory);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rmdir(directory);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED) {
        print_message("no FUSE mount can be made here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_be_used_is_known),
        cmocka_unit_test(all_else_is_something_else),
        cmocka_unit_test(the_same_file_is_known_by_another_descriptor),
        cmocka_unit_test(whatever_it_is_it_is_closed),
        cmocka_unit_test(a_file_system_that_never_answers_holds_nobody_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
