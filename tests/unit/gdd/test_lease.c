// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "gdd/lease.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define ADDR (4 * GIB)

// A guest that shares a page of RAM and a declared BAR of four pages.
struct fixture {
    struct region_map *map;
    struct leases *leases;
    int fd; // of the BAR
    uint64_t bar;
};

static int file_new(unsigned pages)
{
    int fd = memfd_create("lease", MFD_CLOEXEC);

    assert_return_code(ftruncate(fd, pages * PAGE), errno);
    return fd;
}

static int map_bar(struct fixture *f, uint64_t addr)
{
    struct region_info info = {.addr = addr, .user_addr = addr, .size = 4 * PAGE};

    return region_add(f->map, &info, dup(f->fd), &f->bar);
}

static int setup(void **state)
{
    struct fixture *f = *state = test_calloc(1, sizeof(*f));
    struct region_info ram = {.addr = 0, .size = PAGE};
    struct region_file file;
    struct stat st;
    uint64_t id;

    f->fd = file_new(4);
    assert_return_code(fstat(f->fd, &st), errno);
    file = (struct region_file){st.st_dev, st.st_ino};
    f->map = region_map_new(&file, 1);
    f->leases = leases_new(f->map);
    assert_int_equal(region_add(f->map, &ram, file_new(1), &id), 0);
    assert_int_equal(map_bar(f, ADDR), 0);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    leases_free(f->leases);
    region_map_free(f->map);
    close(f->fd);
    test_free(f);
    return 0;
}

static struct cache_dest *landing_at(struct fixture *f, uint64_t offset, uint64_t len)
{
    struct cache_dest *d;

    assert_int_equal(leases_landing_new(f->leases, offset, len, &d), 0);
    return d;
}

static int put(struct cache_dest *d, const char *text)
{
    struct iovec iov = {(void *)text, strlen(text)};
    struct cache_put p = {0};

    return d->ops->put(d, 0, &iov, 1, &p);
}

static void take_away(struct fixture *f)
{
    region_remove_begin(f->map, f->bar);
    leases_cut(f->leases, f->bar);
    region_remove_end(f->map, f->bar);
}

static void bytes_land_at_an_offset_of_the_memory(void **state)
{
    struct fixture *f = *state;
    struct cache_dest *d = landing_at(f, PAGE + 5, 100);
    char got[8] = "";

    assert_int_equal(put(d, "landed"), 0);
    assert_int_equal(pread(f->fd, got, 6, PAGE + 5), 6);
    assert_string_equal(got, "landed");
    leases_landing_free(d);
}

static void memory_that_was_not_declared_cannot_be_reached(void **state)
{
    struct fixture *f = *state;
    struct cache_dest *d;

    take_away(f); // RAM alone is left
    assert_int_equal(region_bar_size(f->map), 0);
    assert_int_equal(leases_landing_new(f->leases, 0, 1, &d), -ENXIO);
}

static void nothing_lands_beyond_the_end(void **state)
{
    struct fixture *f = *state;
    struct cache_dest *d;

    assert_int_equal(region_bar_size(f->map), 4 * PAGE);
    assert_int_equal(leases_landing_new(f->leases, 3 * PAGE, PAGE + 1, &d), -EFAULT);
    assert_int_equal(leases_landing_new(f->leases, UINT64_MAX, 2, &d), -EFAULT);
    assert_int_equal(leases_landing_new(f->leases, 0, UINT64_MAX, &d), -EFAULT);
}

static void landing_is_cut_off_when_the_memory_goes_away(void **state)
{
    struct fixture *f = *state;
    struct cache_dest *d = landing_at(f, 0, 100);

    take_away(f);
    assert_int_equal(put(d, "late"), -ECANCELED);
    leases_landing_free(d);
}

static void memory_that_moves_is_found_by_the_same_offset(void **state)
{
    struct fixture *f = *state;
    struct cache_dest *d;
    char got[8] = "";

    take_away(f);
    assert_int_equal(map_bar(f, 7 * GIB), 0);
    d = landing_at(f, 2 * PAGE, 100);
    assert_int_equal(put(d, "moved"), 0);
    assert_int_equal(pread(f->fd, got, 5, 2 * PAGE), 5);
    assert_string_equal(got, "moved");
    leases_landing_free(d);
}

static void other_memory_that_goes_cuts_nothing_off(void **state)
{
    struct fixture *f = *state;
    struct cache_dest *d = landing_at(f, 0, 100);

    leases_cut(f->leases, f->bar + 1000);
    assert_int_equal(put(d, "here"), 0);
    leases_cut(f->leases, 0); // all of it
    assert_int_equal(put(d, "here"), -ECANCELED);
    leases_landing_free(d);
}

static void landing_may_be_let_go_of_after_its_host_has_gone(void **state)
{
    struct fixture *f = *state;
    struct cache_dest *d = landing_at(f, 0, 100);

    leases_cut(f->leases, 0);
    leases_free(f->leases);
    f->leases = NULL;
    assert_int_equal(put(d, "late"), -ECANCELED);
    leases_landing_free(d);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(bytes_land_at_an_offset_of_the_memory),
        TEST(memory_that_was_not_declared_cannot_be_reached),
        TEST(nothing_lands_beyond_the_end),
        TEST(landing_is_cut_off_when_the_memory_goes_away),
        TEST(memory_that_moves_is_found_by_the_same_offset),
        TEST(other_memory_that_goes_cuts_nothing_off),
        TEST(landing_may_be_let_go_of_after_its_host_has_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
