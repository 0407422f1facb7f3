// SPDX-License-Identifier: Apache-2.0
#include "daemon/session_table.h"

#include "test.h"

static void note(struct session_table *t, uint32_t kind, uint32_t session, uint32_t queue,
                 uint64_t size)
{
    struct vhost_command c = {.kind = kind, .session = session, .queue = queue};

    c.region.size = size;
    c.peer.pid = 1000 + session;
    c.peer.uid = 5;
    c.peer.since_s = 77;
    session_table_note(t, &c);
}

static json_int_t number(json_t *a, size_t i, const char *name)
{
    return json_integer_value(json_object_get(json_array_get(a, i), name));
}

static void a_host_is_shown_with_what_it_shares(void **state)
{
    struct session_table t;
    json_t *a;

    session_table_init(&t);
    note(&t, VHOST_SESSION_ADD, 3, 0, 0);
    note(&t, VHOST_REGION_ADD, 3, 0, 4096);
    note(&t, VHOST_REGION_ADD, 3, 0, 8192);
    note(&t, VHOST_REGION_REMOVE, 3, 0, 4096);
    note(&t, VHOST_QUEUE_START, 3, 0, 0);
    note(&t, VHOST_QUEUE_START, 3, 8, 0);
    note(&t, VHOST_QUEUE_START, 3, 8, 0);
    note(&t, VHOST_QUEUE_STOP, 3, 0, 0);
    a = session_table_json(&t);
    assert_int_equal(json_array_size(a), 1);
    assert_int_equal(number(a, 0, "session"), 3);
    assert_int_equal(number(a, 0, "pid"), 1003);
    assert_int_equal(number(a, 0, "uid"), 5);
    assert_int_equal(number(a, 0, "since"), 77);
    assert_int_equal(number(a, 0, "regions"), 1);
    assert_int_equal(number(a, 0, "region_bytes"), 8192);
    assert_int_equal(number(a, 0, "queues"), 1);
    json_decref(a);
    note(&t, VHOST_SESSION_REMOVE, 3, 0, 0);
}

static void a_host_that_has_gone_is_not_shown(void **state)
{
    struct session_table t;
    json_t *a;

    session_table_init(&t);
    note(&t, VHOST_SESSION_ADD, 1, 0, 0);
    note(&t, VHOST_SESSION_ADD, 2, 0, 0);
    note(&t, VHOST_SESSION_REMOVE, 1, 0, 0);
    note(&t, VHOST_REGION_ADD, 1, 0, 4096); // no longer of interest
    note(&t, VHOST_QUEUE_START, 2, 200, 0);
    a = session_table_json(&t);
    assert_int_equal(json_array_size(a), 1);
    assert_int_equal(number(a, 0, "session"), 2);
    assert_int_equal(number(a, 0, "queues"), 0);
    json_decref(a);
    note(&t, VHOST_SESSION_REMOVE, 2, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_is_shown_with_what_it_shares),
        cmocka_unit_test(a_host_that_has_gone_is_not_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
