// SPDX-License-Identifier: Apache-2.0
// Many threads, processes and those that poll.
#include "world.h"

#include "base/clock.h"
#include "base/rand.h"
#include "host/io.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define ROUNDS  (200 / TEST_SLOWED_DOWN)

struct reader {
    struct world *w;
    struct os2g_file *f;
    unsigned number;
    bool wrong;
};

static void *read_randomly(void *arg)
{
    struct reader *r = arg;
    struct rand rand;
    uint8_t *own = malloc(MIB);

    rand_seed(&rand, r->number);
    for (unsigned i = 0; i < ROUNDS && !r->wrong; i++) {
        uint64_t offset = rand_below(&rand, 40 * MIB), len = 1 + rand_below(&rand, 64 * KIB),
                 want = MIN(len, 40 * MIB + 5 - offset);
        bool plain = i % 3 == 0;
        uint8_t *to = plain ? own : r->w->memory + r->number * MIB;
        ssize_t n = os2g_read(r->f, plain ? own : r->w->memory, len, (off_t)offset,
                              plain ? 0 : (off_t)(r->number * MIB));

        r->wrong = n != (ssize_t)want;
        for (uint64_t k = 0; k < want && !r->wrong; k++)
            r->wrong = to[k] != fake_byte("big.bin", offset + k);
    }
    free(own);
    return NULL;
}

static void run_readers(struct world *w, struct os2g_file *f)
{
    struct reader readers[THREADS];
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){.w = w, .f = f, .number = i};
        pthread_create(&threads[i], NULL, read_randomly, &readers[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(readers[i].wrong);
    }
}

static void threads_read_at_the_same_time(void **state)
{
    struct world *w = *state;
    struct os2g_file *f;

    assert_int_equal(os2g_open(w->c, "big.bin", &f), 0);
    run_readers(w, f);
    os2g_file_close(f);
}

static void *disconnect_often(void *arg)
{
    struct world *w = arg;

    for (unsigned i = 0; i < 5; i++) {
        usleep(30000);
        fake_device_disconnect(w->device);
    }
    return NULL;
}

static void threads_read_while_the_daemon_goes_and_comes(void **state)
{
    struct world *w = *state;
    struct os2g_file *f;
    pthread_t thread;

    assert_int_equal(os2g_open(w->c, "big.bin", &f), 0);
    pthread_create(&thread, NULL, disconnect_often, w);
    run_readers(w, f);
    pthread_join(thread, NULL);
    os2g_file_close(f);
}

static void more_threads_than_slots_wait_for_their_turn(void **state)
{
    struct world *w = *state;
    struct os2g *all = w->c;
    struct os2g_file *f;

    w->c = world_connect(w, 2, 5000);
    assert_int_equal(os2g_open(w->c, "big.bin", &f), 0);
    // into memory of another connection: bounced
    run_readers(w, f);
    os2g_file_close(f);
    os2g_close(w->c);
    w->c = all;
}

// What has no slot goes on when anything has ended, not only another read.
static void a_read_takes_the_slot_of_any_request(void **state)
{
    struct world *w = *state;
    struct os2g *c = world_connect(w, 1, 2000);
    uint8_t *p = malloc(MIB);
    struct os2g_file *f;

    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(os2g_open(c, "a.bin", &f), 0);
        os2g_file_close(f); // nobody waits for the end of that
        assert_int_equal(os2g_fetch(c, "a.bin", p, MIB, 0, NULL), 0);
    }
    free(p);
    os2g_close(c);
}

// What reads nothing takes a turn like everything else.
static void a_batch_with_empty_reads_ends(void **state)
{
    struct world *w = *state;
    struct os2g_io io[64] = {0};
    struct os2g_io_event events[64];
    struct timespec timeout = {.tv_sec = 5};
    struct os2g *c = world_connect(w, 4, 5000);
    struct os2g_batch *b;
    struct os2g_file *f;
    uint8_t *p = malloc(MIB);

    assert_int_equal(os2g_open(c, "empty", &f), 0);
    assert_int_equal(os2g_batch_new(c, &b, 64), 0);
    for (unsigned i = 0; i < 64; i++)
        io[i] = (struct os2g_io){.kind = OS2G_IO_READ, .file = f, .buffer_base = p, .size = 10};
    io[63] = (struct os2g_io){
        .kind = OS2G_IO_FETCH, .key = "a.bin", .buffer_base = p, .size = MIB, .cookie = p};
    assert_int_equal(os2g_batch_submit(b, io, 64), 0);
    assert_int_equal(os2g_batch_status(b, 64, 64, events, &timeout), 64);
    os2g_batch_free(b);
    os2g_file_close(f);
    free(p);
    os2g_close(c);
}

// --- polling ---

struct polled {
    struct io io;
    _Atomic bool ended;
};

static void on_polled(struct io *io)
{
    container_of(io, struct polled, io)->ended = true;
}

static void start_fetch(struct world *w, struct polled *p, unsigned i)
{
    *p = (struct polled){.io = {.client = w->c,
                                .kind = OS2G_IO_FETCH,
                                .key = "a.bin",
                                .key_len = 5,
                                .size = 100000,
                                .done = on_polled}};
    assert_int_equal(destination_find(w->c, w->memory, 100000, (off_t)(i * 128 * KIB), &p->io.to),
                     0);
    assert_int_equal(io_start(&p->io), 0);
}

static unsigned poll_all(struct world *w, struct polled *p, unsigned n)
{
    struct transport *t = w->c->transport;
    struct pollfd e = {.fd = transport_event_fd(t), .events = POLLIN};
    unsigned ended = 0;

    for (unsigned round = 0; round < 5000 && ended < n; round++) {
        transport_poll(t);
        ended = 0;
        for (unsigned i = 0; i < n; i++)
            ended += p[i].ended;
        if (ended < n)
            assert_true(poll(&e, 1, 10000) > 0);
    }
    for (unsigned i = 0; i < n; i++)
        if (p[i].ended)
            io_fini(&p[i].io);
    return ended;
}

static void an_event_descriptor_tells_when_to_poll(void **state)
{
    struct world *w = *state;
    struct polled *p = calloc(200, sizeof(*p));

    for (unsigned i = 0; i < 200; i++) // more than there are slots
        start_fetch(w, &p[i], i);
    assert_int_equal(poll_all(w, p, 200), 200);
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(p[i].io.result, 100000);
        world_check(w, "a.bin", 0, w->memory + i * 128 * KIB, 100000);
    }
    free(p);
}

static void one_that_polls_hears_of_a_daemon_that_goes_and_comes(void **state)
{
    struct world *w = *state;
    struct polled p[4];

    fake_device_set(w->device, FAKE_HOLD);
    for (unsigned i = 0; i < 4; i++)
        start_fetch(w, &p[i], i);
    transport_event_fd(w->c->transport);
    transport_poll(w->c->transport);
    fake_device_disconnect(w->device);
    usleep(50000); // it answers what it held when it may
    fake_device_set(w->device, FAKE_FINE);
    assert_int_equal(poll_all(w, p, 4), 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(p[i].io.result, 100000);
    assert_int_equal(w->reconnected, 1);
}

static void what_is_cancelled_ends(void **state)
{
    struct world *w = *state;
    struct polled *p = calloc(100, sizeof(*p));
    unsigned cancelled = 0;

    fake_device_set(w->device, FAKE_HOLD);
    for (unsigned i = 0; i < 100; i++)
        start_fetch(w, &p[i], i);
    for (unsigned i = 0; i < 100; i++)
        io_cancel(&p[i].io);
    fake_device_set(w->device, FAKE_FINE);
    assert_int_equal(poll_all(w, p, 100), 100);
    for (unsigned i = 0; i < 100; i++)
        cancelled += p[i].io.result == -ECANCELED;
    assert_true(cancelled >= 36); // those beyond the 64 slots never began
    free(p);
}

// --- fork ---

static int child(struct world *w, struct os2g_file *f)
{
    uint64_t size;
    uint8_t byte;

    if (os2g_fetch(w->c, "a.bin", w->memory, MIB, 8 * MIB, &size) < 0)
        return 2;
    for (uint64_t i = 0; i < size; i++)
        if (w->memory[8 * MIB + i] != fake_byte("a.bin", i))
            return 3;
    if (os2g_read(f, &byte, 1, 77, 0) != 1 || byte != fake_byte("big.bin", 77))
        return 4;
    os2g_file_close(f);
    os2g_buffer_free(w->buffer);
    os2g_close(w->c);
    return 0;
}

static int status_of(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_child_connects_by_itself_and_shares_buffers(void **state)
{
    struct world *w = *state;
    struct os2g_file *f;
    uint64_t size;
    pid_t pid;

    assert_int_equal(os2g_open(w->c, "big.bin", &f), 0);
    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, MIB, 0, &size), 0);
    pid = fork();
    if (pid == 0)
        _exit(child(w, f));
    assert_int_equal(status_of(pid), 0);
    world_check(w, "a.bin", 0, w->memory + 8 * MIB, 100000); // it landed in shared memory
    assert_int_equal(fake_device_counts(w->device)->connections, 2);
    assert_int_equal(os2g_read(f, w->memory, MIB, 0, 0), MIB);
    world_check(w, "big.bin", 0, w->memory, MIB);
    os2g_file_close(f);
}

static void a_child_that_only_frees_does_not_disturb_its_parent(void **state)
{
    struct world *w = *state;
    struct os2g_file *f;
    pid_t pid;

    assert_int_equal(os2g_open(w->c, "big.bin", &f), 0);
    pid = fork();
    if (pid == 0) {
        os2g_file_close(f);
        os2g_buffer_free(w->buffer);
        os2g_close(w->c);
        _exit(0);
    }
    assert_int_equal(status_of(pid), 0);
    assert_int_equal(os2g_read(f, w->memory, MIB, 0, 0), MIB);
    assert_int_equal(fake_device_counts(w->device)->connections, 1);
    os2g_file_close(f);
}

static void forks_while_threads_read_find_no_lock_taken(void **state)
{
    struct world *w = *state;
    struct reader reader = {.w = w, .number = 1};
    pthread_t thread;

    assert_int_equal(os2g_open(w->c, "big.bin", &reader.f), 0);
    pthread_create(&thread, NULL, read_randomly, &reader);
    for (unsigned i = 0; i < 5; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            alarm(20);
            _exit(os2g_fetch(w->c, "a.bin", w->memory, MIB, 16 * MIB, NULL) < 0);
        }
        assert_int_equal(status_of(pid), 0);
    }
    pthread_join(thread, NULL);
    assert_false(reader.wrong);
    os2g_file_close(reader.f);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(threads_read_at_the_same_time),
        T(threads_read_while_the_daemon_goes_and_comes),
        T(more_threads_than_slots_wait_for_their_turn),
        T(a_read_takes_the_slot_of_any_request),
        T(a_batch_with_empty_reads_ends),
        T(an_event_descriptor_tells_when_to_poll),
        T(one_that_polls_hears_of_a_daemon_that_goes_and_comes),
        T(what_is_cancelled_ends),
        T(a_child_connects_by_itself_and_shares_buffers),
        T(a_child_that_only_frees_does_not_disturb_its_parent),
        T(forks_while_threads_read_find_no_lock_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
