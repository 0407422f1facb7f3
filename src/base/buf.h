// SPDX-License-Identifier: Apache-2.0
// A growable byte buffer, always followed by a zero byte once anything was added.
#pragma once

#include "base/base.h"

struct buf {
    char *data; // NULL while nothing was ever added
    size_t len;
    size_t size; // allocated
};

void buf_free(struct buf *b);                 // leaves an empty buffer
void buf_reset(struct buf *b);                // empties it, keeps the memory
void buf_reserve(struct buf *b, size_t more); // room for more bytes (and the zero) behind len
void buf_add(struct buf *b, const void *data, size_t len);
void buf_add_str(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
const char *buf_str(const struct buf *b); // "" when empty
char *buf_steal(struct buf *b);           // the caller frees it; never NULL
