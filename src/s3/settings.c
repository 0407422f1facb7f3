// SPDX-License-Identifier: Apache-2.0
#include "s3/settings.h"

#include "base/clock.h"
#include "base/text.h"
#include "s3/url.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_RETRY_TIMEOUT_NS (60 * NS_PER_S)

// --- life ---

static char **const *strings_of(struct s3_settings *s, char **list[static 12])
{
    char **all[] = {
        &s->bucket, &s->endpoint_url, &s->region,     &s->profile,       &s->ca_file,
        &s->proxy,  &s->access_key,   &s->secret_key, &s->session_token, &s->passwd_file,
        NULL};

    memcpy(list, all, sizeof(all));
    return list;
}

void s3_settings_fini(struct s3_settings *s)
{
    char **list[12];

    for (char **const *it = strings_of(s, list); *it; it++)
        free(**it);
    *s = (struct s3_settings){0};
}

struct s3_settings *s3_settings_dup(const struct s3_settings *s)
{
    struct s3_settings *copy = xmemdup(s, sizeof(*s));
    char **list[12];

    for (char **const *it = strings_of(copy, list); *it; it++)
        if (**it)
            **it = xstrdup(**it);
    return copy;
}

void s3_settings_free(struct s3_settings *s)
{
    if (!s)
        return;
    s3_settings_fini(s);
    free(s);
}

// --- s3://bucket/prefix ---

// Looser than Amazon's rule for new buckets: older ones and other stores have capitals and '_'.
static bool is_bucket_name(const char *s)
{
    size_t len = strlen(s);

    if (len < 3 || len > 255)
        return false;
    for (const char *p = s; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-._", *p))
            return false;
    return isalnum((unsigned char)s[0]) && !strstr(s, "..");
}

int s3_url_parse(const char *url, char **ret_bucket, char **ret_prefix, char **ret_error)
{
    const char *s = url, *rest;
    char *bucket;

    if (strncasecmp(s, "s3://", 5) == 0) {
        s += 5;
    } else if (strstr(s, "://")) {
        *ret_error = xasprintf("\"%s\" does not name a bucket: write s3://BUCKET[/PREFIX], and the "
                               "server with --endpoint-url",
                               url);
        return -EINVAL;
    }
    rest = s + strcspn(s, "/:");
    bucket = xstrndup(s, (size_t)(rest - s));
    if (!is_bucket_name(bucket) || (*rest == ':' && (s != url || (rest[1] && rest[1] != '/')))) {
        *ret_error = xasprintf("\"%s\" does not name a bucket: write s3://BUCKET[/PREFIX] (a "
                               "bucket's name has 3 or more letters, digits, '-', '.' or '_')",
                               url);
        free(bucket);
        return -EINVAL;
    }
    if (*rest == ':')
        rest++;
    if (*rest == '/')
        rest++;
    *ret_bucket = bucket;
    *ret_prefix = *rest && !text_ends_with(rest, "/") ? xasprintf("%s/", rest) : xstrdup(rest);
    return 0;
}

// --- completing from environment and profile ---

static void fill(char **field, const char *value)
{
    if (!*field && value && *value)
        *field = xstrdup(value);
}

static bool env_is_true(const char *name)
{
    const char *v = getenv(name);

    return v && strcasecmp(v, "true") == 0;
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static void fill_addressing(struct s3_settings *s, const char *style)
{
    if (s->addressing != S3_ADDRESSING_AUTO || !style)
        return;
    if (strcmp(style, "path") == 0)
        s->addressing = S3_ADDRESSING_PATH;
    else if (strcmp(style, "virtual") == 0)
        s->addressing = S3_ADDRESSING_VIRTUAL;
}

static int check(const struct s3_settings *s, char **ret_error)
{
    struct s3_endpoint endpoint;

    if (!s->bucket || !is_bucket_name(s->bucket)) {
        *ret_error = xasprintf("\"%s\" is not a bucket's name", s->bucket ? s->bucket : "");
        return -EINVAL;
    }
    if (!s->access_key != !s->secret_key) {
        *ret_error = xstrdup("an access key and its secret key must be given together");
        return -EINVAL;
    }
    if (s->endpoint_url && (s->accelerate || s->dualstack || s->fips)) {
        *ret_error = xstrdup("accelerate, dual-stack and FIPS choose among Amazon's hosts and make "
                             "no sense with an endpoint URL: leave one of them out");
        return -EINVAL;
    }
    if (s->accelerate && (s->addressing == S3_ADDRESSING_PATH || strchr(s->bucket, '.'))) {
        *ret_error = xstrdup("accelerated transfer needs virtual-host addressing and a bucket "
                             "whose name has no dot");
        return -EINVAL;
    }
    return s3_endpoint_build(s, NULL, &endpoint, ret_error);
}

int s3_settings_complete(struct s3_settings *s, const char *profile_json, char **ret_error)
{
    json_t *root = profile_json ? json_loads(profile_json, 0, NULL) : NULL;
    const json_t *profile = json_object_get(root, "settings");
    int rc;

    fill(&s->region, getenv("AWS_REGION"));
    fill(&s->region, getenv("AWS_DEFAULT_REGION"));
    fill(&s->region, text_of(profile, "region"));
    if (!env_is_true("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")) {
        fill(&s->endpoint_url, getenv("AWS_ENDPOINT_URL_S3"));
        fill(&s->endpoint_url, getenv("AWS_ENDPOINT_URL"));
        fill(&s->endpoint_url, text_of(profile, "endpoint_url"));
    }
    fill(&s->ca_file, getenv("AWS_CA_BUNDLE"));
    fill(&s->ca_file, text_of(profile, "ca_bundle"));
    fill_addressing(s, text_of(profile, "addressing_style"));
    if (!s->retry_timeout_ns)
        s->retry_timeout_ns = DEFAULT_RETRY_TIMEOUT_NS;
    if (!s->max_connections)
        s->max_connections = S3_CONNECTIONS_DEFAULT;

    rc = check(s, ret_error);
    json_decref(root);
    return rc;
}
