// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"
#include "fuse/holdings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define OFFSET 8192

struct kept {
    int fd;
    struct fuse_holdings *h;
};

static int setup(void **state)
{
    struct kept *k = calloc(1, sizeof(*k));

    k->fd = memfd_create("kept", MFD_CLOEXEC);
    assert_int_equal(ftruncate(k->fd, OFFSET), 0);
    assert_int_equal(fuse_holdings_open(&k->h, k->fd, OFFSET), 0);
    *state = k;
    return 0;
}

static int teardown(void **state)
{
    struct kept *k = *state;

    fuse_holdings_close(k->h);
    close(k->fd);
    free(k);
    return 0;
}

// As the next worker finds it.
static void reopen(struct kept *k)
{
    fuse_holdings_close(k->h);
    assert_int_equal(fuse_holdings_open(&k->h, k->fd, OFFSET), 0);
}

static void references_are_counted(void **state)
{
    struct kept *k = *state;

    assert_int_equal(fuse_holdings_add_node(k->h, 7, 2), 0);
    assert_int_equal(fuse_holdings_add_node(k->h, 7, 1), 0);
    assert_int_equal(fuse_holdings_count(k->h), 1);
    assert_int_equal(fuse_holdings_drop_node(k->h, 7, 1), 1);
    assert_true(fuse_holdings_has_node(k->h, 7));
    assert_int_equal(fuse_holdings_drop_node(k->h, 7, 5), 2);
    assert_false(fuse_holdings_has_node(k->h, 7));
    assert_int_equal(fuse_holdings_drop_node(k->h, 7, 1), 0);
    assert_int_equal(fuse_holdings_count(k->h), 0);
}

static void too_many_references_stay_as_many_as_fit(void **state)
{
    struct kept *k = *state;

    assert_int_equal(fuse_holdings_add_node(k->h, 7, UINT64_MAX), 0);
    assert_int_equal(fuse_holdings_add_node(k->h, 7, UINT64_MAX), 0);
    assert_true(fuse_holdings_has_node(k->h, 7));
    assert_int_equal(fuse_holdings_drop_node(k->h, 7, UINT64_MAX), ((uint64_t)1 << 56) - 1);
    assert_false(fuse_holdings_has_node(k->h, 7));
}

static void nodes_files_and_directories_are_kept_apart(void **state)
{
    struct kept *k = *state;

    assert_int_equal(fuse_holdings_add_handle(k->h, 7, false), 0);
    assert_true(fuse_holdings_has_handle(k->h, 7, false));
    assert_false(fuse_holdings_has_handle(k->h, 7, true));
    assert_false(fuse_holdings_has_node(k->h, 7));
    assert_false(fuse_holdings_drop_handle(k->h, 7, true));
    assert_true(fuse_holdings_drop_handle(k->h, 7, false));
    assert_false(fuse_holdings_drop_handle(k->h, 7, false));
}

static void a_handle_is_held_once_however_often_it_is_told(void **state)
{
    struct kept *k = *state;

    assert_int_equal(fuse_holdings_add_handle(k->h, 7, true), 0);
    assert_int_equal(fuse_holdings_add_handle(k->h, 7, true), 0);
    assert_true(fuse_holdings_drop_handle(k->h, 7, true));
    assert_false(fuse_holdings_has_handle(k->h, 7, true));
}

static void the_next_worker_knows_what_is_held(void **state)
{
    struct kept *k = *state;

    fuse_holdings_add_node(k->h, 3, 2);
    fuse_holdings_add_node(k->h, 4, 1);
    fuse_holdings_add_handle(k->h, 5, true);
    fuse_holdings_drop_node(k->h, 4, 1);
    reopen(k);
    assert_int_equal(fuse_holdings_count(k->h), 2);
    assert_true(fuse_holdings_has_handle(k->h, 5, true));
    assert_int_equal(fuse_holdings_drop_node(k->h, 3, 9), 2);
    // the free place is used again
    fuse_holdings_add_node(k->h, 6, 1);
    reopen(k);
    assert_true(fuse_holdings_has_node(k->h, 6));
}

static void a_memory_of_something_else_is_refused(void **state)
{
    struct kept *k = *state;
    struct fuse_holdings *h;

    assert_int_equal(pwrite(k->fd, "something else", 14, OFFSET), 14);
    assert_int_equal(fuse_holdings_open(&h, k->fd, OFFSET), -EINVAL);
}

static void records_that_make_no_sense_are_taken_for_free(void **state)
{
    struct kept *k = *state;
    const uint64_t odd[2][2] = {{7, (uint64_t)9 << 56 | 1}, {8, (uint64_t)1 << 56}};

    assert_int_equal(pwrite(k->fd, odd, sizeof(odd), OFFSET + 64), sizeof(odd));
    reopen(k);
    assert_int_equal(fuse_holdings_count(k->h), 0);
    fuse_holdings_add_node(k->h, 9, 1);
    reopen(k);
    assert_int_equal(fuse_holdings_count(k->h), 1);
}

static void everything_can_be_taken_once(void **state)
{
    struct kept *k = *state;
    uint64_t id, n, sum = 0;
    enum fuse_holding what;

    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(fuse_holdings_add_node(k->h, i, i + 1), 0);
    fuse_holdings_add_handle(k->h, 5, false);
    while (fuse_holdings_take(k->h, &what, &id, &n)) {
        assert_int_equal(n, what == FUSE_HOLDS_NODE ? id + 1 : 1);
        sum += id;
    }
    assert_int_equal(sum, 999 * 1000 / 2 + 5);
    assert_int_equal(fuse_holdings_count(k->h), 0);
    // and what comes afterwards
    fuse_holdings_add_handle(k->h, 6, true);
    assert_true(fuse_holdings_take(k->h, &what, &id, &n));
    assert_int_equal(what, FUSE_HOLDS_DIR);
    assert_int_equal(id, 6);
}

// Against a plain array, through growth and workers that change.
static void it_holds_what_an_array_would(void **state)
{
    struct kept *k = *state;
    static uint32_t held[20000];
    struct rand r;
    uint64_t n = 0;

    memset(held, 0, sizeof(held));
    rand_seed(&r, 1);
    for (int i = 0; i < 200000; i++) {
        uint64_t id = rand_below(&r, ARRAY_LEN(held)), by = rand_below(&r, 3) + 1;

        if (rand_below(&r, 5) < 3) {
            assert_int_equal(fuse_holdings_add_node(k->h, id * 4096, by), 0);
            n += held[id] == 0;
            held[id] += by;
        } else {
            by = MIN(by, held[id]);
            assert_int_equal(fuse_holdings_drop_node(k->h, id * 4096, by), by);
            n -= by > 0 && held[id] == by;
            held[id] -= by;
        }
        if (i % 50000 == 0)
            reopen(k);
    }
    assert_int_equal(fuse_holdings_count(k->h), n);
    for (uint64_t id = 0; id < ARRAY_LEN(held); id++)
        assert_int_equal(fuse_holdings_drop_node(k->h, id * 4096, UINT64_MAX), held[id]);
}

static void a_table_of_its_own_needs_no_memory_from_outside(void **state)
{
    struct fuse_holdings *h;

    assert_int_equal(fuse_holdings_open(&h, -1, 0), 0);
    assert_int_equal(fuse_holdings_add_node(h, 7, 1), 0);
    assert_true(fuse_holdings_has_node(h, 7));
    fuse_holdings_close(h);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(references_are_counted),
        TEST(too_many_references_stay_as_many_as_fit),
        TEST(nodes_files_and_directories_are_kept_apart),
        TEST(a_handle_is_held_once_however_often_it_is_told),
        TEST(the_next_worker_knows_what_is_held),
        TEST(a_memory_of_something_else_is_refused),
        TEST(records_that_make_no_sense_are_taken_for_free),
        TEST(everything_can_be_taken_once),
        TEST(it_holds_what_an_array_would),
        cmocka_unit_test(a_table_of_its_own_needs_no_memory_from_outside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
