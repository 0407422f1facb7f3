// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "gdd/region.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ADDR (4 * GIB)
#define USER (9 * GIB)
#define PAGE 4096u

static int memory_new(uint64_t size, bool sealed)
{
    int fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_return_code(ftruncate(fd, (off_t)size), errno);
    if (sealed)
        assert_return_code(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), errno);
    return fd;
}

static struct region_info info(uint64_t at, uint64_t size, uint64_t fd_offset)
{
    return (struct region_info){
        .addr = ADDR + at, .user_addr = USER + at, .size = size, .fd_offset = fd_offset};
}

// Adds; on failure the descriptor is still ours, which is checked by closing it.
static int add(struct region_map *m, struct region_info i, int fd, uint64_t *ret_id)
{
    int rc = region_add(m, &i, fd, ret_id);

    if (rc < 0)
        assert_return_code(close(fd), errno);
    return rc;
}

static int setup(void **state)
{
    *state = region_map_new(NULL, 0);
    return 0;
}

static int teardown(void **state)
{
    region_map_free(*state);
    return 0;
}

static void an_address_leads_to_the_bytes_of_its_file(void **state)
{
    struct region_piece p;
    uint64_t id = 0;
    int fd = memory_new(3 * PAGE, true);

    assert_int_equal(pwrite(fd, "here", 4, 2 * PAGE + 5), 4);
    assert_int_equal(add(*state, info(0, 2 * PAGE, PAGE), fd, &id), 0);
    assert_int_not_equal(id, 0);
    assert_int_equal(region_translate(*state, ADDR + PAGE + 5, 4, &p), 0);
    assert_memory_equal(p.base, "here", 4);
    assert_int_equal(p.len, 4);
    assert_int_equal(p.id, id);
    assert_int_equal(p.offset, PAGE + 5);
    assert_int_equal(p.kind, REGION_HOST);
    assert_int_equal(region_count(*state), 1);
}

static void an_offset_within_a_page_is_honoured(void **state)
{
    struct region_piece p;
    uint64_t id;
    int fd = memory_new(2 * PAGE, true);

    assert_int_equal(pwrite(fd, "odd", 3, 100 + 7), 3);
    assert_int_equal(add(*state, info(0, PAGE, 100), fd, &id), 0);
    assert_int_equal(region_translate(*state, ADDR + 7, 3, &p), 0);
    assert_memory_equal(p.base, "odd", 3);
}

static void a_piece_ends_with_its_region(void **state)
{
    struct region_piece p;
    uint64_t id;

    assert_int_equal(add(*state, info(0, PAGE, 0), memory_new(PAGE, true), &id), 0);
    assert_int_equal(add(*state, info(PAGE, PAGE, 0), memory_new(PAGE, false), &id), 0);
    assert_int_equal(region_translate(*state, ADDR + PAGE - 10, 30, &p), 0);
    assert_int_equal(p.len, 10);
    assert_true(p.sealed);
    assert_int_equal(region_translate(*state, ADDR + PAGE, 20, &p), 0);
    assert_int_equal(p.len, 20);
    assert_false(p.sealed);
    assert_int_equal(region_translate(*state, ADDR + 2 * PAGE, 1, &p), -EFAULT);
    assert_int_equal(region_translate(*state, ADDR - 1, 1, &p), -EFAULT);
    assert_int_equal(region_translate(*state, 0, 1, &p), -EFAULT);
    assert_int_equal(region_translate(*state, UINT64_MAX, 1, &p), -EFAULT);
}

static void many_regions_are_found_whatever_their_order(void **state)
{
    uint64_t ids[REGIONS_MAX], id;
    struct region_piece p;

    for (unsigned i = 0; i < REGIONS_MAX; i++) {
        unsigned at = i * 37 % REGIONS_MAX;

        assert_int_equal(
            add(*state, info(at * 2 * PAGE, PAGE, 0), memory_new(PAGE, true), &ids[at]), 0);
    }
    assert_int_equal(add(*state, info(GIB, PAGE, 0), memory_new(PAGE, true), &id), -ENOBUFS);
    for (unsigned at = 0; at < REGIONS_MAX; at++) {
        assert_int_equal(region_translate(*state, ADDR + at * 2 * PAGE + 1, 1, &p), 0);
        assert_int_equal(p.id, ids[at]);
        assert_int_equal(region_translate(*state, ADDR + at * 2 * PAGE + PAGE, 1, &p), -EFAULT);
    }
}

static struct region_info window(unsigned i)
{
    return (struct region_info){.addr = ADDR + GIB + i * PAGE, .size = PAGE};
}

static void windows_and_what_is_mapped_take_no_room_of_each_other_s(void **state)
{
    struct region_info w = window(WINDOWS_MAX);
    uint64_t id, last = 0;

    for (unsigned i = 0; i < WINDOWS_MAX; i++) {
        struct region_info one = window(i);

        assert_int_equal(region_add_window(*state, &one, NULL, &last), 0);
    }
    assert_int_equal(region_add_window(*state, &w, NULL, &id), -ENOBUFS);
    for (unsigned i = 0; i < REGIONS_MAX; i++)
        assert_int_equal(add(*state, info(i * PAGE, PAGE, 0), memory_new(PAGE, true), &id), 0);
    assert_int_equal(add(*state, info(REGIONS_MAX * PAGE, PAGE, 0), memory_new(PAGE, true), &id),
                     -ENOBUFS);
    // one that is leaving still takes room, of its own kind's
    region_remove_begin(*state, last);
    assert_int_equal(region_add_window(*state, &w, NULL, &id), -ENOBUFS);
    region_remove_end(*state, last);
    assert_int_equal(region_add_window(*state, &w, NULL, &id), 0);
    assert_int_equal(add(*state, info(REGIONS_MAX * PAGE, PAGE, 0), memory_new(PAGE, true), &id),
                     -ENOBUFS);
    assert_int_equal(region_count(*state), REGIONS_MAX + WINDOWS_MAX);
}

static void what_is_not_there_is_not_added(void **state)
{
    uint64_t id;
    static const struct region_info bad[] = {
        {.addr = ADDR, .user_addr = USER, .size = 0},
        {.addr = ADDR, .user_addr = USER, .size = 2 * PAGE + 1},
        {.addr = ADDR, .user_addr = USER, .size = PAGE, .fd_offset = PAGE + 1},
        {.addr = ADDR, .user_addr = USER, .size = PAGE, .fd_offset = UINT64_MAX - PAGE + 1},
        {.addr = ADDR, .user_addr = USER, .size = PAGE, .fd_offset = INT64_MAX},
        {.addr = UINT64_MAX - PAGE + 2, .user_addr = USER, .size = PAGE},
        {.addr = ADDR, .user_addr = UINT64_MAX, .size = PAGE},
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(add(*state, bad[i], memory_new(2 * PAGE, true), &id), -EINVAL);
    assert_int_equal(region_count(*state), 0);
}

static void regions_do_not_overlap(void **state)
{
    struct region_info other_user = info(0, PAGE, 0), other_addr = info(0, PAGE, 0);
    uint64_t id;

    assert_int_equal(add(*state, info(PAGE, 2 * PAGE, 0), memory_new(2 * PAGE, true), &id), 0);
    assert_int_equal(add(*state, info(2 * PAGE, PAGE, 0), memory_new(PAGE, true), &id), -EEXIST);
    assert_int_equal(add(*state, info(0, PAGE + 1, 0), memory_new(2 * PAGE, true), &id), -EEXIST);
    other_user.addr = ADDR + PAGE;
    assert_int_equal(add(*state, other_user, memory_new(PAGE, true), &id), -EEXIST);
    other_addr.user_addr = USER + PAGE;
    assert_int_equal(add(*state, other_addr, memory_new(PAGE, true), &id), -EEXIST);
    assert_int_equal(add(*state, info(0, PAGE, 0), memory_new(PAGE, true), &id), 0);
}

static void one_host_cannot_take_all_addresses(void **state)
{
    struct region_info i = {.addr = 0, .size = 4096 * GIB};
    uint64_t id, other;

    assert_int_equal(region_add_window(*state, &i, NULL, &id), 0);
    i.addr += i.size;
    assert_int_equal(region_add_window(*state, &i, NULL, &id), 0);
    i.addr += i.size;
    i.size = PAGE;
    assert_int_equal(region_add_window(*state, &i, NULL, &other), -ENOBUFS);
    region_remove_begin(*state, id);
    assert_int_equal(region_add_window(*state, &i, NULL, &other), -ENOBUFS);
    region_remove_end(*state, id);
    assert_int_equal(region_add_window(*state, &i, NULL, &other), 0);
    // a GPU's memory takes no addresses here
    i.addr += i.size;
    assert_int_equal(add(*state, i, memory_new(PAGE, true), &id), 0);
    i.addr += i.size;
    i.user_addr = i.size;
    i.size = 8192 * GIB;
    assert_int_equal(add(*state, i, memory_new(i.size, true), &id), -ENOBUFS);
}

static void all_hosts_together_cannot_take_all_addresses(void **state)
{
    struct region_info i = {.addr = 0, .size = 8192 * GIB};
    struct region_map *maps[9];
    uint64_t id;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("a sanitizer leaves fewer addresses\n");
    skip();
#endif
    for (size_t n = 0; n < ARRAY_LEN(maps); n++)
        maps[n] = region_map_new(NULL, 0);
    for (size_t n = 0; n < 8; n++)
        assert_int_equal(add(maps[n], i, memory_new(i.size, true), &id), 0);
    assert_int_equal(add(maps[8], i, memory_new(i.size, true), &id), -ENOBUFS);
    region_map_free(maps[7]);
    assert_int_equal(add(maps[8], i, memory_new(i.size, true), &id), 0);
    region_map_free(maps[8]);
    for (size_t n = 0; n < 7; n++)
        region_map_free(maps[n]);
}

static void only_memory_is_mapped(void **state)
{
    char path[] = "region-XXXXXX";
    uint64_t id;
    int fd = mkstemp(path), pipes[2];

    // where the tests run lies on a disk, or it would be memory
    assert_true(fd >= 0);
    unlink(path);
    assert_return_code(ftruncate(fd, PAGE), errno);
    assert_int_equal(add(*state, info(0, PAGE, 0), fd, &id), -ENOTSUP);
    assert_return_code(pipe(pipes), errno);
    assert_int_equal(add(*state, info(0, PAGE, 0), pipes[0], &id), -ENOTSUP);
    close(pipes[1]);
    assert_int_equal(add(*state, info(0, PAGE, 0), open("/dev/zero", O_RDWR), &id), -ENOTSUP);
}

static void memory_that_cannot_be_written_is_refused(void **state)
{
    int fd = memory_new(PAGE, true);
    uint64_t id;

    assert_return_code(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), errno);
    assert_int_equal(add(*state, info(0, PAGE, 0), fd, &id), -EPERM);
}

static void memory_in_a_tmpfs_is_never_called_sealed(void **state)
{
    char path[] = "/dev/shm/region-XXXXXX";
    struct region_piece p;
    uint64_t id;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    unlink(path);
    assert_return_code(ftruncate(fd, PAGE), errno);
    assert_int_equal(add(*state, info(0, PAGE, 0), fd, &id), 0);
    assert_int_equal(region_translate(*state, ADDR, 1, &p), 0);
    assert_false(p.sealed);
}

static void a_region_is_found_by_what_it_was_added_as(void **state)
{
    struct region_info i = info(0, PAGE, 0);
    uint64_t id = 0;

    assert_int_equal(region_find(*state, &i), 0);
    assert_int_equal(add(*state, i, memory_new(PAGE, true), &id), 0);
    assert_int_equal(region_find(*state, &i), id);
    i.size--;
    assert_int_equal(region_find(*state, &i), 0);
    i = info(0, PAGE, 0);
    i.user_addr++;
    assert_int_equal(region_find(*state, &i), 0);
}

static void a_region_that_goes_is_not_found_but_stays_until_the_end(void **state)
{
    struct region_piece p;
    uint64_t id = 0, again = 0;

    assert_int_equal(add(*state, info(0, PAGE, 0), memory_new(PAGE, true), &id), 0);
    assert_int_equal(region_translate(*state, ADDR, PAGE, &p), 0);
    region_remove_begin(*state, id);
    assert_int_equal(region_translate(*state, ADDR, 1, &(struct region_piece){0}), -EFAULT);
    assert_int_equal(region_count(*state), 0);
    memset(p.base, 1, PAGE); // still mapped
    assert_int_equal(add(*state, info(0, PAGE, 0), memory_new(PAGE, true), &again), 0);
    assert_int_not_equal(again, id);
    region_remove_end(*state, id);
    region_remove_end(*state, id);
    assert_int_equal(region_count(*state), 1);
    // what is taken out is not mapped any more
    assert_int_equal(msync(p.base, PAGE, MS_ASYNC), -1);
}

static void a_window_has_addresses_and_no_memory(void **state)
{
    struct region_info i = {.addr = ADDR, .size = PAGE};
    struct region_piece p;
    int engine;
    uint64_t id;

    assert_int_equal(region_add_window(*state, &i, &engine, &id), 0);
    assert_int_equal(region_translate(*state, ADDR + 10, 20, &p), 0);
    assert_null(p.base);
    assert_ptr_equal(p.engine_memory, &engine);
    assert_int_equal(p.kind, REGION_CUDA);
    assert_int_equal(p.offset, 10);
    assert_null(region_translate_user(*state, 0, 1, &id));
    assert_int_equal(region_add_window(*state, &i, &engine, &id), -EEXIST);
    i.addr += PAGE; // another without a user address
    assert_int_equal(region_add_window(*state, &i, &engine, &id), 0);
}

static void a_ring_is_found_by_its_user_address_in_one_piece(void **state)
{
    uint64_t id = 0, of = 0;
    int fd = memory_new(PAGE, true);

    assert_int_equal(pwrite(fd, "ring", 4, 64), 4);
    assert_int_equal(add(*state, info(0, PAGE, 0), fd, &id), 0);
    assert_memory_equal(region_translate_user(*state, USER + 64, PAGE - 64, &of), "ring", 4);
    assert_int_equal(of, id);
    assert_null(region_translate_user(*state, USER + 64, PAGE - 63, &of));
    assert_null(region_translate_user(*state, USER - 1, 2, &of));
    assert_null(region_translate_user(*state, ADDR, 1, &of));
}

// --- what the operator has declared to be a GPU's ---

static struct region_map *map_with_gpu(int fd)
{
    struct region_file f;
    struct stat st;

    assert_return_code(fstat(fd, &st), errno);
    f = (struct region_file){st.st_dev, st.st_ino};
    return region_map_new(&f, 1);
}

static void declared_memory_is_reached_by_its_offset_only(void **state)
{
    int fd = memory_new(4 * PAGE, true);
    struct region_map *m = map_with_gpu(fd);
    struct region_piece p;
    uint64_t id = 0;

    assert_int_equal(region_translate_bar(m, 0, 1, &p), -ENXIO);
    assert_int_equal(pwrite(fd, "gpu", 3, PAGE), 3);
    assert_int_equal(add(m, info(0, 4 * PAGE, 0), fd, &id), 0);
    assert_int_equal(region_translate_bar(m, PAGE, 3 * PAGE, &p), 0);
    assert_memory_equal(p.base, "gpu", 3);
    assert_int_equal(p.kind, REGION_BAR);
    assert_int_equal(p.id, id);
    assert_int_equal(region_translate_bar(m, PAGE, 3 * PAGE + 1, &p), -EFAULT);
    assert_int_equal(region_translate_bar(m, UINT64_MAX, 1, &p), -EFAULT);
    assert_int_equal(region_translate(m, ADDR, 1, &p), -EFAULT);
    assert_null(region_translate_user(m, USER, 1, &id));
    region_map_free(m);
}

static void declared_memory_may_move_and_come_in_parts(void **state)
{
    int fd = memory_new(4 * PAGE, true);
    struct region_map *m = map_with_gpu(fd);
    struct region_piece p;
    uint64_t id = 0;

    assert_int_equal(pwrite(fd, "last", 4, 3 * PAGE), 4);
    assert_int_equal(add(m, info(0, PAGE, 0), dup(fd), &id), 0);
    region_remove_begin(m, id);
    assert_int_equal(region_translate_bar(m, 0, 1, &p), -ENXIO);
    region_remove_end(m, id);
    assert_int_equal(add(m, info(8 * PAGE, 2 * PAGE, 2 * PAGE), dup(fd), &id), 0);
    assert_int_equal(add(m, info(16 * PAGE, 2 * PAGE, 0), fd, &id), 0);
    assert_int_equal(region_translate_bar(m, 3 * PAGE, PAGE, &p), 0);
    assert_memory_equal(p.base, "last", 4);
    assert_int_equal(region_translate_bar(m, 0, PAGE, &p), 0);
    region_map_free(m);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_address_leads_to_the_bytes_of_its_file),
        TEST(an_offset_within_a_page_is_honoured),
        TEST(a_piece_ends_with_its_region),
        TEST(many_regions_are_found_whatever_their_order),
        TEST(windows_and_what_is_mapped_take_no_room_of_each_other_s),
        TEST(what_is_not_there_is_not_added),
        TEST(regions_do_not_overlap),
        TEST(one_host_cannot_take_all_addresses),
        TEST(all_hosts_together_cannot_take_all_addresses),
        TEST(only_memory_is_mapped),
        TEST(memory_that_cannot_be_written_is_refused),
        TEST(memory_in_a_tmpfs_is_never_called_sealed),
        TEST(a_region_is_found_by_what_it_was_added_as),
        TEST(a_region_that_goes_is_not_found_but_stays_until_the_end),
        TEST(a_window_has_addresses_and_no_memory),
        TEST(a_ring_is_found_by_its_user_address_in_one_piece),
        cmocka_unit_test(declared_memory_is_reached_by_its_offset_only),
        cmocka_unit_test(declared_memory_may_move_and_come_in_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
