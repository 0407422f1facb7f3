// SPDX-License-Identifier: Apache-2.0
// Real mounts of the file system in memory. Skipped where nothing can be mounted.
#include "test.h"

#include "base/base.h"
#include "base/clock.h"
#include "front/devfuse/devfuse.h"
#include "memfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BIG_SIZE (24 * MIB + 12345)
#define FILES    600

struct mounted {
    char dir[32];
    int fd, slots_fd;
    struct memfs_options options;
    // the server, where it is in this process
    struct loop *loop, *data_loop;
    struct fs *fs;
    struct devfuse *devfuse;
    sem_t gone;
};

// --- cleaning up behind a test that fails ---

// This process serves the mounts that it uses: dying in the middle, it may wait for ever for its
// own answer. A child ends a mount by force that is still there when the pipe closes, or long
// after any test.
#define TEST_MS_MAX 30000

static int guard_pipe = -1;

static void guard(int from)
{
    struct pollfd p = {.fd = from, .events = POLLIN};
    char dir[32] = "";

    while (poll(&p, 1, dir[0] ? TEST_MS_MAX : -1) > 0 && read(from, dir, sizeof(dir)) > 0)
        ;
    umount2(dir, MNT_FORCE);
    umount2(dir, MNT_DETACH);
    rmdir(dir);
    _exit(0);
}

static int start_guard(void **state)
{
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        close(fds[1]);
        guard(fds[0]);
    }
    close(fds[0]);
    guard_pipe = fds[1];
    return pid < 0 ? -1 : 0;
}

static pid_t fork_child(void)
{
    pid_t pid = fork();

    if (pid == 0)
        close(guard_pipe);
    return pid;
}

// --- mounting and serving ---

static void on_gone(void *arg)
{
    sem_post(&((struct mounted *)arg)->gone);
}

static void make(struct mounted *m)
{
    struct devfuse_config c = {
        .ops = &memfs_ops,
        .fs = m->fs,
        .fuse_fd = m->fd,
        .slots_fd = m->slots_fd,
        .max_readahead = 1 << 20,
        .max_background = 64,
        .gone = on_gone,
        .arg = m,
    };

    if (devfuse_new(&m->devfuse, m->loop, &c) < 0)
        abort();
}

static void make_on_loop(void *arg)
{
    make(arg);
}

static void free_on_loop(void *arg)
{
    devfuse_free(((struct mounted *)arg)->devfuse);
}

static void start_serving(struct mounted *m)
{
    assert_int_equal(loop_start(&m->loop, "namespace"), 0);
    assert_int_equal(loop_start(&m->data_loop, "data"), 0);
    m->options.data_loop = m->data_loop;
    m->fs = memfs_new(&m->options);
    loop_call(m->loop, make_on_loop, m);
}

static struct mounted *mount_or_skip(struct memfs_options o)
{
    struct mounted *m = xcalloc(1, sizeof(*m));
    struct devfuse_mount_options mount = {.source = "memory, and more", .allow_other = true};
    char *error = NULL;
    int probe = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (probe < 0 || geteuid() != 0) {
        print_message("# /dev/fuse cannot be opened, or this is not root: nothing is mounted\n");
        free(m);
        skip();
        return NULL;
    }
    close(probe);
    o.big_size = BIG_SIZE;
    o.files = FILES;
    o.file_size = 1000;
    m->options = o;
    sem_init(&m->gone, 0, 0);
    strcpy(m->dir, "/tmp/os2g-test-XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    assert_int_equal(write(guard_pipe, m->dir, sizeof(m->dir)), sizeof(m->dir));
    m->fd = devfuse_mount(m->dir, &mount, &error);
    if (m->fd == -EPERM) {
        print_message("# %s\n", error);
        free(error);
        rmdir(m->dir);
        free(m);
        skip();
        return NULL;
    }
    assert_true(m->fd >= 0);
    m->slots_fd = memfd_create("slots", MFD_CLOEXEC);
    assert_int_equal(ftruncate(m->slots_fd, (off_t)devfuse_slots_size()), 0);
    return m;
}

static struct mounted *mount_and_serve(struct memfs_options o)
{
    struct mounted *m = mount_or_skip(o);

    start_serving(m);
    return m;
}

static void unmount(struct mounted *m)
{
    char *error = NULL;
    struct timespec until;

    assert_int_equal(devfuse_unmount(m->dir, true, &error), 0);
    if (m->loop) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 10;
        assert_int_equal(sem_timedwait(&m->gone, &until), 0);
        loop_stop(m->data_loop);
        loop_call(m->loop, free_on_loop, m);
        loop_stop(m->loop);
        memfs_free(m->fs);
    }
    close(m->fd);
    close(m->slots_fd);
    assert_int_equal(rmdir(m->dir), 0);
    sem_destroy(&m->gone);
    free(m);
}

static int open_in(const struct mounted *m, const char *name, int flags)
{
    char *path = xasprintf("%s/%s", m->dir, name);
    int fd = open(path, flags | O_CLOEXEC);

    free(path);
    return fd;
}

// --- checking bytes; also used in child processes, so without cmocka's asserts ---

static bool read_right(int fd, size_t block)
{
    unsigned char *buffer = aligned_alloc(4096, ALIGN_UP(block, 4096));
    uint64_t at = 0;
    ssize_t n;

    while ((n = pread(fd, buffer, block, (off_t)at)) > 0) {
        if (!memfs_equal(buffer, at, (size_t)n))
            break;
        at += (uint64_t)n;
    }
    free(buffer);
    return n == 0 && at == BIG_SIZE;
}

static void drop_pages(int fd)
{
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

// --- reading ---

static void a_file_reads_right_through_the_page_cache(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){0});
    int fd = open_in(m, "big", O_RDONLY);

    assert_true(fd >= 0);
    assert_true(read_right(fd, 100000));
    close(fd);
    unmount(m);
}

static void a_file_reads_right_past_the_page_cache(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){0});
    int fd = open_in(m, "big", O_RDONLY | O_DIRECT);

    assert_true(fd >= 0);
    assert_true(read_right(fd, 4 * MIB));
    close(fd);
    unmount(m);
}

static void a_file_opened_for_direct_io_reads_right(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){.direct_io = true});
    int fd = open_in(m, "big", O_RDONLY);

    assert_true(fd >= 0);
    assert_true(read_right(fd, 3 * MIB));
    close(fd);
    unmount(m);
}

static void a_mapped_file_shows_the_right_bytes(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){0});
    int fd = open_in(m, "big", O_RDONLY);
    unsigned char *p = mmap(NULL, BIG_SIZE, PROT_READ, MAP_SHARED, fd, 0);

    assert_true(p != MAP_FAILED);
    assert_true(memfs_equal(p, 0, BIG_SIZE));
    munmap(p, BIG_SIZE);
    close(fd);
    unmount(m);
}

// --- names, attributes and the rest ---

static void every_name_is_listed_once_with_its_attributes(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){0});
    char *path = xasprintf("%s/dir", m->dir);
    DIR *d = opendir(path);
    bool seen[FILES] = {0};
    struct dirent *e;
    struct stat st;
    unsigned i, n = 0;

    assert_non_null(d);
    while ((e = readdir(d))) {
        if (sscanf(e->d_name, "f%u", &i) != 1)
            continue;
        assert_true(i < FILES && !seen[i]);
        seen[i] = true;
        n++;
        assert_int_equal(fstatat(dirfd(d), e->d_name, &st, 0), 0);
        assert_int_equal(st.st_size, 1000);
        assert_int_equal(st.st_ino, e->d_ino);
    }
    assert_int_equal(n, FILES);
    closedir(d);
    free(path);
    unmount(m);
}

static void reading_a_directory_asks_for_no_attributes_one_by_one(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){0});
    char *path = xasprintf("%s/dir", m->dir);
    struct dirent **names;
    struct devfuse_stats before, after;
    struct stat st;
    int n = scandir(path, &names, NULL, NULL);

    assert_true(n >= FILES);
    devfuse_stats_read(m->devfuse, &before);
    for (int i = 0; i < n; i++) {
        char *file = xasprintf("%s/%s", path, names[i]->d_name);

        assert_int_equal(stat(file, &st), 0);
        free(file);
        free(names[i]);
    }
    free(names);
    devfuse_stats_read(m->devfuse, &after);
    // the kernel may send the directory's RELEASEDIR only now
    assert_in_range(after.requests - before.requests, 0, 1);
    free(path);
    unmount(m);
}

static void a_missing_name_and_a_write_fail_as_they_should(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){0});

    assert_int_equal(open_in(m, "nothing", O_RDONLY), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(open_in(m, "big", O_RDWR), -1);
    assert_int_equal(errno, EROFS);
    unmount(m);
}

static void attributes_xattrs_and_statfs_arrive(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){0});
    int fd = open_in(m, "big", O_RDONLY);
    char value[16];
    struct stat st;
    struct statfs fs;

    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, BIG_SIZE);
    assert_int_equal(st.st_mode, S_IFREG | 0644);
    assert_int_equal(fgetxattr(fd, "user.test", value, sizeof(value)), 5);
    assert_memory_equal(value, "value", 5);
    assert_int_equal(fgetxattr(fd, "user.none", value, sizeof(value)), -1);
    assert_int_equal(errno, ENODATA);
    assert_int_equal(flistxattr(fd, NULL, 0), 10);
    assert_int_equal(fstatfs(fd, &fs), 0);
    assert_int_equal(fs.f_files, FILES + 2);
    close(fd);
    unmount(m);
}

static void the_largest_ioctl_goes_there_and_back(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){0});
    struct {
        char bytes[16368];
    } data;
    int fd = open_in(m, "big", O_RDONLY);

    memset(&data, 'x', sizeof(data));
    assert_int_equal(ioctl(fd, _IOWR('o', 1, data), &data), 42);
    assert_int_equal(data.bytes[sizeof(data) - 1], 'x');
    assert_int_equal(ioctl(fd, _IOWR('q', 1, data), &data), -1);
    assert_int_equal(errno, ENOTTY);
    close(fd);
    unmount(m);
}

static void the_read_ahead_of_a_mount_can_be_raised(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){0});
    int fd = open_in(m, "big", O_RDONLY);
    uint64_t before;

    assert_int_equal(devfuse_set_readahead(m->dir, 4 * MIB), 0);
    before = memfs_reads(m->fs);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL), 0);
    assert_true(read_right(fd, 128 * KIB));
    // 25 requests of 1 MiB at the best, where 128 KiB of read-ahead need 193
    assert_true(memfs_reads(m->fs) - before < 60);
    close(fd);
    unmount(m);
}

// --- interrupts ---

static void a_reader_that_is_killed_does_not_wait_for_its_answer(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){.direct_io = true});
    uint64_t start;
    int status;
    pid_t pid = fork_child();

    if (pid == 0) {
        char byte;

        _exit(pread(open_in(m, "stuck", O_RDONLY), &byte, 1, 0) == 1);
    }
    start = clock_monotonic_ns();
    while (memfs_reads(m->fs) == 0 && clock_monotonic_ns() - start < 5 * NS_PER_S)
        usleep(1000);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    unmount(m);
}

static void on_signal(int sig) {}

static void a_reader_that_gets_a_signal_sees_eintr(void **state)
{
    struct mounted *m = mount_and_serve((struct memfs_options){.direct_io = true});
    uint64_t start;
    int status;
    pid_t pid = fork_child();

    if (pid == 0) {
        struct sigaction sa = {.sa_handler = on_signal};
        char byte;

        sigaction(SIGUSR1, &sa, NULL);
        _exit(pread(open_in(m, "stuck", O_RDONLY), &byte, 1, 0) == -1 && errno == EINTR ? 0 : 1);
    }
    start = clock_monotonic_ns();
    while (memfs_reads(m->fs) == 0 && clock_monotonic_ns() - start < 5 * NS_PER_S)
        usleep(1000);
    kill(pid, SIGUSR1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    unmount(m);
}

// --- more requests than slots ---

#define READERS 1100

struct reader {
    pthread_t thread;
    int fd;
    uint64_t offset;
    bool right;
};

static void *read_page(void *arg)
{
    struct reader *r = arg;
    unsigned char page[512];

    r->right = pread(r->fd, page, sizeof(page), (off_t)r->offset) == sizeof(page) &&
               memfs_equal(page, r->offset, sizeof(page));
    return NULL;
}

static void answer_held(void *arg)
{
    memfs_answer_held(((struct mounted *)arg)->fs);
}

static void requests_beyond_the_last_slot_wait_and_are_answered(void **state)
{
    struct mounted *m =
        mount_and_serve((struct memfs_options){.direct_io = true, .hold_reads = true});
    struct reader *r = xcalloc(READERS, sizeof(*r));
    int fd = open_in(m, "big", O_RDONLY);
    uint64_t start = clock_monotonic_ns();
    pthread_attr_t small;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * KIB);
    for (unsigned i = 0; i < READERS; i++) {
        r[i].fd = fd;
        r[i].offset = i * 4096;
        assert_int_equal(pthread_create(&r[i].thread, &small, read_page, &r[i]), 0);
    }
    while (memfs_reads(m->fs) < 1024 && clock_monotonic_ns() - start < 10 * NS_PER_S)
        usleep(1000);
    usleep(20000);
    assert_int_equal(memfs_reads(m->fs), 1024);
    loop_call(m->loop, answer_held, m);
    for (unsigned i = 0; i < READERS; i++) {
        pthread_join(r[i].thread, NULL);
        assert_true(r[i].right);
    }
    assert_int_equal(memfs_reads(m->fs), READERS);
    pthread_attr_destroy(&small);
    free(r);
    close(fd);
    unmount(m);
}

static void assert_reader_was_right(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

// Held, the pieces of one read show how many the kernel asks for at once.
static uint64_t pieces_at_once(struct memfs_options o)
{
    struct mounted *m = mount_and_serve(o);
    uint64_t start, n;
    pid_t pid = fork_child();

    if (pid == 0) {
        unsigned char *p = aligned_alloc(4096, 4 * MIB);
        ssize_t got = pread(open_in(m, "big", O_RDONLY | O_DIRECT), p, 4 * MIB, 0);

        _exit(got == 4 * MIB && memfs_equal(p, 0, 4 * MIB) ? 0 : 1);
    }
    start = clock_monotonic_ns();
    while (memfs_reads(m->fs) < 4 && clock_monotonic_ns() - start < NS_PER_S / 5)
        usleep(1000);
    n = memfs_reads(m->fs);
    loop_call(m->loop, answer_held, m);
    assert_reader_was_right(pid);
    unmount(m);
    return n;
}

static void a_large_read_past_the_page_cache_asks_for_all_of_it_at_once(void **state)
{
    assert_int_equal(pieces_at_once((struct memfs_options){.hold_reads = true}), 4);
}

// --- crashes ---

// A worker of its own, which is to be killed.
static pid_t fork_server(struct mounted *m)
{
    pid_t pid = fork_child();

    if (pid != 0)
        return pid;
    if (loop_new(&m->loop, "namespace") < 0 || loop_start(&m->data_loop, "data") < 0)
        _exit(1);
    m->options.data_loop = m->data_loop;
    m->fs = memfs_new(&m->options);
    make(m);
    loop_run(m->loop);
    _exit(1);
}

static void kill_server(pid_t pid)
{
    int status;

    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

// Reads everything in several ways; 0 if there was no error and no wrong byte.
static pid_t fork_reader(const struct mounted *m, unsigned rounds)
{
    pid_t pid = fork_child();
    bool right = true;

    if (pid != 0)
        return pid;
    close(m->fd); // or the mount could not die with its servers
    for (unsigned i = 0; i < rounds && right; i++) {
        int fd = open_in(m, "big", O_RDONLY);
        int direct = open_in(m, "big", O_RDONLY | O_DIRECT);
        struct stat st;
        char *missing = xasprintf("%s/dir/missing%u", m->dir, i);

        drop_pages(fd);
        right = read_right(fd, 256 * KIB) && read_right(direct, MIB);
        right = right && stat(missing, &st) < 0 && errno == ENOENT;
        free(missing);
        close(fd);
        close(direct);
    }
    _exit(right ? 0 : 1);
}

static void pending_requests_of_a_killed_server_are_answered_by_the_next(void **state)
{
    struct mounted *m = mount_or_skip((struct memfs_options){.hold_reads = true});
    pid_t first = fork_server(m);
    pid_t reader = fork_reader(m, 1);

    usleep(200000); // its reads are held by now
    assert_int_equal(waitpid(reader, NULL, WNOHANG), 0);
    kill_server(first);
    m->options.hold_reads = false;
    start_serving(m);
    assert_reader_was_right(reader);
    unmount(m);
}

static void a_server_killed_again_and_again_goes_unnoticed(void **state)
{
    struct mounted *m = mount_or_skip((struct memfs_options){0});
    pid_t reader = fork_reader(m, 4);

    for (unsigned i = 0; i < 12; i++) {
        pid_t server = fork_server(m);

        usleep(20000 + i * 3000);
        kill_server(server);
    }
    start_serving(m);
    assert_reader_was_right(reader);
    unmount(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_reads_right_through_the_page_cache),
        cmocka_unit_test(a_file_reads_right_past_the_page_cache),
        cmocka_unit_test(a_file_opened_for_direct_io_reads_right),
        cmocka_unit_test(a_mapped_file_shows_the_right_bytes),
        cmocka_unit_test(every_name_is_listed_once_with_its_attributes),
        cmocka_unit_test(reading_a_directory_asks_for_no_attributes_one_by_one),
        cmocka_unit_test(a_missing_name_and_a_write_fail_as_they_should),
        cmocka_unit_test(attributes_xattrs_and_statfs_arrive),
        cmocka_unit_test(the_largest_ioctl_goes_there_and_back),
        cmocka_unit_test(the_read_ahead_of_a_mount_can_be_raised),
        cmocka_unit_test(a_reader_that_is_killed_does_not_wait_for_its_answer),
        cmocka_unit_test(a_reader_that_gets_a_signal_sees_eintr),
        cmocka_unit_test(requests_beyond_the_last_slot_wait_and_are_answered),
        cmocka_unit_test(a_large_read_past_the_page_cache_asks_for_all_of_it_at_once),
        cmocka_unit_test(pending_requests_of_a_killed_server_are_answered_by_the_next),
        cmocka_unit_test(a_server_killed_again_and_again_goes_unnoticed),
    };

    return cmocka_run_group_tests(tests, start_guard, NULL);
}
