// SPDX-License-Identifier: Apache-2.0
// The digests that S3 requests carry, computed over a body as it passes.
#pragma once

#include "base/buf.h"

enum checksum_kind {
    CHECKSUM_MD5,
    CHECKSUM_SHA256,
    CHECKSUM_SHA1,
    CHECKSUM_CRC32,
    CHECKSUM_CRC32C,
    CHECKSUM_KINDS
};

#define CHECKSUM_MAX_BYTES 32

struct checksum;

// kinds: bits 1 << kind.
struct checksum *checksum_new(unsigned kinds);
void checksum_free(struct checksum *c); // NULL is allowed
void checksum_add(struct checksum *c, const void *data, size_t len);
// The sum so far; its length in bytes, 0 on failure.
size_t checksum_get(struct checksum *c, enum checksum_kind kind,
                    uint8_t out[static CHECKSUM_MAX_BYTES]);

// "x-amz-checksum-crc32c" and the like (any case): its kind, or -1.
int checksum_kind_of_header(const char *name);

uint32_t checksum_crc32(uint32_t crc, const void *data, size_t len);
uint32_t checksum_crc32c(uint32_t crc, const void *data, size_t len);
