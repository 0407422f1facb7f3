// SPDX-License-Identifier: Apache-2.0
#include "s3d/upload_meta.h"

#include "base/text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool is_kept(const char *name)
{
    return !strncasecmp(name, "x-amz-meta-", 11) || !strcasecmp(name, "cache-control") ||
           !strcasecmp(name, "content-disposition") || !strcasecmp(name, "content-language") ||
           !strcasecmp(name, "expires");
}

// Content-Encoding without aws-chunked, which belongs to the transfer. NULL when nothing is left.
static const char *stored_encoding(const struct request *r)
{
    const char *encoding = request_header(r, "content-encoding");

    if (!encoding || strncasecmp(encoding, "aws-chunked", 11) != 0)
        return encoding;
    encoding += 11;
    encoding += strspn(encoding, ", ");
    return *encoding ? encoding : NULL;
}

struct meta *upload_meta_of_request(const struct request *r)
{
    const char *class = request_header(r, "x-amz-storage-class");
    const char *encoding = stored_encoding(r);
    struct buf lines = {0};
    struct meta *m;

    for (size_t i = 0; i < r->head.n_headers; i++) {
        const struct http_header *h = &r->head.headers[i];

        if (!is_kept(h->name))
            continue;
        for (const char *s = h->name; *s; s++)
            buf_add(&lines, &(char){(char)tolower((unsigned char)*s)}, 1);
        buf_printf(&lines, ": %s\r\n", h->value);
    }
    if (encoding)
        buf_printf(&lines, "content-encoding: %s\r\n", encoding);
    m = meta_new(request_header(r, "content-type"), class, buf_str(&lines));
    buf_free(&lines);
    return m;
}
