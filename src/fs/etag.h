// SPDX-License-Identifier: Apache-2.0
// ETags in 16 bytes: nearly every store gives an MD5 in hexadecimal, of the object or of its
// parts ("…-12"). Others are kept as text.
#pragma once

#include "base/base.h"

#define ETAG_TEXT_MAX 255

enum etag_kind {
    ETAG_NONE, // the store gave none (or one too long to keep): versions differ by time and size
    ETAG_MD5,  // "<32 lower-case hexadecimal digits>", or with "-<parts>"
    ETAG_TEXT,
};

struct etag {
    uint8_t kind;
    uint8_t text_len;
    uint16_t parts; // 0: no suffix
    uint8_t md5[16];
    const char *text; // ETAG_TEXT: text_len bytes, where it was parsed from or is stored
};

// s: as the store sent it, quotes included. *ret points into s.
void etag_parse(const char *s, struct etag *ret);
// The text as it was sent; "" for ETAG_NONE.
void etag_format(const struct etag *e, char out[static ETAG_TEXT_MAX + 1]);
bool etag_equal(const struct etag *a, const struct etag *b);
