// SPDX-License-Identifier: Apache-2.0
#include "daemon/channel.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

static int set_up(void **state)
{
    static int pair[2];

    *state = pair;
    return channel_pair(pair);
}

static int tear_down(void **state)
{
    int *pair = *state;

    close(pair[0]);
    close(pair[1]);
    return 0;
}

static void a_message_arrives_as_it_was_sent(void **state)
{
    int *pair = *state, fd = 7;
    struct channel_msg m;

    assert_int_equal(channel_send(pair[0], CHANNEL_FAILED, 42, -1, "no such bucket"), 0);
    assert_int_equal(channel_receive(pair[1], &m, &fd), 1);
    assert_int_equal(m.kind, CHANNEL_FAILED);
    assert_int_equal(m.number, 42);
    assert_string_equal(m.text, "no such bucket");
    assert_int_equal(fd, -1);
}

static void a_descriptor_travels_along(void **state)
{
    int *pair = *state, fd = -1, ends[2];
    struct channel_msg m;
    char byte = 'x', got = 0;

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(channel_send(pair[0], CHANNEL_CREDENTIALS, 1, ends[0], NULL), 0);
    close(ends[0]);
    assert_int_equal(channel_receive(pair[1], &m, &fd), 1);
    assert_true(fd >= 0);
    assert_int_equal(write(ends[1], &byte, 1), 1);
    assert_int_equal(read(fd, &got, 1), 1);
    assert_int_equal(got, 'x');
    close(fd);
    close(ends[1]);
}

static void an_empty_channel_says_so(void **state)
{
    int *pair = *state, fd;
    struct channel_msg m;

    assert_int_equal(channel_receive(pair[0], &m, &fd), -EAGAIN);
}

static void the_end_of_the_other_side_shows(void **state)
{
    int *pair = *state, fd;
    struct channel_msg m;

    shutdown(pair[0], SHUT_RDWR);
    assert_int_equal(channel_receive(pair[1], &m, &fd), 0);
    assert_int_equal(channel_send(pair[1], CHANNEL_READY, 0, -1, NULL), -EPIPE);
}

static void bytes_of_another_length_are_refused(void **state)
{
    int *pair = *state, fd = -1;
    struct channel_msg m;

    assert_int_equal(send(pair[0], "hello", 5, 0), 5);
    assert_int_equal(channel_receive(pair[1], &m, &fd), -EBADMSG);
}

static void a_text_without_its_end_is_refused(void **state)
{
    struct channel_msg m = {.kind = CHANNEL_FAILED};
    int *pair = *state, fd = -1;

    memset(m.text, 'x', sizeof(m.text));
    assert_int_equal(send(pair[0], &m, sizeof(m), 0), sizeof(m));
    assert_int_equal(channel_receive(pair[1], &m, &fd), -EBADMSG);
}

static void control_characters_do_not_reach_a_terminal(void **state)
{
    int *pair = *state, fd;
    struct channel_msg m;

    channel_send(pair[0], CHANNEL_FAILED, 0, -1, "a\033[2Jb\nc");
    assert_int_equal(channel_receive(pair[1], &m, &fd), 1);
    assert_string_equal(m.text, "a?[2Jb?c");
}

// --- the queue ---

static void commands_wait_for_a_reader_that_is_behind(void **state)
{
    int *pair = *state, fd, memory = dup(0);
    struct channel_queue q;
    struct channel_msg m;
    unsigned n = 3000;

    channel_queue_init(&q);
    for (unsigned i = 0; i < n; i++) {
        const struct vhost_command c = {.kind = VHOST_REGION_ADD, .seq = i};

        assert_int_equal(channel_queue_command(&q, pair[0], &c, i % 2 ? memory : -1), 0);
    }
    assert_false(channel_queue_empty(&q));
    close(memory); // those that wait have copies
    for (unsigned i = 0; i < n; i++) {
        int rc = channel_receive(pair[1], &m, &fd);

        if (rc == -EAGAIN) {
            assert_int_equal(channel_queue_flush(&q, pair[0]), 0);
            rc = channel_receive(pair[1], &m, &fd);
        }
        assert_int_equal(rc, 1);
        assert_int_equal(m.kind, CHANNEL_VHOST);
        assert_int_equal(m.command.seq, i);
        assert_int_equal(fd >= 0, i % 2);
        if (fd >= 0)
            close(fd);
    }
    assert_true(channel_queue_empty(&q));
}

static void what_waits_for_nobody_is_dropped_with_its_descriptors(void **state)
{
    int *pair = *state, before = dup(0), after;
    const struct vhost_command c = {.kind = VHOST_REGION_ADD};
    struct channel_queue q;

    channel_queue_init(&q);
    while (channel_queue_empty(&q))
        assert_int_equal(channel_queue_command(&q, pair[0], &c, 0), 0);
    channel_queue_clear(&q);
    assert_true(channel_queue_empty(&q));
    after = dup(0);
    assert_int_equal(after, before + 1);
    close(before);
    close(after);
}

static void an_event_arrives_as_it_was_sent(void **state)
{
    const struct vhost_event e = {.kind = VHOST_BAD, .session = 3, .text = "bad\033ring"};
    int *pair = *state, fd;
    struct channel_queue q;
    struct channel_msg m;

    channel_queue_init(&q);
    assert_int_equal(channel_queue_event(&q, pair[0], &e), 0);
    assert_int_equal(channel_receive(pair[1], &m, &fd), 1);
    assert_int_equal(m.kind, CHANNEL_VHOST_EVENT);
    assert_int_equal(m.event.session, 3);
    assert_string_equal(m.event.text, "bad?ring");
}

static void an_event_whose_text_has_no_end_is_refused(void **state)
{
    int *pair = *state, fd;
    struct channel_queue q;
    struct channel_msg m;
    struct vhost_event e = {.kind = VHOST_BAD};

    memset(e.text, 'x', sizeof(e.text));
    channel_queue_init(&q);
    assert_int_equal(channel_queue_event(&q, pair[0], &e), 0);
    assert_int_equal(channel_receive(pair[1], &m, &fd), -EBADMSG);
}

static void a_queue_into_a_closed_channel_says_so(void **state)
{
    const struct vhost_command c = {.kind = VHOST_REGION_ADD};
    int *pair = *state;
    struct channel_queue q;

    channel_queue_init(&q);
    shutdown(pair[0], SHUT_RDWR);
    assert_int_equal(channel_queue_command(&q, pair[0], &c, -1), -EPIPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_message_arrives_as_it_was_sent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_descriptor_travels_along, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_empty_channel_says_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_of_the_other_side_shows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bytes_of_another_length_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_text_without_its_end_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(control_characters_do_not_reach_a_terminal, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(commands_wait_for_a_reader_that_is_behind, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_waits_for_nobody_is_dropped_with_its_descriptors,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_event_arrives_as_it_was_sent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_event_whose_text_has_no_end_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_queue_into_a_closed_channel_says_so, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
