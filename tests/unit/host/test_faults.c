// SPDX-License-Identifier: Apache-2.0
// A device that misbehaves, goes and comes back: errors in time, never a crash, never bytes where
// they do not belong.
#include "world.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// With a time-out this short, what is answered may come too late as well where the machine is busy:
// then it is asked again.
#define UNTIL_ANSWERED(call)                                                                       \
    ({                                                                                             \
        ssize_t answered_ = -ETIMEDOUT;                                                            \
        for (int n_ = 0; answered_ == -ETIMEDOUT && n_ < 100; n_++)                                \
            answered_ = (call);                                                                    \
        answered_;                                                                                 \
    })

static void a_read_without_an_answer_times_out(void **state)
{
    struct world *w = *state;
    struct os2g *c = world_connect(w, 8, 100);
    struct os2g_file *f;
    uint64_t start;

    assert_int_equal(UNTIL_ANSWERED(os2g_open(c, "big.bin", &f)), 0);
    fake_device_set(w->device, FAKE_HOLD);
    start = clock_monotonic_ns();
    assert_int_equal(os2g_read(f, w->memory, 4 * MIB, 0, 0), -ETIMEDOUT);
    assert_true(clock_monotonic_ns() - start >= 100 * NS_PER_MS);
    assert_non_null(strstr(os2g_last_error(), "big.bin"));
    for (unsigned i = 0; i < 500 && !fake_device_counts(w->device)->interrupts; i++)
        usleep(1000);
    assert_true(fake_device_counts(w->device)->interrupts > 0);
    fake_device_set(w->device, FAKE_FINE);
    assert_int_equal(UNTIL_ANSWERED(os2g_read(f, w->memory, 4 * MIB, 0, 0)), 4 * MIB);
    world_check(w, "big.bin", 0, w->memory, 4 * MIB);
    os2g_file_close(f);
    os2g_close(c);
}

static void plain_memory_may_be_freed_after_a_time_out(void **state)
{
    struct world *w = *state;
    struct os2g *c = world_connect(w, 8, 50);
    uint8_t *p = malloc(MIB);
    uint64_t size;

    fake_device_set(w->device, FAKE_HOLD);
    assert_int_equal(os2g_fetch(c, "a.bin", p, MIB, 0, &size), -ETIMEDOUT);
    free(p);
    fake_device_set(w->device, FAKE_FINE);
    usleep(20000);
    p = malloc(MIB);
    assert_int_equal(UNTIL_ANSWERED(os2g_fetch(c, "a.bin", p, MIB, 0, &size)), 0);
    world_check(w, "a.bin", 0, p, size);
    free(p);
    os2g_close(c);
}

static void a_connection_with_late_answers_can_be_closed(void **state)
{
    struct world *w = *state;
    struct os2g *c = world_connect(w, 8, 50);
    struct os2g_file *f;
    uint8_t *p = malloc(4 * MIB);

    assert_int_equal(UNTIL_ANSWERED(os2g_open(c, "big.bin", &f)), 0);
    fake_device_set(w->device, FAKE_HOLD);
    assert_int_equal(os2g_read(f, p, 4 * MIB, 0, 0), -ETIMEDOUT);
    os2g_file_close(f);
    os2g_close(c);
    free(p);
}

static void a_buffer_that_is_freed_ends_what_reads_into_it(void **state)
{
    struct world *w = *state;
    struct os2g *c = world_connect(w, 8, 50);
    struct os2g_buffer *b;
    uint64_t size;

    assert_int_equal(os2g_buffer_alloc(c, &b, MIB, OS2G_MEMORY_HOST, 0), 0);
    fake_device_set(w->device, FAKE_HOLD);
    assert_int_equal(os2g_fetch(c, "a.bin", os2g_buffer_base(b), MIB, 0, &size), -ETIMEDOUT);
    os2g_buffer_free(b);
    fake_device_set(w->device, FAKE_FINE);
    os2g_close(c);
}

struct fetching {
    struct os2g *c;
    void *to;
    int result;
};

static void *fetch_thread(void *arg)
{
    struct fetching *f = arg;

    f->result = os2g_fetch(f->c, "a.bin", f->to, MIB, 0, NULL);
    return NULL;
}

static void freeing_a_buffer_cancels_a_read_of_another_thread(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b;
    struct fetching f = {.c = w->c};
    pthread_t thread;

    assert_int_equal(os2g_buffer_alloc(w->c, &b, MIB, OS2G_MEMORY_HOST, 0), 0);
    f.to = os2g_buffer_base(b);
    fake_device_set(w->device, FAKE_HOLD);
    pthread_create(&thread, NULL, fetch_thread, &f);
    for (unsigned i = 0; i < 5000 && !fake_device_counts(w->device)->held; i++)
        usleep(1000);
    os2g_buffer_free(b);
    pthread_join(thread, NULL);
    assert_int_equal(f.result, -ECANCELED);
    fake_device_set(w->device, FAKE_FINE);
}

static void registered_memory_is_its_owner_s_again_after_deregistering(void **state)
{
    struct world *w = *state;
    uint8_t *p = calloc(1, MIB);
    struct os2g_io io = {.kind = OS2G_IO_FETCH, .key = "a.bin", .buffer_base = p, .size = MIB};
    struct os2g_io_event e;
    struct os2g_batch *b;

    assert_int_equal(os2g_buf_register(w->c, p, MIB, 0), 0);
    assert_int_equal(os2g_batch_new(w->c, &b, 1), 0);
    fake_device_set(w->device, FAKE_HOLD);
    assert_int_equal(os2g_batch_submit(b, &io, 1), 0);
    assert_int_equal(os2g_buf_deregister(w->c, p), 0);
    assert_int_equal(os2g_buf_deregister(w->c, p), -ENOENT);
    free(p);
    fake_device_set(w->device, FAKE_FINE);
    fake_device_disconnect(w->device); // what was held is asked again
    assert_int_equal(os2g_batch_status(b, 1, 1, &e, NULL), 1);
    assert_int_equal(e.result, -ECANCELED);
    os2g_batch_free(b);
}

// After nonsense the session ends; the request is made again in the next one.
static void nonsense(struct world *w, enum fake_fault fault)
{
    uint64_t size;

    fake_device_set(w->device, fault);
    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, MIB, 0, &size), 0);
    // what comes twice is noticed at the next look
    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, MIB, 0, &size), 0);
    world_check(w, "a.bin", 0, w->memory, size);
    assert_int_equal(fake_device_counts(w->device)->connections, 2);
    assert_int_equal(w->lost, 1);
    assert_int_equal(w->reconnected, 1);
}

static void an_answer_that_comes_twice_ends_the_session(void **state)
{
    nonsense(*state, FAKE_TWICE);
}

static void an_answer_to_nothing_ends_the_session(void **state)
{
    nonsense(*state, FAKE_BAD_ID);
}

static void an_answer_with_another_number_ends_the_session(void **state)
{
    nonsense(*state, FAKE_BAD_UNIQUE);
}

static void an_answer_longer_than_its_room_ends_the_session(void **state)
{
    nonsense(*state, FAKE_BAD_LENGTH);
}

static void a_fetch_is_asked_again_when_the_connection_breaks(void **state)
{
    nonsense(*state, FAKE_CLOSE);
}

static void a_file_is_opened_again_in_the_next_session(void **state)
{
    struct world *w = *state;
    struct os2g_file *f;

    assert_int_equal(os2g_open(w->c, "big.bin", &f), 0);
    fake_device_set(w->device, FAKE_CLOSE);
    assert_int_equal(os2g_read(f, w->memory, 20 * MIB, 7, 0), 20 * MIB);
    world_check(w, "big.bin", 7, w->memory, 20 * MIB);
    assert_int_equal(fake_device_counts(w->device)->opens, 2);
    os2g_file_close(f);
}

static void a_file_that_has_changed_meanwhile_is_stale(void **state)
{
    struct world *w = *state;
    struct os2g_file *f;

    assert_int_equal(os2g_open(w->c, "a.bin", &f), 0);
    fake_device_disconnect(w->device);
    fake_device_set(w->device, FAKE_OTHER_ETAG);
    usleep(20000);
    assert_int_equal(os2g_read(f, w->memory, 4096, 0, 0), -ESTALE);
    os2g_file_close(f);
}

static void an_idle_connection_that_breaks_is_made_again(void **state)
{
    struct world *w = *state;
    uint64_t size;

    fake_device_disconnect(w->device);
    usleep(20000);
    assert_int_equal(os2g_fetch(w->c, "a.bin", w->memory, MIB, 0, &size), 0);
    world_check(w, "a.bin", 0, w->memory, size);
}

static void a_daemon_that_comes_back_in_time_is_waited_for(void **state)
{
    struct world *w = *state;
    struct fetching f = {.c = w->c, .to = w->memory};
    pthread_t thread;

    fake_device_free(w->device);
    pthread_create(&thread, NULL, fetch_thread, &f);
    usleep(300000);
    w->device = fake_device_new(w->socket);
    pthread_join(thread, NULL);
    assert_int_equal(f.result, 0);
    world_check(w, "a.bin", 0, w->memory, 100000);
    assert_int_equal(fake_device_counts(w->device)->regions, 2); // requests, and the buffer
}

static void a_daemon_that_does_not_come_back_is_enotconn(void **state)
{
    struct world *w = *state;
    struct os2g *c = world_connect(w, 8, 200);
    uint8_t byte;

    fake_device_free(w->device);
    w->device = NULL;
    assert_int_equal(os2g_fetch(c, "empty", &byte, 1, 0, NULL), -ENOTCONN);
    assert_int_equal(os2g_fetch(c, "empty", &byte, 1, 0, NULL), -ENOTCONN);
    w->device = fake_device_new(w->socket);
    assert_int_equal(UNTIL_ANSWERED(os2g_fetch(c, "empty", &byte, 1, 0, NULL)), 0);
    os2g_close(c);
}

// --- a user who is called away ---

static bool called_away(void *arg)
{
    unsigned *asked = arg;

    return ++*asked > 1;
}

static struct os2g *connect_interruptible(struct world *w, unsigned *asked)
{
    struct os2g_options o = {.size = sizeof(o), .interrupted = called_away, .arg = asked};
    struct os2g *c;

    assert_int_equal(os2g_connect(&c, w->socket, &o), 0);
    assert_int_equal(*asked, 0);
    return c;
}

static void a_call_ends_when_its_user_is_called_away(void **state)
{
    struct world *w = *state;
    unsigned asked = 0;
    struct os2g *c = connect_interruptible(w, &asked);
    uint64_t begin = clock_monotonic_ns(), size;
    char *memory = calloc(1, 1000);

    fake_device_set(w->device, FAKE_HOLD);
    assert_int_equal(os2g_fetch(c, "a.bin", memory, 1000, 0, &size), -EINTR);
    assert_int_equal(asked, 2);
    assert_true(clock_monotonic_ns() - begin < 2 * NS_PER_S);
    free(memory);
    fake_device_set(w->device, FAKE_FINE);
    os2g_close(c);
}

static void a_batch_tells_what_there_is_when_its_user_is_called_away(void **state)
{
    struct world *w = *state;
    unsigned asked = 0;
    struct os2g *c = connect_interruptible(w, &asked);
    struct os2g_io io = {.kind = OS2G_IO_FETCH, .key = "a.bin", .size = 1000};
    struct os2g_io_event e;
    struct os2g_batch *b;

    io.buffer_base = calloc(1, io.size);
    fake_device_set(w->device, FAKE_HOLD);
    assert_int_equal(os2g_batch_new(c, &b, 1), 0);
    assert_int_equal(os2g_batch_submit(b, &io, 1), 0);
    assert_int_equal(os2g_batch_status(b, 1, 1, &e, NULL), 0);
    assert_int_equal(asked, 2);
    fake_device_set(w->device, FAKE_FINE);
    os2g_batch_free(b); // waits for the end all the same
    assert_int_equal(asked, 2);
    free(io.buffer_base);
    os2g_close(c);
}

static void versions_that_differ_are_told_apart(void **state)
{
    struct world *w = *state;
    struct os2g *c;

    fake_device_set(w->device, FAKE_VERSION);
    assert_int_equal(os2g_connect(&c, w->socket, NULL), -EPROTO);
    assert_non_null(strstr(os2g_last_error(), "version 99"));
    fake_device_set(w->device, FAKE_NO_HELLO);
    assert_int_equal(os2g_connect(&c, w->socket, NULL), -EPROTO);
    assert_non_null(strstr(os2g_last_error(), "no os2gd"));
}

static void memory_that_the_daemon_refuses_is_an_error(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b;

    fake_device_set(w->device, FAKE_REFUSE);
    assert_int_equal(os2g_buffer_alloc(w->c, &b, MIB, OS2G_MEMORY_HOST, 0), -EINVAL);
    assert_non_null(strstr(os2g_last_error(), "memfd"));
}

static void more_pieces_of_memory_than_the_daemon_takes_are_an_error_that_says_so(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b[64], *another;
    unsigned n = 0;
    int rc;

    while ((rc = os2g_buffer_alloc(w->c, &b[n], MIB, OS2G_MEMORY_HOST, 0)) == 0)
        assert_true(++n < ARRAY_LEN(b));
    assert_int_equal(rc, -ENOSPC);
    assert_non_null(strstr(os2g_last_error(), "of memory of one connection than the 32 that it"));
    os2g_buffer_free(b[--n]); // and there is room again
    assert_int_equal(os2g_buffer_alloc(w->c, &another, MIB, OS2G_MEMORY_HOST, 0), 0);
    os2g_buffer_free(another);
    while (n)
        os2g_buffer_free(b[--n]);
}

#define ROUNDS 300

static void *free_and_make(void *arg)
{
    struct world *w = arg;
    struct os2g_buffer *b;

    for (unsigned i = 0; i < ROUNDS; i++) {
        int rc = os2g_buffer_alloc(w->c, &b, 4096, OS2G_MEMORY_HOST, 0);

        if (rc == 0)
            os2g_buffer_free(b);
        else if (rc != -ENOSPC)
            return "a refusal for another reason than room";
    }
    return NULL;
}

// Others free theirs meanwhile.
static void a_refusal_for_want_of_room_is_told_as_that_whatever_other_threads_do(void **state)
{
    struct world *w = *state;
    struct os2g_buffer *b[64];
    pthread_t threads[8];
    unsigned n = 0;

    while (os2g_buffer_alloc(w->c, &b[n], 4096, OS2G_MEMORY_HOST, 0) == 0)
        assert_true(++n < ARRAY_LEN(b));
    os2g_buffer_free(b[--n]);
    for (unsigned i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, free_and_make, w), 0);
    for (unsigned i = 0; i < ARRAY_LEN(threads); i++) {
        void *wrong;

        pthread_join(threads[i], &wrong);
        if (wrong)
            fail_msg("%s", (char *)wrong);
    }
    while (n)
        os2g_buffer_free(b[--n]);
}

static void a_daemon_that_answers_no_message_is_given_up(void **state)
{
    struct world *w = *state;
    struct os2g_options o = {.size = sizeof(o), .timeout_ms = 200};
    struct os2g *c;

    fake_device_set(w->device, FAKE_SILENT);
    assert_int_equal(os2g_connect(&c, w->socket, &o), -ETIMEDOUT);
    fake_device_set(w->device, FAKE_FINE);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(a_read_without_an_answer_times_out),
        T(plain_memory_may_be_freed_after_a_time_out),
        T(a_connection_with_late_answers_can_be_closed),
        T(a_buffer_that_is_freed_ends_what_reads_into_it),
        T(freeing_a_buffer_cancels_a_read_of_another_thread),
        T(registered_memory_is_its_owner_s_again_after_deregistering),
        T(an_answer_that_comes_twice_ends_the_session),
        T(an_answer_to_nothing_ends_the_session),
        T(an_answer_with_another_number_ends_the_session),
        T(an_answer_longer_than_its_room_ends_the_session),
        T(a_fetch_is_asked_again_when_the_connection_breaks),
        T(a_file_is_opened_again_in_the_next_session),
        T(a_file_that_has_changed_meanwhile_is_stale),
        T(an_idle_connection_that_breaks_is_made_again),
        T(a_daemon_that_comes_back_in_time_is_waited_for),
        T(a_daemon_that_does_not_come_back_is_enotconn),
        T(a_call_ends_when_its_user_is_called_away),
        T(a_batch_tells_what_there_is_when_its_user_is_called_away),
        T(versions_that_differ_are_told_apart),
        T(memory_that_the_daemon_refuses_is_an_error),
        T(more_pieces_of_memory_than_the_daemon_takes_are_an_error_that_says_so),
        T(a_refusal_for_want_of_room_is_told_as_that_whatever_other_threads_do),
        T(a_daemon_that_answers_no_message_is_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
