// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3d/synthetic.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct s3d_table table;

static int open_table(void **state)
{
    return s3d_table_init(&table);
}

static int close_table(void **state)
{
    s3d_table_fini(&table);
    return 0;
}

static void the_table_has_a_prime_number_of_bytes(void **state)
{
    for (uint32_t i = 2; i * i <= S3D_TABLE_BYTES; i++)
        assert_int_not_equal(S3D_TABLE_BYTES % i, 0);
}

static void the_table_is_splitmix64_from_zero(void **state)
{
    // the generator's first outputs as published with it
    static const uint8_t first[16] = {0xaf, 0xcd, 0x1d, 0x7b, 0x39, 0xa8, 0x20, 0xe2,
                                      0xf4, 0x65, 0xb9, 0xa1, 0x6a, 0x9e, 0x78, 0x6e};

    assert_memory_equal(table.bytes, first, sizeof(first));
}

static void the_descriptor_has_the_same_bytes(void **state)
{
    uint8_t bytes[64];

    assert_int_equal(pread(table.fd, bytes, sizeof(bytes), S3D_TABLE_BYTES - 64), sizeof(bytes));
    assert_memory_equal(bytes, table.bytes + S3D_TABLE_BYTES - 64, sizeof(bytes));
}

static void a_name_is_hashed_as_documented(void **state)
{
    struct s3d_name n;

    // printf 'bucket/key\n0' | sha256sum
    s3d_name_hash(&n, "bucket", "key", 0);
    assert_string_equal(n.etag, "0791b56b924d377aad384f43de65429c-1");
    assert_int_equal(n.start, 15387201);
}

static void each_part_of_a_name_counts(void **state)
{
    struct s3d_name a, b, c, d;

    s3d_name_hash(&a, "bucket", "key", 0);
    s3d_name_hash(&b, "bucket2", "key", 0);
    s3d_name_hash(&c, "bucket", "key2", 0);
    s3d_name_hash(&d, "bucket", "key", 1);
    assert_string_not_equal(a.etag, b.etag);
    assert_string_not_equal(a.etag, c.etag);
    assert_string_not_equal(a.etag, d.etag);
    assert_int_not_equal(a.start, d.start);
}

static void bytes_go_on_over_the_end_of_the_table(void **state)
{
    uint8_t bytes[100];

    s3d_synthetic_fill(&table, S3D_TABLE_BYTES - 30, 10, bytes, sizeof(bytes));
    assert_memory_equal(bytes, table.bytes + S3D_TABLE_BYTES - 20, 20);
    assert_memory_equal(bytes + 20, table.bytes, 80);
}

static void any_piece_of_an_object_can_be_made_alone(void **state)
{
    uint8_t whole[5000], piece[700];
    uint64_t off = (uint64_t)1 << 40;

    s3d_synthetic_fill(&table, 12345, off, whole, sizeof(whole));
    s3d_synthetic_fill(&table, 12345, off + 3000, piece, sizeof(piece));
    assert_memory_equal(piece, whole + 3000, sizeof(piece));
}

static void a_check_finds_the_first_wrong_byte(void **state)
{
    uint8_t bytes[1000];

    s3d_synthetic_fill(&table, S3D_TABLE_BYTES - 500, 0, bytes, sizeof(bytes));
    assert_int_equal(s3d_synthetic_check(&table, S3D_TABLE_BYTES - 500, 0, bytes, 1000), -1);
    for (size_t i = 0; i < sizeof(bytes); i += 333) {
        bytes[i] ^= 1;
        assert_int_equal(s3d_synthetic_check(&table, S3D_TABLE_BYTES - 500, 0, bytes, 1000), i);
        bytes[i] ^= 1;
    }
}

static void a_chunk_out_of_its_place_is_found(void **state)
{
    uint8_t bytes[4096];

    for (unsigned shift = 9; shift < 40; shift++) {
        s3d_synthetic_fill(&table, 77, (uint64_t)1 << shift, bytes, sizeof(bytes));
        assert_int_not_equal(s3d_synthetic_check(&table, 77, 0, bytes, sizeof(bytes)), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_has_a_prime_number_of_bytes),
        cmocka_unit_test(the_table_is_splitmix64_from_zero),
        cmocka_unit_test(the_descriptor_has_the_same_bytes),
        cmocka_unit_test(a_name_is_hashed_as_documented),
        cmocka_unit_test(each_part_of_a_name_counts),
        cmocka_unit_test(bytes_go_on_over_the_end_of_the_table),
        cmocka_unit_test(any_piece_of_an_object_can_be_made_alone),
        cmocka_unit_test(a_check_finds_the_first_wrong_byte),
        cmocka_unit_test(a_chunk_out_of_its_place_is_found),
    };

    return cmocka_run_group_tests(tests, open_table, close_table);
}
