// SPDX-License-Identifier: Apache-2.0
// The link as a host sees it: features, memory, what is refused, how it ends.
#include "link_front.h"

#include <linux/virtio_fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

#define PAGE     4096u
#define USER     (1ULL << 40)
#define FEATURES ((1ULL << 32) | (1ULL << 28) | (1ULL << 29) | (1ULL << 30))

static int set_up(void **state)
{
    static struct front f;

    front_open(&f, NULL);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    front_close(*state);
    return 0;
}

static void assert_broken(struct front *f)
{
    assert_int_equal(f->rc, -EPROTO);
    assert_non_null(f->why);
}

// --- what is offered ---

static void a_session_begins_with_its_memory_and_its_peer(void **state)
{
    struct front *f = *state;
    const struct vhost_command *c = front_command(f, 0, VHOST_SESSION_ADD);

    assert_int_equal(c->peer.uid, 1000);
    assert_int_equal(c->peer.pid, 4711);
    assert_int_not_equal(f->files[0].st_ino, 0);
    assert_int_equal(f->n_commands, 1);
}

static void the_features_are_those_of_the_device(void **state)
{
    struct front *f = *state;

    front_send(f, VHOST_USER_GET_FEATURES, 0, NULL, 0, NULL, 0);
    assert_int_equal(front_reply_u64(f, VHOST_USER_GET_FEATURES), FEATURES);
    front_send(f, VHOST_USER_GET_PROTOCOL_FEATURES, 0, NULL, 0, NULL, 0);
    assert_int_equal(front_reply_u64(f, VHOST_USER_GET_PROTOCOL_FEATURES),
                     1 << VHOST_USER_PROTOCOL_F_MQ | 1 << VHOST_USER_PROTOCOL_F_REPLY_ACK |
                         1 << VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS);
    front_send(f, VHOST_USER_GET_QUEUE_NUM, 0, NULL, 0, NULL, 0);
    assert_int_equal(front_reply_u64(f, VHOST_USER_GET_QUEUE_NUM), 9);
    front_send(f, VHOST_USER_GET_MAX_MEM_SLOTS, 0, NULL, 0, NULL, 0);
    assert_int_equal(front_reply_u64(f, VHOST_USER_GET_MAX_MEM_SLOTS), 128);
}

static void features_that_were_not_offered_end_it(void **state)
{
    struct front *f = *state;

    front_send_u64(f, VHOST_USER_SET_FEATURES, FEATURES | 1ULL << 26);
    assert_broken(f);
}

static void protocol_features_that_were_not_offered_end_it(void **state)
{
    struct front *f = *state;

    front_send_u64(f, VHOST_USER_SET_PROTOCOL_FEATURES, 1 << VHOST_USER_PROTOCOL_F_CONFIG);
    assert_broken(f);
}

static void a_device_with_a_tag_tells_it(void **state)
{
    struct vhost_user_config c = {.size = sizeof(struct virtio_fs_config)}, got;
    struct virtio_fs_config fs;
    struct front f;

    front_open(&f, "train");
    front_send(&f, VHOST_USER_GET_PROTOCOL_FEATURES, 0, NULL, 0, NULL, 0);
    assert_true(front_reply_u64(&f, VHOST_USER_GET_PROTOCOL_FEATURES) &
                1 << VHOST_USER_PROTOCOL_F_CONFIG);
    front_send(&f, VHOST_USER_GET_CONFIG, 0, &c, 12 + sizeof(fs), NULL, 0);
    assert_int_equal(front_reply(&f, VHOST_USER_GET_CONFIG, &got, sizeof(got)), 12 + sizeof(fs));
    memcpy(&fs, got.data, sizeof(fs));
    assert_string_equal((const char *)fs.tag, "train");
    assert_int_equal(fs.num_request_queues, 8);
    front_close(&f);
}

static void configuration_beyond_its_end_is_an_empty_answer(void **state)
{
    struct vhost_user_config c = {.offset = 8, .size = sizeof(struct virtio_fs_config)};
    struct front f;

    front_open(&f, "train");
    front_send(&f, VHOST_USER_GET_CONFIG, 0, &c, 12 + c.size, NULL, 0);
    assert_int_equal(front_reply(&f, VHOST_USER_GET_CONFIG, &c, sizeof(c)), 0);
    front_close(&f);
}

static void an_unknown_request_is_refused_when_an_answer_is_wanted(void **state)
{
    struct front *f = *state;
    int fd = eventfd(0, 0);

    front_send(f, 99, VHOST_USER_NEED_REPLY, "abc", 3, &fd, 1);
    assert_int_not_equal(front_reply_u64(f, 99), 0);
    front_send(f, 99, 0, "abc", 3, NULL, 0);
    assert_false(front_has_reply(f));
    assert_int_equal(f->rc, 0);
    close(fd);
}

// --- bytes ---

static void a_message_may_come_byte_by_byte(void **state)
{
    const struct vhost_user_header h = {VHOST_USER_GET_QUEUE_NUM, VHOST_USER_VERSION, 0};
    struct front *f = *state;

    for (size_t i = 0; i < sizeof(h); i++) {
        assert_false(front_has_reply(f));
        assert_int_equal(send(f->fd, (const char *)&h + i, 1, 0), 1);
        front_pump(f);
    }
    assert_int_equal(front_reply_u64(f, VHOST_USER_GET_QUEUE_NUM), 9);
}

static void a_host_that_goes_is_no_error(void **state)
{
    struct front *f = *state;

    close(f->fd);
    f->fd = -1;
    front_pump(f);
    assert_int_equal(f->rc, -ENOTCONN);
    assert_null(f->why);
}

static void a_host_that_goes_within_a_message_is_told_of(void **state)
{
    struct front *f = *state;

    assert_int_equal(send(f->fd, "abc", 3, 0), 3);
    shutdown(f->fd, SHUT_WR);
    front_pump(f);
    assert_broken(f);
}

static void more_descriptors_than_any_message_has_end_it(void **state)
{
    struct front *f = *state;
    int fds[16], fd = eventfd(0, 0);

    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = fd;
    front_send(f, 99, 0, NULL, 0, fds, ARRAY_LEN(fds));
    assert_broken(f);
    close(fd);
}

static int lowest_free_fd(void)
{
    int fd = dup(0);

    close(fd);
    return fd;
}

static void no_descriptor_is_left_of_a_session(void **state)
{
    int before = lowest_free_fd(), memory, event;
    struct front f;

    front_open(&f, NULL);
    memory = front_memfd(16 * PAGE);
    event = eventfd(0, 0);
    front_send_u64(&f, VHOST_USER_SET_FEATURES, FEATURES & ~(1ULL << 30));
    front_send_region(&f, VHOST_USER_ADD_MEM_REG, 0, 16 * PAGE, memory);
    front_send_ring(&f, 0, USER, event, event);
    front_send_fd(&f, VHOST_USER_SET_VRING_ERR, 0, event);
    front_send_region(&f, VHOST_USER_REM_MEM_REG, 9 * PAGE, PAGE, memory); // not there
    close(memory);
    close(event);
    front_close(&f);
    assert_int_equal(lowest_free_fd(), before);
}

// --- memory ---

static void added_memory_is_acknowledged_when_the_worker_has_it(void **state)
{
    struct front *f = *state;
    const struct vhost_command *c;
    int fd = front_memfd(PAGE);
    struct stat st;

    front_forget(f);
    f->answers = false;
    front_send_region(f, VHOST_USER_ADD_MEM_REG, 16 * PAGE, PAGE, fd);
    c = front_command(f, 0, VHOST_REGION_ADD);
    assert_int_equal(c->region.addr, 16 * PAGE);
    assert_int_equal(c->region.user_addr, USER + 16 * PAGE);
    assert_int_equal(c->region.size, PAGE);
    fstat(fd, &st);
    assert_int_equal(f->files[0].st_ino, st.st_ino);
    assert_false(front_has_reply(f));
    front_done(f, c->seq, 0);
    assert_int_equal(front_reply_u64(f, VHOST_USER_ADD_MEM_REG), 0);
    close(fd);
}

static void removed_memory_is_acknowledged_when_nothing_lands_there_any_more(void **state)
{
    struct front *f = *state;
    int fd = front_memfd(PAGE);

    front_send_region(f, VHOST_USER_ADD_MEM_REG, 0, PAGE, fd);
    front_reply_u64(f, VHOST_USER_ADD_MEM_REG);
    front_forget(f);
    f->answers = false;
    front_send_region(f, VHOST_USER_REM_MEM_REG, 0, PAGE, fd);
    assert_false(front_has_reply(f));
    front_done(f, front_command(f, 0, VHOST_REGION_REMOVE)->seq, 0);
    assert_int_equal(front_reply_u64(f, VHOST_USER_REM_MEM_REG), 0);
    close(fd);
}

static void no_message_is_read_while_one_waits_for_the_worker(void **state)
{
    struct front *f = *state;
    int fd = front_memfd(PAGE);

    f->answers = false;
    front_forget(f);
    front_send_region(f, VHOST_USER_ADD_MEM_REG, 0, PAGE, fd);
    front_send(f, VHOST_USER_GET_QUEUE_NUM, 0, NULL, 0, NULL, 0);
    assert_int_equal(vhost_link_events(f->link), 0);
    assert_false(front_has_reply(f));
    front_done(f, front_command(f, 0, VHOST_REGION_ADD)->seq, 0);
    front_pump(f);
    front_reply_u64(f, VHOST_USER_ADD_MEM_REG);
    front_reply_u64(f, VHOST_USER_GET_QUEUE_NUM);
    close(fd);
}

static void an_answer_to_something_else_is_not_taken_for_it(void **state)
{
    struct front *f = *state;
    int fd = front_memfd(PAGE);

    f->answers = false;
    front_forget(f);
    front_send_region(f, VHOST_USER_ADD_MEM_REG, 0, PAGE, fd);
    front_done(f, front_command(f, 0, VHOST_REGION_ADD)->seq + 1, 0);
    front_done(f, 0, 0);
    assert_false(front_has_reply(f));
    close(fd);
}

static void memory_that_overlaps_is_refused(void **state)
{
    struct front *f = *state;
    int fd = front_memfd(4 * PAGE);

    front_send_region(f, VHOST_USER_ADD_MEM_REG, 0, 2 * PAGE, fd);
    assert_int_equal(front_reply_u64(f, VHOST_USER_ADD_MEM_REG), 0);
    front_send_region(f, VHOST_USER_ADD_MEM_REG, PAGE, 2 * PAGE, fd);
    assert_int_not_equal(front_reply_u64(f, VHOST_USER_ADD_MEM_REG), 0);
    assert_int_equal(f->rc, 0);
    close(fd);
}

static void memory_of_a_host_s_own_file_system_is_refused(void **state)
{
    struct front *f = *state;
    FILE *file = fopen("/proc/self/status", "re"); // any that is not memory

    front_send_region(f, VHOST_USER_ADD_MEM_REG, 0, PAGE, fileno(file));
    assert_int_not_equal(front_reply_u64(f, VHOST_USER_ADD_MEM_REG), 0);
    fclose(file);
}

static void memory_that_is_not_there_cannot_be_removed(void **state)
{
    struct front *f = *state;

    front_send_region(f, VHOST_USER_REM_MEM_REG, 0, PAGE, -1);
    assert_int_not_equal(front_reply_u64(f, VHOST_USER_REM_MEM_REG), 0);
}

static void there_are_as_many_slots_as_is_said(void **state)
{
    struct front *f = *state;
    int fd = front_memfd(PAGE);

    for (unsigned i = 0; i < 128; i++) {
        front_send_region(f, VHOST_USER_ADD_MEM_REG, i * PAGE, PAGE, fd);
        assert_int_equal(front_reply_u64(f, VHOST_USER_ADD_MEM_REG), 0);
    }
    front_send_region(f, VHOST_USER_ADD_MEM_REG, 128 * PAGE, PAGE, fd);
    assert_int_not_equal(front_reply_u64(f, VHOST_USER_ADD_MEM_REG), 0);
    close(fd);
}

static void send_table(struct front *f, const struct vhost_user_region *regions, const int *fds,
                       unsigned n)
{
    struct vhost_user_mem_table t = {.n = n};

    memcpy(t.regions, regions, n * sizeof(*regions));
    front_send(f, VHOST_USER_SET_MEM_TABLE, VHOST_USER_NEED_REPLY, &t,
               (uint32_t)(8 + n * sizeof(*regions)), fds, n);
}

static void a_new_table_leaves_what_is_in_both(void **state)
{
    struct vhost_user_region regions[] = {{0, PAGE, USER, 0}, {4 * PAGE, PAGE, USER + PAGE, 0}};
    int fds[] = {front_memfd(PAGE), front_memfd(PAGE)};
    struct front *f = *state;

    send_table(f, regions, fds, 2);
    assert_int_equal(front_reply_u64(f, VHOST_USER_SET_MEM_TABLE), 0);
    front_forget(f);
    regions[1].guest_addr = 8 * PAGE; // a BAR that moves
    send_table(f, regions, fds, 2);
    assert_int_equal(front_reply_u64(f, VHOST_USER_SET_MEM_TABLE), 0);
    assert_int_equal(f->n_commands, 2);
    assert_int_equal(front_command(f, 0, VHOST_REGION_REMOVE)->region.addr, 4 * PAGE);
    assert_int_equal(front_command(f, 1, VHOST_REGION_ADD)->region.addr, 8 * PAGE);
    close(fds[0]);
    close(fds[1]);
}

static void other_memory_at_the_same_place_takes_its_place(void **state)
{
    struct vhost_user_region region = {0, PAGE, USER, 0};
    int a = front_memfd(PAGE), b = front_memfd(PAGE);
    struct front *f = *state;

    send_table(f, &region, &a, 1);
    front_reply_u64(f, VHOST_USER_SET_MEM_TABLE);
    front_forget(f);
    send_table(f, &region, &b, 1);
    assert_int_equal(front_reply_u64(f, VHOST_USER_SET_MEM_TABLE), 0);
    front_command(f, 0, VHOST_REGION_REMOVE);
    front_command(f, 1, VHOST_REGION_ADD);
    close(a);
    close(b);
}

static void new_memory_comes_only_when_the_old_has_gone(void **state)
{
    struct vhost_user_region region = {0, PAGE, USER, 0};
    int a = front_memfd(PAGE), b = front_memfd(PAGE);
    struct front *f = *state;

    send_table(f, &region, &a, 1);
    front_reply_u64(f, VHOST_USER_SET_MEM_TABLE);
    front_forget(f);
    f->answers = false;
    send_table(f, &region, &b, 1);
    assert_int_equal(f->n_commands, 1);
    front_done(f, f->commands[0].seq, 0);
    assert_int_equal(f->n_commands, 2);
    assert_false(front_has_reply(f));
    front_done(f, f->commands[1].seq, 0);
    assert_true(front_has_reply(f));
    close(a);
    close(b);
}

static void a_session_that_the_worker_calls_bad_ends(void **state)
{
    const struct vhost_event e = {.kind = VHOST_BAD, .session = 7, .text = "a ring that is bad"};
    struct front *f = *state;
    char *why = NULL;

    assert_int_equal(vhost_link_event(f->link, &e, &why), -EPROTO);
    assert_string_equal(why, "a ring that is bad");
    free(why);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_session_begins_with_its_memory_and_its_peer),
        TEST(the_features_are_those_of_the_device),
        TEST(features_that_were_not_offered_end_it),
        TEST(protocol_features_that_were_not_offered_end_it),
        cmocka_unit_test(a_device_with_a_tag_tells_it),
        cmocka_unit_test(configuration_beyond_its_end_is_an_empty_answer),
        TEST(an_unknown_request_is_refused_when_an_answer_is_wanted),
        TEST(a_message_may_come_byte_by_byte),
        TEST(a_host_that_goes_is_no_error),
        TEST(a_host_that_goes_within_a_message_is_told_of),
        TEST(more_descriptors_than_any_message_has_end_it),
        cmocka_unit_test(no_descriptor_is_left_of_a_session),
        TEST(added_memory_is_acknowledged_when_the_worker_has_it),
        TEST(removed_memory_is_acknowledged_when_nothing_lands_there_any_more),
        TEST(no_message_is_read_while_one_waits_for_the_worker),
        TEST(an_answer_to_something_else_is_not_taken_for_it),
        TEST(memory_that_overlaps_is_refused),
        TEST(memory_of_a_host_s_own_file_system_is_refused),
        TEST(memory_that_is_not_there_cannot_be_removed),
        TEST(there_are_as_many_slots_as_is_said),
        TEST(a_new_table_leaves_what_is_in_both),
        TEST(other_memory_at_the_same_place_takes_its_place),
        TEST(new_memory_comes_only_when_the_old_has_gone),
        TEST(a_session_that_the_worker_calls_bad_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
