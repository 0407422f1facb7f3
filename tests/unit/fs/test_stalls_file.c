// SPDX-License-Identifier: Apache-2.0
// .os2g/stalls, on doubles of the store and the cache.
#include "world.h"

#include "cache/cache.h"

#include <string.h>

static int begin(void **state)
{
    world_begin();
    world_start();
    return 0;
}

static int end(void **state)
{
    world_end();
    return 0;
}

static uint64_t open_it(void)
{
    struct host_request *r = host_open(host_walk(".os2g/stalls"));

    assert_int_equal(r->answer, ANSWER_OPENED);
    assert_true(r->opened.direct_io);
    return r->opened.handle;
}

static void it_is_json_with_the_files_mode_and_a_size_beyond_its_end(void **state)
{
    struct host_request *r = host_lookup(host_walk(".os2g"), "stalls");
    uint64_t handle;

    assert_int_equal(r->answer, ANSWER_ENTRY);
    assert_int_equal(r->entry.attr.mode & 07777, world.options.file_mode);
    assert_int_equal(r->entry.attr.uid, world.options.uid);
    handle = open_it();
    r = host_read(handle, 0, 1 << 20);
    assert_int_equal(r->answer, ANSWER_DATA);
    assert_int_equal(r->bytes.data[0], '{');
    assert_int_equal(r->bytes.data[r->bytes.len - 1], '\n');
    r = host_read(handle, r->bytes.len, 4096);
    assert_int_equal(r->answer, ANSWER_DATA);
    assert_int_equal(r->bytes.len, 0);
    host_release(handle);
}

static void what_is_read_in_pieces_is_one_report(void **state)
{
    uint64_t handle = open_it();
    struct buf all = {0}, pieces = {0};
    struct host_request *r = host_read(handle, 0, 1 << 20);

    buf_add(&all, r->bytes.data, r->bytes.len);
    do {
        r = host_read(handle, pieces.len, 100);
        assert_int_equal(r->answer, ANSWER_DATA);
        buf_add(&pieces, r->bytes.data, r->bytes.len);
    } while (r->bytes.len);
    assert_int_equal(pieces.len, all.len);
    assert_memory_equal(pieces.data, all.data, all.len);
    buf_free(&all);
    buf_free(&pieces);
    host_release(handle);
}

static uint8_t memory[1 << 16];

static int put(struct cache_dest *d, uint64_t at, const struct iovec *iov, int n,
               struct cache_put *p)
{
    memcpy(memory + at, iov[0].iov_base, iov[0].iov_len);
    return 0;
}

static const struct cache_dest_ops ops = {.put = put};

static void it_lands_in_a_hosts_memory_but_not_by_an_engine(void **state)
{
    struct iovec iov = {memory, sizeof(memory)};
    struct cache_dest dest = {.ops = &ops, .len = sizeof(memory), .iov = &iov, .n_iov = 1};
    uint64_t handle = open_it();
    struct host_request *r = host_land(handle, 0, sizeof(memory), &dest);

    assert_int_equal(r->answer, ANSWER_LANDED);
    assert_true(r->landed > 100);
    assert_int_equal(memory[0], '{');
    dest.n_iov = 0;
    r = host_land(handle, 0, sizeof(memory), &dest);
    assert_int_equal(r->answer, ANSWER_ERROR);
    assert_int_equal(r->error, -EINVAL);
    host_release(handle);
}

static void a_new_workers_begins_again(void **state)
{
    uint64_t handle = open_it();
    struct host_request *r;

    world_restart();
    r = host_read(handle, 10, 100);
    assert_int_equal(r->answer, ANSWER_ERROR);
    assert_int_equal(r->error, -ESTALE);
    r = host_read(handle, 0, 100);
    assert_int_equal(r->answer, ANSWER_DATA);
    assert_int_equal(r->bytes.len, 100);
    host_release(handle);
}

static void of_many_that_are_left_open_the_first_begin_again(void **state)
{
    uint64_t handles[100];
    struct host_request *r;

    for (size_t i = 0; i < ARRAY_LEN(handles); i++)
        handles[i] = open_it();
    r = host_read(handles[0], 10, 100);
    assert_int_equal(r->error, -ESTALE);
    r = host_read(handles[99], 10, 100);
    assert_int_equal(r->answer, ANSWER_DATA);
    r = host_read(handles[0], 0, 100);
    assert_int_equal(r->answer, ANSWER_DATA);
    for (size_t i = 0; i < ARRAY_LEN(handles); i++)
        host_release(handles[i]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    static const struct CMUnitTest tests[] = {
        TEST(it_is_json_with_the_files_mode_and_a_size_beyond_its_end),
        TEST(what_is_read_in_pieces_is_one_report),
        TEST(it_lands_in_a_hosts_memory_but_not_by_an_engine),
        TEST(a_new_workers_begins_again),
        TEST(of_many_that_are_left_open_the_first_begin_again),
    };

    return cmocka_run_group_tests_name("fs/stalls_file", tests, NULL, NULL);
}
