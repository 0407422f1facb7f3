// SPDX-License-Identifier: Apache-2.0
// Workers that are killed. Each is a process, and what a host sees of it all is a pause.
#include "test.h"

#include "host.h"

#include "base/clock.h"

#include <string.h>
#include <unistd.h>

static struct host host;
static unsigned workers;

static pid_t worker_start(bool hold_reads)
{
    const struct memfs_options o = {
        .big_size = GIB, .files = 8, .file_size = 10000, .hold_reads = hold_reads};

    return host_worker_start(&host, &o, workers++ > 0);
}

static int setup(void **state)
{
    workers = 0;
    host_make(&host, 7);
    return 0;
}

static int teardown(void **state)
{
    host_fini(&host);
    return 0;
}

static void a_new_worker_answers_what_the_old_one_had_not(void **state)
{
    pid_t worker = worker_start(true);
    uint64_t fh;

    host_mount(&host);
    fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    host_read(&host, 1, fh, 5, 4096);
    host_read(&host, 2, fh, 6, 4096);
    // the ring is read in order: they have been taken when this is answered
    assert_int_not_equal(host_lookup(&host, FUSE_ROOT_ID, "dir"), 0);
    assert_false(host_answered(&host, 1));
    host_worker_kill(worker);

    worker = worker_start(false);
    assert_int_equal(host_wait(&host, 1)->error, 0);
    assert_int_equal(host_wait(&host, 2)->error, 0);
    assert_true(memfs_equal(host_body(&host, 1), 5, 4096));
    assert_true(memfs_equal(host_body(&host, 2), 6, 4096));
    // no INIT comes again, and what the host holds is known
    host_read(&host, 1, fh, 7, 4096);
    assert_int_equal(host_wait(&host, 1)->error, 0);
    host_worker_kill(worker);
}

static void requests_that_come_while_there_is_no_worker_wait(void **state)
{
    pid_t worker = worker_start(false);
    uint64_t fh;

    host_mount(&host);
    fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    host_worker_kill(worker);
    host_read(&host, 1, fh, 5, 4096);
    worker = worker_start(false);
    assert_int_equal(host_wait(&host, 1)->error, 0);
    host_worker_kill(worker);
}

// Reads in all slots, again and again, while workers die at any moment.
static void killing_again_and_again_goes_unnoticed(void **state)
{
    pid_t worker = worker_start(false);
    uint64_t fh, offset = 0, of[HOST_SLOTS] = {0};
    unsigned kills = 0;
    uint64_t next;

    host_mount(&host);
    fh = host_open(&host, host_lookup(&host, FUSE_ROOT_ID, "big"));
    for (unsigned i = 0; i < HOST_SLOTS; i++)
        host_read(&host, i, fh, of[i] = offset++ * 65536, 65536);
    next = clock_monotonic_ns() + 3 * NS_PER_MS;
    while (kills < 20) {
        for (unsigned i = 0; i < HOST_SLOTS; i++) {
            if (!host_answered(&host, i))
                continue;
            assert_int_equal(host_wait(&host, i)->error, 0);
            assert_true(memfs_equal(host_body(&host, i), of[i], 65536));
            host_read(&host, i, fh, of[i] = offset++ % 1000 * 65536, 65536);
        }
        if (clock_monotonic_ns() < next)
            continue;
        host_worker_kill(worker);
        worker = worker_start(false);
        next = clock_monotonic_ns() + (3 + kills++ * 7 % 40) * NS_PER_MS;
    }
    for (unsigned i = 0; i < HOST_SLOTS; i++) {
        assert_int_equal(host_wait(&host, i)->error, 0);
        assert_true(memfs_equal(host_body(&host, i), of[i], 65536));
    }
    host_worker_kill(worker);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_worker_answers_what_the_old_one_had_not),
        TEST(requests_that_come_while_there_is_no_worker_wait),
        TEST(killing_again_and_again_goes_unnoticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
