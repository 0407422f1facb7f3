// SPDX-License-Identifier: Apache-2.0
#include "s3/refusal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DENIED_LOG_EVERY_NS (60 * NS_PER_S)
#define RETRY_AFTER_MAX_S   86400
#define PLAIN_SKEW_S        300 // stores refuse requests that are 15 minutes off

// A text that is too long to be kept is not kept at all.
static void keep(char *to, size_t size, const char *value)
{
    snprintf(to, size, "%s", value && strlen(value) < size ? value : "");
}

struct s3_refusal *s3_refusal_new(const struct http_head *head)
{
    const char *date = http_head_find(head, "date");
    struct s3_refusal *f = xmalloc(sizeof(*f));

    f->len = 0;
    f->date_s = 0;
    if (date && clock_parse_http_date(date, &f->date_s) < 0)
        f->date_s = 0;
    keep(f->region, sizeof(f->region), http_head_find(head, "x-amz-bucket-region"));
    keep(f->location, sizeof(f->location),
         head->status < 400 ? http_head_find(head, "location") : NULL);
    return f;
}

uint64_t s3_retry_after_ns(const struct http_head *head, int64_t now_s)
{
    const char *value = http_head_find(head, "retry-after"), *date = http_head_find(head, "date");
    uint64_t s;
    int64_t then_s;

    if (!value || (head->status != 429 && head->status != 503))
        return 0;
    if (text_parse_u64(value, &s) == 0)
        return MIN(s, RETRY_AFTER_MAX_S) * NS_PER_S;
    if (clock_parse_http_date(value, &then_s) < 0)
        return 0;
    if (date && clock_parse_http_date(date, &now_s) < 0)
        return 0;
    return then_s > now_s ? (uint64_t)MIN(then_s - now_s, RETRY_AFTER_MAX_S) * NS_PER_S : 0;
}

// --- learning ---

static bool same_server(const struct s3_endpoint *a, const struct s3_endpoint *b)
{
    return a->tls == b->tls && !strcmp(a->host_header, b->host_header) &&
           !strcmp(a->base_path, b->base_path);
}

static bool learn_place(struct s3_request *r, const struct s3_xml_error *doc)
{
    const struct s3_refusal *f = r->refusal;
    struct s3_bucket *b = r->client->bucket;
    const char *region = *f->region ? f->region : doc->region;
    struct s3_target *t = NULL;

    if (s3_bucket_learn_region(b, r->sent_to, region))
        return true;
    if (*f->location) {
        const char *path = s3_request_path(r) + strlen(r->sent_to->endpoint.base_path);

        t = s3_target_from_location(r->sent_to, f->location, path);
    } else if (*doc->endpoint) {
        t = s3_target_from_endpoint(r->sent_to, doc->endpoint, s3_bucket_settings(b)->bucket);
    }
    if (!t || same_server(&t->endpoint, &r->sent_to->endpoint)) {
        s3_target_unref(t);
        return false;
    }
    // a temporary redirect is for this object, this time (RFC 9110 §15.4)
    if (r->status == 301 || r->status == 308)
        s3_bucket_learn_target(b, t);
    s3_target_unref(r->redirect);
    r->redirect = t;
    return true;
}

static bool learn_time(struct s3_request *r, const struct s3_xml_error *doc)
{
    int64_t now = doc->server_time_s ? doc->server_time_s : r->refusal->date_s;

    return now && s3_bucket_learn_time(r->client->bucket, now, r->clock_offset_s);
}

static bool learn(struct s3_request *r, enum s3_class class, const struct s3_xml_error *doc)
{
    struct s3_client *c = r->client;

    switch (class) {
    case S3_PLACE:
        if (!learn_place(r, doc))
            return false;
        counter_add(&c->stats.redirects, 1);
        return true;
    case S3_CLOCK:
        return learn_time(r, doc);
    case S3_CREDENTIALS:
        return r->sent_by && s3_client_credentials_refused(c, r->sent_by);
    default:
        return false;
    }
}

static void log_denied(struct s3_request *r)
{
    uint64_t now = clock_monotonic_ns();
    struct s3_client *c = r->client;

    if (c->denied_logged_ns && now - c->denied_logged_ns < DENIED_LOG_EVERY_NS)
        return;
    c->denied_logged_ns = now;
    if (r->sent_by)
        log_warning("s3", "bucket %s: the store refused access key %s (%s): %s",
                    s3_bucket_settings(c->bucket)->bucket, r->sent_by->access_key,
                    r->sent_by->source, r->why);
    else
        log_warning("s3", "bucket %s: the store refused an unsigned request: %s",
                    s3_bucket_settings(c->bucket)->bucket, r->why);
}

struct s3_outcome s3_refusal_read(struct s3_request *r)
{
    const struct s3_refusal *f = r->refusal;
    const struct s3_error_entry *e;
    struct s3_outcome o;
    struct s3_xml_error doc;
    int64_t skew;

    s3_xml_error_parse(f->body, f->len, &doc);
    e = s3_error_find(doc.code, r->status);
    // A listing never misses an object: whoever said so is no store, or not this bucket's. To take
    // it for an empty directory would hide files.
    if (r->kind == S3_LIST && e->error == ENOENT)
        e = s3_error_find("", 0);
    o = (struct s3_outcome){e->class, -e->error};
    // an answer to HEAD has no code to tell a wrong clock by, but a date
    skew = f->date_s ? f->date_s - clock_wall_s() - r->clock_offset_s : 0;
    if (!*doc.code && r->status == 403 && (skew > PLAIN_SKEW_S || skew < -PLAIN_SKEW_S))
        o.class = S3_CLOCK;

    free(r->why);
    r->why = xasprintf("%d%s%s%s%s%s%s%s", r->status, *doc.code ? " " : "", doc.code,
                       *doc.message ? " (" : "", doc.message, *doc.message ? ")" : "",
                       *e->advice ? ": " : "", e->advice);
    if (o.class == S3_PLACE || o.class == S3_CLOCK || o.class == S3_CREDENTIALS)
        o.class = learn(r, o.class, &doc) ? S3_LEARNED : S3_FATAL;
    if (o.class == S3_FATAL && o.error == -EACCES)
        log_denied(r);
    return o;
}
