// SPDX-License-Identifier: Apache-2.0
#include "fs/etag.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

// -12 behind the digits: 1..65535 without leading zeros, so that formatting gives the same text.
static const char *parse_parts(const char *s, uint16_t *ret)
{
    uint32_t n = 0;

    *ret = 0;
    if (*s != '-')
        return s;
    s++;
    if (*s < '1' || *s > '9')
        return NULL;
    for (; *s >= '0' && *s <= '9'; s++) {
        n = n * 10 + (uint32_t)(*s - '0');
        if (n > UINT16_MAX)
            return NULL;
    }
    *ret = (uint16_t)n;
    return s;
}

static bool parse_md5(const char *s, struct etag *e)
{
    if (*s++ != '"' || strnlen(s, 32) < 32)
        return false;
    for (int i = 0; i < 32; i++)
        if (s[i] >= 'A' && s[i] <= 'F')
            return false;
    if (text_unhex(s, e->md5, sizeof(e->md5)) < 0)
        return false;
    s = parse_parts(s + 32, &e->parts);
    return s && s[0] == '"' && s[1] == 0;
}

void etag_parse(const char *s, struct etag *ret)
{
    size_t len = strlen(s);

    *ret = (struct etag){.kind = ETAG_MD5};
    if (parse_md5(s, ret))
        return;
    *ret = (struct etag){0};
    if (len == 0 || len > ETAG_TEXT_MAX)
        return;
    ret->kind = ETAG_TEXT;
    ret->text = s;
    ret->text_len = (uint8_t)len;
}

void etag_format(const struct etag *e, char out[static ETAG_TEXT_MAX + 1])
{
    char hex[33];

    out[0] = 0;
    if (e->kind == ETAG_TEXT) {
        memcpy(out, e->text, e->text_len);
        out[e->text_len] = 0;
    } else if (e->kind == ETAG_MD5) {
        text_hex(e->md5, sizeof(e->md5), hex);
        if (e->parts)
            snprintf(out, ETAG_TEXT_MAX + 1, "\"%s-%u\"", hex, e->parts);
        else
            snprintf(out, ETAG_TEXT_MAX + 1, "\"%s\"", hex);
    }
}

bool etag_equal(const struct etag *a, const struct etag *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case ETAG_MD5:
        return a->parts == b->parts && !memcmp(a->md5, b->md5, sizeof(a->md5));
    case ETAG_TEXT:
        return a->text_len == b->text_len && !memcmp(a->text, b->text, a->text_len);
    default:
        return true;
    }
}
