// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"
#include "fs/nodes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const etags[] = {"\"0123456789abcdef0123456789abcdef\"",
                                    "\"0123456789abcdef0123456789abcdef-7\"", "\"plain text\"", ""};

static struct node_version version_of(const char *etag, uint64_t size)
{
    struct node_version v = {.size = size, .mtime_s = 1000};

    etag_parse(etag, &v.etag);
    return v;
}

static struct nodes *open_new(int fd)
{
    struct nodes *n;

    assert_int_equal(nodes_open(&n, fd, 1234567), 0);
    return n;
}

static uint32_t get_file(struct nodes *n, uint32_t parent, const char *name, const char *etag)
{
    struct node_version v = version_of(etag, 100);
    uint32_t slot;

    assert_int_equal(nodes_get(n, parent, name, strlen(name), NODE_FILE, &v, &slot), 0);
    return slot;
}

static uint32_t get_dir(struct nodes *n, uint32_t parent, const char *name)
{
    uint32_t slot;

    assert_int_equal(nodes_get(n, parent, name, strlen(name), NODE_DIR, NULL, &slot), 0);
    return slot;
}

static void root_and_control_nodes_are_there_from_the_start(void **state)
{
    struct nodes *n = open_new(-1);

    assert_int_equal(nodes_slot(n, 1), NODE_ROOT);
    assert_int_equal(nodes_kind(n, NODE_ROOT), NODE_DIR);
    assert_int_equal(nodes_kind(n, NODE_CONTROL_FILE), NODE_FILE);
    assert_int_equal(nodes_id(n, NODE_ROOT), 1);
    assert_int_equal(nodes_created_s(n), 1234567);
    nodes_forget(n, NODE_ROOT, UINT64_MAX);
    nodes_forget(n, NODE_CONTROL_DIR, 5);
    assert_int_equal(nodes_slot(n, 1), NODE_ROOT);
    assert_int_equal(nodes_slot(n, 2), NODE_CONTROL_DIR);
    nodes_close(n);
}

static void each_version_of_a_name_is_a_node_of_its_own(void **state)
{
    struct nodes *n = open_new(-1);
    uint32_t slots[ARRAY_LEN(etags)];

    for (size_t i = 0; i < ARRAY_LEN(etags); i++) {
        slots[i] = get_file(n, NODE_ROOT, "a", etags[i]);
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(slots[i], slots[j]);
    }
    for (size_t i = 0; i < ARRAY_LEN(etags); i++)
        assert_int_equal(get_file(n, NODE_ROOT, "a", etags[i]), slots[i]);
    assert_int_not_equal(get_dir(n, NODE_ROOT, "a"), slots[0]);
    nodes_close(n);
}

static void version_reads_back_as_it_was_given(void **state)
{
    struct nodes *n = open_new(-1);
    char text[ETAG_TEXT_MAX + 1], name[256], out[256];

    memset(name, 'n', 255);
    for (size_t i = 0; i < ARRAY_LEN(etags); i++) {
        for (size_t len = 1; len < 256; len += 2) {
            struct node_version v;
            uint32_t slot;

            name[len] = 0;
            slot = get_file(n, NODE_ROOT, name, etags[i]);
            nodes_version(n, slot, &v);
            etag_format(&v.etag, text);
            assert_string_equal(text, etags[i]);
            assert_int_equal(v.size, 100);
            assert_int_equal(nodes_name(n, slot, out), len);
            assert_string_equal(out, name);
            name[len] = 'n';
        }
    }
    nodes_close(n);
}

static void id_of_a_freed_node_never_comes_back(void **state)
{
    struct nodes *n = open_new(-1);
    uint32_t slot = get_file(n, NODE_ROOT, "a", etags[0]);
    uint64_t id = nodes_id(n, slot);

    nodes_add_lookups(n, slot, 2);
    nodes_forget(n, slot, 1);
    assert_int_equal(nodes_slot(n, id), slot);
    nodes_forget(n, slot, 1);
    assert_int_equal(nodes_slot(n, id), NODE_NONE);
    for (int i = 0; i < 10000; i++) {
        slot = get_file(n, NODE_ROOT, "b", etags[1]);
        assert_int_not_equal(nodes_id(n, slot), id);
        nodes_settle(n, slot);
    }
    assert_int_equal(nodes_slot(n, id), NODE_NONE);
    nodes_close(n);
}

static void directory_lives_as_long_as_what_is_in_it(void **state)
{
    struct nodes *n = open_new(-1);
    uint32_t a = get_dir(n, NODE_ROOT, "a"), b = get_dir(n, a, "b"),
             c = get_file(n, b, "c", etags[0]);
    uint64_t id = nodes_id(n, a), before;
    struct buf path = {0};

    nodes_add_lookups(n, a, 1);
    nodes_add_lookups(n, b, 1);
    nodes_add_lookups(n, c, 1);
    nodes_forget(n, a, 1);
    nodes_forget(n, b, 1);
    nodes_path(n, c, &path);
    assert_string_equal(buf_str(&path), "a/b/c");
    buf_reset(&path);
    nodes_path(n, b, &path);
    assert_string_equal(buf_str(&path), "a/b/");
    assert_int_equal(nodes_find_dir(n, "a/b/", 4), b);
    assert_int_equal(nodes_find_dir(n, "", 0), NODE_ROOT);
    assert_int_equal(nodes_find_dir(n, "a/x/", 4), NODE_NONE);
    before = nodes_count(n);
    nodes_forget(n, c, 1);
    assert_int_equal(nodes_count(n), before - 3);
    assert_int_equal(nodes_slot(n, id), NODE_NONE);
    buf_free(&path);
    nodes_close(n);
}

static void forgetting_too_much_frees_the_node_once(void **state)
{
    struct nodes *n = open_new(-1);
    uint32_t slot = get_file(n, NODE_ROOT, "a", etags[0]);
    uint64_t count = nodes_count(n);

    nodes_add_lookups(n, slot, 1);
    nodes_hold(n, slot);
    nodes_forget(n, slot, UINT64_MAX);
    assert_int_equal(nodes_count(n), count);
    nodes_unhold(n, slot);
    assert_int_equal(nodes_count(n), count - 1);
    nodes_close(n);
}

static void current_version_makes_the_others_stale(void **state)
{
    struct nodes *n = open_new(-1);
    uint32_t a = get_file(n, NODE_ROOT, "a", etags[0]), b = get_file(n, NODE_ROOT, "a", etags[1]),
             other = get_file(n, NODE_ROOT, "b", etags[0]);
    struct node_version v = version_of(etags[1], 100);

    nodes_set_current(n, NODE_ROOT, "a", 1, NODE_FILE, &v);
    assert_true(nodes_flags(n, a) & NODE_STALE);
    assert_false(nodes_flags(n, b) & NODE_STALE);
    assert_false(nodes_flags(n, other) & NODE_STALE);
    nodes_set_current(n, NODE_ROOT, "a", 1, NODE_DIR, NULL);
    assert_true(nodes_flags(n, b) & NODE_STALE);
    nodes_close(n);
}

static void table_is_found_again_by_the_next_worker(void **state)
{
    int fd = memfd_create("nodes", MFD_CLOEXEC);
    struct nodes *n = open_new(fd);
    uint32_t dir = get_dir(n, NODE_ROOT, "dir");
    uint64_t ids[5000], unused;
    char name[300];

    memset(name, 'x', sizeof(name));
    nodes_add_lookups(n, dir, 1);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        uint32_t slot;

        snprintf(name, sizeof(name), "%0*zu", (int)(5 + i % 250), i);
        slot = get_file(n, dir, name, etags[i % ARRAY_LEN(etags)]);
        nodes_add_lookups(n, slot, 1 + i % 3);
        ids[i] = nodes_id(n, slot);
    }
    unused = nodes_id(n, get_file(n, dir, "made, but nobody was told", etags[0]));
    nodes_close(n);

    assert_int_equal(nodes_open(&n, fd, 99), 0);
    nodes_sweep(n);
    assert_int_equal(nodes_created_s(n), 1234567);
    assert_int_equal(nodes_slot(n, unused), NODE_NONE);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        uint32_t slot = nodes_slot(n, ids[i]);

        assert_int_not_equal(slot, NODE_NONE);
        snprintf(name, sizeof(name), "%0*zu", (int)(5 + i % 250), i);
        assert_int_equal(get_file(n, dir, name, etags[i % ARRAY_LEN(etags)]), slot);
        nodes_forget(n, slot, 1 + i % 3);
        assert_int_equal(nodes_slot(n, ids[i]), NODE_NONE);
    }
    nodes_close(n);
    close(fd);
}

static void damaged_records_are_left_out(void **state)
{
    int fd = memfd_create("nodes", MFD_CLOEXEC);
    struct nodes *n = open_new(fd);
    char *map;

    for (int i = 0; i < 100; i++) {
        char name[200];

        snprintf(name, sizeof(name), "%0100d", i);
        nodes_add_lookups(n, get_file(n, NODE_ROOT, name, etags[2]), 1);
    }
    nodes_close(n);
    map = mmap(NULL, 96 * 500, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (size_t i = 4 * 96; i < 96 * 400; i += 7)
        map[i] = (char)(i * 31);
    munmap(map, 96 * 500);
    assert_int_equal(nodes_open(&n, fd, 1), 0);
    nodes_sweep(n);
    for (int i = 0; i < 2000; i++)
        get_file(n, NODE_ROOT, "again", etags[i % 4]);
    nodes_close(n);
    close(fd);
}

// --- kill -9 ---

#define NAMES 200
#define STEPS 200000

// What the host was told by the child, and the name that its step in progress is about. Shared
// with the parent.
struct journal {
    volatile uint32_t current; // NAMES: none
    volatile uint64_t ids[NAMES];
    volatile uint32_t lookups[NAMES];
};

static void name_of(uint32_t i, char out[300])
{
    snprintf(out, 300, "%0*u", (int)(3 + i * 13 % 250), i);
}

// Looks a name up, or forgets one, at random; the same for the same seed.
static void one_step(struct nodes *n, struct rand *r, struct journal *j)
{
    uint32_t i = (uint32_t)rand_below(r, NAMES);
    char name[300];

    name_of(i, name);
    j->current = i;
    atomic_signal_fence(memory_order_seq_cst);
    if (rand_below(r, 2)) {
        uint32_t slot = get_file(n, NODE_ROOT, name, etags[i % ARRAY_LEN(etags)]);

        nodes_add_lookups(n, slot, 1);
        j->ids[i] = nodes_id(n, slot);
        j->lookups[i]++;
    } else if (j->lookups[i]) {
        uint32_t k = j->lookups[i];

        j->lookups[i] = 0;
        nodes_forget(n, nodes_slot(n, j->ids[i]), k);
    }
    atomic_signal_fence(memory_order_seq_cst);
    j->current = NAMES;
}

static void work_until_killed(int fd, struct journal *j, uint64_t seed)
{
    struct nodes *n;
    struct rand r;

    if (nodes_open(&n, fd, 1) < 0)
        _exit(1);
    nodes_sweep(n);
    rand_seed(&r, seed);
    for (uint32_t i = 0; i < STEPS; i++)
        one_step(n, &r, j);
    _exit(0);
}

// Exactly what the host was told of is there, with the versions it had; but for the name of the
// step in which the child died, which is forgotten here.
static void check_table(int fd, struct journal *j)
{
    struct nodes *n;
    uint64_t there = 0;

    assert_int_equal(nodes_open(&n, fd, 1), 0);
    nodes_sweep(n);
    for (uint32_t i = 0; i < NAMES; i++) {
        struct node_version v = version_of(etags[i % ARRAY_LEN(etags)], 100);
        char name[300], text[ETAG_TEXT_MAX + 1], out[256];
        uint32_t slot;

        name_of(i, name);
        if (i == j->current) {
            slot = nodes_find(n, NODE_ROOT, name, strlen(name), NODE_FILE, &v);
            if (slot)
                nodes_forget(n, slot, UINT64_MAX);
            j->lookups[i] = 0;
            continue;
        }
        slot = j->ids[i] ? nodes_slot(n, j->ids[i]) : NODE_NONE;
        assert_int_equal(slot != NODE_NONE, j->lookups[i] != 0);
        if (!slot)
            continue;
        there++;
        nodes_name(n, slot, out);
        assert_string_equal(out, name);
        nodes_version(n, slot, &v);
        etag_format(&v.etag, text);
        assert_string_equal(text, etags[i % ARRAY_LEN(etags)]);
    }
    j->current = NAMES;
    assert_int_equal(nodes_count(n), there + NODE_FIXED_LAST - NODE_ROOT); // and the control nodes
    nodes_close(n);
}

static void table_of_another_version_is_left_alone(void **state)
{
    int fd = memfd_create("nodes", MFD_CLOEXEC);
    struct nodes *n = open_new(fd);
    uint64_t magic;

    nodes_close(n);
    assert_int_equal(pread(fd, &magic, sizeof(magic), 0), sizeof(magic));
    magic--;
    assert_int_equal(pwrite(fd, &magic, sizeof(magic), 0), sizeof(magic));
    assert_int_equal(nodes_open(&n, fd, 0), -EPROTO);
    close(fd);
}

static void table_is_right_after_kill_9_at_any_moment(void **state)
{
    struct journal *j =
        mmap(NULL, sizeof(*j), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rand r;

    rand_seed(&r, 7);
    for (int round = 0; round < 25; round++) {
        int fd = memfd_create("nodes", MFD_CLOEXEC);

        memset(j, 0, sizeof(*j));
        j->current = NAMES;
        // the second worker takes over from the first, and dies too
        for (int worker = 0; worker < 2; worker++) {
            pid_t pid = fork();
            int status;

            assert_true(pid >= 0);
            if (pid == 0)
                work_until_killed(fd, j, rand_u64(&r));
            usleep((useconds_t)rand_below(&r, 8000));
            kill(pid, SIGKILL);
            assert_int_equal(waitpid(pid, &status, 0), pid);
            assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
            check_table(fd, j);
        }
        close(fd);
    }
    munmap(j, sizeof(*j));
}

static void million_names_take_less_than_150_bytes_each(void **state)
{
    struct nodes *n = open_new(-1);
    uint32_t dir = get_dir(n, NODE_ROOT, "train");
    char name[64];

    for (uint32_t i = 0; i < 1000000; i++) {
        struct node_version v = {.size = i, .etag = {.kind = ETAG_MD5}};
        uint32_t slot;

        memcpy(v.etag.md5, &i, sizeof(i));
        assert_int_equal(
            nodes_get(n, dir, name,
                      (size_t)snprintf(name, sizeof(name), "ILSVRC2012_val_%08u.JPEG", i),
                      NODE_FILE, &v, &slot),
            0);
        nodes_add_lookups(n, slot, 1);
    }
    print_message("# %.1f bytes a name\n", (double)nodes_bytes(n) / 1e6);
    assert_true(nodes_bytes(n) < 150000000);
    nodes_close(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_and_control_nodes_are_there_from_the_start),
        cmocka_unit_test(each_version_of_a_name_is_a_node_of_its_own),
        cmocka_unit_test(version_reads_back_as_it_was_given),
        cmocka_unit_test(id_of_a_freed_node_never_comes_back),
        cmocka_unit_test(directory_lives_as_long_as_what_is_in_it),
        cmocka_unit_test(forgetting_too_much_frees_the_node_once),
        cmocka_unit_test(current_version_makes_the_others_stale),
        cmocka_unit_test(table_is_found_again_by_the_next_worker),
        cmocka_unit_test(damaged_records_are_left_out),
        cmocka_unit_test(table_of_another_version_is_left_alone),
        cmocka_unit_test(table_is_right_after_kill_9_at_any_moment),
        cmocka_unit_test(million_names_take_less_than_150_bytes_each),
    };

    return cmocka_run_group_tests_name("fs/nodes", tests, NULL, NULL);
}
