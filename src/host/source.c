// SPDX-License-Identifier: Apache-2.0
#include "host/source.h"

#include "base/text.h"
#include "wire/ops.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SCHEME         "s3://"
#define NAME_MAX_BYTES 255

// --- asked for ---

// The last of the options called name, whose words are divided by '-' or '_'; NULL: none.
static const char *option(const char *const *options, const char *name)
{
    const char *value = NULL;

    for (; options && *options; options++) {
        const char *o = *options, *n = name;

        while (*n && (*o == *n || (*n == '-' && *o == '_'))) {
            o++;
            n++;
        }
        if (!*n && *o == '=')
            value = o + 1;
    }
    return value;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

static const char *endpoint_of_environment(void)
{
    const char *ignored = getenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    const char *value = variable("AWS_ENDPOINT_URL_S3");

    if (ignored && !strcasecmp(ignored, "true"))
        return NULL;
    return value ? value : variable("AWS_ENDPOINT_URL");
}

void source_ask(struct source *ret, const char *where, const char *const *export_options)
{
    const char *bucket = where + strlen(SCHEME), *prefix = strchr(bucket, '/');
    const char *endpoint = option(export_options, "endpoint-url");
    int len = (int)(prefix ? (size_t)(prefix - bucket) : strlen(bucket));

    prefix = prefix ? prefix + 1 : "";
    if (!*prefix && option(export_options, "prefix"))
        prefix = option(export_options, "prefix");
    ret->url = xasprintf(SCHEME "%.*s/%s%s", len, bucket, prefix,
                         !*prefix || text_ends_with(prefix, "/") ? "" : "/");
    if (!endpoint)
        endpoint = endpoint_of_environment();
    ret->endpoint = endpoint ? xstrdup(endpoint) : NULL;
}

// --- told ---

int source_read(struct source *ret, const char *bytes, size_t len)
{
    size_t url_len;

    if (!len) {
        *ret = (struct source){0};
        return 0;
    }
    url_len = strnlen(bytes, len);
    // two strings, each with its zero, and nothing else
    if (len > OS2G_SOURCE_MAX || url_len == len ||
        url_len + 1 + strnlen(bytes + url_len + 1, len - url_len - 1) + 1 != len ||
        !text_starts_with(bytes, SCHEME) || !text_ends_with(bytes, "/"))
        return -EBADMSG;
    ret->url = xstrdup(bytes);
    ret->endpoint = xstrdup(bytes + url_len + 1);
    return 0;
}

void source_fini(struct source *s)
{
    free(s->url);
    free(s->endpoint);
    *s = (struct source){0};
}

// --- compared ---

// However they are spelt: letters of the host's name, the scheme's own port, a '/' at the end.
static bool same_server(const char *a, const char *b)
{
    const char *urls[] = {a, b}, *authority[2], *path[2];
    size_t authority_len[2], path_len[2];

    if (!*a || !*b)
        return *a == *b;
    for (unsigned i = 0; i < 2; i++) {
        bool tls = strncasecmp(urls[i], "https://", 8) == 0;
        const char *port = tls ? ":443" : ":80";

        if (!tls && strncasecmp(urls[i], "http://", 7) != 0)
            return false;
        authority[i] = urls[i] + (tls ? 8 : 7);
        authority_len[i] = strcspn(authority[i], "/");
        path[i] = authority[i] + authority_len[i];
        path_len[i] = strlen(path[i]);
        while (path_len[i] && path[i][path_len[i] - 1] == '/')
            path_len[i]--;
        if (authority_len[i] > strlen(port) && !strncmp(path[i] - strlen(port), port, strlen(port)))
            authority_len[i] -= strlen(port);
    }
    return !strncasecmp(a, b, 5) && authority_len[0] == authority_len[1] &&
           !strncasecmp(authority[0], authority[1], authority_len[0]) &&
           path_len[0] == path_len[1] && !memcmp(path[0], path[1], path_len[0]);
}

// What keys may lie below: what is longer would not fit into a request either.
static bool is_path(const char *s)
{
    if (strlen(s) >= OS2G_KEY_MAX)
        return false;
    while (*s) {
        size_t n = strcspn(s, "/");

        if (n == 0 || n > NAME_MAX_BYTES || (n == 1 && *s == '.') ||
            (n == 2 && s[0] == '.' && s[1] == '.'))
            return false;
        s += n + (s[n] == '/');
    }
    return true;
}

const char *source_below(const struct source *asked, const struct source *told)
{
    const char *below;

    if (asked->endpoint && !same_server(asked->endpoint, told->endpoint))
        return NULL;
    if (!text_starts_with(asked->url, told->url))
        return NULL;
    below = asked->url + strlen(told->url); // it ends with a '/'
    return is_path(below) ? below : NULL;
}

char *source_text(const struct source *s)
{
    if (!s->endpoint)
        return xstrdup(s->url);
    return xasprintf("%s at %s", s->url, *s->endpoint ? s->endpoint : "Amazon S3");
}
