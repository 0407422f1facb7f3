// SPDX-License-Identifier: Apache-2.0
// READs into a host's memory and FETCHes, on doubles of the store and the cache.
#include "world.h"

#include "cache/cache.h"

#include <stdlib.h>
#include <string.h>

#define LARGE (100 * MIB)

struct memory {
    struct cache_dest dest;
    struct iovec iov;
    uint8_t *bytes;
    int error;              // of every put
    struct cache_put *held; // an engine's that has not ended
    bool engine;
};

static struct memory memory;

static int put(struct cache_dest *d, uint64_t at, const struct iovec *iov, int n,
               struct cache_put *p)
{
    struct memory *m = container_of(d, struct memory, dest);

    if (m->error)
        return m->error;
    for (int i = 0; i < n; i++) {
        memcpy(m->bytes + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    m->held = p;
    return m->engine ? -EINPROGRESS : 0;
}

static const struct cache_dest_ops ops = {.put = put};

static int begin(void **state)
{
    world_begin();
    memory = (struct memory){.bytes = xcalloc(1, 32 * MIB)};
    memory.iov = (struct iovec){memory.bytes, 32 * MIB};
    memory.dest = (struct cache_dest){
        .ops = &ops, .len = 32 * MIB, .direct = true, .iov = &memory.iov, .n_iov = 1};
    return 0;
}

static int end(void **state)
{
    world_end();
    free(memory.bytes);
    return 0;
}

static uint64_t open_path(const char *path)
{
    return host_open(host_walk(path))->opened.handle;
}

static void assert_landed(const struct host_request *r, uint64_t offset, uint64_t len)
{
    assert_int_equal(r->answer, ANSWER_LANDED);
    assert_int_equal(r->landed, len);
    for (uint64_t i = 0; i < len; i++)
        assert_int_equal(memory.bytes[i], (uint8_t)(offset + i));
}

static void assert_error(const struct host_request *r, int error)
{
    assert_int_equal(r->answer, ANSWER_ERROR);
    assert_int_equal(r->error, error);
}

static void assert_fetched(const struct host_request *r, int error, uint64_t size)
{
    assert_int_equal(r->answer, ANSWER_FETCHED);
    assert_int_equal(r->error, error);
    assert_int_equal(r->landed, size);
}

// --- READ ---

static void a_small_read_goes_through_pages_and_feeds_the_policy(void **state)
{
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    handle = open_path("a");
    for (uint64_t at = 0; at < 1 * MIB; at += 128 * KIB)
        assert_landed(host_land(handle, at, 128 * KIB, &memory.dest), at, 128 * KIB);
    assert_int_equal(world.reads, 8);
    assert_int_equal(world.lands, 0);
    assert_true(world.prefetched > 0);
}

static void nothing_is_read_ahead_where_that_is_not_wanted(void **state)
{
    uint64_t handle;

    world.options.no_readahead = true;
    world_put("a", LARGE, ETAG_1);
    world_put("b", 100 * KIB, ETAG_1);
    world_start();
    handle = open_path("a");
    for (uint64_t at = 0; at < 1 * MIB; at += 128 * KIB)
        assert_landed(host_land(handle, at, 128 * KIB, &memory.dest), at, 128 * KIB);
    handle = open_path("b");
    assert_landed(host_land(handle, 0, 4 * KIB, &memory.dest), 0, 4 * KIB);
    assert_int_equal(world.reads, 9);
    assert_int_equal(world.loads, 0);
    assert_int_equal(world.prefetched, 0);
}

static void a_large_read_lands_extent_by_extent_and_nothing_is_read_ahead(void **state)
{
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    handle = open_path("a");
    assert_landed(host_land(handle, 1 * MIB, 8 * MIB, &memory.dest), 1 * MIB, 8 * MIB);
    assert_landed(host_land(handle, 9 * MIB, 8 * MIB, &memory.dest), 9 * MIB, 8 * MIB);
    assert_int_equal(world.lands, 4);
    assert_int_equal(world.reads, 0);
    assert_int_equal(world.prefetched, 0);
}

static void a_large_read_for_an_engine_is_read_ahead(void **state)
{
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    memory.dest.direct = false;
    handle = open_path("a");
    for (uint64_t at = 0; at < 32 * MIB; at += 8 * MIB)
        assert_landed(host_land(handle, at, 8 * MIB, &memory.dest), at, 8 * MIB);
    assert_true(world.prefetched > 0);
}

static void a_read_behind_the_end_lands_nothing(void **state)
{
    uint64_t handle;

    world_put("a", 1000, ETAG_1);
    world_start();
    handle = open_path("a");
    assert_landed(host_land(handle, 1000, 4096, &memory.dest), 0, 0);
    assert_landed(host_land(handle, 900, 4096, &memory.dest), 900, 100);
    assert_landed(host_land(open_path(".os2g/control"), 0, 4096, &memory.dest), 0, 0);
    assert_error(host_land(12345, 0, 4096, &memory.dest), -EBADF);
}

static void a_read_beyond_what_wires_promise_is_refused(void **state)
{
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    handle = open_path("a");
    assert_error(host_land(handle, 0, 20 << 20, &memory.dest), -EINVAL);
    assert_error(host_read(handle, 0, 2 << 20), -EINVAL);
}

static void memory_that_is_gone_is_an_error_of_that_read(void **state)
{
    static const uint32_t sizes[] = {4096, 2 << 20};
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    handle = open_path("a");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        memory.error = -EFAULT;
        assert_error(host_land(handle, 0, sizes[i], &memory.dest), -EFAULT);
        memory.error = 0;
        assert_landed(host_land(handle, 0, sizes[i], &memory.dest), 0, sizes[i]);
    }
}

static void an_engine_answers_when_it_has_copied(void **state)
{
    struct host_request *r;
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    handle = open_path("a");
    memory.engine = true;
    r = host_begin();
    r->fs.dest = &memory.dest;
    fs_ops()->read(world.fs, &r->fs, handle, 0, 4096);
    world_run();
    assert_int_equal(r->answer, ANSWER_NONE);
    memory.held->done(memory.held, 0);
    assert_landed(r, 0, 4096);
    world_run();
}

static void a_changed_object_is_stale_for_its_reader_and_its_node(void **state)
{
    static const uint32_t sizes[] = {4096, 2 << 20};
    static const char *const keys[] = {"a", "b"};

    world_put("a", LARGE, ETAG_1);
    world_put("b", LARGE, ETAG_1);
    world_start();
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        uint64_t node = host_walk(keys[i]), handle = host_open(node)->opened.handle;

        world_put(keys[i], LARGE, ETAG_2);
        assert_error(host_land(handle, 0, sizes[i], &memory.dest), -ESTALE);
        assert_error(host_open(node), -ESTALE);
    }
}

// --- cancelling ---

static struct host_request *start_read(uint64_t handle, uint32_t size, uint64_t unique)
{
    struct host_request *r = host_begin();

    r->fs.dest = &memory.dest;
    r->fs.unique = unique;
    fs_ops()->read(world.fs, &r->fs, handle, 0, size);
    return r;
}

static void numbers_are_unique_within_a_host_only(void **state)
{
    static const uint32_t sizes[] = {4096, 2 << 20};
    uint64_t handle;

    world_put("a", LARGE, ETAG_1);
    world_start();
    handle = open_path("a");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct host_request *one = start_read(handle, sizes[i], 77);
        struct host_request *two = start_read(handle, sizes[i], 77);

        host_cancel(two);
        world_run();
        assert_landed(one, 0, sizes[i]);
        assert_error(two, -EINTR);
    }
}

static void a_fetch_can_be_cancelled_at_any_stage(void **state)
{
    world_put("a", LARGE, ETAG_1);
    world_put("s", 1000, ETAG_1);
    world_start();
    memory.dest.len = LARGE; // of which no byte is written
    for (int turns = 0; turns < 6; turns++) {
        for (int direct = 0; direct < 2; direct++) {
            struct host_request *r = host_begin();

            memory.dest.direct = direct;
            memory.error = -ECANCELED;
            r->fs.dest = &memory.dest;
            fs_ops()->fetch(world.fs, &r->fs, "a", 1);
            for (int i = 0; i < turns; i++)
                uv_run(loop_uv(world.loop), UV_RUN_NOWAIT);
            if (r->answer == ANSWER_NONE)
                host_cancel(r);
            world_run();
            assert_int_equal(r->answer, ANSWER_FETCHED);
            assert_int_equal(r->error, -EINTR);
        }
    }
}

// --- FETCH ---

static void an_unknown_object_is_one_get(void **state)
{
    struct host_request *r;

    world_put("a//b", 1000, ETAG_1);
    world_start();
    r = host_fetch("a//b", &memory.dest);
    assert_fetched(r, 0, 1000);
    assert_int_equal(memory.bytes[999], (uint8_t)999);
    assert_int_equal(world.fetches, 1);
    assert_int_equal(world.lands + world.heads + world.lists, 0);
    assert_fetched(host_fetch("a//c", &memory.dest), -ENOENT, 0);
}

static void a_large_one_goes_on_with_what_the_first_get_has_learned(void **state)
{
    world_put("a", 20 * MIB, ETAG_1);
    world_start();
    assert_fetched(host_fetch("a", &memory.dest), 0, 20 * MIB);
    for (uint64_t i = 0; i < 20 * MIB; i += 4093)
        assert_int_equal(memory.bytes[i], (uint8_t)i);
    assert_int_equal(world.fetches, 1);
    assert_int_equal(world.lands, 2);
}

static void a_listed_one_that_is_here_is_landed_from_its_version(void **state)
{
    uint64_t dir;

    world_put("d/a", 1000, ETAG_1);
    world_put("d/b", 1000, ETAG_1);
    world_start();
    dir = host_walk("d");
    free(host_list(dir, true, 100));
    // nobody has read it
    assert_fetched(host_fetch("d/a", &memory.dest), 0, 1000);
    assert_int_equal(world.fetches, 1);
    host_release(open_path("d/b"));
    assert_fetched(host_fetch("d/b", &memory.dest), 0, 1000);
    assert_int_equal(world.fetches, 1);
    assert_int_equal(world.lands, 1);
    // a listing that is wrong costs a try
    world_put("d/b", 2000, ETAG_2);
    assert_fetched(host_fetch("d/b", &memory.dest), 0, 2000);
    assert_int_equal(world.fetches, 2);
    assert_int_equal(world.lands, 2);
    // and is doubted from then on
    assert_fetched(host_fetch("d/b", &memory.dest), 0, 2000);
    assert_int_equal(world.lands, 2);
    world_delete("d/b");
    assert_fetched(host_fetch("d/b", &memory.dest), -ENOENT, 0);
}

static void a_size_that_a_listing_contradicts_is_asked_for_by_range(void **state)
{
    static const int lies[] = {-1, 1, 100 * (int)MIB};

    static const char *const keys[] = {"d/a", "d/b", "d/c"}; // a version that is here is landed

    for (unsigned i = 0; i < ARRAY_LEN(keys); i++)
        world_put(keys[i], 1000, ETAG_1);
    world_start();
    free(host_list(host_walk("d"), true, 100));
    for (unsigned i = 0; i < ARRAY_LEN(lies); i++) {
        world.lie = lies[i];
        assert_fetched(host_fetch(keys[i], &memory.dest), 0, 1000);
        assert_int_equal(world.fetches, i + 1);
        assert_int_equal(world.lands, i + 1);
    }
}

static void a_listing_that_is_wrong_of_a_size_is_doubted(void **state)
{
    world_put("d/a", 1000, ETAG_1);
    world_start();
    free(host_list(host_walk("d"), true, 100));
    world_put("d/a", 2000, ETAG_1);
    assert_fetched(host_fetch("d/a", &memory.dest), 0, 2000);
    assert_int_equal(world.fetches, 2);
    assert_int_equal(world.lands, 1);
    assert_fetched(host_fetch("d/a", &memory.dest), 0, 2000);
    assert_int_equal(world.fetches, 3);
    assert_int_equal(world.lands, 1);
}

static void an_object_that_changes_all_the_time_is_stale_in_the_end(void **state)
{
    world_put("a", 1000, ETAG_1);
    world_start();
    world.load_error = -ESTALE;
    assert_fetched(host_fetch("a", &memory.dest), -ESTALE, 0);
    assert_int_equal(world.fetches, 3);
}

static void an_engine_learns_the_version_by_head(void **state)
{
    world_put("a", 1000, ETAG_1);
    world_put("e", 0, ETAG_1);
    world_start();
    memory.dest.direct = false;
    assert_fetched(host_fetch("a", &memory.dest), 0, 1000);
    assert_fetched(host_fetch("e", &memory.dest), 0, 0);
    assert_fetched(host_fetch("no", &memory.dest), -ENOENT, 0);
    memory.dest.len = 999;
    assert_fetched(host_fetch("a", &memory.dest), -EFBIG, 1000);
    assert_int_equal(world.heads, 4);
    assert_int_equal(world.lands, 1);
    assert_int_equal(world.fetches, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_small_read_goes_through_pages_and_feeds_the_policy),
        TEST(nothing_is_read_ahead_where_that_is_not_wanted),
        TEST(a_large_read_lands_extent_by_extent_and_nothing_is_read_ahead),
        TEST(a_large_read_for_an_engine_is_read_ahead),
        TEST(a_read_behind_the_end_lands_nothing),
        TEST(a_read_beyond_what_wires_promise_is_refused),
        TEST(memory_that_is_gone_is_an_error_of_that_read),
        TEST(an_engine_answers_when_it_has_copied),
        TEST(a_changed_object_is_stale_for_its_reader_and_its_node),
        TEST(numbers_are_unique_within_a_host_only),
        TEST(a_fetch_can_be_cancelled_at_any_stage),
        TEST(an_unknown_object_is_one_get),
        TEST(a_large_one_goes_on_with_what_the_first_get_has_learned),
        TEST(a_listed_one_that_is_here_is_landed_from_its_version),
        TEST(a_size_that_a_listing_contradicts_is_asked_for_by_range),
        TEST(a_listing_that_is_wrong_of_a_size_is_doubted),
        TEST(an_object_that_changes_all_the_time_is_stale_in_the_end),
        TEST(an_engine_learns_the_version_by_head),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
