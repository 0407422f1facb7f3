// SPDX-License-Identifier: Apache-2.0
// Plans over a call.h of our own: a device with one control file, which forgets on demand.
#include "base/clock.h"
#include "host/call.h"
#include "host/client.h"
#include "wire/control.h"

#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

enum { DIRECTORY = 5, CONTROL = 6 };

static struct os2g client;
static unsigned forked;

static struct {
    unsigned generation; // of the session
    unsigned opens, releases, forgets;
    bool called_away; // whoever may be asked
    bool gone, no_plans;

    // the plan of the open file
    bool begun, committed;
    char keys[1 << 20];
    size_t keys_len;
    uint64_t n, used, missing, window_bytes;

    int adds_until_crash; // the worker dies at this ADD; 0: never
} device;

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

uint64_t client_deadline(const struct os2g *c)
{
    return clock_monotonic_ns() + 5 * NS_PER_S;
}

unsigned transport_generation(struct transport *t)
{
    return device.generation;
}

const char *transport_below(const struct transport *t)
{
    return "";
}

void transport_forget(struct transport *t, unsigned generation, uint64_t nodeid, uint64_t n)
{
    device.forgets++;
}

static void lose_plan(void)
{
    device.begun = device.committed = false;
    device.keys_len = 0;
    device.n = device.used = device.missing = 0;
}

// Another daemon.
static void reconnect(void)
{
    lose_plan();
    device.generation++;
}

static int add(const struct os2g_plan_request *r)
{
    if (device.adds_until_crash && --device.adds_until_crash == 0)
        lose_plan();
    if (!device.begun)
        return -ESTALE;
    memcpy(device.keys + device.keys_len, r->data, r->len);
    device.keys_len += r->len;
    for (uint32_t i = 0; i < r->len; i++)
        device.n += r->data[i] == 0;
    return 0;
}

static int ioctl_op(const struct call *call)
{
    const struct fuse_ioctl_in *in = call->in[0].iov_base;
    struct os2g_plan_request r;
    int rc = 0;

    assert_int_equal(in->cmd, (uint32_t)OS2G_IOC_PLAN);
    assert_int_equal(in->in_size, sizeof(r));
    assert_int_equal(in->out_size, sizeof(r));
    memcpy(&r, call->in[1].iov_base, sizeof(r));
    switch (r.op) {
    case OS2G_PLAN_BEGIN:
        lose_plan();
        device.begun = true;
        device.window_bytes = r.window_bytes;
        break;
    case OS2G_PLAN_ADD:
        rc = add(&r);
        break;
    case OS2G_PLAN_COMMIT:
        rc = device.begun ? 0 : -ESTALE;
        device.committed = device.begun;
        break;
    case OS2G_PLAN_STATUS:
        break;
    default:
        rc = -EINVAL;
    }
    if (rc < 0)
        return rc;
    r.entries = device.n;
    r.used = r.fetched = device.used;
    r.missing = device.missing;
    r.dropped = 0;
    r.bytes = 10 * device.used;
    *(struct fuse_ioctl_out *)call->out = (struct fuse_ioctl_out){0};
    memcpy((char *)call->out + sizeof(struct fuse_ioctl_out), &r, sizeof(r));
    return (int)call->out_len;
}

static int look_up(const struct call *call)
{
    const char *name = call->in[0].iov_base;
    struct fuse_entry_out *out = call->out;

    *out = (struct fuse_entry_out){0};
    if (call->nodeid == FUSE_ROOT_ID && !strcmp(name, ".os2g") && !device.no_plans)
        out->nodeid = DIRECTORY;
    else if (call->nodeid == DIRECTORY && !strcmp(name, "control"))
        out->nodeid = CONTROL;
    return sizeof(*out);
}

int call_run(struct transport *t, const struct call *call)
{
    if (device.gone)
        return -ENOTCONN;
    if (device.called_away && call->client)
        return -EINTR;
    if (call->generation && call->generation != device.generation)
        return -ENOTCONN;
    switch (call->opcode) {
    case FUSE_LOOKUP:
        return look_up(call);
    case FUSE_OPEN:
        device.opens++;
        *(struct fuse_open_out *)call->out = (struct fuse_open_out){.fh = 9};
        return sizeof(struct fuse_open_out);
    case FUSE_RELEASE:
        device.releases++;
        lose_plan();
        return 0;
    case FUSE_IOCTL:
        return ioctl_op(call);
    default:
        return -ENOSYS;
    }
}

// --- what tests do ---

static int reset(void **state)
{
    memset(&device, 0, sizeof(device));
    device.generation = 1;
    forked = 0;
    return 0;
}

static struct os2g_plan *new_plan(unsigned n)
{
    struct os2g_plan *p;

    assert_int_equal(os2g_plan_new(&client, &p, 4096), 0);
    for (unsigned i = 0; i < n; i++) {
        char key[32];
        const char *keys[] = {key};

        snprintf(key, sizeof(key), "dir/%06u", i);
        assert_int_equal(os2g_plan_add(p, keys, 1), 0);
    }
    return p;
}

static struct os2g_plan_status status(struct os2g_plan *p)
{
    struct os2g_plan_status s;

    assert_int_equal(os2g_plan_status(p, &s), 0);
    return s;
}

static void keys_arrive_in_their_order_and_in_pieces(void **state)
{
    struct os2g_plan *p = new_plan(5000);

    assert_int_equal(os2g_plan_commit(p), 0);
    assert_true(device.committed);
    assert_int_equal(device.window_bytes, 4096);
    assert_int_equal(device.n, 5000);
    assert_int_equal(device.keys_len, 5000 * 11);
    for (unsigned i = 0; i < 5000; i++) {
        char key[32];

        snprintf(key, sizeof(key), "dir/%06u", i);
        assert_string_equal(device.keys + 11 * i, key);
    }
    os2g_plan_free(p);
    assert_false(device.begun);
    assert_int_equal(device.releases, 1);
    assert_int_equal(device.forgets, 2);
}

static void an_export_without_plans_says_so_at_once(void **state)
{
    struct os2g_plan *p;

    device.no_plans = true;
    assert_int_equal(os2g_plan_new(&client, &p, 0), -ENOENT);
}

static void nothing_is_added_after_the_commit(void **state)
{
    struct os2g_plan *p = new_plan(3);
    const char *keys[] = {"one more"};

    assert_int_equal(os2g_plan_commit(p), 0);
    assert_int_equal(os2g_plan_add(p, keys, 1), -EINVAL);
    assert_int_equal(os2g_plan_commit(p), -EINVAL);
    os2g_plan_free(p);
}

static void one_wrong_key_is_none_at_all(void **state)
{
    struct os2g_plan *p = new_plan(0);
    char key[1026];
    const char *empty[] = {"a", ""}, *large[] = {"a", key}, *none[] = {"a", NULL};

    memset(key, 'x', sizeof(key) - 1);
    key[sizeof(key) - 1] = 0;
    assert_int_equal(os2g_plan_add(p, empty, 2), -EINVAL);
    assert_int_equal(os2g_plan_add(p, large, 2), -EINVAL);
    assert_int_equal(os2g_plan_add(p, none, 2), -EINVAL);
    assert_int_equal(os2g_plan_commit(p), 0);
    assert_int_equal(device.n, 0);
    os2g_plan_free(p);
}

static void status_counts_what_the_device_counts(void **state)
{
    struct os2g_plan *p = new_plan(10);
    struct os2g_plan_status s = status(p);

    assert_int_equal(s.entries, 10);
    assert_int_equal(s.used, 0);
    assert_int_equal(os2g_plan_commit(p), 0);
    device.used = 4;
    device.missing = 1;
    s = status(p);
    assert_int_equal(s.entries, 10);
    assert_int_equal(s.used, 4);
    assert_int_equal(s.missing, 1);
    assert_int_equal(s.bytes, 40);
    os2g_plan_free(p);
}

static void a_plan_lost_with_the_worker_is_set_again_from_where_the_readers_were(void **state)
{
    struct os2g_plan *p = new_plan(10);
    struct os2g_plan_status s;

    assert_int_equal(os2g_plan_commit(p), 0);
    device.used = 3;
    device.missing = 1;
    status(p);
    lose_plan();
    s = status(p);
    assert_true(device.committed);
    assert_int_equal(device.n, 6);
    assert_string_equal(device.keys, "dir/000004");
    assert_int_equal(s.entries, 10);
    assert_int_equal(s.used, 3);
    device.used = 6;
    s = status(p);
    assert_int_equal(s.used, 9);
    assert_int_equal(s.fetched, 9);
    assert_int_equal(s.missing, 1);
    assert_int_equal(device.opens, 1);
    os2g_plan_free(p);
}

static void a_plan_lost_with_the_daemon_is_set_again_in_the_next_session(void **state)
{
    struct os2g_plan *p = new_plan(10);

    assert_int_equal(os2g_plan_commit(p), 0);
    device.used = 2;
    status(p);
    reconnect();
    assert_int_equal(status(p).used, 2);
    assert_int_equal(device.n, 8);
    assert_int_equal(device.opens, 2);
    os2g_plan_free(p);
}

static void a_worker_that_dies_while_it_is_told_is_told_again(void **state)
{
    struct os2g_plan *p = new_plan(5000);

    device.adds_until_crash = 3;
    assert_int_equal(os2g_plan_commit(p), 0);
    assert_true(device.committed);
    assert_int_equal(device.n, 5000);
    os2g_plan_free(p);
}

static void a_session_that_ended_before_the_commit_does_not_matter(void **state)
{
    struct os2g_plan *p = new_plan(10);

    reconnect();
    assert_int_equal(os2g_plan_commit(p), 0);
    assert_int_equal(device.n, 10);
    os2g_plan_free(p);
}

static void a_daemon_that_stays_away_is_an_error(void **state)
{
    struct os2g_plan *p = new_plan(10);
    struct os2g_plan_status s;

    assert_int_equal(os2g_plan_commit(p), 0);
    device.gone = true;
    assert_int_equal(os2g_plan_status(p, &s), -ENOTCONN);
    os2g_plan_free(p);
    os2g_plan_free(NULL);
}

static void a_plan_is_ended_also_when_its_user_is_called_away(void **state)
{
    struct os2g_plan *p = new_plan(1);

    device.called_away = true;
    assert_int_equal(os2g_plan_commit(p), -EINTR);
    os2g_plan_free(p);
    assert_int_equal(device.releases, 1);
}

static void a_plan_stays_the_parent_s(void **state)
{
    struct os2g_plan *p = new_plan(1);
    struct os2g_plan_status s;
    const char *keys[] = {"x"};

    forked = 1;
    assert_int_equal(os2g_plan_add(p, keys, 1), -EPERM);
    assert_int_equal(os2g_plan_commit(p), -EPERM);
    assert_int_equal(os2g_plan_status(p, &s), -EPERM);
    os2g_plan_free(p);
    assert_int_equal(device.releases, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(keys_arrive_in_their_order_and_in_pieces, reset),
        cmocka_unit_test_setup(an_export_without_plans_says_so_at_once, reset),
        cmocka_unit_test_setup(nothing_is_added_after_the_commit, reset),
        cmocka_unit_test_setup(one_wrong_key_is_none_at_all, reset),
        cmocka_unit_test_setup(status_counts_what_the_device_counts, reset),
        cmocka_unit_test_setup(a_plan_lost_with_the_worker_is_set_again_from_where_the_readers_were,
                               reset),
        cmocka_unit_test_setup(a_plan_lost_with_the_daemon_is_set_again_in_the_next_session, reset),
        cmocka_unit_test_setup(a_worker_that_dies_while_it_is_told_is_told_again, reset),
        cmocka_unit_test_setup(a_session_that_ended_before_the_commit_does_not_matter, reset),
        cmocka_unit_test_setup(a_daemon_that_stays_away_is_an_error, reset),
        cmocka_unit_test_setup(a_plan_is_ended_also_when_its_user_is_called_away, reset),
        cmocka_unit_test_setup(a_plan_stays_the_parent_s, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
