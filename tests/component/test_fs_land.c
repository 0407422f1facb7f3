// SPDX-License-Identifier: Apache-2.0
// READs into a host's memory and FETCHes, on a real client and cache against os2g-s3d.
#include "test.h"

#include "base/clock.h"
#include "fs_host.h"
#include "host_memory.h"
#include "wire/control.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS                                                                                       \
    "data: s/%03d 100K x 200; l/big 64M; l/mid 20M; empty 0; names/both 1; names/both/in 2; "      \
    "names/x//y 3; names/./z 4; names/\xff\xfe 5; names/mark/ 6; .os2g/control 9; "                \
    "names/a?b#c%%d+e 10"

static struct s3_fixture fixture;
static struct fs_host host;
static struct host_memory memory;
static uint64_t mid_generation; // of l/mid, as the tests change it

static int start(void **state)
{
    static const char *const args[] = {"--synthetic", KEYS, NULL};

    s3_fixture_start(
        &fixture, (struct s3_settings){.bucket = "data", .retry_timeout_ns = 20 * NS_PER_S}, args);
    return 0;
}

static int stop(void **state)
{
    s3_fixture_stop(&fixture);
    return 0;
}

static void begin_with(const char *prefix)
{
    fs_host_start(&host, &fixture,
                  (struct fs_options){.metadata_ttl_ns = 60 * NS_PER_S,
                                      .negative_ttl_ns = 5 * NS_PER_S,
                                      .prefix = prefix},
                  64 * MIB);
    s3d_process_reset_counters(&fixture.server);
}

static int begin(void **state)
{
    begin_with("");
    memory = (struct host_memory){0};
    return 0;
}

static int end(void **state)
{
    fs_host_stop(&host);
    s3d_process_set_faults(&fixture.server, "");
    if (memory.size)
        host_memory_free(&memory);
    return 0;
}

static uint64_t requests(const char *operation)
{
    char name[64];

    snprintf(name, sizeof(name), "operations.%s", operation);
    return s3d_process_counter(&fixture.server, name);
}

static uint64_t direct_bytes(void)
{
    struct cache_stats s;

    cache_stats_read(host.cache, &s);
    return s.direct_bytes;
}

// Bytes [offset, offset + len) of key are at the beginning of memory, and nothing else is.
static bool holds(const char *key, uint64_t offset, uint64_t len)
{
    struct s3d_name n;

    s3d_name_hash(&n, "data", key, strcmp(key, "l/mid") ? 0 : mid_generation);
    return host_memory_holds(&memory, 0, &fixture.table, n.start, offset, len) &&
           host_memory_untouched(&memory, len, memory.dest.len - len);
}

// The same, but what lies behind them may have been written to in vain.
static bool begins_with(const char *key, uint64_t len)
{
    struct s3d_name n;

    s3d_name_hash(&n, "data", key, 0);
    return host_memory_holds(&memory, 0, &fixture.table, n.start, 0, len);
}

static void change_mid(void)
{
    char *answer =
        s3d_process_ask(&fixture.server, "POST", "/_s3d/touch?bucket=data&key=l/mid", "");

    assert_int_equal(sscanf(answer, "{\"generation\": %lu}", &mid_generation), 1);
    free(answer);
}

static void list(const char *path)
{
    struct buf names = {0};
    struct fs_entry dir;

    assert_int_equal(fs_host_walk(&host, path, &dir), 0);
    assert_int_equal(fs_host_list(&host, dir.attr.node, &names), 0);
    buf_free(&names);
}

static uint64_t open_file(const char *path)
{
    uint64_t handle;

    assert_int_equal(fs_host_open(&host, path, &handle, NULL), 0);
    return handle;
}

// --- READ ---

static void small_reads_are_copied_and_read_ahead(void **state)
{
    uint64_t handle = open_file("l/big"), n;

    host_memory_new(&memory, 128 * KIB, 5, true);
    for (uint64_t at = 0; at < 4 * MIB; at += 128 * KIB) {
        assert_int_equal(fs_host_land(&host, handle, at, 128 * KIB, &memory.dest, &n), 0);
        assert_int_equal(n, 128 * KIB);
        assert_true(holds("l/big", at, n));
    }
    assert_int_equal(direct_bytes(), 0);
    assert_true(requests("GetObject") < 16);
    fs_host_release(&host, handle);
}

static void large_reads_land_directly_and_nothing_is_read_ahead(void **state)
{
    uint64_t handle = open_file("l/big"), n;

    host_memory_new(&memory, 16 * MIB, 5, true);
    assert_int_equal(fs_host_land(&host, handle, 4 * MIB, 8 * MIB, &memory.dest, &n), 0);
    assert_int_equal(n, 8 * MIB);
    assert_true(holds("l/big", 4 * MIB, n));
    assert_int_equal(requests("GetObject"), 2);
    host_memory_wipe(&memory);
    assert_int_equal(fs_host_land(&host, handle, 4 * MIB + 1, 16 * MIB, &memory.dest, &n), 0);
    assert_int_equal(n, 16 * MIB);
    assert_true(holds("l/big", 4 * MIB + 1, n));
    assert_int_equal(requests("GetObject"), 5);
    assert_int_equal(direct_bytes(), 24 * MIB);
    fs_host_release(&host, handle);
}

static void reads_end_at_the_end_of_the_file(void **state)
{
    uint64_t handle = open_file("l/mid"), n;

    host_memory_new(&memory, 8 * MIB, 3, true);
    assert_int_equal(fs_host_land(&host, handle, 15 * MIB, 8 * MIB, &memory.dest, &n), 0);
    assert_int_equal(n, 5 * MIB);
    assert_true(holds("l/mid", 15 * MIB, n));
    host_memory_wipe(&memory);
    assert_int_equal(fs_host_land(&host, handle, 20 * MIB, 8 * MIB, &memory.dest, &n), 0);
    assert_int_equal(n, 0);
    assert_true(host_memory_untouched(&memory, 0, 8 * MIB));
    assert_int_equal(fs_host_land(&host, handle, 0, 17 << 20, &memory.dest, &n), 0);
    assert_int_equal(n, 8 * MIB); // the memory's end
    fs_host_release(&host, handle);
}

static void a_small_file_is_fetched_once_from_its_opening_on(void **state)
{
    uint64_t handle, n;

    list("s");
    s3d_process_reset_counters(&fixture.server);
    handle = open_file("s/007");
    host_memory_new(&memory, 1 * MIB, 3, true);
    assert_int_equal(fs_host_land(&host, handle, 0, 1 * MIB, &memory.dest, &n), 0);
    assert_int_equal(n, 100 * KIB);
    assert_true(holds("s/007", 0, n));
    fs_host_release(&host, handle);
    assert_true(requests("GetObject") <= 1 + 8); // its neighbours
    assert_int_equal(direct_bytes(), 0);
}

static void memory_of_an_engine_gets_its_bytes_from_pages(void **state)
{
    uint64_t handle = open_file("l/mid"), n;

    host_memory_new(&memory, 8 * MIB, 3, false);
    memory.engine = true;
    assert_int_equal(fs_host_land(&host, handle, 4 * KIB, 64 * KIB, &memory.dest, &n), 0);
    assert_int_equal(n, 64 * KIB);
    assert_true(holds("l/mid", 4 * KIB, n));
    assert_int_equal(fs_host_land(&host, handle, 5 * MIB, 8 * MIB, &memory.dest, &n), 0);
    assert_int_equal(n, 8 * MIB);
    assert_true(holds("l/mid", 5 * MIB, n));
    assert_int_equal(direct_bytes(), 0);
    fs_host_release(&host, handle);
}

static void a_change_under_a_reader_is_stale(void **state)
{
    uint64_t handle = open_file("l/mid"), n;

    host_memory_new(&memory, 8 * MIB, 3, true);
    assert_int_equal(fs_host_land(&host, handle, 0, 8 * MIB, &memory.dest, &n), 0);
    change_mid();
    assert_int_equal(fs_host_land(&host, handle, 8 * MIB, 8 * MIB, &memory.dest, &n), -ESTALE);
    fs_host_release(&host, handle);
    handle = open_file("l/mid");
    host_memory_wipe(&memory);
    assert_int_equal(fs_host_land(&host, handle, 8 * MIB, 8 * MIB, &memory.dest, &n), 0);
    assert_true(holds("l/mid", 8 * MIB, n));
    fs_host_release(&host, handle);
}

static void a_read_can_be_interrupted(void **state)
{
    static const uint32_t sizes[] = {64 * KIB, 8 * MIB};
    uint64_t handle = open_file("l/big");

    host_memory_new(&memory, 8 * MIB, 3, true);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct fs_host_request r;

        s3d_process_set_faults(&fixture.server, "GET * always stall 10% 5s\n");
        fs_host_start_read(&host, &r, handle, 16 * MIB, sizes[i], &memory.dest);
        usleep(50000);
        fs_host_cancel(&r);
        assert_int_equal(fs_host_wait(&r), -EINTR);
        host_memory_wipe(&memory);
        usleep(50000);
        assert_true(host_memory_untouched(&memory, 0, 8 * MIB));
    }
    fs_host_release(&host, handle);
}

// --- FETCH ---

static void any_key_can_be_fetched(void **state)
{
    static const struct {
        const char *key;
        uint64_t size;
    } keys[] = {
        {"s/000", 100 * KIB},    {"names/both", 1},     {"names/both/in", 2}, {"names/x//y", 3},
        {"names/./z", 4},        {"names/\xff\xfe", 5}, {"names/mark/", 6},   {".os2g/control", 9},
        {"names/a?b#c%d+e", 10}, {"empty", 0},
    };
    struct fs_stats stats;
    uint64_t size;

    host_memory_new(&memory, 1 * MIB, 3, true);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        assert_int_equal(fs_host_fetch(&host, keys[i].key, &memory.dest, &size), 0);
        assert_int_equal(size, keys[i].size);
        assert_true(holds(keys[i].key, 0, size));
        host_memory_wipe(&memory);
    }
    assert_int_equal(requests("GetObject"), ARRAY_LEN(keys));
    assert_int_equal(requests("HeadObject") + requests("ListObjectsV2"), 0);
    fs_stats_read(host.fs, &stats);
    assert_int_equal(stats.fetches, ARRAY_LEN(keys));
    assert_int_equal(stats.fetch_bytes, 100 * KIB + 40);
}

static void keys_are_relative_to_the_prefix(void **state)
{
    uint64_t size;

    fs_host_stop(&host);
    begin_with("names/");
    host_memory_new(&memory, 4 * KIB, 1, true);
    assert_int_equal(fs_host_fetch(&host, "both/in", &memory.dest, &size), 0);
    assert_true(holds("names/both/in", 0, 2));
    assert_int_equal(fs_host_fetch(&host, "names/both", &memory.dest, &size), -ENOENT);
    assert_int_equal(fs_host_fetch(&host, "/both", &memory.dest, &size), -ENOENT);
}

static void keys_that_no_object_has_are_errors(void **state)
{
    struct fs_host_request r;
    char key[1025];
    uint64_t size;

    host_memory_new(&memory, 4 * KIB, 1, true);
    assert_int_equal(fs_host_fetch(&host, "names", &memory.dest, &size), -ENOENT);
    assert_int_equal(fs_host_fetch(&host, "s/", &memory.dest, &size), -ENOENT);
    memset(key, 'k', sizeof(key));
    fs_host_start_fetch(&host, &r, key, sizeof(key), &memory.dest);
    assert_int_equal(fs_host_wait(&r), -ENAMETOOLONG);
    fs_host_start_fetch(&host, &r, key, 0, &memory.dest);
    assert_int_equal(fs_host_wait(&r), -EINVAL);
    memory.dest.direct = false;
    assert_int_equal(fs_host_fetch(&host, "names", &memory.dest, &size), -ENOENT);
}

static void a_large_object_comes_in_extents(void **state)
{
    uint64_t size;

    host_memory_new(&memory, 64 * MIB, 7, true);
    assert_int_equal(fs_host_fetch(&host, "l/big", &memory.dest, &size), 0);
    assert_int_equal(size, 64 * MIB);
    assert_true(holds("l/big", 0, size));
    assert_int_equal(requests("GetObject"), 8);
    assert_int_equal(direct_bytes(), 64 * MIB);
}

static void a_large_object_that_a_listing_knows_comes_at_once(void **state)
{
    uint64_t before, size;

    list("l");
    s3d_process_reset_counters(&fixture.server);
    s3d_process_set_latency(&fixture.server, "400ms");
    host_memory_new(&memory, 20 * MIB, 7, true);
    before = clock_monotonic_ns();
    assert_int_equal(fs_host_fetch(&host, "l/mid", &memory.dest, &size), 0);
    // one after the other, the second could only begin now
    assert_true(clock_monotonic_ns() - before < 800 * NS_PER_MS);
    s3d_process_set_latency(&fixture.server, "0");
    assert_int_equal(size, 20 * MIB);
    assert_int_equal(requests("GetObject"), 3);
}

static void bytes_that_are_here_are_not_fetched(void **state)
{
    uint64_t handle, n;
    struct buf b = {0};

    list("s");
    handle = open_file("s/050");
    assert_int_equal(fs_host_read(&host, handle, 0, 100 * KIB, &b), 0);
    fs_host_release(&host, handle);
    s3d_process_reset_counters(&fixture.server);
    host_memory_new(&memory, 1 * MIB, 3, true);
    assert_int_equal(fs_host_fetch(&host, "s/050", &memory.dest, &n), 0);
    assert_true(holds("s/050", 0, 100 * KIB));
    assert_int_equal(direct_bytes(), 0);
    buf_free(&b);
}

static void what_a_listing_knew_and_is_not_true_any_more_does_no_harm(void **state)
{
    uint64_t size;

    list("l");
    change_mid();
    host_memory_new(&memory, 20 * MIB, 3, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fs_host_fetch(&host, "l/mid", &memory.dest, &size), 0);
        assert_true(holds("l/mid", 0, 20 * MIB));
        // the listing is doubted from then on
        assert_true(s3d_process_counter(&fixture.server, "statuses.412") <= 3);
    }
}

static void a_store_that_lies_of_a_size_is_found_out_by_a_listing(void **state)
{
    static const char *const lies[] = {"short 1000", "long 1000", "long 1M"};
    uint64_t size;

    list("s");
    for (unsigned i = 0; i < ARRAY_LEN(lies); i++) {
        char key[8], rule[64];

        snprintf(key, sizeof(key), "s/%03u", 190 + i);
        snprintf(rule, sizeof(rule), "GetObject %s nth=1 %s\n", key, lies[i]);
        s3d_process_set_faults(&fixture.server, rule);
        s3d_process_reset_counters(&fixture.server);
        host_memory_new(&memory, 1 * MIB, 3, true);
        assert_int_equal(fs_host_fetch(&host, key, &memory.dest, &size), 0);
        assert_int_equal(size, 100 * KIB);
        assert_true(begins_with(key, size));
        assert_int_equal(requests("GetObject"), 2); // the second by range
        host_memory_free(&memory);
    }
    memory = (struct host_memory){0};
}

static void an_object_that_is_too_large_tells_its_size(void **state)
{
    uint64_t size;

    host_memory_new(&memory, 10 * MIB, 3, true);
    assert_int_equal(fs_host_fetch(&host, "l/mid", &memory.dest, &size), -EFBIG);
    assert_int_equal(size % MIB, 0);
    memory.dest.direct = false;
    assert_int_equal(fs_host_fetch(&host, "l/big", &memory.dest, &size), -EFBIG);
    assert_int_equal(size, 64 * MIB);
    list("l");
    memory.dest.direct = true;
    assert_int_equal(fs_host_fetch(&host, "l/big", &memory.dest, &size), -EFBIG);
    assert_int_equal(size, 64 * MIB);
}

static void memory_of_an_engine_is_fetched_into_through_pages(void **state)
{
    uint64_t size;

    host_memory_new(&memory, 64 * MIB, 3, false);
    memory.engine = true;
    assert_int_equal(fs_host_fetch(&host, "s/001", &memory.dest, &size), 0);
    assert_true(holds("s/001", 0, 100 * KIB));
    host_memory_wipe(&memory);
    assert_int_equal(fs_host_fetch(&host, "empty", &memory.dest, &size), 0);
    assert_int_equal(size, 0);
    assert_int_equal(fs_host_fetch(&host, "l/big", &memory.dest, &size), 0);
    assert_true(holds("l/big", 0, 64 * MIB));
    assert_int_equal(requests("HeadObject"), 3);
    assert_int_equal(direct_bytes(), 0);
}

static void a_fetch_can_be_interrupted(void **state)
{
    static const char *const keys[] = {"s/001", "l/big"};

    host_memory_new(&memory, 64 * MIB, 3, true);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct fs_host_request r;

        s3d_process_set_faults(&fixture.server, "GET * always stall 10% 5s\n");
        fs_host_start_fetch(&host, &r, keys[i], strlen(keys[i]), &memory.dest);
        usleep(50000);
        fs_host_cancel(&r);
        assert_int_equal(fs_host_wait(&r), -EINTR);
        host_memory_wipe(&memory);
        usleep(50000);
        assert_true(host_memory_untouched(&memory, 0, 64 * MIB));
    }
}

// --- a plan ---

static void plan_request(uint64_t control, uint32_t op, const struct buf *paths,
                         struct os2g_plan_request *r)
{
    *r = (struct os2g_plan_request){.op = op, .len = paths ? (uint32_t)paths->len : 0};
    if (paths)
        memcpy(r->data, paths->data, paths->len);
    assert_int_equal(fs_host_ioctl(&host, control, OS2G_IOC_PLAN, r, sizeof(*r)), 0);
}

// The plan of an open control file: n of the small objects, not committed yet.
static uint64_t plan_open(int n, struct os2g_plan_request *r)
{
    uint64_t control = open_file(".os2g/control");
    struct buf paths = {0};

    for (int i = 0; i < n; i++) {
        buf_printf(&paths, "s/%03d", i * 7 % 200);
        buf_add(&paths, "", 1);
    }
    plan_request(control, OS2G_PLAN_BEGIN, NULL, r);
    plan_request(control, OS2G_PLAN_ADD, &paths, r);
    buf_free(&paths);
    return control;
}

static void planned_objects_are_fetched_once(void **state)
{
    struct os2g_plan_request *r = calloc(1, sizeof(*r));
    uint64_t control, size;

    control = plan_open(100, r);
    plan_request(control, OS2G_PLAN_COMMIT, NULL, r);
    // let it get ahead
    usleep(200000);
    host_memory_new(&memory, 1 * MIB, 3, true);
    for (int i = 0; i < 100; i++) {
        char key[16];

        snprintf(key, sizeof(key), "s/%03d", i * 7 % 200);
        assert_int_equal(fs_host_fetch(&host, key, &memory.dest, &size), 0);
        assert_true(holds(key, 0, 100 * KIB));
        host_memory_wipe(&memory);
    }
    assert_int_equal(requests("GetObject"), 100);
    plan_request(control, OS2G_PLAN_STATUS, NULL, r);
    assert_int_equal(r->used, 100);
    fs_host_release(&host, control);
    free(r);
}

static void planned_object_that_found_too_little_room_is_not_fetched_again(void **state)
{
    struct os2g_plan_request *r = calloc(1, sizeof(*r));
    uint64_t control, size;

    control = plan_open(1, r);
    plan_request(control, OS2G_PLAN_COMMIT, NULL, r);
    for (int i = 0; i < 500 && r->fetched == 0; i++) {
        usleep(10000);
        plan_request(control, OS2G_PLAN_STATUS, NULL, r);
    }
    assert_int_equal(r->fetched, 1);
    host_memory_new(&memory, 50 * KIB, 3, true);
    assert_int_equal(fs_host_fetch(&host, "s/000", &memory.dest, &size), -EFBIG);
    assert_int_equal(size, 100 * KIB);
    plan_request(control, OS2G_PLAN_STATUS, NULL, r);
    assert_int_equal(r->used, 0);
    host_memory_free(&memory);
    host_memory_new(&memory, 1 * MIB, 3, true);
    assert_int_equal(fs_host_fetch(&host, "s/000", &memory.dest, &size), 0);
    assert_true(holds("s/000", 0, 100 * KIB));
    assert_int_equal(requests("GetObject"), 1);
    plan_request(control, OS2G_PLAN_STATUS, NULL, r);
    assert_int_equal(r->used, 1);
    fs_host_release(&host, control);
    free(r);
}

static void what_a_plan_has_not_come_to_yet_is_fetched_by_its_reader(void **state)
{
    struct os2g_plan_request *r = calloc(1, sizeof(*r));
    uint64_t control, size;

    control = plan_open(1, r);
    s3d_process_set_latency(&fixture.server, "100ms");
    plan_request(control, OS2G_PLAN_COMMIT, NULL, r);
    host_memory_new(&memory, 1 * MIB, 3, true);
    assert_int_equal(fs_host_fetch(&host, "s/000", &memory.dest, &size), 0);
    assert_true(holds("s/000", 0, 100 * KIB));
    usleep(300000);
    s3d_process_set_latency(&fixture.server, "0");
    assert_int_equal(requests("GetObject"), 1);
    plan_request(control, OS2G_PLAN_STATUS, NULL, r);
    assert_int_equal(r->used, 1);
    fs_host_release(&host, control);
    free(r);
}

// --- many at a time ---

#define FAULTS                                                                                     \
    "seed 3\n"                                                                                     \
    "GET * 3% status 500\n"                                                                        \
    "GET * 3% reset head\n"                                                                        \
    "GET * 3% reset 50%\n"                                                                         \
    "GET * 3% close 30%\n"                                                                         \
    "GET * 3% xml200\n"

static void faults_never_reach_a_host(void **state)
{
    struct fs_host_request r[16];
    struct host_memory m[16];
    char keys[16][8];

    s3d_process_set_faults(&fixture.server, FAULTS);
    for (int i = 0; i < 16; i++)
        host_memory_new(&m[i], 24 * MIB, 1 + i % 3, i % 4);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 16; i++) {
            if (i % 4 == round)
                snprintf(keys[i], sizeof(keys[i]), "l/mid");
            else
                snprintf(keys[i], sizeof(keys[i]), "s/%03d", 100 + i * 5 + round);
            fs_host_start_fetch(&host, &r[i], keys[i], strlen(keys[i]), &m[i].dest);
        }
        for (int i = 0; i < 16; i++)
            assert_int_equal(fs_host_wait(&r[i]), 0);
    }
    for (int i = 0; i < 16; i++) {
        struct s3d_name n;

        s3d_name_hash(&n, "data", keys[i], strcmp(keys[i], "l/mid") ? 0 : mid_generation);
        assert_true(host_memory_holds(&m[i], 0, &fixture.table, n.start, 0, r[i].landed));
        host_memory_free(&m[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(small_reads_are_copied_and_read_ahead),
        TEST(large_reads_land_directly_and_nothing_is_read_ahead),
        TEST(reads_end_at_the_end_of_the_file),
        TEST(a_small_file_is_fetched_once_from_its_opening_on),
        TEST(memory_of_an_engine_gets_its_bytes_from_pages),
        TEST(a_change_under_a_reader_is_stale),
        TEST(a_read_can_be_interrupted),
        TEST(any_key_can_be_fetched),
        TEST(keys_are_relative_to_the_prefix),
        TEST(keys_that_no_object_has_are_errors),
        TEST(a_large_object_comes_in_extents),
        TEST(a_large_object_that_a_listing_knows_comes_at_once),
        TEST(bytes_that_are_here_are_not_fetched),
        TEST(a_store_that_lies_of_a_size_is_found_out_by_a_listing),
        TEST(what_a_listing_knew_and_is_not_true_any_more_does_no_harm),
        TEST(an_object_that_is_too_large_tells_its_size),
        TEST(memory_of_an_engine_is_fetched_into_through_pages),
        TEST(a_fetch_can_be_interrupted),
        TEST(planned_objects_are_fetched_once),
        TEST(planned_object_that_found_too_little_room_is_not_fetched_again),
        TEST(what_a_plan_has_not_come_to_yet_is_fetched_by_its_reader),
        TEST(faults_never_reach_a_host),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
