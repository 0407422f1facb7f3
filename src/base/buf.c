// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = 0;
}

void buf_reserve(struct buf *b, size_t more)
{
    size_t need = b->len + more + 1;

    if (need <= b->size)
        return;
    b->size = MAX(need, b->size * 2);
    b->size = MAX(b->size, 64);
    b->data = xrealloc(b->data, b->size);
}

void buf_add(struct buf *b, const void *data, size_t len)
{
    buf_reserve(b, len);
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
}

void buf_add_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args, again;
    int n;

    va_start(args, fmt);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    assert(n >= 0);
    buf_reserve(b, (size_t)n);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    va_end(again);
    b->len += (size_t)n;
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}

char *buf_steal(struct buf *b)
{
    char *s = b->data ? b->data : xstrdup("");

    *b = (struct buf){0};
    return s;
}
