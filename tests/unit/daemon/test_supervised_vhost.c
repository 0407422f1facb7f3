// SPDX-License-Identifier: Apache-2.0
// The hosts of an export, with this test as the hosts and as the worker.
#include "daemon/supervised_vhost.h"

#include "base/clock.h"
#include "base/unix_address.h"
#include "wire/vhost_user.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static char directory[] = "/tmp/os2g-test-XXXXXX";
static struct export_options options;
static struct supervised_vhost vhost;
static int worker[2]; // [0] the supervisor's

static int set_up(void **state)
{
    char *path, *error = NULL;

    strcpy(directory + sizeof(directory) - 7, "XXXXXX");
    assert_non_null(mkdtemp(directory));
    path = xasprintf("%s/socket", directory);
    export_options_init(&options);
    export_options_set_owner(&options, geteuid(), getegid());
    assert_int_equal(export_options_set(&options, "socket", path, &error), 0);
    free(path);
    supervised_vhost_init(&vhost);
    assert_int_equal(channel_pair(worker), 0);
    return 0;
}

static int tear_down(void **state)
{
    supervised_vhost_close(&vhost);
    close(worker[0]);
    close(worker[1]);
    export_options_fini(&options);
    return rmdir(directory);
}

static void open_it(void)
{
    char *error = NULL;

    assert_int_equal(supervised_vhost_open(&vhost, &options, &error), 0);
}

static int connect_host(void)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_int_equal(unix_address(&address, options.socket), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

// As supervisor.c turns, until nothing happens.
static void turn(void)
{
    for (int i = 0; i < 1000; i++) {
        size_t n = supervised_vhost_poll_count(&vhost);
        struct pollfd *p = xcalloc(n, sizeof(*p));
        int ready;

        supervised_vhost_poll_fill(&vhost, p);
        ready = poll(p, (nfds_t)n, 0);
        if (ready > 0)
            supervised_vhost_poll_done(&vhost, p);
        free(p);
        if (ready <= 0)
            return;
    }
    fail_msg("it does not come to rest");
}

// The next thing the worker is told, or a kind of 0.
static struct vhost_command next_command(void)
{
    struct channel_msg m = {0};
    int fd = -1;

    if (channel_receive(worker[1], &m, &fd) != 1)
        return (struct vhost_command){0};
    assert_int_equal(m.kind, CHANNEL_VHOST);
    if (fd >= 0)
        close(fd);
    return m.command;
}

static void host_says(int fd, uint32_t request)
{
    const struct vhost_user_header h = {request, VHOST_USER_VERSION, 0};

    assert_int_equal(send(fd, &h, sizeof(h), MSG_NOSIGNAL), sizeof(h));
}

static bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static void a_host_is_answered_without_a_worker(void **state)
{
    char reply[64];
    int host;

    open_it();
    host = connect_host();
    host_says(host, VHOST_USER_GET_FEATURES);
    turn();
    assert_int_equal(vhost.n_sessions, 1);
    assert_int_equal(recv(host, reply, sizeof(reply), MSG_DONTWAIT), 20);
    close(host);
    turn();
    assert_int_equal(vhost.n_sessions, 0);
}

static void a_worker_is_told_who_is_there_and_who_goes(void **state)
{
    struct vhost_command c;
    int a, b;

    open_it();
    a = connect_host();
    turn();
    supervised_vhost_worker(&vhost, worker[0]);
    c = next_command();
    assert_int_equal(c.kind, VHOST_SESSION_ADD);
    assert_int_equal(c.session, 1);
    assert_int_equal(c.peer.pid, getpid());
    b = connect_host();
    turn();
    c = next_command();
    assert_int_equal(c.kind, VHOST_SESSION_ADD);
    assert_int_equal(c.session, 2);
    close(a);
    turn();
    c = next_command();
    assert_int_equal(c.kind, VHOST_SESSION_REMOVE);
    assert_int_equal(c.session, 1);
    close(b);
}

static void the_next_worker_is_told_again(void **state)
{
    int host;

    open_it();
    supervised_vhost_worker(&vhost, worker[0]);
    host = connect_host();
    turn();
    assert_int_equal(next_command().kind, VHOST_SESSION_ADD);
    supervised_vhost_worker_died(&vhost);
    supervised_vhost_worker(&vhost, worker[0]);
    assert_int_equal(next_command().kind, VHOST_SESSION_ADD);
    assert_int_equal(next_command().kind, 0);
    close(host);
}

static void a_host_that_the_worker_calls_bad_is_ended(void **state)
{
    struct vhost_event e = {.kind = VHOST_BAD, .session = 1, .text = "its ring is bad"};
    int host, other;

    open_it();
    supervised_vhost_worker(&vhost, worker[0]);
    host = connect_host();
    other = connect_host();
    turn();
    supervised_vhost_event(&vhost, &e);
    supervised_vhost_event(&vhost, &(struct vhost_event){VHOST_DONE, 1, UINT64_MAX});
    assert_true(is_closed(host));
    assert_false(is_closed(other));
    e.session = 99; // has gone meanwhile
    supervised_vhost_event(&vhost, &e);
    assert_int_equal(vhost.n_sessions, 1);
    close(host);
    close(other);
}

static void a_host_is_hung_up_on_when_nothing_can_land_in_its_memory(void **state)
{
    int host, other;

    open_it();
    supervised_vhost_worker(&vhost, worker[0]);
    host = connect_host();
    other = connect_host();
    turn();
    supervised_vhost_event(&vhost, &(struct vhost_event){VHOST_BAD, 1});
    supervised_vhost_event(&vhost, &(struct vhost_event){VHOST_BAD, 2});
    assert_int_equal(vhost.n_sessions, 0);
    assert_false(is_closed(host));
    supervised_vhost_event(&vhost, &(struct vhost_event){VHOST_DONE, 1, UINT64_MAX});
    assert_true(is_closed(host));
    assert_false(is_closed(other));
    supervised_vhost_worker_died(&vhost);
    assert_true(is_closed(other));
    close(host);
    close(other);
}

static void a_worker_that_is_alive_ends_sessions_of_a_socket_that_goes(void **state)
{
    int host;

    open_it();
    supervised_vhost_worker(&vhost, worker[0]);
    host = connect_host();
    turn();
    supervised_vhost_stop(&vhost);
    assert_int_equal(access(options.socket, F_OK), -1);
    assert_int_equal(next_command().kind, VHOST_SESSION_ADD);
    assert_int_equal(next_command().kind, VHOST_SESSION_REMOVE);
    assert_false(is_closed(host));
    supervised_vhost_event(&vhost, &(struct vhost_event){VHOST_DONE, 1, UINT64_MAX});
    assert_true(is_closed(host));
    close(host);
}

static void garbage_ends_one_session_only(void **state)
{
    int host, other;

    open_it();
    host = connect_host();
    other = connect_host();
    turn();
    assert_int_equal(send(host, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    turn();
    assert_true(is_closed(host));
    assert_int_equal(vhost.n_sessions, 1);
    close(host);
    close(other);
}

static void a_slow_worker_loses_nothing_and_hosts_wait(void **state)
{
    unsigned told = 0;
    int hosts[200];

    open_it();
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        hosts[i] = connect_host();
        turn();
    }
    // each of them is news; the channel holds some
    for (int round = 0; round < 5; round++) {
        supervised_vhost_worker_died(&vhost);
        supervised_vhost_worker(&vhost, worker[0]);
    }
    while (next_command().kind) // what the channel held for the workers before
        ;
    supervised_vhost_worker_died(&vhost);
    supervised_vhost_worker(&vhost, worker[0]);
    for (;;) {
        struct vhost_command c = next_command();

        if (c.kind) {
            assert_int_equal(c.kind, VHOST_SESSION_ADD);
            told++;
        } else if (told < ARRAY_LEN(hosts)) {
            supervised_vhost_flush(&vhost);
        } else {
            break;
        }
    }
    assert_int_equal(told, ARRAY_LEN(hosts));
    assert_false(supervised_vhost_waits(&vhost));
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
        close(hosts[i]);
}

static void there_are_at_most_so_many_sessions(void **state)
{
    int hosts[257];

    open_it();
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        hosts[i] = connect_host();
        turn();
    }
    assert_int_equal(vhost.n_sessions, 256);
    assert_true(is_closed(hosts[256]));
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
        close(hosts[i]);
}

static void a_peer_that_is_not_listed_is_refused(void **state)
{
    char *error = NULL;
    int host;

    assert_int_equal(export_options_set(&options, "socket-allow", "54321", &error), 0);
    open_it();
    host = connect_host();
    turn();
    assert_true(is_closed(host));
    assert_int_equal(vhost.n_sessions, 0);
    close(host);
}

static void descriptors_are_kept_for_workers(void **state)
{
    struct rlimit before, small;
    int hosts[64], held = 0;

    open_it();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
        hosts[i] = connect_host();
    small = before;
    small.rlim_cur = 200; // of which hosts may have a half, at two each
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    turn();
    assert_int_equal(vhost.n_sessions, 50);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        held += !is_closed(hosts[i]);
        close(hosts[i]);
    }
    assert_int_equal(held, 50);
}

static void idleness_counts_from_the_last_host_on(void **state)
{
    uint64_t first;
    int host;

    open_it();
    first = vhost.idle_since_ns;
    assert_true(first > 0 && first <= clock_monotonic_ns());
    host = connect_host();
    turn();
    close(host);
    turn();
    assert_true(vhost.idle_since_ns > first);
}

static void no_socket_is_offered_when_none_is_wanted(void **state)
{
    char *error = NULL;

    assert_int_equal(export_options_set(&options, "socket", "none", &error), 0);
    open_it();
    assert_int_equal(vhost.listener.fd, -1);
}

static void the_socket_has_its_mode_and_group(void **state)
{
    struct stat st;

    options.socket_group = getegid();
    open_it();
    assert_int_equal(stat(options.socket, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    assert_int_equal(st.st_gid, getegid());
}

static void a_socket_of_another_daemon_is_told_of(void **state)
{
    struct supervised_vhost other;
    char *error = NULL;

    open_it();
    supervised_vhost_init(&other);
    assert_int_equal(supervised_vhost_open(&other, &options, &error), -EADDRINUSE);
    assert_non_null(strstr(error, options.socket));
    free(error);
    supervised_vhost_close(&other);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_host_is_answered_without_a_worker),
        TEST(a_worker_is_told_who_is_there_and_who_goes),
        TEST(the_next_worker_is_told_again),
        TEST(a_host_that_the_worker_calls_bad_is_ended),
        TEST(a_host_is_hung_up_on_when_nothing_can_land_in_its_memory),
        TEST(a_worker_that_is_alive_ends_sessions_of_a_socket_that_goes),
        TEST(garbage_ends_one_session_only),
        TEST(a_slow_worker_loses_nothing_and_hosts_wait),
        TEST(there_are_at_most_so_many_sessions),
        TEST(a_peer_that_is_not_listed_is_refused),
        TEST(descriptors_are_kept_for_workers),
        TEST(idleness_counts_from_the_last_host_on),
        TEST(no_socket_is_offered_when_none_is_wanted),
        TEST(the_socket_has_its_mode_and_group),
        TEST(a_socket_of_another_daemon_is_told_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
