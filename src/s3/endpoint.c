// SPDX-License-Identifier: Apache-2.0
#include "s3/settings.h"

#include "base/text.h"
#include "s3/url.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

// Whether the bucket can stand in front of a host name: one DNS label of lower case. With dots it
// would be several, which no wildcard certificate covers.
static bool is_dns_label(const char *bucket)
{
    size_t len = strlen(bucket);

    if (len > 63 || bucket[0] == '-' || bucket[len - 1] == '-')
        return false;
    for (; *bucket; bucket++)
        if (!islower((unsigned char)*bucket) && !isdigit((unsigned char)*bucket) && *bucket != '-')
            return false;
    return true;
}

static void amazon_url(const struct s3_settings *s, const char *region, struct url *u)
{
    const char *dual = s->dualstack ? ".dualstack" : "";

    *u = (struct url){.tls = true, .port = 443, .target = "/"};
    if (s->accelerate)
        snprintf(u->host, sizeof(u->host), "s3-accelerate%s.amazonaws.com", dual);
    else
        snprintf(u->host, sizeof(u->host), "s3%s%s.%s.%s", s->fips ? "-fips" : "", dual, region,
                 aws_domain(region));
}

static bool use_path_style(const struct s3_settings *s)
{
    if (s->addressing == S3_ADDRESSING_PATH)
        return true;
    if (s->addressing == S3_ADDRESSING_VIRTUAL || s->accelerate)
        return false;
    return s->endpoint_url || !is_dns_label(s->bucket);
}

static int put_bucket_in_host(const struct s3_settings *s, struct url *u, char **ret_error)
{
    char host[sizeof(u->host)];
    int n = snprintf(host, sizeof(host), "%s.%s", s->bucket, u->host);

    if (u->host_is_address) {
        *ret_error = xasprintf("bucket %s cannot be addressed in front of the address %s: use path "
                               "style, or an endpoint URL with a host name",
                               s->bucket, u->host);
        return -EINVAL;
    }
    if (n < 0 || (size_t)n >= sizeof(host)) {
        *ret_error = xasprintf("the host name %s.%s is too long", s->bucket, u->host);
        return -EINVAL;
    }
    memcpy(u->host, host, (size_t)n + 1);
    return 0;
}

int s3_endpoint_build(const struct s3_settings *s, const char *region, struct s3_endpoint *ret,
                      char **ret_error)
{
    struct s3_endpoint e = {.path_style = use_path_style(s)};
    struct buf text = {0};
    struct url u;
    size_t base_len;
    int rc;

    if (!region)
        region = s->region ? s->region : "us-east-1";
    // a region may also have been learned from a store's answer
    if (!aws_region_is_valid(region)) {
        *ret_error = xasprintf("\"%s\" is not the name of a region", region);
        return -EINVAL;
    }
    if (s->endpoint_url) {
        rc = url_parse(s->endpoint_url, &u, ret_error);
        if (rc < 0)
            return rc;
    } else {
        amazon_url(s, region, &u);
    }
    if (strchr(u.target, '?')) {
        *ret_error = xasprintf("the endpoint URL %s must not hold a query", s->endpoint_url);
        return -EINVAL;
    }
    if (!e.path_style) {
        rc = put_bucket_in_host(s, &u, ret_error);
        if (rc < 0)
            return rc;
    }

    e.tls = u.tls;
    e.port = u.port;
    memcpy(e.host, u.host, sizeof(e.host));
    url_host_header(&u, &text);
    snprintf(e.host_header, sizeof(e.host_header), "%s", buf_str(&text));

    base_len = strlen(u.target);
    while (base_len && u.target[base_len - 1] == '/')
        base_len--;
    buf_reset(&text);
    buf_add(&text, u.target, base_len);
    if (e.path_style) {
        buf_add(&text, "/", 1);
        text_percent_encode(&text, s->bucket, strlen(s->bucket), false);
    }
    if (text.len >= sizeof(e.base_path)) {
        *ret_error = xasprintf("the path of the endpoint URL %s is too long", s->endpoint_url);
        buf_free(&text);
        return -EINVAL;
    }
    memcpy(e.base_path, buf_str(&text), text.len + 1);
    buf_free(&text);
    *ret = e;
    return 0;
}
