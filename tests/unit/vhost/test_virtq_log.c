// SPDX-License-Identifier: Apache-2.0
// What a new worker, or a queue that goes on, finds in the log.
#include "test.h"

#include "driver.h"
#include "front/vhost/virtq.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 8u

struct fixture {
    struct driver driver;
    struct region_map *map;
    struct virtq_log *log; // shared with children
    uint32_t starts;
    atomic_bool pushing;
    struct virtq q;
    struct region_piece pieces[VHOST_RING_MAX];
    struct virtq_chain chain;
};

static void share(struct fixture *f)
{
    struct vhost_command c = driver_region(&f->driver);
    uint64_t id;

    f->map = region_map_new(NULL, 0);
    assert_int_equal(
        region_add(f->map,
                   &(struct region_info){c.region.addr, c.region.user_addr, c.region.size, 0},
                   dup(f->driver.fd), &id),
        0);
}

static void fixture_init(struct fixture *f)
{
    driver_init(&f->driver, SIZE, DRIVER_EVENT_IDX, true);
    share(f);
    f->log = mmap(NULL, sizeof(*f->log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(f->log, MAP_FAILED);
    f->chain = (struct virtq_chain){.max = VHOST_RING_MAX, .pieces = f->pieces};
}

static void fixture_fini(struct fixture *f)
{
    region_map_free(f->map);
    driver_fini(&f->driver);
    munmap(f->log, sizeof(*f->log));
}

static int start(struct fixture *f, uint32_t base, bool resumed)
{
    struct vhost_command c = driver_start(&f->driver, base);

    f->starts += !resumed;
    c.start = f->starts;
    return virtq_start(&f->q, f->map, f->log, &c, -1);
}

static int setup(void **state)
{
    struct fixture *f = *state = test_calloc(1, sizeof(*f));

    fixture_init(f);
    assert_int_equal(start(f, 0, false), 0);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    virtq_stop(&f->q);
    fixture_fini(f);
    test_free(f);
    return 0;
}

static void offer(struct fixture *f, uint16_t head)
{
    driver_describe(&f->driver, head, DRIVER_ADDR + DRIVER_HEAP, 100, VRING_DESC_F_WRITE, 0);
    driver_offer(&f->driver, head);
}

static void assert_pops(struct fixture *f, uint16_t head, bool replayed)
{
    const char *why = NULL;

    assert_int_equal(virtq_pop(&f->q, &f->chain, &why), 1);
    assert_int_equal(f->chain.head, head);
    assert_int_equal(f->chain.replayed, replayed);
}

static void assert_no_more(struct fixture *f)
{
    const char *why = NULL;

    assert_int_equal(virtq_pop(&f->q, &f->chain, &why), 0);
}

// As if the worker had died: a new one starts on the same log and ring.
static void die(struct fixture *f)
{
    free(f->q.pending);
    assert_int_equal(start(f, 0, true), 0);
}

static void requests_in_progress_are_pending_oldest_first(void **state)
{
    struct fixture *f = *state;
    static const uint16_t heads[] = {5, 1, 7, 2};

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        offer(f, heads[i]);
    for (size_t i = 0; i < 3; i++)
        assert_pops(f, heads[i], false);
    assert_int_equal(virtq_push(&f->q, 1, 0), 0);
    die(f);
    assert_int_equal(f->q.in_progress, 2);
    assert_pops(f, 5, true);
    assert_pops(f, 7, true);
    assert_pops(f, 2, false);
    assert_no_more(f);
    assert_int_equal(f->q.in_progress, 3);
}

static void a_worker_that_died_twice_loses_nothing(void **state)
{
    struct fixture *f = *state;

    offer(f, 3);
    offer(f, 4);
    assert_pops(f, 3, false);
    die(f);
    assert_pops(f, 3, true);
    assert_pops(f, 4, false);
    die(f);
    assert_pops(f, 3, true);
    assert_int_equal(virtq_push(&f->q, 3, 0), 0);
    die(f);
    assert_pops(f, 4, true);
    assert_no_more(f);
}

static void a_queue_that_never_ran_starts_at_its_base(void **state)
{
    struct fixture *f = *state;

    memset(f->log, 0, sizeof(*f->log));
    die(f);
    offer(f, 6);
    assert_pops(f, 6, false);
}

static void a_stopped_queue_goes_on_with_what_was_unanswered(void **state)
{
    struct fixture *f = *state;
    uint32_t base;

    offer(f, 1);
    offer(f, 2);
    offer(f, 3);
    assert_pops(f, 1, false);
    assert_pops(f, 2, false);
    assert_int_equal(virtq_push(&f->q, 1, 0), 0);
    base = virtq_stop(&f->q);
    assert_int_equal(base, 2);
    assert_int_equal(start(f, base, false), 0);
    assert_pops(f, 2, true);
    assert_pops(f, 3, false);
    assert_no_more(f);
}

static void a_guest_that_has_booted_again_starts_afresh(void **state)
{
    struct fixture *f = *state;

    offer(f, 1);
    offer(f, 2);
    assert_pops(f, 1, false);
    assert_pops(f, 2, false);
    virtq_stop(&f->q);
    driver_reset(&f->driver);
    assert_int_equal(start(f, 0, false), 0);
    assert_int_equal(f->q.in_progress, 0);
    assert_no_more(f);
    offer(f, 2);
    assert_pops(f, 2, false);
}

// The supervisor says what runs; the worker died before it had begun with it.
static void a_worker_that_died_before_a_new_start_leaves_no_old_requests(void **state)
{
    struct fixture *f = *state;

    offer(f, 1);
    assert_pops(f, 1, false);
    virtq_stop(&f->q);
    driver_reset(&f->driver);
    assert_int_equal(start(f, 0, false), 0);
    assert_no_more(f);
}

// The supervisor does not know of the stop; it says the start again, and then the stop.
static void a_worker_that_died_after_a_stop_goes_on_with_that_start(void **state)
{
    struct fixture *f = *state;

    for (uint16_t i = 0; i < 3; i++)
        offer(f, i);
    assert_pops(f, 0, false);
    assert_pops(f, 1, false);
    assert_int_equal(virtq_push(&f->q, 0, 0), 0);
    assert_int_equal(virtq_stop(&f->q), 2);
    assert_int_equal(start(f, 0, true), 0);
    assert_int_equal(virtq_stop(&f->q), 2);
    assert_int_equal(start(f, 0, true), 0);
    assert_pops(f, 1, true);
    assert_pops(f, 2, false);
    assert_no_more(f);
}

// The other half of a push, on another loop.
static void *push_ends(void *arg)
{
    struct fixture *f = arg;

    pthread_mutex_lock(&f->q.locked.mutex);
    atomic_store(&f->pushing, true);
    usleep(20000);
    __atomic_store_n(&f->log->entry[3].busy, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&f->log->used_idx, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&f->q.locked.mutex);
    return NULL;
}

// The first half: the driver sees the answer, the log does not know of it yet.
static void push_begins(struct fixture *f, uint16_t head)
{
    f->log->last_head = head;
    f->driver.ring.used->ring[0].id = head;
    f->driver.ring.used->idx = 1;
    f->q.locked.used_idx = 1;
}

static void a_head_may_come_again_before_its_push_has_ended(void **state)
{
    struct fixture *f = *state;
    const char *why = NULL;
    pthread_t thread;
    int rc;

    offer(f, 3);
    assert_pops(f, 3, false);
    push_begins(f, 3);
    offer(f, 3);
    assert_int_equal(pthread_create(&thread, NULL, push_ends, f), 0);
    while (!atomic_load(&f->pushing))
        sched_yield();
    rc = virtq_pop(&f->q, &f->chain, &why);
    pthread_join(thread, NULL);
    assert_int_equal(rc, 1);
    assert_int_equal(f->chain.head, 3);
    assert_int_equal(f->log->entry[3].busy, 1);
}

static void a_ring_of_another_size_is_not_resumed(void **state)
{
    struct fixture *f = *state;
    struct vhost_command c = driver_start(&f->driver, 0);
    struct virtq q;

    c.start = f->starts;
    c.ring.size = SIZE / 2;
    assert_int_equal(virtq_start(&q, f->map, f->log, &c, -1), -EINVAL);
}

static void a_used_index_that_the_log_does_not_know_is_refused(void **state)
{
    struct fixture *f = *state;
    struct vhost_command c = driver_start(&f->driver, 0);
    struct virtq q;

    c.start = f->starts;
    f->driver.ring.used->idx = 2;
    assert_int_equal(virtq_start(&q, f->map, f->log, &c, -1), -EBADMSG);
}

static void a_log_that_makes_no_sense_is_refused(void **state)
{
    struct fixture *f = *state;
    struct vhost_command c = driver_start(&f->driver, 0);
    struct virtq q;

    c.start = f->starts;
    f->log->last_head = SIZE;
    assert_int_equal(virtq_start(&q, f->map, f->log, &c, -1), -EBADMSG);
    f->log->size = VHOST_RING_MAX + 1;
    assert_int_equal(virtq_start(&q, f->map, f->log, &c, -1), -EBADMSG);
    f->log->size = 0;
}

// --- a death at any instruction ---

static const uint16_t offered[] = {3, 0, 6, 5};

static void work(struct fixture *f)
{
    const char *why;

    share(f); // no child of ours has the regions
    if (start(f, 0, true) < 0 || ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        _exit(1);
    raise(SIGSTOP);
    virtq_pop(&f->q, &f->chain, &why);
    virtq_pop(&f->q, &f->chain, &why);
    virtq_push(&f->q, 0, 1);
    virtq_pop(&f->q, &f->chain, &why);
    virtq_push(&f->q, 3, 1);
}

static bool is_used(const struct fixture *f, uint16_t head)
{
    for (uint16_t i = 0; i < f->driver.ring.used->idx; i++)
        if (f->driver.ring.used->ring[i].id == head)
            return true;
    return false;
}

// A worker that starts now has to take exactly what has no answer, in the order of offering. twin
// holds a copy, so that the worker that is stepped through is not disturbed.
static void assert_recovers(const struct fixture *f, struct fixture *twin)
{
    memcpy(twin->driver.memory, f->driver.memory, vring_size(SIZE, 4096));
    memcpy(twin->log, f->log, sizeof(*f->log));
    twin->starts = f->starts;
    assert_int_equal(start(twin, 0, true), 0);
    for (size_t i = 0; i < ARRAY_LEN(offered); i++) {
        const char *why = NULL;

        if (is_used(f, offered[i]))
            continue;
        assert_int_equal(virtq_pop(&twin->q, &twin->chain, &why), 1);
        assert_int_equal(twin->chain.head, offered[i]);
    }
    assert_no_more(twin);
    virtq_stop(&twin->q);
}

// Whether pid has stopped again; if not, it has ended.
static bool step(pid_t pid)
{
    int status;

    assert_return_code(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), errno);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    if (WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP) {
        kill(pid, SIGKILL);
        fail_msg("stopped by signal %d", WSTOPSIG(status));
    }
    return WIFSTOPPED(status);
}

static void a_worker_may_die_at_any_instruction(void **state)
{
    struct fixture *f = *state, *twin = test_calloc(1, sizeof(*twin));
    unsigned steps = 0;
    int status;
    pid_t pid;

    fixture_init(twin);
    for (size_t i = 0; i < ARRAY_LEN(offered); i++)
        offer(f, offered[i]);
    pid = fork();
    assert_return_code(pid, errno);
    if (pid == 0) {
        work(f);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSTOPPED(status))
        skip(); // ptrace is not allowed here
    while (step(pid)) {
        if (++steps % TEST_SLOWED_DOWN == 0)
            assert_recovers(f, twin);
    }
    assert_true(steps > 500);
    assert_int_equal(f->driver.ring.used->idx, 2);
    assert_recovers(f, twin);
    fixture_fini(twin);
    test_free(twin);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(requests_in_progress_are_pending_oldest_first),
        TEST(a_worker_that_died_twice_loses_nothing),
        TEST(a_queue_that_never_ran_starts_at_its_base),
        TEST(a_stopped_queue_goes_on_with_what_was_unanswered),
        TEST(a_guest_that_has_booted_again_starts_afresh),
        TEST(a_worker_that_died_before_a_new_start_leaves_no_old_requests),
        TEST(a_worker_that_died_after_a_stop_goes_on_with_that_start),
        TEST(a_head_may_come_again_before_its_push_has_ended),
        TEST(a_ring_of_another_size_is_not_resumed),
        TEST(a_used_index_that_the_log_does_not_know_is_refused),
        TEST(a_log_that_makes_no_sense_is_refused),
        TEST(a_worker_may_die_at_any_instruction),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
