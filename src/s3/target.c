// SPDX-License-Identifier: Apache-2.0
#include "s3/bucket.h"

#include "base/text.h"
#include "s3/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct s3_target *s3_target_ref(struct s3_target *t)
{
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void s3_target_unref(struct s3_target *t)
{
    if (t && atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1)
        free(t);
}

// A copy of from for another server. NULL when origin ("https://host:port") is none, or would
// have us go on in the clear.
static struct s3_target *at_origin(const struct s3_target *from, const char *origin)
{
    struct buf host_header = {0};
    char *error = NULL;
    struct s3_target *t;
    struct url u;

    if (url_parse(origin, &u, &error) < 0) {
        free(error);
        return NULL;
    }
    if (from->endpoint.tls && !u.tls)
        return NULL;
    // member by member: other loops may be counting from's references
    t = xcalloc(1, sizeof(*t));
    atomic_init(&t->refs, 1);
    t->endpoint = from->endpoint;
    memcpy(t->region, from->region, sizeof(t->region));
    t->endpoint.tls = u.tls;
    t->endpoint.port = u.port;
    memcpy(t->endpoint.host, u.host, sizeof(t->endpoint.host));
    url_host_header(&u, &host_header);
    snprintf(t->endpoint.host_header, sizeof(t->endpoint.host_header), "%s", buf_str(&host_header));
    buf_free(&host_header);
    return t;
}

struct s3_target *s3_target_from_location(const struct s3_target *from, const char *location,
                                          const char *path)
{
    const char *authority = strstr(location, "://"), *place, *end;
    size_t len, path_len = strlen(path);
    struct s3_target *t;
    char *origin;

    if (!authority)
        return NULL;
    place = authority + 3 + strcspn(authority + 3, "/?#");
    end = place + strcspn(place, "?#");
    origin = xstrndup(location, (size_t)(place - location));
    t = at_origin(from, origin);
    free(origin);
    if (!t)
        return NULL;

    // what stands before the object's own path is the base path there
    len = (size_t)(end - place);
    if (len >= path_len && !memcmp(end - path_len, path, path_len))
        len -= path_len;
    else if (!text_starts_with(place, from->endpoint.base_path))
        goto refuse;
    else
        len = strlen(from->endpoint.base_path);
    while (len && place[len - 1] == '/')
        len--;
    if (len >= sizeof(t->endpoint.base_path))
        goto refuse;
    memcpy(t->endpoint.base_path, place, len);
    t->endpoint.base_path[len] = 0;
    t->endpoint.path_style = len > 0;
    return t;

refuse:
    s3_target_unref(t);
    return NULL;
}

struct s3_target *s3_target_from_endpoint(const struct s3_target *from, const char *host,
                                          const char *bucket)
{
    size_t bucket_len = strlen(bucket);
    struct buf base = {0};
    struct s3_target *t;
    char *origin;

    if (strstr(host, "://"))
        return s3_target_from_location(from, host, "");
    origin = xasprintf("%s://%s", from->endpoint.tls ? "https" : "http", host);
    t = at_origin(from, origin);
    free(origin);
    if (!t)
        return NULL;

    t->endpoint.path_style = strncmp(host, bucket, bucket_len) != 0 || host[bucket_len] != '.';
    if (t->endpoint.path_style) {
        buf_add(&base, "/", 1);
        text_percent_encode(&base, bucket, bucket_len, false);
    }
    snprintf(t->endpoint.base_path, sizeof(t->endpoint.base_path), "%s", buf_str(&base));
    buf_free(&base);
    return t;
}
