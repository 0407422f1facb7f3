// SPDX-License-Identifier: Apache-2.0
// Text of protocols: hexadecimal, base64, percent-encoding, numbers with units.
#pragma once

#include "base/base.h"
#include "base/buf.h"

void text_hex(const void *data, size_t len, char *out); // 2 * len characters and a zero
// Decodes exactly 2 * len characters; -EINVAL if one is not a hexadecimal digit.
int text_unhex(const char *hex, void *out, size_t len);

// RFC 3986 as AWS SigV4 wants it: all but A-Z a-z 0-9 - . _ ~ is encoded, '/' too unless
// keep_slash.
void text_percent_encode(struct buf *out, const char *s, size_t len, bool keep_slash);
// %XX only ('+' stays as it is); -EINVAL on a broken escape. out may hold zero bytes afterwards.
int text_percent_decode(struct buf *out, const char *s, size_t len);

void text_base64(struct buf *out, const void *data, size_t len);
int text_unbase64(struct buf *out, const char *s, size_t len); // -EINVAL

// The whole string must be a number: -EINVAL, -ERANGE.
int text_parse_u64(const char *s, uint64_t *ret);
// 64K, 256M, 1G, 2GiB, 4096: powers of 1024, an optional B or iB.
int text_parse_size(const char *s, uint64_t *ret_bytes);
// 10ms, 1.5s, 2m, 1h; a bare number is in seconds.
int text_parse_duration(const char *s, uint64_t *ret_ns);

bool text_starts_with(const char *s, const char *prefix);
bool text_ends_with(const char *s, const char *suffix);
bool text_is_utf8(const char *s, size_t len); // RFC 3629: no surrogates, no overlong forms

// The candidate most like word (edit distance), or NULL when none is near; for "did you mean".
// candidates ends with NULL.
const char *text_nearest(const char *word, const char *const *candidates);
