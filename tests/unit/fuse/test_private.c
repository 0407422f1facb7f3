// SPDX-License-Identifier: Apache-2.0
// HELLO, FETCH and REGION, and READs that land.
#include "test.h"

#include "fixture.h"
#include "wire/ops.h"

#include <stdlib.h>
#include <string.h>

static void hello(struct fixture *f, uint32_t min, uint32_t max)
{
    const struct os2g_hello_in in = {.version_min = min, .version_max = max};

    ask(f, OS2G_OP_HELLO, 0, &in, sizeof(in), NULL);
}

static const struct os2g_hello_out *hello_answer(struct fixture *f)
{
    size_t len;
    const void *body = answer_body(f, &len);

    assert_int_equal(len, sizeof(struct os2g_hello_out));
    return body;
}

static int setup_after_hello(void **state)
{
    struct fixture *f;

    fixture_setup_host(state);
    f = *state;
    hello(f, 1, OS2G_WIRE_VERSION);
    f->sent = f->finished = 0;
    return 0;
}

static void fetch(struct fixture *f, const char *key, uint32_t key_len)
{
    const struct os2g_fetch_in in = {.key_len = key_len};

    message_begin(f, OS2G_OP_FETCH, 0);
    message_add(f, &in, sizeof(in));
    message_add(f, key, strlen(key));
    assert_int_equal(message_dispatch(f), 0);
}

static void hello_agrees_on_the_newest_version_in_common(void **state)
{
    struct fixture *f = *state;

    hello(f, 1, 99);
    assert_int_equal(answer_header(f)->error, 0);
    assert_int_equal(hello_answer(f)->version, OS2G_WIRE_VERSION);
    assert_int_equal(hello_answer(f)->max_read, 8 << 20);
    assert_string_equal(hello_answer(f)->release, OS2G_VERSION);
    assert_int_equal(f->hellos, 1);
    assert_int_equal(fuse_session_negotiated(f->session)->hello, OS2G_WIRE_VERSION);
    // one release back
    hello(f, 1, 1);
    assert_int_equal(hello_answer(f)->version, 1);
}

static void hello_tells_what_is_served_to_who_knows_of_it(void **state)
{
    static const char source[] = "s3://bucket/a/\0http://server";
    struct fixture *f = *state;
    const struct os2g_hello_out *out;
    size_t len;

    fixture_serve(f, "s3://bucket/a/", "http://server");
    hello(f, 1, 99);
    out = answer_body(f, &len);
    assert_int_equal(len, sizeof(*out) + sizeof(source));
    assert_int_equal(out->source_len, sizeof(source));
    assert_memory_equal(out + 1, source, sizeof(source));
    hello(f, 1, 2);
    assert_int_equal(hello_answer(f)->source_len, 0);
    hello(f, 99, 99);
    assert_int_equal(hello_answer(f)->source_len, 0);
}

static void hello_does_not_tell_what_has_no_room(void **state)
{
    static char longest[OS2G_SOURCE_MAX - 1]; // with its zero, and another string's, just too long
    struct fixture *f = *state;
    const struct os2g_hello_out *out;
    size_t len;

    memset(longest, 'x', sizeof(longest) - 1);
    fixture_serve(f, longest, NULL);
    hello(f, 1, 99);
    out = answer_body(f, &len);
    assert_int_equal(out->source_len, OS2G_SOURCE_MAX);
    assert_int_equal(len, sizeof(*out) + OS2G_SOURCE_MAX);
    fixture_serve(f, longest, "x");
    hello(f, 1, 99);
    assert_int_equal(hello_answer(f)->source_len, 0);
}

static void hello_without_a_version_in_common_tells_ours(void **state)
{
    struct fixture *f = *state;

    hello(f, OS2G_WIRE_VERSION + 1, OS2G_WIRE_VERSION + 3);
    assert_int_equal(answer_header(f)->error, -EPROTO);
    assert_int_equal(hello_answer(f)->version, OS2G_WIRE_VERSION);
    assert_int_equal(f->hellos, 0);
    assert_int_equal(fuse_session_negotiated(f->session)->hello, 0);
    hello(f, 0, 0);
    assert_int_equal(answer_header(f)->error, -EPROTO);
}

static void hello_that_makes_no_sense_is_refused(void **state)
{
    struct fixture *f = *state;
    const struct os2g_hello_in flags = {.version_min = 1, .version_max = 2, .flags = 1};

    hello(f, 2, 1);
    assert_int_equal(answer_header(f)->error, -EINVAL);
    ask(f, OS2G_OP_HELLO, 0, &flags, sizeof(flags), NULL);
    assert_int_equal(answer_header(f)->error, -EINVAL);
    ask(f, OS2G_OP_HELLO, 0, &flags, sizeof(flags) - 1, NULL);
    assert_int_equal(answer_header(f)->error, -EINVAL);
    assert_int_equal(f->hellos, 0);
}

static void a_wire_without_them_knows_no_private_operations(void **state)
{
    struct fixture *f = *state;
    const struct os2g_region_in region = {0};

    hello(f, 1, OS2G_WIRE_VERSION);
    assert_int_equal(answer_header(f)->error, -ENOSYS);
    fetch(f, "key", 3);
    assert_int_equal(answer_header(f)->error, -ENOSYS);
    ask(f, OS2G_OP_REGION, 0, &region, sizeof(region), NULL);
    assert_int_equal(answer_header(f)->error, -ENOSYS);
}

static void nothing_private_comes_before_hello(void **state)
{
    struct fixture *f = *state;
    const struct os2g_region_in region = {0};

    fetch(f, "key", 3);
    assert_int_equal(answer_header(f)->error, -ENOSYS);
    ask(f, OS2G_OP_REGION, 0, &region, sizeof(region), NULL);
    assert_int_equal(answer_header(f)->error, -ENOSYS);
    assert_int_equal(f->regions, 0);
}

static void init_forgets_hello(void **state)
{
    struct fixture *f = *state;

    init_with(f, FUSE_KERNEL_VERSION, FUSE_KERNEL_MINOR_VERSION, ~0ULL);
    fetch(f, "key", 3);
    assert_int_equal(answer_header(f)->error, -ENOSYS);
}

static void requests_carry_the_peers_identity_after_hello(void **state)
{
    struct fixture *f = *state;
    const struct fuse_getattr_in in = {0};

    ask(f, FUSE_GETATTR, FUSE_ROOT_ID, &in, sizeof(in), NULL);
    assert_int_equal(f->fs.req->uid, 1000);
    fuse_session_answer(&f->request, 0);
    hello(f, 1, OS2G_WIRE_VERSION);
    ask(f, FUSE_GETATTR, FUSE_ROOT_ID, &in, sizeof(in), NULL);
    assert_int_equal(f->fs.req->uid, 7);
    assert_int_equal(f->fs.req->gid, 8);
    assert_int_equal(f->fs.req->pid, 9);
}

static void fetch_takes_its_key_literally(void **state)
{
    struct fixture *f = *state;
    struct cache_dest dest = {.len = 100};

    f->dest = &dest;
    fetch(f, "a//b/../c", 9);
    assert_string_equal(f->fs.op, "fetch");
    assert_int_equal(f->fs.name_len, 9);
    assert_memory_equal(f->fs.name, "a//b/../c", 9);
    assert_int_equal(f->sent, 0);
}

static void what_was_fetched_is_counted_in_the_answer(void **state)
{
    struct fixture *f = *state;
    struct cache_dest dest = {.len = 100};
    const struct os2g_fetch_out *out;
    size_t len;

    f->dest = &dest;
    fetch(f, "key", 3);
    f->fs.req->reply->fetched(f->fs.req, 0, 77);
    out = answer_body(f, &len);
    assert_int_equal(len, sizeof(*out));
    assert_int_equal(out->size, 77);
    assert_int_equal(f->landed, 77);
    assert_int_equal(f->finished, 1);
}

static void an_object_larger_than_its_room_tells_its_size(void **state)
{
    struct fixture *f = *state;
    struct cache_dest dest = {.len = 100};
    const struct os2g_fetch_out *out;

    f->dest = &dest;
    fetch(f, "key", 3);
    f->fs.req->reply->fetched(f->fs.req, -EFBIG, (uint64_t)5 << 40);
    out = answer_body(f, NULL);
    assert_int_equal(answer_header(f)->error, -EFBIG);
    assert_int_equal(out->size, (uint64_t)5 << 40);
    assert_int_equal(f->landed, 0);

    fetch(f, "key", 3);
    f->fs.req->reply->fetched(f->fs.req, -ENOENT, 0);
    assert_int_equal(answer_header(f)->error, -ENOENT);
    assert_int_equal(f->answer_len, sizeof(struct fuse_out_header));
}

static void a_fetch_with_a_bad_key_or_no_room_is_refused(void **state)
{
    struct fixture *f = *state;
    struct cache_dest dest = {.len = 100};
    static char long_key[OS2G_KEY_MAX + 2];

    fetch(f, "key", 3); // no room at all
    assert_int_equal(answer_header(f)->error, -EINVAL);
    f->dest = &dest;
    fetch(f, "", 0);
    assert_int_equal(answer_header(f)->error, -EINVAL);
    fetch(f, "key", 4);
    assert_int_equal(answer_header(f)->error, -EINVAL);
    fetch(f, "key", 2);
    assert_int_equal(answer_header(f)->error, -EINVAL);
    memset(long_key, 'k', OS2G_KEY_MAX + 1);
    fetch(f, long_key, OS2G_KEY_MAX + 1);
    assert_int_equal(answer_header(f)->error, -EINVAL);
    assert_null(f->fs.op);
}

static void region_requests_are_the_wires(void **state)
{
    struct fixture *f = *state;
    const struct os2g_region_in in = {.op = OS2G_REGION_REMOVE};

    ask(f, OS2G_OP_REGION, 0, &in, sizeof(in), NULL);
    assert_int_equal(f->regions, 1);
    assert_int_equal(answer_header(f)->error, -EBUSY);
    ask(f, OS2G_OP_REGION, 0, &in, sizeof(in) - 1, NULL);
    assert_int_equal(answer_header(f)->error, -EINVAL);
    assert_int_equal(f->regions, 1);
}

static void reads_of_eight_mebibytes_come_after_hello(void **state)
{
    struct fixture *f = *state;
    struct cache_dest dest = {.len = 16 << 20};
    struct fuse_read_in in = {.fh = 5, .size = 8 << 20};

    fuse_holdings_add_handle(f->holdings, 5, false);
    f->dest = &dest;
    ask(f, FUSE_READ, 0, &in, sizeof(in), NULL);
    assert_int_equal(answer_header(f)->error, -EINVAL);
    hello(f, 1, OS2G_WIRE_VERSION);
    ask(f, FUSE_READ, 0, &in, sizeof(in), NULL);
    assert_string_equal(f->fs.op, "read");
    assert_ptr_equal(f->fs.req->dest, &dest);
    f->fs.req->reply->landed(f->fs.req, 8 << 20);
    assert_int_equal(f->landed, 8 << 20);
    assert_int_equal(f->answer_len, sizeof(struct fuse_out_header));
    in.size++;
    ask(f, FUSE_READ, 0, &in, sizeof(in), NULL);
    assert_int_equal(answer_header(f)->error, -EINVAL);
}

static void a_read_larger_than_its_room_is_refused(void **state)
{
    struct fixture *f = *state;
    struct cache_dest dest = {.len = 4095};
    const struct fuse_read_in in = {.fh = 5, .size = 4096};

    fuse_holdings_add_handle(f->holdings, 5, false);
    f->dest = &dest;
    ask(f, FUSE_READ, 0, &in, sizeof(in), NULL);
    assert_int_equal(answer_header(f)->error, -EINVAL);
}

static void data_begins_behind_what_comes_before_it(void **state)
{
    struct fuse_in_header h = {.opcode = FUSE_READ};

    assert_int_equal(fuse_session_data_offset(&h, sizeof(h)), 16);
    h.opcode = OS2G_OP_FETCH;
    assert_int_equal(fuse_session_data_offset(&h, sizeof(h)), 24);
    h.opcode = FUSE_READDIR;
    assert_int_equal(fuse_session_data_offset(&h, sizeof(h)), 0);
}

#define KERNEL(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
#define HOST(f)   cmocka_unit_test_setup_teardown(f, fixture_setup_host, fixture_teardown)
#define HELLO(f)  cmocka_unit_test_setup_teardown(f, setup_after_hello, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOST(hello_agrees_on_the_newest_version_in_common),
        HOST(hello_tells_what_is_served_to_who_knows_of_it),
        HOST(hello_does_not_tell_what_has_no_room),
        HOST(hello_without_a_version_in_common_tells_ours),
        HOST(hello_that_makes_no_sense_is_refused),
        KERNEL(a_wire_without_them_knows_no_private_operations),
        HOST(nothing_private_comes_before_hello),
        HELLO(init_forgets_hello),
        HOST(requests_carry_the_peers_identity_after_hello),
        HELLO(fetch_takes_its_key_literally),
        HELLO(what_was_fetched_is_counted_in_the_answer),
        HELLO(an_object_larger_than_its_room_tells_its_size),
        HELLO(a_fetch_with_a_bad_key_or_no_room_is_refused),
        HELLO(region_requests_are_the_wires),
        HOST(reads_of_eight_mebibytes_come_after_hello),
        HOST(a_read_larger_than_its_room_is_refused),
        cmocka_unit_test(data_begins_behind_what_comes_before_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
