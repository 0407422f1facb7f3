// SPDX-License-Identifier: Apache-2.0
// What is told of a daemon that this side starts again.
#include "test.h"

#include "fake_device.h"

#include "base/clock.h"
#include "host/call.h"
#include "host/error.h"

#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct starting {
    char directory[64], socket[96];
    struct fake_device *device;
    struct transport *t;
    int error; // of start
    const char *why;
    bool other_starts; // another process does meanwhile
    unsigned told;     // that it cannot be started
    char text[400];
};

static int start(void *arg, int *ret_socket)
{
    struct starting *s = arg;

    if (!s->other_starts)
        return client_fail(s->error, "%s", s->why);
    *ret_socket = -EAGAIN; // whose backlog is full
    return 0;
}

static void on_event(void *arg, enum os2g_event event, const char *text)
{
    struct starting *s = arg;

    if (!strstr(text, "cannot be started again"))
        return;
    s->told++;
    snprintf(s->text, sizeof(s->text), "%s", text);
}

static int setup(void **state)
{
    struct starting *s = xcalloc(1, sizeof(*s));
    struct os2g_options o = {.size = sizeof(o),
                             .depth = 8,
                             .timeout_ms = 10000 * TEST_SLOWED_DOWN,
                             .event = on_event,
                             .arg = s};
    struct transport_vhost_config c = {.path = s->socket, .o = &o, .start = start, .arg = s};

    snprintf(s->directory, sizeof(s->directory), "/tmp/os2g-test-start-XXXXXX");
    assert_non_null(mkdtemp(s->directory));
    snprintf(s->socket, sizeof(s->socket), "%s/s", s->directory);
    s->device = fake_device_new(s->socket);
    assert_int_equal(transport_vhost_new(&s->t, &c), 0);
    *state = s;
    return 0;
}

static void end_device(struct starting *s)
{
    if (s->device)
        fake_device_free(s->device);
    s->device = NULL;
}

static int teardown(void **state)
{
    struct starting *s = *state;

    transport_free(s->t);
    end_device(s);
    rmdir(s->directory);
    free(s);
    return 0;
}

static int ask(struct starting *s)
{
    const struct fuse_getattr_in in = {0};
    struct fuse_attr_out out;
    const struct call call = {
        .opcode = FUSE_GETATTR,
        .nodeid = FUSE_ROOT_ID,
        .in = {{(void *)&in, sizeof(in)}},
        .n_in = 1,
        .out = &out,
        .out_len = sizeof(out),
        .deadline_ns = clock_monotonic_ns() + 500 * NS_PER_MS,
    };

    return call_run(s->t, &call);
}

// The device may still answer what comes before it notices that it is to go.
static void ask_in_vain(struct starting *s)
{
    while (ask(s) >= 0)
        usleep(1000);
}

static void a_daemon_that_cannot_be_started_is_told_once_whatever_the_error(void **state)
{
    static const int errors[] = {-ENOENT, -EAGAIN, -EPIPE, -ETIMEDOUT};

    for (unsigned i = 0; i < ARRAY_LEN(errors); i++) {
        struct starting *s;

        setup((void **)&s);
        s->error = errors[i];
        s->why = "no process is to be had";
        end_device(s);
        ask_in_vain(s);
        assert_int_equal(s->told, 1);
        assert_non_null(strstr(s->text, ": no process is to be had"));
        teardown((void **)&s);
    }
}

static void a_daemon_that_is_there_is_not_said_to_be_unstartable(void **state)
{
    struct starting *s = *state;

    fake_device_set(s->device, FAKE_SILENT);
    fake_device_disconnect(s->device);
    ask_in_vain(s);
    assert_int_equal(s->told, 0);
    // and why it cannot be started later in the same outage is not hidden
    s->error = -ENOENT;
    s->why = "the program has gone";
    end_device(s);
    ask_in_vain(s);
    assert_int_equal(s->told, 1);
    assert_non_null(strstr(s->text, ": the program has gone"));
}

static void a_daemon_that_another_has_started_and_is_busy_is_tried_again(void **state)
{
    struct starting *s = *state;

    s->other_starts = true;
    end_device(s);
    ask_in_vain(s);
    assert_int_equal(s->told, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_daemon_that_cannot_be_started_is_told_once_whatever_the_error),
        T(a_daemon_that_is_there_is_not_said_to_be_unstartable),
        T(a_daemon_that_another_has_started_and_is_busy_is_tried_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
