// SPDX-License-Identifier: Apache-2.0
// Batches over an io.h of our own: operations end when a test says so.
#include "base/clock.h"
#include "host/file.h"
#include "host/io.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

#define MAX_OPS 8

static struct os2g client;
static struct os2g_file file = {.client = &client}, foreign;
static unsigned forked, destinations, plugged, kicks;
static char place[64], bad_place[1];

static struct {
    pthread_mutex_t lock;
    struct io *under_way[MAX_OPS * 64];
    unsigned n;
    int start_rc; // of the next io_start
} device = {.lock = PTHREAD_MUTEX_INITIALIZER};

// What happens while a thread waits; NULL: nothing.
static void (*while_waiting)(void);

// --- the double ---

unsigned fork_count(void)
{
    return forked;
}

int client_enter(struct os2g *c)
{
    return 0;
}

int client_fail(int error, const char *fmt, ...)
{
    return error;
}

int client_fail_errno(int error, const char *what)
{
    return error;
}

int destination_find(struct os2g *c, void *base, size_t size, off_t offset, struct destination *ret)
{
    if (base == bad_place)
        return -EINVAL;
    __atomic_fetch_add(&destinations, 1, __ATOMIC_RELAXED);
    *ret = (struct destination){.address = (char *)base + offset};
    return 0;
}

void destination_end(struct destination *d)
{
    __atomic_fetch_sub(&destinations, 1, __ATOMIC_RELAXED);
}

int io_start(struct io *io)
{
    int rc;

    pthread_mutex_lock(&device.lock);
    rc = device.start_rc;
    device.start_rc = 0;
    if (rc == 0)
        device.under_way[device.n++] = io;
    pthread_mutex_unlock(&device.lock);
    return rc;
}

void io_fini(struct io *io) {}

void io_cancel(struct io *io)
{
    io->cancelled = true;
}

void transport_plug(struct transport *t)
{
    __atomic_fetch_add(&plugged, 1, __ATOMIC_RELAXED);
}

void transport_unplug(struct transport *t)
{
    __atomic_fetch_sub(&plugged, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&kicks, 1, __ATOMIC_RELAXED);
}

unsigned transport_poll(struct transport *t)
{
    return 0;
}

void transport_flag(struct transport *t, _Atomic uint32_t *flag)
{
    *flag = 1;
}

int transport_wait_many(struct transport *t, const _Atomic uint32_t *flag,
                        const _Atomic uint32_t *missing, uint64_t deadline_ns)
{
    while (!*flag) {
        if (clock_monotonic_ns() >= deadline_ns)
            return -ETIMEDOUT;
        if (while_waiting)
            while_waiting();
        sched_yield();
    }
    return 0;
}

int client_wait(struct os2g *c, const _Atomic uint32_t *flag, const _Atomic uint32_t *missing,
                uint64_t deadline_ns)
{
    return transport_wait_many(NULL, flag, missing, deadline_ns);
}

static int event_fd = -1;

int transport_event_fd(struct transport *t)
{
    return event_fd;
}

// --- what tests do ---

// Ends the i-th of those under way.
static void finish(unsigned i, int64_t result)
{
    struct io *io;

    pthread_mutex_lock(&device.lock);
    assert_true(i < device.n);
    io = device.under_way[i];
    memmove(&device.under_way[i], &device.under_way[i + 1],
            (--device.n - i) * sizeof(device.under_way[0]));
    pthread_mutex_unlock(&device.lock);
    destination_end(&io->to);
    io->result = io->cancelled ? -ECANCELED : result;
    io->object_size = 77;
    io->done(io);
}

static void finish_first(void)
{
    pthread_mutex_lock(&device.lock);
    bool any = device.n;
    pthread_mutex_unlock(&device.lock);
    if (any)
        finish(0, 1);
}

static struct os2g_io fetch(size_t cookie)
{
    return (struct os2g_io){.kind = OS2G_IO_FETCH,
                            .key = "key",
                            .buffer_base = place,
                            .size = sizeof(place),
                            .cookie = (void *)cookie};
}

static struct os2g_batch *new_batch(void)
{
    struct os2g_batch *b;

    assert_int_equal(os2g_batch_new(&client, &b, MAX_OPS), 0);
    return b;
}

static void submit(struct os2g_batch *b, size_t first, unsigned n)
{
    struct os2g_io io[MAX_OPS];

    for (unsigned i = 0; i < n; i++)
        io[i] = fetch(first + i);
    assert_int_equal(os2g_batch_submit(b, io, n), 0);
}

static const struct timespec at_once;

static int reset(void **state)
{
    while_waiting = NULL;
    device.n = 0;
    device.start_rc = 0;
    forked = kicks = 0;
    foreign.client = NULL;
    return 0;
}

// Frees the batch; whatever is under way ends.
static void end(struct os2g_batch *b)
{
    while_waiting = finish_first;
    os2g_batch_free(b);
    assert_int_equal(destinations, 0);
    assert_int_equal(plugged, 0);
}

// --- submitting ---

static void what_is_submitted_together_is_one_kick(void **state)
{
    struct os2g_batch *b = new_batch();

    submit(b, 1, 5);
    assert_int_equal(device.n, 5);
    assert_int_equal(kicks, 1);
    assert_int_equal(device.under_way[3]->key_len, 3);
    end(b);
}

static void what_does_not_fit_is_not_begun(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io io[MAX_OPS] = {{0}};

    submit(b, 1, 6);
    for (unsigned i = 0; i < 3; i++)
        io[i] = fetch(i);
    assert_int_equal(os2g_batch_submit(b, io, 3), -EAGAIN);
    assert_int_equal(device.n, 6);
    assert_int_equal(os2g_batch_submit(b, io, 2), 0);
    end(b);
}

static void an_operation_has_its_place_until_it_was_reported(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io io = fetch(9);
    struct os2g_io_event e;

    submit(b, 1, MAX_OPS);
    finish(0, 1);
    assert_int_equal(os2g_batch_submit(b, &io, 1), -EAGAIN);
    assert_int_equal(os2g_batch_status(b, 1, 1, &e, NULL), 1);
    assert_int_equal(os2g_batch_submit(b, &io, 1), 0);
    end(b);
}

static void one_wrong_operation_is_none_at_all(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io wrong[] = {
        {.kind = OS2G_IO_FETCH, .buffer_base = place},
        {.kind = OS2G_IO_FETCH, .key = "", .buffer_base = place},
        {.kind = OS2G_IO_FETCH, .key = "x", .key_len = 1025, .buffer_base = place},
        {.kind = OS2G_IO_FETCH, .key = "x", .buffer_base = bad_place},
        {.kind = OS2G_IO_READ, .buffer_base = place},
        {.kind = OS2G_IO_READ, .file = &foreign, .buffer_base = place},
        {.kind = OS2G_IO_READ, .file = &file, .file_offset = -1, .buffer_base = place},
        {.kind = (enum os2g_io_kind)7, .buffer_base = place},
        {.kind = OS2G_IO_FETCH, .key = "x", .buffer_base = place, .reserved = {0, 1}},
    };

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct os2g_io io[] = {fetch(1), wrong[i], fetch(2)};

        assert_int_equal(os2g_batch_submit(b, io, 3), -EINVAL);
        assert_int_equal(device.n, 0);
        assert_int_equal(destinations, 0);
    }
    submit(b, 1, MAX_OPS); // nothing was kept
    end(b);
}

static void one_that_cannot_begin_ends_with_its_error(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io_event e;

    device.start_rc = -ENOMEM;
    submit(b, 1, 3);
    assert_int_equal(device.n, 2);
    assert_int_equal(os2g_batch_status(b, 1, 1, &e, &at_once), 1);
    assert_ptr_equal(e.cookie, (void *)1);
    assert_int_equal(e.result, -ENOMEM);
    end(b);
}

// --- reporting ---

static void a_timeout_may_be_longer_than_a_clock_can_say(void **state)
{
    static const struct timespec wrong[] = {{-1, 0}, {0, -1}, {0, 1000000000}};
    const struct timespec forever = {INT64_MAX, 999999999};
    struct os2g_batch *b = new_batch();
    struct os2g_io_event e;

    submit(b, 1, 1);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(os2g_batch_status(b, 1, 1, &e, &wrong[i]), -EINVAL);
    while_waiting = finish_first;
    assert_int_equal(os2g_batch_status(b, 1, 1, &e, &forever), 1);
    end(b);
}

static void ends_are_reported_in_their_order(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io_event e[MAX_OPS];

    submit(b, 1, 4);
    finish(2, 30);
    finish(0, -EFBIG);
    assert_int_equal(os2g_batch_status(b, 0, MAX_OPS, e, NULL), 2);
    assert_ptr_equal(e[0].cookie, (void *)3);
    assert_int_equal(e[0].result, 30);
    assert_ptr_equal(e[1].cookie, (void *)1);
    assert_int_equal(e[1].result, -EFBIG);
    assert_int_equal(e[1].object_size, 77);
    end(b);
}

static void no_more_than_max_are_reported(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io_event e[2];

    submit(b, 1, 3);
    for (unsigned i = 0; i < 3; i++)
        finish(0, 1);
    assert_int_equal(os2g_batch_status(b, 1, 2, e, NULL), 2);
    assert_int_equal(os2g_batch_status(b, 1, 2, e, NULL), 1);
    assert_int_equal(os2g_batch_status(b, 1, 2, e, NULL), 0);
    assert_int_equal(os2g_batch_status(b, 2, 1, e, NULL), -EINVAL);
    end(b);
}

static void status_waits_for_as_many_as_it_must(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io_event e[MAX_OPS];

    submit(b, 1, 6);
    while_waiting = finish_first;
    assert_int_equal(os2g_batch_status(b, 4, 4, e, NULL), 4);
    end(b);
}

static void status_does_not_wait_for_more_than_there_are(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io_event e[MAX_OPS];

    assert_int_equal(os2g_batch_status(b, 5, 5, e, NULL), 0);
    submit(b, 1, 2);
    while_waiting = finish_first;
    assert_int_equal(os2g_batch_status(b, 5, 5, e, NULL), 2);
    end(b);
}

static void a_time_out_reports_what_is_there(void **state)
{
    const struct timespec soon = {.tv_nsec = 20 * 1000 * 1000};
    struct os2g_batch *b = new_batch();
    struct os2g_io_event e[MAX_OPS];
    uint64_t start = clock_monotonic_ns();

    submit(b, 1, 3);
    finish(0, 1);
    assert_int_equal(os2g_batch_status(b, 3, 3, e, &soon), 1);
    assert_true(clock_monotonic_ns() - start >= 20 * NS_PER_MS);
    end(b);
}

static void cancel_asks_for_the_end_of_what_has_not_ended(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io_event e[MAX_OPS];

    submit(b, 1, 3);
    finish(1, 10);
    assert_int_equal(os2g_batch_cancel(b), 0);
    while_waiting = finish_first;
    assert_int_equal(os2g_batch_status(b, 3, 3, e, NULL), 3);
    assert_int_equal(e[0].result, 10);
    assert_int_equal(e[1].result, -ECANCELED);
    assert_int_equal(e[2].result, -ECANCELED);
    end(b);
}

static void freeing_waits_for_the_ends(void **state)
{
    struct os2g_batch *b = new_batch();

    submit(b, 1, MAX_OPS);
    end(b);
    assert_int_equal(device.n, 0);
    os2g_batch_free(NULL);
}

// --- the descriptor ---

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void the_descriptor_is_readable_while_there_is_something_to_report(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io_event e;
    int pipes[2], fd;

    assert_int_equal(pipe(pipes), 0);
    event_fd = pipes[0];
    submit(b, 1, 3);
    finish(0, 1);
    fd = os2g_batch_eventfd(b);
    assert_true(fd >= 0);
    assert_int_equal(os2g_batch_eventfd(b), fd);
    assert_true(readable(fd)); // ended before it was asked for
    assert_int_equal(os2g_batch_status(b, 0, 1, &e, NULL), 1);
    assert_false(readable(fd));
    finish(0, 1);
    finish(0, 1);
    assert_int_equal(os2g_batch_status(b, 0, 1, &e, NULL), 1);
    assert_true(readable(fd));
    assert_int_equal(os2g_batch_status(b, 0, 1, &e, NULL), 1);
    assert_false(readable(fd));
    assert_int_equal(write(pipes[1], "x", 1), 1); // the transport has something to do
    assert_true(readable(fd));
    end(b);
    close(pipes[0]);
    close(pipes[1]);
}

// --- forks, threads ---

static void a_batch_stays_the_parent_s(void **state)
{
    struct os2g_batch *b = new_batch();
    struct os2g_io io = fetch(1);
    struct os2g_io_event e;

    submit(b, 1, 1);
    forked = 1;
    assert_int_equal(os2g_batch_submit(b, &io, 1), -EPERM);
    assert_int_equal(os2g_batch_status(b, 0, 1, &e, NULL), -EPERM);
    assert_int_equal(os2g_batch_cancel(b), -EPERM);
    assert_int_equal(os2g_batch_eventfd(b), -EPERM);
    os2g_batch_free(b); // does not wait for the parent's, nor end it
    forked = 0;
    end(b);
}

#define THREADS 4
#define EACH    2000

static _Atomic unsigned reported;

static void *use(void *arg)
{
    struct os2g_batch *b = arg;
    struct os2g_io_event e[MAX_OPS];
    unsigned submitted = 0;

    while (submitted < EACH) {
        struct os2g_io io[2] = {fetch(1), fetch(2)};
        int rc = os2g_batch_submit(b, io, 2);

        if (rc == 0)
            submitted += 2;
        rc = os2g_batch_status(b, rc == -EAGAIN ? 1 : 0, MAX_OPS, e, NULL);
        assert_true(rc >= 0);
        reported += (unsigned)rc;
    }
    return NULL;
}

static _Atomic bool stop;

static void *be_device(void *arg)
{
    while (!stop) {
        finish_first();
        sched_yield();
    }
    return NULL;
}

static void threads_share_a_batch(void **state)
{
    struct os2g_batch *b = new_batch();
    pthread_t threads[THREADS], worker;
    struct os2g_io_event e[MAX_OPS];

    reported = 0;
    stop = false;
    pthread_create(&worker, NULL, be_device, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, use, b);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    reported += (unsigned)os2g_batch_status(b, MAX_OPS, MAX_OPS, e, NULL);
    assert_int_equal(reported, THREADS * EACH);
    stop = true;
    pthread_join(worker, NULL);
    end(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_submitted_together_is_one_kick, reset),
        cmocka_unit_test_setup(what_does_not_fit_is_not_begun, reset),
        cmocka_unit_test_setup(an_operation_has_its_place_until_it_was_reported, reset),
        cmocka_unit_test_setup(one_wrong_operation_is_none_at_all, reset),
        cmocka_unit_test_setup(one_that_cannot_begin_ends_with_its_error, reset),
        cmocka_unit_test_setup(a_timeout_may_be_longer_than_a_clock_can_say, reset),
        cmocka_unit_test_setup(ends_are_reported_in_their_order, reset),
        cmocka_unit_test_setup(no_more_than_max_are_reported, reset),
        cmocka_unit_test_setup(status_waits_for_as_many_as_it_must, reset),
        cmocka_unit_test_setup(status_does_not_wait_for_more_than_there_are, reset),
        cmocka_unit_test_setup(a_time_out_reports_what_is_there, reset),
        cmocka_unit_test_setup(cancel_asks_for_the_end_of_what_has_not_ended, reset),
        cmocka_unit_test_setup(freeing_waits_for_the_ends, reset),
        cmocka_unit_test_setup(the_descriptor_is_readable_while_there_is_something_to_report,
                               reset),
        cmocka_unit_test_setup(a_batch_stays_the_parent_s, reset),
        cmocka_unit_test_setup(threads_share_a_batch, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
