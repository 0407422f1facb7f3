// SPDX-License-Identifier: Apache-2.0
// The file system on a real client and cache, against os2g-s3d: names, versions, plans, and every
// byte right while the store misbehaves.
#include "test.h"

#include "base/clock.h"
#include "base/rand.h"
#include "fs_host.h"
#include "wire/control.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N51       "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
#define LONG_NAME N51 N51 N51 N51 N51 // just short enough

#define KEYS                                                                                       \
    "data: s/%03d 100K x 300; big 64M; empty 0; walk/d%02d/f%04d 10 x 20 x 1500; "                 \
    "names/a?b 1; names/c#d 1; names/100%%25 1; names/e+f 1; names/\xc3\xa4 1; names/.hid 1; "     \
    "names/both 1; names/both-2 1; names/both/in 1; names/x//y 1; names/./z 1; names/../z 1; "     \
    "names/" LONG_NAME " 1; names/" LONG_NAME "n 1; names/\xff\xfe 1; names/mark/ 0; "             \
    ".os2g/control 9"

static struct s3_fixture fixture;
static struct fs_host host;

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

static void begin_with(struct fs_options o)
{
    fs_host_start(&host, &fixture, o, 64 * MIB);
    s3d_process_reset_counters(&fixture.server);
}

static int begin(void **state)
{
    begin_with((struct fs_options){
        .metadata_ttl_ns = 60 * NS_PER_S, .negative_ttl_ns = 5 * NS_PER_S, .prefix = ""});
    return 0;
}

static int end(void **state)
{
    fs_host_stop(&host);
    s3d_process_set_faults(&fixture.server, "");
    s3d_process_set_latency(&fixture.server, "0");
    return 0;
}

static uint64_t requests(const char *operation)
{
    char name[64];

    snprintf(name, sizeof(name), "operations.%s", operation);
    return s3d_process_counter(&fixture.server, name);
}

static void assert_right(const char *key, uint64_t generation, uint64_t offset, const struct buf *b)
{
    struct s3d_name n;

    s3d_name_hash(&n, "data", key, generation);
    assert_int_equal(s3d_synthetic_check(&fixture.table, n.start, offset, b->data, b->len), -1);
}

static uint64_t touch(const char *key)
{
    char path[128], *answer;
    uint64_t generation;

    snprintf(path, sizeof(path), "/_s3d/touch?bucket=data&key=%s", key);
    answer = s3d_process_ask(&fixture.server, "POST", path, "");
    assert_int_equal(sscanf(answer, "{\"generation\": %lu}", &generation), 1);
    free(answer);
    return generation;
}

static void read_whole(const char *key, uint64_t generation)
{
    uint64_t handle, size;
    struct buf b = {0};

    assert_int_equal(fs_host_open(&host, key, &handle, &size), 0);
    for (uint64_t at = 0; at < size; at += b.len) {
        assert_int_equal(fs_host_read(&host, handle, at, 1 << 20, &b), 0);
        assert_int_equal(b.len, MIN(size - at, (uint64_t)1 << 20));
        assert_right(key, generation, at, &b);
    }
    assert_int_equal(fs_host_release(&host, handle), 0);
    buf_free(&b);
}

static void small_file_takes_one_get_once_its_directory_is_known(void **state)
{
    struct buf names = {0};
    struct fs_entry dir;

    assert_int_equal(fs_host_walk(&host, "s", &dir), 0);
    assert_int_equal(fs_host_list(&host, dir.attr.node, &names), 0);
    assert_int_equal(names.len, 300 * 4);
    buf_free(&names);
    s3d_process_reset_counters(&fixture.server);
    for (int i = 0; i < 50; i++) {
        char key[16];

        snprintf(key, sizeof(key), "s/%03d", i * 131 % 300);
        read_whole(key, 0);
    }
    // but for s itself, which is looked up each time here and in the root listed at last
    assert_true(requests("GetObject") <= 51);
    assert_true(requests("HeadObject") <= 5);
}

static void large_file_is_right_from_end_to_end(void **state)
{
    read_whole("big", 0);
}

static void names_follow_the_rules(void **state)
{
    static const char expected[] =
        ".hid\n100%25\na?b\nboth-2\nboth/\nc#d\ne+f\nmark/\n" LONG_NAME "\nx/\n\xc3\xa4\n";
    struct fs_stats stats;
    struct buf names = {0};
    struct fs_entry e;

    assert_int_equal(fs_host_walk(&host, "names", &e), 0);
    assert_int_equal(fs_host_list(&host, e.attr.node, &names), 0);
    assert_string_equal(buf_str(&names), expected);
    fs_stats_read(host.fs, &stats);
    assert_int_equal(stats.hidden_keys, 5); // ./ ../ too long, not UTF-8, and the object "both"
    assert_int_equal(fs_host_walk(&host, "names/x", &e), 0);
    assert_int_equal(fs_host_list(&host, e.attr.node, &names), 0);
    assert_string_equal(buf_str(&names), "");
    buf_free(&names);
    read_whole("names/a?b", 0);
    read_whole("names/100%25", 0);
    read_whole("names/e+f", 0);
    read_whole("names/\xc3\xa4", 0);
    read_whole("names/both/in", 0);
    read_whole("names/" LONG_NAME, 0);
}

static void names_follow_the_rules_when_looked_up_cold(void **state)
{
    struct fs_entry e;

    assert_int_equal(fs_host_walk(&host, "names/both", &e), 0);
    assert_true(S_ISDIR(e.attr.mode));
    assert_int_equal(fs_host_walk(&host, "names/mark", &e), 0);
    assert_true(S_ISDIR(e.attr.mode));
    assert_int_equal(fs_host_walk(&host, "names/x", &e), 0);
    assert_true(S_ISDIR(e.attr.mode));
    assert_int_equal(fs_host_walk(&host, "names/c#d", &e), 0);
    assert_int_equal(e.attr.size, 1);
    assert_int_equal(fs_host_walk(&host, ".os2g/control", &e), 0);
    assert_int_equal(e.attr.size, 0);
    assert_int_equal(fs_host_walk(&host, "names/none", &e), -ENOENT);
}

static void walk_of_many_directories_is_listed_side_by_side(void **state)
{
    struct buf names = {0};
    struct fs_entry walk, e;
    uint64_t latency_ms = TEST_SLOWED_DOWN > 1 ? 500 : 20; // the names take their time, too
    char name[16], latency[16];

    snprintf(latency, sizeof(latency), "%dms", (int)latency_ms);
    s3d_process_set_latency(&fixture.server, latency);
    assert_int_equal(fs_host_walk(&host, "walk", &walk), 0);
    assert_int_equal(fs_host_list(&host, walk.attr.node, &names), 0);
    s3d_process_reset_counters(&fixture.server);
    for (int d = 0; d < 20; d++) {
        uint64_t began = clock_monotonic_ns();

        snprintf(name, sizeof(name), "d%02d", d);
        assert_int_equal(fs_host_lookup(&host, walk.attr.node, name, &e), 0);
        assert_int_equal(fs_host_list(&host, e.attr.node, &names), 0);
        assert_int_equal(names.len, 1500 * 6);
        if (d == 19) // two pages, had it to ask
            assert_true(clock_monotonic_ns() - began < 2 * latency_ms * NS_PER_MS);
    }
    assert_int_equal(requests("HeadObject"), 0);
    buf_free(&names);
}

static void change_is_seen_at_the_open_after_estale(void **state)
{
    uint64_t handle, generation;
    struct buf b = {0};

    read_whole("s/007", 0);
    generation = touch("s/007");
    read_whole("s/007", generation);

    assert_int_equal(fs_host_open(&host, "big", &handle, NULL), 0);
    assert_int_equal(fs_host_read(&host, handle, 0, 65536, &b), 0);
    assert_right("big", 0, 0, &b);
    generation = touch("big");
    assert_int_equal(fs_host_read(&host, handle, 50 * MIB, 65536, &b), -ESTALE);
    assert_int_equal(fs_host_release(&host, handle), 0);
    assert_int_equal(fs_host_open(&host, "big", &handle, NULL), 0);
    assert_int_equal(fs_host_read(&host, handle, 50 * MIB, 65536, &b), 0);
    assert_right("big", generation, 50 * MIB, &b);
    assert_int_equal(fs_host_release(&host, handle), 0);
    buf_free(&b);
}

static void without_ttl_a_change_is_seen_at_once(void **state)
{
    end(state);
    begin_with((struct fs_options){.prefix = "s/"});
    for (int i = 0; i < 3; i++) {
        struct fs_entry e;
        uint64_t handle, generation = i ? touch("s/011") : 0;
        struct buf b = {0};

        assert_int_equal(fs_host_walk(&host, "011", &e), 0);
        assert_int_equal(e.entry_valid_ns, 0);
        assert_int_equal(fs_host_open_node(&host, e.attr.node, &handle), 0);
        assert_int_equal(fs_host_read(&host, handle, 0, 1 << 20, &b), 0);
        assert_int_equal(b.len, 102400);
        assert_right("s/011", generation, 0, &b);
        assert_int_equal(fs_host_release(&host, handle), 0);
        buf_free(&b);
    }
}

static void xattrs_are_those_of_the_store(void **state)
{
    struct buf b = {0};
    struct fs_entry e;

    assert_int_equal(fs_host_walk(&host, "s/001", &e), 0);
    assert_int_equal(fs_host_xattr(&host, e.attr.node, "user.os2g.etag", &b), 0);
    assert_int_equal(b.len, 36); // "<md5>-1" in quotes
    assert_int_equal(fs_host_xattr(&host, e.attr.node, "user.os2g.content_type", &b), 0);
    assert_true(b.len > 0);
    assert_int_equal(fs_host_xattr(&host, e.attr.node, "user.os2g.meta.none", &b), -ENODATA);
    buf_free(&b);
}

// --- many readers ---

#define READERS 8

struct readers {
    int n; // files read by each
    bool changes;
};

static void *read_at_random(void *arg)
{
    struct readers *rs = arg;
    struct buf b = {0};
    struct rand r;

    rand_seed(&r, (uint64_t)pthread_self());
    for (int i = 0; i < rs->n; i++) {
        uint64_t handle, size;
        char key[16];

        snprintf(key, sizeof(key), "s/%03u", 100 + (unsigned)rand_below(&r, 200));
        assert_int_equal(fs_host_open(&host, key, &handle, &size), 0);
        for (int k = 0; k < 3; k++) {
            uint64_t at = rand_below(&r, size);

            assert_int_equal(fs_host_read(&host, handle, at, 40000, &b), 0);
            assert_int_equal(b.len, MIN(size - at, (uint64_t)40000));
            assert_right(key, 0, at, &b);
        }
        assert_int_equal(fs_host_release(&host, handle), 0);
    }
    buf_free(&b);
    return NULL;
}

static void run_readers(struct readers *rs)
{
    pthread_t threads[READERS];

    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_at_random, rs), 0);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
}

static void every_byte_is_right_while_the_store_misbehaves(void **state)
{
    struct readers rs = {.n = 60};

    s3d_process_set_faults(&fixture.server, "seed 5\n"
                                            "GetObject * 0.05 status 503 SlowDown\n"
                                            "GetObject * 0.05 reset 50%\n"
                                            "GetObject * 0.05 short 100\n"
                                            "GetObject * 0.05 xml200\n"
                                            "HeadObject * 0.1 status 500\n"
                                            "ListObjectsV2 * 0.1 status 503 SlowDown\n"
                                            "ListObjectsV2 * 0.1 reset\n");
    run_readers(&rs);
}

static void store_that_is_down_is_an_error_and_never_absence(void **state)
{
    struct fs_entry e;
    struct buf b = {0};

    // seen by a client of less patience
    end(state);
    s3_fixture_reconnect(&fixture,
                         (struct s3_settings){.bucket = "data", .retry_timeout_ns = NS_PER_S / 2});
    begin(state);
    s3d_process_set_faults(&fixture.server, "* * always status 503 SlowDown\n");
    assert_int_equal(fs_host_walk(&host, "s/001", &e), -EIO);
    assert_int_equal(fs_host_walk(&host, "none", &e), -EIO);
    assert_int_equal(fs_host_list(&host, FS_ROOT, &b), -EIO);
    s3d_process_set_faults(&fixture.server, "");
    read_whole("s/001", 0);
    assert_int_equal(fs_host_walk(&host, "none", &e), -ENOENT);
    buf_free(&b);
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

static void planned_files_are_read_with_one_request_each(void **state)
{
    struct os2g_plan_request *r = calloc(1, sizeof(*r));
    struct buf paths = {0};
    uint64_t control, handle;
    char key[16];

    assert_int_equal(fs_host_open(&host, ".os2g/control", &control, NULL), 0);
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof(key), "s/%03d", i * 7 % 300);
        buf_add(&paths, key, strlen(key) + 1);
    }
    plan_request(control, OS2G_PLAN_BEGIN, NULL, r);
    plan_request(control, OS2G_PLAN_ADD, &paths, r);
    plan_request(control, OS2G_PLAN_COMMIT, NULL, r);
    assert_int_equal(r->entries, 300);
    for (int i = 0; i < 300; i++) {
        struct buf b = {0};

        snprintf(key, sizeof(key), "s/%03d", i * 7 % 300);
        assert_int_equal(fs_host_open(&host, key, &handle, NULL), 0);
        assert_int_equal(fs_host_read(&host, handle, 0, 1 << 20, &b), 0);
        assert_int_equal(b.len, 102400);
        assert_int_equal(fs_host_release(&host, handle), 0);
        buf_free(&b);
    }
    plan_request(control, OS2G_PLAN_STATUS, NULL, r);
    assert_int_equal(r->used, 300);
    assert_true(r->fetched >= 290);
    assert_true(requests("GetObject") <= 315);
    assert_int_equal(fs_host_release(&host, control), 0);
    buf_free(&paths);
    free(r);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(small_file_takes_one_get_once_its_directory_is_known),
        TEST(large_file_is_right_from_end_to_end),
        TEST(names_follow_the_rules),
        TEST(names_follow_the_rules_when_looked_up_cold),
        TEST(walk_of_many_directories_is_listed_side_by_side),
        TEST(xattrs_are_those_of_the_store),
        TEST(planned_files_are_read_with_one_request_each),
        TEST(every_byte_is_right_while_the_store_misbehaves),
        TEST(change_is_seen_at_the_open_after_estale),
        TEST(without_ttl_a_change_is_seen_at_once),
        TEST(store_that_is_down_is_an_error_and_never_absence),
    };

    return cmocka_run_group_tests_name("component/fs", tests, start, stop);
}
