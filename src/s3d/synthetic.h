// SPDX-License-Identifier: Apache-2.0
// The bytes of synthetic objects: a function of bucket, key, generation and offset that costs
// nothing to serve and that any program can check. May be linked by benchmarks and tests
// (s3d_synthetic_dep); uses base/ and SHA-256.
//
// Table.  T is P bytes, P = 33,554,393 (the largest prime below 2^25). Its little-endian 64-bit
//         word i is splitmix64's i-th output from state 0: z = (i + 1) * 0x9e3779b97f4a7c15,
//         then z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9, z = (z ^ z >> 27) * 0x94d049bb133111eb,
//         z ^ z >> 31.
// Name.   d = SHA-256(bucket "/" key "\n" generation in decimal). start = the first 8 bytes of d
//         as a little-endian number, mod P. The ETag is bytes 8..23 in hexadecimal and "-1":
//         the form that S3 gives to ETags which are not an MD5.
// Byte.   byte(offset) = T[(start + offset) mod P].
//
// P is prime so that bytes put in the wrong place by any multiple of any chunk size show.
#pragma once

#include "base/base.h"

#define S3D_TABLE_BYTES 33554393u

struct s3d_table {
    const uint8_t *bytes;
    int fd; // a memfd of the same bytes, for sendfile
};

struct s3d_name {
    uint64_t start;
    char etag[35];
};

int s3d_table_init(struct s3d_table *t); // 0 or -errno
void s3d_table_fini(struct s3d_table *t);

void s3d_name_hash(struct s3d_name *n, const char *bucket, const char *key, uint64_t generation);
// A number that depends on bucket and key alone, for sizes drawn from a distribution.
uint64_t s3d_name_luck(const char *bucket, const char *key);

void s3d_synthetic_fill(const struct s3d_table *t, uint64_t start, uint64_t off, void *out,
                        size_t len);
// The index in data of the first byte that is not what it should be, or -1.
int64_t s3d_synthetic_check(const struct s3d_table *t, uint64_t start, uint64_t off,
                            const void *data, size_t len);
