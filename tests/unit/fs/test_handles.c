// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"
#include "fs/handles.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct handles *open_table(int fd)
{
    struct handles *h;

    assert_int_equal(handles_open(&h, fd), 0);
    return h;
}

static uint32_t new_handle(struct handles *h, enum handle_kind kind, uint64_t node)
{
    uint32_t slot;

    assert_int_equal(handles_new(h, kind, node, node * 10, &slot), 0);
    return slot;
}

static void handle_is_known_by_its_id_and_kind(void **state)
{
    struct handles *h = open_table(-1);
    uint32_t slot = new_handle(h, HANDLE_FILE, 7);
    uint64_t id = handles_id(h, slot);

    assert_int_equal(handles_slot(h, id, HANDLE_FILE), slot);
    assert_int_equal(handles_slot(h, id, HANDLE_DIR), HANDLE_NONE);
    assert_int_equal(handles_slot(h, 0, HANDLE_FILE), HANDLE_NONE);
    assert_int_equal(handles_slot(h, UINT64_MAX, HANDLE_FILE), HANDLE_NONE);
    assert_int_equal(handles_node(h, slot), 7);
    handles_close(h);
}

static void id_of_a_closed_handle_never_comes_back(void **state)
{
    struct handles *h = open_table(-1);
    uint32_t slot = new_handle(h, HANDLE_FILE, 7);
    uint64_t id = handles_id(h, slot);

    handles_free(h, slot);
    for (int i = 0; i < 1000; i++) {
        slot = new_handle(h, HANDLE_FILE, 8);
        assert_int_not_equal(handles_id(h, slot), id);
        handles_free(h, slot);
    }
    assert_int_equal(handles_slot(h, id, HANDLE_FILE), HANDLE_NONE);
    assert_int_equal(handles_count(h), 0);
    handles_close(h);
}

static void table_grows(void **state)
{
    struct handles *h = open_table(-1);
    static uint64_t ids[10000];

    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        ids[i] = handles_id(h, new_handle(h, HANDLE_FILE, i + 1));
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        assert_int_equal(handles_node(h, handles_slot(h, ids[i], HANDLE_FILE)), i + 1);
    assert_int_equal(handles_count(h), ARRAY_LEN(ids));
    handles_close(h);
}

static void handles_and_places_are_found_again_by_the_next_worker(void **state)
{
    int fd = memfd_create("handles", MFD_CLOEXEC);
    struct handles *h = open_table(fd);
    uint32_t dir = new_handle(h, HANDLE_DIR, 5), file = new_handle(h, HANDLE_FILE, 6);
    uint64_t dir_id = handles_id(h, dir), cookie;
    char key[257];

    handles_set_place(h, dir, 99, "sub/", 4);
    handles_close(h);
    h = open_table(fd);
    assert_int_equal(handles_slot(h, dir_id, HANDLE_DIR), dir);
    assert_int_equal(handles_place(h, dir, &cookie, key), 4);
    assert_string_equal(key, "sub/");
    assert_int_equal(cookie, 99);
    assert_int_equal(handles_place(h, file, &cookie, key), 0);
    assert_int_equal(handles_find_unique(h, HANDLE_FILE, 6, 60), file);
    assert_int_equal(handles_find_unique(h, HANDLE_FILE, 6, 61), HANDLE_NONE);
    assert_int_equal(handles_count(h), 2);
    assert_null(handles_private(h, dir));
    handles_close(h);
    close(fd);
}

// --- kill -9 ---

#define PER_CHILD 50

struct journal {
    volatile uint32_t current; // PER_CHILD: none
    volatile uint64_t ids[PER_CHILD];
};

static size_t key_of(uint64_t cookie, char out[300])
{
    return (size_t)snprintf(out, 300, "%0*lu", (int)(1 + cookie % 255), cookie);
}

static void work_until_killed(int fd, struct journal *j, uint64_t seed)
{
    struct handles *h;
    struct rand r;
    char key[300];

    if (handles_open(&h, fd) < 0)
        _exit(1);
    rand_seed(&r, seed);
    for (;;) {
        uint32_t i = (uint32_t)rand_below(&r, PER_CHILD), slot;

        j->current = i;
        atomic_signal_fence(memory_order_seq_cst);
        if (!j->ids[i]) {
            if (handles_new(h, HANDLE_DIR, 100 + i, 1, &slot) < 0)
                _exit(1);
            j->ids[i] = handles_id(h, slot);
        } else if (rand_below(&r, 8) == 0) {
            handles_free(h, handles_slot(h, j->ids[i], HANDLE_DIR));
            j->ids[i] = 0;
        } else {
            uint64_t cookie = 1 + rand_below(&r, 100000);

            handles_set_place(h, handles_slot(h, j->ids[i], HANDLE_DIR), cookie, key,
                              MIN(key_of(cookie, key), (size_t)256));
        }
        atomic_signal_fence(memory_order_seq_cst);
        j->current = PER_CHILD;
    }
}

static void check_table(int fd, struct journal *j)
{
    struct handles *h = open_table(fd);

    for (uint32_t i = 0; i < PER_CHILD; i++) {
        char key[257], expected[300];
        uint32_t slot;
        uint64_t cookie;
        size_t len;

        if (!j->ids[i])
            continue;
        slot = handles_slot(h, j->ids[i], HANDLE_DIR);
        if (i != j->current)
            assert_int_not_equal(slot, HANDLE_NONE);
        if (!slot)
            continue;
        assert_int_equal(handles_node(h, slot), 100 + i);
        len = handles_place(h, slot, &cookie, key);
        if (!len)
            continue;
        assert_int_equal(len, key_of(cookie, expected));
        assert_string_equal(key, expected);
    }
    handles_close(h);
}

static void table_is_right_after_kill_9_at_any_moment(void **state)
{
    struct journal *j =
        mmap(NULL, sizeof(*j), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rand r;

    rand_seed(&r, 11);
    for (int round = 0; round < 40; round++) {
        int fd = memfd_create("handles", MFD_CLOEXEC), status;
        pid_t pid;

        memset(j, 0, sizeof(*j));
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            work_until_killed(fd, j, rand_u64(&r));
        usleep((useconds_t)(2000 + rand_below(&r, 5000)));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        check_table(fd, j);
        close(fd);
    }
    munmap(j, sizeof(*j));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handle_is_known_by_its_id_and_kind),
        cmocka_unit_test(id_of_a_closed_handle_never_comes_back),
        cmocka_unit_test(table_grows),
        cmocka_unit_test(handles_and_places_are_found_again_by_the_next_worker),
        cmocka_unit_test(table_is_right_after_kill_9_at_any_moment),
    };

    return cmocka_run_group_tests_name("fs/handles", tests, NULL, NULL);
}
