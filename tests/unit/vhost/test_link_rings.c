// SPDX-License-Identifier: Apache-2.0
// The link's rings, and what it says to a worker that comes after another.
#include "link_front.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "test.h"

#define PAGE     4096u
#define USER     (1ULL << 40)
#define VERSION1 (1ULL << 32)
#define PROTOCOL (1ULL << 30)

static int memory, event;

static int set_up(void **state)
{
    static struct front f;

    front_open(&f, NULL);
    memory = front_memfd(64 * PAGE);
    event = eventfd(0, EFD_CLOEXEC);
    front_send_u64(&f, VHOST_USER_SET_FEATURES, VERSION1 | PROTOCOL);
    front_send_region(&f, VHOST_USER_ADD_MEM_REG, 0, 16 * PAGE, memory);
    front_reply_u64(&f, VHOST_USER_ADD_MEM_REG);
    front_forget(&f);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    front_close(*state);
    close(memory);
    close(event);
    return 0;
}

static void start_ring(struct front *f)
{
    front_send_ring(f, 1, USER, event, event);
    front_send_state(f, VHOST_USER_SET_VRING_ENABLE, 1, 1);
}

static uint32_t reply_base(struct front *f)
{
    struct vhost_user_vring_state s = {0};

    assert_int_equal(front_reply(f, VHOST_USER_GET_VRING_BASE, &s, sizeof(s)), sizeof(s));
    assert_int_equal(s.index, 1);
    return s.num;
}

// --- starting ---

static void a_ring_starts_when_it_is_enabled(void **state)
{
    struct front *f = *state;
    const struct vhost_command *c;

    front_send_ring(f, 1, USER, event, event);
    assert_int_equal(f->n_commands, 0);
    front_send_state(f, VHOST_USER_SET_VRING_ENABLE, 1, 1);
    c = front_command(f, 0, VHOST_QUEUE_START);
    assert_int_equal(c->queue, 1);
    assert_int_equal(c->start, 1);
    assert_int_equal(c->ring.size, 128);
    assert_int_equal(c->ring.base, 5);
    assert_int_equal(c->ring.desc, USER);
    assert_int_equal(c->ring.used, USER + 2 * PAGE);
    assert_int_equal(c->ring.features, VERSION1 | PROTOCOL);
    assert_int_not_equal(f->files[0].st_ino, 0);
    front_command(f, 1, VHOST_QUEUE_CALL);
}

static void without_protocol_features_a_kick_starts_it(void **state)
{
    struct front *f = *state;

    front_send_u64(f, VHOST_USER_SET_FEATURES, VERSION1);
    front_send_ring(f, 1, USER, event, event);
    front_command(f, 0, VHOST_QUEUE_START);
}

static void a_call_descriptor_may_change_while_it_runs(void **state)
{
    struct front *f = *state;

    start_ring(f);
    front_forget(f);
    front_send_fd(f, VHOST_USER_SET_VRING_CALL, 1, event);
    front_command(f, 0, VHOST_QUEUE_CALL);
    assert_int_not_equal(f->files[0].st_ino, 0);
    front_send_fd(f, VHOST_USER_SET_VRING_CALL, 1 | VHOST_USER_VRING_NOFD, -1);
    front_command(f, 1, VHOST_QUEUE_CALL);
    assert_int_equal(f->files[1].st_ino, 0);
}

static void a_ring_that_runs_cannot_be_changed(void **state)
{
    struct front *f = *state;

    start_ring(f);
    front_send_state(f, VHOST_USER_SET_VRING_NUM, 1, 64);
    assert_int_equal(f->rc, -EPROTO);
}

static void a_ring_outside_of_memory_ends_it(void **state)
{
    struct front *f = *state;

    front_send_ring(f, 1, USER + 14 * PAGE, event, event);
    front_send_state(f, VHOST_USER_SET_VRING_ENABLE, 1, 1);
    assert_int_equal(f->rc, -EPROTO);
    assert_int_equal(f->n_commands, 0);
}

static void a_ring_at_the_end_of_addresses_is_in_no_memory(void **state)
{
    struct front *f = *state;
    const struct vhost_user_vring_addr addr = {
        .index = 1, .desc = UINT64_MAX - 15, .avail = USER, .used = USER};

    front_send_ring(f, 1, USER, event, event);
    front_send(f, VHOST_USER_SET_VRING_ADDR, 0, &addr, sizeof(addr), NULL, 0);
    front_send_state(f, VHOST_USER_SET_VRING_ENABLE, 1, 1);
    assert_int_equal(f->rc, -EPROTO);
}

static void a_legacy_driver_is_refused(void **state)
{
    struct front *f = *state;

    front_send_u64(f, VHOST_USER_SET_FEATURES, PROTOCOL);
    start_ring(f);
    assert_int_equal(f->rc, -EPROTO);
}

static void what_is_no_eventfd_is_not_waited_for(void **state)
{
    struct front *f = *state;

    front_send_ring(f, 1, USER, memory, event);
    assert_int_equal(f->rc, -EPROTO);
}

static void features_do_not_change_while_rings_run(void **state)
{
    struct front *f = *state;

    start_ring(f);
    front_send_u64(f, VHOST_USER_SET_FEATURES, VERSION1 | PROTOCOL); // the same
    assert_int_equal(f->rc, 0);
    front_send_u64(f, VHOST_USER_SET_FEATURES, VERSION1);
    assert_int_equal(f->rc, -EPROTO);
}

// --- stopping ---

static void the_base_comes_from_the_worker(void **state)
{
    struct front *f = *state;

    start_ring(f);
    front_forget(f);
    f->answers = false;
    front_send_state(f, VHOST_USER_GET_VRING_BASE, 1, 0);
    assert_false(front_has_reply(f));
    front_done(f, front_command(f, 0, VHOST_QUEUE_STOP)->seq, 77);
    assert_int_equal(reply_base(f), 77);
}

static void a_ring_that_does_not_run_has_the_base_it_was_given(void **state)
{
    struct front *f = *state;

    front_send_state(f, VHOST_USER_SET_VRING_BASE, 1, 9);
    front_send_state(f, VHOST_USER_GET_VRING_BASE, 1, 0);
    assert_int_equal(reply_base(f), 9);
    assert_int_equal(f->n_commands, 0);
}

static void a_ring_that_was_stopped_takes_a_new_kick(void **state)
{
    struct front *f = *state;

    start_ring(f);
    front_send_state(f, VHOST_USER_GET_VRING_BASE, 1, 0);
    reply_base(f);
    front_forget(f);
    front_send_state(f, VHOST_USER_SET_VRING_ENABLE, 1, 1);
    assert_int_equal(f->n_commands, 0);
    front_send_fd(f, VHOST_USER_SET_VRING_KICK, 1, event);
    front_command(f, 0, VHOST_QUEUE_START);
}

static void a_ring_that_is_disabled_goes_on_where_it_was(void **state)
{
    struct front *f = *state;

    start_ring(f);
    front_forget(f);
    f->answers = false;
    front_send_state(f, VHOST_USER_SET_VRING_ENABLE, 1, 0);
    front_done(f, front_command(f, 0, VHOST_QUEUE_STOP)->seq, 41);
    front_send_state(f, VHOST_USER_SET_VRING_ENABLE, 1, 1);
    assert_int_equal(front_command(f, 1, VHOST_QUEUE_START)->ring.base, 41);
    assert_int_equal(f->commands[1].start, 2);
}

// --- memory that goes below a ring ---

static void a_ring_pauses_while_its_memory_is_away(void **state)
{
    struct front *f = *state;

    start_ring(f);
    front_forget(f);
    front_send_region(f, VHOST_USER_REM_MEM_REG, 0, 16 * PAGE, -1);
    assert_int_equal(front_reply_u64(f, VHOST_USER_REM_MEM_REG), 0);
    front_command(f, 0, VHOST_QUEUE_STOP);
    front_command(f, 1, VHOST_REGION_REMOVE);
    front_forget(f);
    // cut into two regions
    front_send_region(f, VHOST_USER_ADD_MEM_REG, 8 * PAGE, 8 * PAGE, memory);
    assert_int_equal(front_reply_u64(f, VHOST_USER_ADD_MEM_REG), 0);
    assert_int_equal(f->n_commands, 1);
    front_send_region(f, VHOST_USER_ADD_MEM_REG, 0, 8 * PAGE, memory);
    assert_int_equal(front_reply_u64(f, VHOST_USER_ADD_MEM_REG), 0);
    front_command(f, 1, VHOST_REGION_ADD);
    front_command(f, 2, VHOST_QUEUE_START);
}

static void memory_goes_only_when_the_rings_in_it_have_stopped(void **state)
{
    struct front *f = *state;

    start_ring(f);
    front_forget(f);
    f->answers = false;
    front_send_region(f, VHOST_USER_REM_MEM_REG, 0, 16 * PAGE, -1);
    assert_int_equal(f->n_commands, 1);
    front_done(f, front_command(f, 0, VHOST_QUEUE_STOP)->seq, 6);
    front_command(f, 1, VHOST_REGION_REMOVE);
}

static void a_new_table_below_a_ring_restarts_it(void **state)
{
    struct front *f = *state;
    struct vhost_user_mem_table t = {.n = 1, .regions = {{0, 32 * PAGE, USER, 0}}};

    start_ring(f);
    front_forget(f);
    front_send(f, VHOST_USER_SET_MEM_TABLE, VHOST_USER_NEED_REPLY, &t, 8 + 32, &memory, 1);
    assert_int_equal(front_reply_u64(f, VHOST_USER_SET_MEM_TABLE), 0);
    front_command(f, 0, VHOST_QUEUE_STOP);
    front_command(f, 1, VHOST_REGION_REMOVE);
    front_command(f, 2, VHOST_REGION_ADD);
    front_command(f, 3, VHOST_QUEUE_START);
}

// --- workers ---

static void a_new_worker_is_told_everything(void **state)
{
    struct front *f = *state;

    start_ring(f);
    front_kill_worker(f);
    front_new_worker(f);
    assert_int_not_equal(f->files[0].st_ino, 0);
    front_command(f, 0, VHOST_SESSION_ADD);
    front_command(f, 1, VHOST_REGION_ADD);
    assert_int_equal(front_command(f, 2, VHOST_QUEUE_START)->start, 1);
    front_command(f, 3, VHOST_QUEUE_CALL);
    assert_int_equal(f->n_commands, 4);
}

static void what_the_host_says_while_there_is_no_worker_is_told_the_next(void **state)
{
    struct front *f = *state;

    front_kill_worker(f);
    front_send_region(f, VHOST_USER_ADD_MEM_REG, 32 * PAGE, PAGE, memory);
    assert_int_equal(front_reply_u64(f, VHOST_USER_ADD_MEM_REG), 0);
    start_ring(f);
    front_new_worker(f);
    front_command(f, 0, VHOST_SESSION_ADD);
    front_command(f, 1, VHOST_REGION_ADD);
    assert_int_equal(front_command(f, 2, VHOST_REGION_ADD)->region.addr, 32 * PAGE);
    assert_int_equal(front_command(f, 3, VHOST_QUEUE_START)->start, 1);
}

static void a_worker_s_death_cuts_off_what_was_to_be_removed(void **state)
{
    struct front *f = *state;

    f->answers = false;
    front_send_region(f, VHOST_USER_REM_MEM_REG, 0, 16 * PAGE, -1);
    assert_false(front_has_reply(f));
    front_kill_worker(f);
    assert_int_equal(front_reply_u64(f, VHOST_USER_REM_MEM_REG), 0);
    front_new_worker(f);
    assert_int_equal(f->n_commands, 1); // the session alone
}

static void a_stop_is_said_again_to_the_next_worker(void **state)
{
    struct front *f = *state;

    start_ring(f);
    f->answers = false;
    front_send_state(f, VHOST_USER_GET_VRING_BASE, 1, 0);
    front_kill_worker(f);
    assert_false(front_has_reply(f));
    front_new_worker(f);
    assert_int_equal(front_command(f, 2, VHOST_QUEUE_START)->start, 1);
    front_done(f, f->commands[2].seq, 0);
    front_done(f, front_command(f, 4, VHOST_QUEUE_STOP)->seq, 99);
    assert_int_equal(reply_base(f), 99);
}

// Answers may be out, though it has not said so.
static void a_worker_that_has_only_been_told_of_a_start_counts_when_it_dies(void **state)
{
    struct front *f = *state;

    f->answers = false;
    start_ring(f);
    front_send_state(f, VHOST_USER_GET_VRING_BASE, 1, 0);
    front_kill_worker(f);
    assert_false(front_has_reply(f));
    front_new_worker(f);
    assert_int_equal(front_command(f, 2, VHOST_QUEUE_START)->start, 1);
    front_done(f, front_command(f, 4, VHOST_QUEUE_STOP)->seq, 17);
    assert_int_equal(reply_base(f), 17);
}

static void a_stop_of_what_no_worker_has_been_told_needs_none(void **state)
{
    struct front *f = *state;

    front_kill_worker(f);
    start_ring(f);
    front_send_state(f, VHOST_USER_GET_VRING_BASE, 1, 0);
    assert_int_equal(reply_base(f), 5);
}

static void a_death_among_the_steps_of_a_table_leaves_the_new_one(void **state)
{
    struct front *f = *state;
    struct vhost_user_mem_table t = {.n = 1, .regions = {{32 * PAGE, 8 * PAGE, USER, 0}}};

    f->answers = false;
    front_send(f, VHOST_USER_SET_MEM_TABLE, VHOST_USER_NEED_REPLY, &t, 8 + 32, &memory, 1);
    front_command(f, 0, VHOST_REGION_REMOVE);
    front_kill_worker(f);
    assert_int_equal(front_reply_u64(f, VHOST_USER_SET_MEM_TABLE), 0);
    front_new_worker(f);
    assert_int_equal(front_command(f, 1, VHOST_REGION_ADD)->region.addr, 32 * PAGE);
    assert_int_equal(f->n_commands, 2);
}

static void the_counters_show_what_is_shared(void **state)
{
    struct front *f = *state;
    struct vhost_link_stats s;

    start_ring(f);
    vhost_link_stats_read(f->link, &s);
    assert_int_equal(s.regions, 1);
    assert_int_equal(s.region_bytes, 16 * PAGE);
    assert_int_equal(s.queues, 1);
    assert_int_equal(s.descriptors, 5);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_ring_starts_when_it_is_enabled),
        TEST(without_protocol_features_a_kick_starts_it),
        TEST(a_call_descriptor_may_change_while_it_runs),
        TEST(a_ring_that_runs_cannot_be_changed),
        TEST(a_ring_outside_of_memory_ends_it),
        TEST(a_ring_at_the_end_of_addresses_is_in_no_memory),
        TEST(a_legacy_driver_is_refused),
        TEST(what_is_no_eventfd_is_not_waited_for),
        TEST(features_do_not_change_while_rings_run),
        TEST(the_base_comes_from_the_worker),
        TEST(a_ring_that_does_not_run_has_the_base_it_was_given),
        TEST(a_ring_that_was_stopped_takes_a_new_kick),
        TEST(a_ring_that_is_disabled_goes_on_where_it_was),
        TEST(a_ring_pauses_while_its_memory_is_away),
        TEST(memory_goes_only_when_the_rings_in_it_have_stopped),
        TEST(a_new_table_below_a_ring_restarts_it),
        TEST(a_new_worker_is_told_everything),
        TEST(what_the_host_says_while_there_is_no_worker_is_told_the_next),
        TEST(a_worker_s_death_cuts_off_what_was_to_be_removed),
        TEST(a_stop_is_said_again_to_the_next_worker),
        TEST(a_worker_that_has_only_been_told_of_a_start_counts_when_it_dies),
        TEST(a_stop_of_what_no_worker_has_been_told_needs_none),
        TEST(a_death_among_the_steps_of_a_table_leaves_the_new_one),
        TEST(the_counters_show_what_is_shared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
