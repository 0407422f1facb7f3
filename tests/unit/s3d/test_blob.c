// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3d/blob.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE (3 * MIB)

static uint8_t data[LARGE];

static int fill(void **state)
{
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    return 0;
}

static void assert_reads_as(const struct blob *b, uint64_t off, const uint8_t *expected, size_t len)
{
    uint8_t *got = xmalloc(len);

    assert_int_equal(blob_read(b, off, got, len), 0);
    assert_memory_equal(got, expected, len);
    free(got);
}

static struct blob *blob_of(const uint8_t *bytes, size_t len, size_t step)
{
    struct blob *b = blob_new();

    for (size_t i = 0; i < len; i += step)
        assert_int_equal(blob_append(b, bytes + i, MIN(step, len - i)), 0);
    assert_int_equal(b->len, len);
    return b;
}

static void small_ones_stay_in_memory(void **state)
{
    struct blob *b = blob_of(data, 5000, 77);

    assert_non_null(blob_piece(b, 0).mem);
    assert_reads_as(b, 0, data, 5000);
    assert_reads_as(b, 4321, data + 4321, 100);
    blob_unref(b);
}

static void large_ones_go_to_a_file_that_can_be_sent(void **state)
{
    struct blob *b = blob_of(data, LARGE, 100000);
    struct piece p = blob_piece(b, 1000);

    assert_null(p.mem);
    assert_true(p.fd >= 0);
    assert_int_equal(p.file_off, 1000);
    assert_int_equal(p.len, LARGE - 1000);
    assert_reads_as(b, 0, data, LARGE);
    blob_unref(b);
}

static struct blob *joined(size_t *ret_len)
{
    struct blob *parts[4] = {blob_of(data, 10, 10), blob_of(data, LARGE, LARGE), blob_new(),
                             blob_of(data + 5, 300, 300)};
    struct blob *b = blob_join(parts, 4);

    for (int i = 0; i < 4; i++)
        blob_unref(parts[i]);
    *ret_len = 10 + LARGE + 300;
    return b;
}

static void parts_read_as_one(void **state)
{
    size_t len;
    struct blob *b = joined(&len);
    uint8_t edge[20];

    assert_int_equal(b->len, len);
    memcpy(edge, data, 10);
    memcpy(edge + 10, data, 10);
    assert_reads_as(b, 0, edge, 20);
    assert_reads_as(b, 10, data, LARGE);
    assert_reads_as(b, 10 + LARGE, data + 5, 300);
    assert_int_equal(blob_piece(b, 10 + LARGE - 7).len, 7);
    blob_unref(b);
}

static void any_of_it_is_copied_to_a_file(void **state)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    size_t len;
    struct blob *b = joined(&len), *copy;

    assert_true(fd >= 0);
    assert_int_equal(blob_copy_to_file(b, 5, len - 10, fd), 0);
    copy = blob_from_file(fd, len - 10);
    assert_reads_as(copy, 5, data, LARGE);
    assert_reads_as(copy, LARGE + 5, data + 5, 295);
    blob_unref(copy);
    blob_unref(b);
}

static void a_file_that_shrank_is_an_error(void **state)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    struct blob *b = blob_from_file(fd, 100);
    uint8_t got[100];

    assert_int_equal(blob_read(b, 0, got, sizeof(got)), -EIO);
    blob_unref(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ones_stay_in_memory),
        cmocka_unit_test(large_ones_go_to_a_file_that_can_be_sent),
        cmocka_unit_test(parts_read_as_one),
        cmocka_unit_test(any_of_it_is_copied_to_a_file),
        cmocka_unit_test(a_file_that_shrank_is_an_error),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
