// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char hex_digits[] = "0123456789abcdef";

void text_hex(const void *data, size_t len, char *out)
{
    const uint8_t *p = data;

    for (size_t i = 0; i < len; i++) {
        *out++ = hex_digits[p[i] >> 4];
        *out++ = hex_digits[p[i] & 15];
    }
    *out = 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int text_unhex(const char *hex, void *out, size_t len)
{
    uint8_t *p = out;

    for (size_t i = 0; i < len; i++) {
        int hi = hex_value(hex[2 * i]), lo = hi < 0 ? -1 : hex_value(hex[2 * i + 1]);

        if (lo < 0)
            return -EINVAL;
        p[i] = (uint8_t)(hi << 4 | lo);
    }
    return 0;
}

void text_percent_encode(struct buf *out, const char *s, size_t len, bool keep_slash)
{
    static const char upper[] = "0123456789ABCDEF";

    buf_reserve(out, 3 * len);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];

        if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
            c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slash)) {
            out->data[out->len++] = (char)c;
        } else {
            out->data[out->len++] = '%';
            out->data[out->len++] = upper[c >> 4];
            out->data[out->len++] = upper[c & 15];
        }
    }
    out->data[out->len] = 0;
}

int text_percent_decode(struct buf *out, const char *s, size_t len)
{
    buf_reserve(out, len);
    for (size_t i = 0; i < len; i++) {
        uint8_t c = (uint8_t)s[i];

        if (c == '%') {
            if (i + 2 >= len || text_unhex(s + i + 1, &c, 1) < 0)
                return -EINVAL;
            i += 2;
        }
        out->data[out->len++] = (char)c;
    }
    out->data[out->len] = 0;
    return 0;
}

int text_parse_u64(const char *s, uint64_t *ret)
{
    unsigned long long v;
    char *end;

    if (*s < '0' || *s > '9')
        return -EINVAL;
    errno = 0;
    v = strtoull(s, &end, 10);
    if (errno)
        return -errno;
    if (*end)
        return -EINVAL;
    *ret = v;
    return 0;
}

int text_parse_size(const char *s, uint64_t *ret_bytes)
{
    static const char units[] = "KMGT";
    unsigned long long v;
    const char *unit;
    unsigned shift = 0;
    char *end;

    if (*s < '0' || *s > '9')
        return -EINVAL;
    errno = 0;
    v = strtoull(s, &end, 10);
    if (errno)
        return -errno;
    if (*end && (unit = strchr(units, toupper((unsigned char)*end)))) {
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
        if (*end == 'i')
            end++;
        else if (*end == 0)
            goto done;
    }
    if (*end == 'B')
        end++;
done:
    if (*end)
        return -EINVAL;
    if (v > UINT64_MAX >> shift)
        return -ERANGE;
    *ret_bytes = (uint64_t)v << shift;
    return 0;
}

int text_parse_duration(const char *s, uint64_t *ret_ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"", 1e9}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
    char *end;
    double v;

    if (!(*s >= '0' && *s <= '9') && *s != '.')
        return -EINVAL;
    v = strtod(s, &end);
    if (strspn(s, "0123456789.") != (size_t)(end - s)) // no exponents, no hexadecimal
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        if (v * units[i].ns > 9e18)
            return -ERANGE;
        *ret_ns = (uint64_t)(v * units[i].ns);
        return 0;
    }
    return -EINVAL;
}

bool text_starts_with(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool text_ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);

    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

bool text_is_utf8(const char *s, size_t len)
{
    const uint8_t *p = (const uint8_t *)s, *end = p + len;

    while (p < end) {
        uint8_t c = *p++;
        uint32_t point, least;
        int more;

        if (c < 0x80)
            continue;
        if (c >= 0xc2 && c <= 0xdf)
            more = 1, point = c & 0x1f, least = 0x80;
        else if ((c & 0xf0) == 0xe0)
            more = 2, point = c & 0x0f, least = 0x800;
        else if (c >= 0xf0 && c <= 0xf4)
            more = 3, point = c & 0x07, least = 0x10000;
        else
            return false;
        if (end - p < more)
            return false;
        while (more--) {
            if ((*p & 0xc0) != 0x80)
                return false;
            point = point << 6 | (*p++ & 0x3f);
        }
        if (point < least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
            return false;
    }
    return true;
}

// Levenshtein distance with one row of memory; words of up to 63 characters.
static unsigned edit_distance(const char *a, const char *b)
{
    size_t n = strlen(b);
    unsigned row[64];

    if (n >= ARRAY_LEN(row) || strlen(a) >= ARRAY_LEN(row))
        return UINT32_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; a[i - 1]; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n; j++) {
            unsigned substitute = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            row[j] = MIN(substitute, MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

const char *text_nearest(const char *word, const char *const *candidates)
{
    unsigned best = (unsigned)strlen(word) / 2 + 1;
    const char *nearest = NULL;

    for (; *candidates; candidates++) {
        unsigned d = edit_distance(word, *candidates);

        if (d < best) {
            best = d;
            nearest = *candidates;
        }
    }
    return nearest;
}
