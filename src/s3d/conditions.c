// SPDX-License-Identifier: Apache-2.0
#include "s3d/conditions.h"

#include "base/clock.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *condition(const struct request *r, const char *prefix, const char *name)
{
    char full[80];

    snprintf(full, sizeof(full), "%s%s", prefix, name);
    return request_header(r, full);
}

// Whether the ETag is in a list like "a", W/"b", or the list is *.
static bool etag_is_in(const char *list, const char *etag)
{
    while (*list) {
        size_t len;

        list += strspn(list, " \t,");
        if (*list == '*')
            return true;
        if (text_starts_with(list, "W/"))
            list += 2;
        list += *list == '"';
        len = strcspn(list, "\",");
        if (len == strlen(etag) && !memcmp(list, etag, len))
            return true;
        list += len;
        list += *list == '"';
    }
    return false;
}

int conditions_check(const struct request *r, const char *prefix, const struct object *o)
{
    const char *match = condition(r, prefix, "if-match");
    const char *none = condition(r, prefix, "if-none-match");
    const char *unmodified = condition(r, prefix, "if-unmodified-since");
    const char *modified = condition(r, prefix, "if-modified-since");
    int not_modified = *prefix ? 412 : 304;
    int64_t since;

    if (match) {
        if (!etag_is_in(match, o->etag))
            return 412;
    } else if (unmodified && clock_parse_http_date(unmodified, &since) == 0 && o->mtime_s > since) {
        return 412;
    }
    if (none) {
        if (etag_is_in(none, o->etag))
            return not_modified;
    } else if (modified && clock_parse_http_date(modified, &since) == 0 && o->mtime_s <= since) {
        return not_modified;
    }
    return 0;
}

static bool take_number(const char **s, uint64_t *ret)
{
    char *end;

    if (!isdigit((unsigned char)**s))
        return false;
    errno = 0;
    *ret = strtoull(*s, &end, 10);
    *s = end;
    return errno == 0;
}

int range_parse(const char *range, uint64_t size, uint64_t *ret_off, uint64_t *ret_len)
{
    uint64_t first, last = UINT64_MAX;

    if (!text_starts_with(range, "bytes="))
        return 1;
    range += 6;
    if (*range == '-') {
        range++;
        if (!take_number(&range, &last) || *range)
            return 1;
        if (last == 0 || size == 0)
            return -ERANGE;
        *ret_len = MIN(last, size);
        *ret_off = size - *ret_len;
        return 0;
    }
    if (!take_number(&range, &first) || *range++ != '-')
        return 1;
    if ((*range && !take_number(&range, &last)) || *range || last < first)
        return 1;
    if (first >= size)
        return -ERANGE;
    *ret_off = first;
    *ret_len = MIN(last, size - 1) - first + 1;
    return 0;
}
