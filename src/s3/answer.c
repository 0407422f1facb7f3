// SPDX-License-Identifier: Apache-2.0
#include "s3/answer.h"

#include "base/clock.h"

#include <string.h>
#include <strings.h>

#define META_PREFIX "x-amz-meta-"

static int read_number(const char **s, uint64_t *ret)
{
    const char *p = *s;
    uint64_t v = 0;

    if (*p < '0' || *p > '9')
        return -EBADMSG;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (v > (INT64_MAX - 9) / 10)
            return -EBADMSG;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    *s = p;
    *ret = v;
    return 0;
}

// "bytes 0-99/1234" (RFC 9110 §14.4). An unknown size ("*") is of no use here, and S3 never sends
// it.
static int read_content_range(struct s3_answer *a, const char *s)
{
    uint64_t size;

    if (strncasecmp(s, "bytes ", 6) != 0)
        return -EBADMSG;
    s += 6;
    if (read_number(&s, &a->first) < 0 || *s++ != '-' || read_number(&s, &a->last) < 0 ||
        *s++ != '/' || read_number(&s, &size) < 0 || *s)
        return -EBADMSG;
    if (a->first > a->last || a->last >= size)
        return -EBADMSG;
    a->has_range = a->has_size = true;
    a->info.size = size;
    return 0;
}

int s3_answer_read(struct s3_answer *a, const struct http_head *head)
{
    const char *range = NULL;

    a->info = (struct s3_object_info){
        .etag = "", .storage_class = "", .content_type = "", .metadata = a->metadata};
    a->has_size = a->has_range = false;
    for (size_t i = 0; i < head->n_headers; i++) {
        const char *name = head->headers[i].name, *value = head->headers[i].value;

        switch (name[0] | 0x20) {
        case 'c':
            if (!strcasecmp(name, "content-range"))
                range = value;
            else if (!strcasecmp(name, "content-type"))
                a->info.content_type = value;
            break;
        case 'e':
            if (!strcasecmp(name, "etag"))
                a->info.etag = value;
            break;
        case 'l':
            // a date nobody can read is not worth an error
            if (!strcasecmp(name, "last-modified") &&
                clock_parse_http_date(value, &a->info.mtime_s) < 0)
                a->info.mtime_s = 0;
            break;
        case 'x':
            if (!strcasecmp(name, "x-amz-storage-class"))
                a->info.storage_class = strcmp(value, "STANDARD") ? value : "";
            else if (!strncasecmp(name, META_PREFIX, strlen(META_PREFIX)))
                a->metadata[a->info.n_metadata++] =
                    (struct http_header){name + strlen(META_PREFIX), value};
            break;
        }
    }
    if (range)
        return read_content_range(a, range);
    if (head->content_length >= 0) {
        a->has_size = true;
        a->info.size = (uint64_t)head->content_length;
    }
    return 0;
}

static const char *without_quotes(const char *etag, size_t *ret_len)
{
    size_t len = strlen(etag);

    if (len >= 2 && etag[0] == '"' && etag[len - 1] == '"') {
        etag++;
        len -= 2;
    }
    *ret_len = len;
    return etag;
}

bool s3_etag_equal(const char *a, const char *b)
{
    size_t a_len, b_len;

    a = without_quotes(a, &a_len);
    b = without_quotes(b, &b_len);
    return a_len == b_len && !memcmp(a, b, a_len);
}
