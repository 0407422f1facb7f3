// SPDX-License-Identifier: Apache-2.0
// The supervisor with a mount that is none, and with this program as its worker: what a worker
// does is said in $FAKE_WORKER.
#include "daemon/supervisor.h"

#include "base/clock.h"
#include "daemon/channel.h"
#include "daemon/worker.h"
#include "front/devfuse/devfuse.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

// --- the mount ---

static unsigned mounts, unmounts, lazy_unmounts;
static bool busy;

int devfuse_mount(const char *dir, const struct devfuse_mount_options *o, char **ret_error)
{
    mounts++;
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

int devfuse_unmount(const char *dir, bool lazy, char **ret_error)
{
    if (busy && !lazy)
        return -EBUSY;
    unmounts++;
    lazy_unmounts += lazy;
    return 0;
}

int devfuse_set_readahead(const char *dir, uint64_t bytes)
{
    return 0;
}

size_t devfuse_slots_size(void)
{
    return 4096;
}

// --- the worker ---

static void wait_for_supervisor(struct channel_msg *m, int *fd)
{
    struct pollfd p = {.fd = WORKER_FD_CHANNEL, .events = POLLIN};

    if (poll(&p, 1, 10000) != 1 || channel_receive(WORKER_FD_CHANNEL, m, fd) != 1)
        _exit(3);
}

static void say(enum channel_kind kind, const char *text)
{
    channel_send(WORKER_FD_CHANNEL, kind, 0, -1, text);
}

static int fake_worker(const char *what)
{
    struct channel_msg m = {0};
    unsigned until = 0;
    int fd = -1;

    signal(SIGTERM, SIG_IGN);
    if (!strcmp(what, "fail")) {
        say(CHANNEL_FAILED, "no such bucket");
        return 1;
    }
    if (!strcmp(what, "crash"))
        raise(SIGKILL);
    // the first one is told to serve once it is ready, the next ones at once
    if (channel_receive(WORKER_FD_CHANNEL, &m, &fd) != 1) {
        say(CHANNEL_READY, NULL);
        wait_for_supervisor(&m, &fd);
    }
    if (m.kind != CHANNEL_SERVE || (fd < 0) != !strcmp(what, "socket"))
        return 3;
    if (!strcmp(what, "barren") && m.number > 0)
        raise(SIGKILL);
    say(CHANNEL_SERVING, NULL);
    if (!strcmp(what, "socket") && m.number < 2)
        raise(SIGKILL);
    if (!strcmp(what, "socket"))
        wait_for_supervisor(&m, &fd); // nothing comes but the end
    if (!strcmp(what, "resolve")) {
        bool first = m.number == 0;

        say(CHANNEL_RESOLVE, NULL);
        wait_for_supervisor(&m, &fd);
        if (m.kind != CHANNEL_CREDENTIALS || fd < 0)
            return 3;
        if (first)
            raise(SIGKILL);
    }
    if (!strcmp(what, "barren"))
        raise(SIGKILL);
    if (sscanf(what, "die %u", &until) == 1 && m.number < until)
        raise(SIGKILL);
    if (!strcmp(what, "stay"))
        wait_for_supervisor(&m, &fd);
    say(CHANNEL_GONE, NULL);
    return 0;
}

// --- running one ---

static struct {
    unsigned mounted, failed;
    char error[256];
    bool stop; // as soon as it is mounted
} seen;

static void on_settled(void *arg, const struct export_options *o, const char *error, int reason,
                       bool first)
{
    if (error) {
        seen.failed++;
        snprintf(seen.error, sizeof(seen.error), "%s", error);
    } else {
        seen.mounted++;
        if (seen.stop)
            kill(getpid(), SIGTERM);
    }
}

// The place of the export: a directory (then the mount's), or a socket.
static int run_at(const char *fake, const char *directory, const char *socket, uint64_t linger_ns)
{
    const struct supervisor_config config = {
        .log_style = "stderr", .linger_ns = linger_ns, .settled = on_settled};
    struct export_options *o = xcalloc(1, sizeof(*o));
    struct supervisor *s;
    char *error = NULL;
    int rc;

    setenv("FAKE_WORKER", fake, 1);
    export_options_init(o);
    assert_int_equal(export_options_set_source(o, "s3://bucket", &error), 0);
    if (directory)
        export_options_set_directory(o, directory);
    if (socket)
        assert_int_equal(export_options_set(o, "socket", socket, &error), 0);
    assert_int_equal(export_options_complete(o, &error), 0);
    assert_int_equal(supervisor_new(&s, &config), 0);
    supervisor_add(s, o);
    rc = supervisor_run(s);
    supervisor_free(s);
    return rc;
}

static int run(const char *fake)
{
    char directory[] = "/tmp/os2g-test-XXXXXX";
    int rc;

    assert_non_null(mkdtemp(directory));
    rc = run_at(fake, directory, NULL, 0);
    rmdir(directory);
    return rc;
}

static int set_up(void **state)
{
    const struct timespec now = {0};
    sigset_t signals;

    // one that the test before has not waited for
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    while (sigtimedwait(&signals, NULL, &now) > 0)
        ;
    memset(&seen, 0, sizeof(seen));
    mounts = unmounts = lazy_unmounts = 0;
    busy = false;
    return 0;
}

// --- tests ---

static void an_export_ends_when_the_kernel_has_unmounted_it(void **state)
{
    assert_int_equal(run("gone"), 0);
    assert_int_equal(seen.mounted, 1);
    assert_int_equal(mounts, 1);
    assert_int_equal(unmounts, 0);
}

static void what_keeps_a_worker_from_starting_is_told_and_nothing_is_mounted(void **state)
{
    assert_int_equal(run("fail"), 1);
    assert_int_equal(seen.failed, 1);
    assert_string_equal(seen.error, "no such bucket");
    assert_int_equal(mounts, 0);
}

static void a_worker_that_dies_before_it_is_ready_fails_the_mount(void **state)
{
    assert_int_equal(run("crash"), 1);
    assert_non_null(strstr(seen.error, "signal 9"));
    assert_int_equal(mounts, 0);
}

static void the_next_worker_takes_over_the_same_mount(void **state)
{
    assert_int_equal(run("die 20"), 0);
    assert_int_equal(seen.mounted, 1);
    assert_int_equal(mounts, 1);
    assert_int_equal(unmounts, 0);
}

static void workers_that_never_serve_again_end_the_mount(void **state)
{
    assert_int_equal(run("barren"), 1);
    assert_int_equal(seen.mounted, 1);
    assert_int_equal(seen.failed, 1);
    assert_int_equal(lazy_unmounts, 1);
}

static void a_signal_unmounts_and_waits_for_the_kernel(void **state)
{
    seen.stop = true;
    assert_int_equal(run("gone"), 0);
    assert_int_equal(seen.mounted, 1);
}

static void a_mount_in_use_is_detached(void **state)
{
    seen.stop = true;
    busy = true;
    assert_int_equal(run("die 1000000"), 0);
    assert_int_equal(lazy_unmounts, 1);
}

// Whether none of the processes whose numbers are in the file is left, after a moment.
static bool ends_soon(const char *pids)
{
    for (int i = 0; i < 500; i++) {
        FILE *f = fopen(pids, "re");
        int pid, left = 0;

        assert_non_null(f);
        while (fscanf(f, "%d", &pid) == 1)
            left += kill(pid, 0) == 0;
        fclose(f);
        if (!left)
            return true;
        usleep(10000);
    }
    return false;
}

// The program that tells the keys hangs, and goes on doing so while the worker dies.
static void the_next_worker_is_not_kept_from_asking_for_credentials(void **state)
{
    char path[] = "/tmp/os2g-test-XXXXXX", pids[] = "/tmp/os2g-test-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(mkstemp(pids));
    dprintf(fd, "[default]\ncredential_process = /bin/sh -c 'echo $$ >> %s; exec sleep 30'\n",
            pids);
    close(fd);
    setenv("AWS_CONFIG_FILE", path, 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    unsetenv("AWS_ACCESS_KEY_ID");
    assert_int_equal(run("resolve"), 0);
    assert_int_equal(seen.mounted, 1);
    assert_true(ends_soon(pids));
    unsetenv("AWS_CONFIG_FILE");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    unlink(path);
    unlink(pids);
}

static void an_export_without_a_mount_ends_after_its_last_host(void **state)
{
    char directory[] = "/tmp/os2g-test-XXXXXX", *path;

    assert_non_null(mkdtemp(directory));
    path = xasprintf("%s/socket", directory);
    assert_int_equal(run_at("socket", NULL, path, 500 * NS_PER_MS), 0);
    assert_int_equal(seen.mounted, 1);
    assert_int_equal(mounts, 0);
    assert_int_equal(unmounts, 0);
    assert_int_equal(access(path, F_OK), -1);
    free(path);
    rmdir(directory);
}

static void a_socket_that_cannot_be_had_fails_the_export(void **state)
{
    assert_int_equal(run_at("socket", NULL, "/no/such/place/socket", 0), 1);
    assert_non_null(strstr(seen.error, "/no/such/place/socket"));
}

static void a_directory_that_is_not_there_fails_the_mount(void **state)
{
    assert_int_equal(run_at("gone", "/no/such/directory", NULL, 0), 1);
    assert_non_null(strstr(seen.error, "/no/such/directory"));
    assert_int_equal(mounts, 0);
}

#define TEST(f) cmocka_unit_test_setup(f, set_up)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(an_export_ends_when_the_kernel_has_unmounted_it),
        TEST(what_keeps_a_worker_from_starting_is_told_and_nothing_is_mounted),
        TEST(a_worker_that_dies_before_it_is_ready_fails_the_mount),
        TEST(the_next_worker_takes_over_the_same_mount),
        TEST(workers_that_never_serve_again_end_the_mount),
        TEST(the_next_worker_is_not_kept_from_asking_for_credentials),
        TEST(a_signal_unmounts_and_waits_for_the_kernel),
        TEST(a_mount_in_use_is_detached),
        TEST(an_export_without_a_mount_ends_after_its_last_host),
        TEST(a_socket_that_cannot_be_had_fails_the_export),
        TEST(a_directory_that_is_not_there_fails_the_mount),
    };

    if (argc > 1 && !strcmp(argv[1], WORKER_ARGUMENT))
        return fake_worker(getenv("FAKE_WORKER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
