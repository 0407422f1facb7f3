// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "gdd/engine.h"
#include "gdd/landing.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define ADDR (4 * GIB)

struct fixture {
    struct region_map *map;
    int fd;          // of the unsealed region
    uint64_t ids[6]; // regions of a page, side by side: the first unsealed, the others sealed
    struct landing landing;
    struct region_piece pieces[8];
    struct iovec iov[8];
};

// Stands for the engine: what was it asked?
static struct {
    struct engine_memory *memory;
    uint64_t offset;
    size_t len;
    unsigned calls;
} engine;

int engine_put(struct engine_memory *m, uint64_t offset, const struct iovec *iov, int n,
               struct cache_put *p)
{
    engine.memory = m;
    engine.offset = offset;
    engine.len = n > 0 ? iov[0].iov_len : 0;
    engine.calls++;
    return -EINPROGRESS;
}

static int memory_new(bool sealed)
{
    int fd = memfd_create("landing", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_return_code(ftruncate(fd, PAGE), errno);
    if (sealed)
        assert_return_code(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), errno);
    return fd;
}

static int setup(void **state)
{
    struct fixture *f = *state = test_calloc(1, sizeof(*f));

    f->map = region_map_new(NULL, 0);
    for (unsigned i = 0; i < ARRAY_LEN(f->ids); i++) {
        struct region_info info = {.addr = ADDR + i * PAGE, .user_addr = i * PAGE, .size = PAGE};
        int fd = memory_new(i > 0);

        if (i == 0)
            f->fd = dup(fd);
        assert_int_equal(region_add(f->map, &info, fd, &f->ids[i]), 0);
    }
    memset(&engine, 0, sizeof(engine));
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    region_map_free(f->map);
    close(f->fd);
    test_free(f);
    return 0;
}

// The i-th piece is [at, at + len) of a region.
static void name_piece(struct fixture *f, unsigned i, unsigned region, uint64_t at, uint64_t len)
{
    assert_int_equal(region_translate(f->map, ADDR + region * PAGE + at, len, &f->pieces[i]), 0);
    assert_int_equal(f->pieces[i].len, len);
}

static int put(struct fixture *f, uint64_t at, const void *bytes, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, len};
    struct cache_put p = {0};

    return f->landing.dest.ops->put(&f->landing.dest, at, &iov, 1, &p);
}

static void bytes_land_across_pieces_in_order(void **state)
{
    struct fixture *f = *state;
    struct iovec iov[] = {{"abc", 3}, {"", 0}, {"defgh", 5}};
    struct cache_put p = {0};

    name_piece(f, 0, 1, 100, 2);
    name_piece(f, 1, 2, 7, 4);
    name_piece(f, 2, 1, 300, 4);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 3, true), 0);
    assert_int_equal(f->landing.dest.len, 10);
    assert_int_equal(f->landing.dest.ops->put(&f->landing.dest, 1, iov, 3, &p), 0);
    assert_memory_equal(f->pieces[0].base, "\0a", 2);
    assert_memory_equal(f->pieces[1].base, "bcde", 4);
    assert_memory_equal(f->pieces[2].base, "fgh\0", 4);
}

static void neighbours_are_merged(void **state)
{
    struct fixture *f = *state;

    name_piece(f, 0, 1, 0, 100);
    name_piece(f, 1, 1, 100, 50);
    name_piece(f, 2, 1, 200, 50);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 3, true), 0);
    assert_int_equal(f->landing.dest.n_iov, 2);
    assert_int_equal(f->iov[0].iov_len, 150);
    assert_int_equal(f->landing.dest.len, 200);
}

static void nothing_is_written_outside(void **state)
{
    struct fixture *f = *state;

    name_piece(f, 0, 1, 0, 4);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 1, true), 0);
    assert_int_equal(put(f, 0, "12345", 5), -EFAULT);
    assert_int_equal(put(f, 4, "5", 1), -EFAULT);
    assert_int_equal(put(f, UINT64_MAX, "5", 1), -EFAULT);
    assert_memory_equal(f->pieces[0].base, "\0\0\0\0\0", 5);
    assert_int_equal(put(f, 0, "1234", 4), 0);
}

static void a_landing_that_was_cut_writes_nothing(void **state)
{
    struct fixture *f = *state;

    name_piece(f, 0, 1, 0, 4);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 1, true), 0);
    atomic_store(&f->landing.dest.cut, true);
    assert_int_equal(put(f, 0, "1234", 4), -ECANCELED);
    assert_memory_equal(f->pieces[0].base, "\0\0\0\0", 4);
}

static void memory_that_has_shrunk_is_an_error(void **state)
{
    struct fixture *f = *state;

    name_piece(f, 0, 0, 0, 4);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 1, true), 0);
    region_guard_install(); // over cmocka's handler
    assert_return_code(ftruncate(f->fd, 0), errno);
    assert_int_equal(put(f, 0, "1234", 4), -EFAULT);
}

static void bodies_are_received_only_where_nothing_can_shrink(void **state)
{
    struct fixture *f = *state;

    name_piece(f, 0, 1, 0, 4);
    name_piece(f, 1, 2, 0, 4);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 2, true), 0);
    assert_true(f->landing.dest.direct);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 2, false), 0);
    assert_false(f->landing.dest.direct);
    name_piece(f, 1, 0, 0, 4);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 2, true), 0);
    assert_false(f->landing.dest.direct);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 0, true), 0);
    assert_false(f->landing.dest.direct);
}

static void its_regions_are_known(void **state)
{
    struct fixture *f = *state;

    name_piece(f, 0, 1, 0, 4);
    name_piece(f, 1, 3, 0, 4);
    name_piece(f, 2, 1, 8, 4);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 3, true), 0);
    assert_true(landing_touches(&f->landing, f->ids[1]));
    assert_false(landing_touches(&f->landing, f->ids[2]));
    assert_true(landing_touches(&f->landing, f->ids[3]));
}

static void more_regions_than_it_can_name_are_refused(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < 5; i++)
        name_piece(f, i, i, 0, 4);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 4, true), 0);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 5, true), -EFAULT);
}

static void engine_memory_lands_through_the_engine(void **state)
{
    struct fixture *f = *state;
    struct region_info info = {.addr = ADDR + GIB, .size = PAGE};
    uint64_t id = 0;
    int memory;

    assert_int_equal(region_add_window(f->map, &info, &memory, &id), 0);
    assert_int_equal(region_translate(f->map, ADDR + GIB + 64, 100, &f->pieces[0]), 0);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 1, true), 0);
    assert_false(f->landing.dest.direct);
    assert_int_equal(f->landing.dest.len, 100);
    assert_true(landing_touches(&f->landing, id));
    assert_int_equal(put(f, 10, "12345", 5), -EINPROGRESS);
    assert_ptr_equal(engine.memory, &memory);
    assert_int_equal(engine.offset, 64 + 10);
    assert_int_equal(engine.len, 5);
    assert_int_equal(put(f, 96, "12345", 5), -EFAULT);
    atomic_store(&f->landing.dest.cut, true);
    assert_int_equal(put(f, 10, "12345", 5), -ECANCELED);
    assert_int_equal(engine.calls, 1);
}

static void engine_memory_is_not_mixed_with_other(void **state)
{
    struct fixture *f = *state;
    struct region_info info = {.addr = ADDR + GIB, .size = PAGE};
    uint64_t id;

    assert_int_equal(region_add_window(f->map, &info, f, &id), 0);
    name_piece(f, 0, 1, 0, 4);
    assert_int_equal(region_translate(f->map, ADDR + GIB, 100, &f->pieces[1]), 0);
    assert_int_equal(landing_init(&f->landing, f->pieces, f->iov, 2, true), -EFAULT);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(bytes_land_across_pieces_in_order),
        TEST(neighbours_are_merged),
        TEST(nothing_is_written_outside),
        TEST(a_landing_that_was_cut_writes_nothing),
        TEST(memory_that_has_shrunk_is_an_error),
        TEST(bodies_are_received_only_where_nothing_can_shrink),
        TEST(its_regions_are_known),
        TEST(more_regions_than_it_can_name_are_refused),
        TEST(engine_memory_lands_through_the_engine),
        TEST(engine_memory_is_not_mixed_with_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
