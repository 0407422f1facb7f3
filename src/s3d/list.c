// SPDX-License-Identifier: Apache-2.0
// ListObjects and ListObjectsV2.
#include "base/clock.h"
#include "base/text.h"
#include "s3d/response.h"
#include "s3d/server.h"
#include "s3d/xml.h"

#include <stdlib.h>
#include <string.h>

struct listing {
    struct request *r;
    bool v2, encode;
    const char *prefix, *delimiter;
    uint64_t max_keys, n;
    char from[KEY_MAX_BYTES + 2]; // where to go on
    bool after;                   // strictly behind from
    bool truncated;
    char last[KEY_MAX_BYTES + 1]; // key or prefix that came last, "" before
    struct buf out;
};

static void add_name(struct listing *l, const char *element, const char *name)
{
    struct buf encoded = {0};

    if (l->encode)
        text_percent_encode(&encoded, name, strlen(name), true);
    xml_add_element(&l->out, element, l->encode ? buf_str(&encoded) : name);
    buf_free(&encoded);
}

static void add_key(struct listing *l, const struct listed *o)
{
    char date[25];

    buf_add_str(&l->out, "<Contents>");
    add_name(l, "Key", o->key);
    clock_format_iso8601(o->mtime_s, date);
    buf_printf(&l->out,
               "<LastModified>%s</LastModified><ETag>&quot;%s&quot;</ETag><Size>%llu</Size>"
               "<StorageClass>%s</StorageClass></Contents>",
               date, o->etag, (unsigned long long)o->size, o->storage_class);
}

// The smallest string behind all that begin with s; "" when there is none.
static void behind_prefix(const char *s, size_t len, char *out)
{
    while (len && (unsigned char)s[len - 1] == 0xff)
        len--;
    memcpy(out, s, len);
    if (len)
        out[len - 1]++;
    out[len] = 0;
}

// The length of the common prefix that key is rolled up into, or 0.
static size_t rolled_up(const struct listing *l, const char *key)
{
    size_t n = strlen(l->prefix);
    const char *found = *l->delimiter ? strstr(key + n, l->delimiter) : NULL;

    return found ? (size_t)(found - key) + strlen(l->delimiter) : 0;
}

// One key or common prefix; false at the end of the page or the bucket.
static bool list_one(struct listing *l, struct cursor *c, struct listed *o)
{
    size_t rolled;

    if (c->bucket->ops->list_next(c, l->from, l->after, o) < 0 ||
        !text_starts_with(o->key, l->prefix))
        return false;
    if (l->n == l->max_keys) {
        l->truncated = true;
        return false;
    }
    l->n++;
    rolled = rolled_up(l, o->key);
    if (!rolled) {
        add_key(l, o);
        memcpy(l->from, o->key, strlen(o->key) + 1);
        memcpy(l->last, o->key, strlen(o->key) + 1);
        l->after = true;
        return true;
    }
    memcpy(l->last, o->key, rolled);
    l->last[rolled] = 0;
    buf_add_str(&l->out, "<CommonPrefixes>");
    add_name(l, "Prefix", l->last);
    buf_add_str(&l->out, "</CommonPrefixes>");
    behind_prefix(l->last, rolled, l->from);
    l->after = false;
    return l->from[0] != 0;
}

// --- where a page begins ---

static bool copy_start(struct listing *l, const char *start)
{
    size_t rolled;

    if (strlen(start) > KEY_MAX_BYTES)
        return false;
    if (strcmp(start, l->prefix) < 0)
        start = l->prefix, l->after = false;
    else
        l->after = true;
    memcpy(l->from, start, strlen(start) + 1);
    // a start within a common prefix lies behind it when that prefix was listed
    rolled = l->after && text_starts_with(start, l->prefix) ? rolled_up(l, start) : 0;
    if (rolled && rolled == strlen(start)) {
        behind_prefix(start, rolled, l->from);
        l->after = false;
    }
    return true;
}

// Tokens are opaque: base64 of "v1:" and where to go on.
static bool take_token(struct listing *l, const char *token)
{
    struct buf text = {0};
    bool good = text_unbase64(&text, token, strlen(token)) == 0 &&
                text_starts_with(buf_str(&text), "v1:") && !memchr(text.data, 0, text.len) &&
                copy_start(l, text.data + 3);

    buf_free(&text);
    return good;
}

static void add_token(struct listing *l, const char *element, const char *last)
{
    struct buf text = {0}, token = {0};

    buf_printf(&text, "v1:%s", last);
    text_base64(&token, text.data, text.len);
    xml_add_element(&l->out, element, buf_str(&token));
    buf_free(&text);
    buf_free(&token);
}

static enum s3_error read_parameters(struct listing *l)
{
    struct request *r = l->r;
    const char *max = request_query(r, "max-keys"), *encoding = request_query(r, "encoding-type");
    const char *start = request_query(r, l->v2 ? "start-after" : "marker");
    const char *token = l->v2 ? request_query(r, "continuation-token") : NULL;

    l->prefix = request_query(r, "prefix");
    l->delimiter = request_query(r, "delimiter");
    l->prefix = l->prefix ? l->prefix : "";
    l->delimiter = l->delimiter ? l->delimiter : "";
    l->max_keys = 1000;
    if (strlen(l->prefix) > KEY_MAX_BYTES)
        return S3_KeyTooLongError;
    if (max && text_parse_u64(max, &l->max_keys) < 0)
        return S3_InvalidArgument;
    l->max_keys = MIN(l->max_keys, 1000);
    if (encoding && strcmp(encoding, "url") != 0)
        return S3_InvalidArgument;
    l->encode = encoding;
    if (token)
        return take_token(l, token) ? S3_OK : S3_InvalidArgument;
    return copy_start(l, start ? start : "") ? S3_OK : S3_InvalidArgument;
}

static void add_head(struct listing *l)
{
    struct request *r = l->r;
    const char *start = request_query(r, l->v2 ? "start-after" : "marker");
    const char *token = request_query(r, "continuation-token");

    buf_add_str(&l->out, XML_HEAD "<ListBucketResult" XML_NS ">");
    xml_add_element(&l->out, "Name", r->bucket_name);
    add_name(l, "Prefix", l->prefix);
    if (*l->delimiter)
        add_name(l, "Delimiter", l->delimiter);
    if (start || !l->v2)
        add_name(l, l->v2 ? "StartAfter" : "Marker", start ? start : "");
    if (l->v2 && token)
        xml_add_element(&l->out, "ContinuationToken", token);
    if (l->encode)
        buf_add_str(&l->out, "<EncodingType>url</EncodingType>");
    buf_printf(&l->out, "<MaxKeys>%llu</MaxKeys>", (unsigned long long)l->max_keys);
}

static void add_tail(struct listing *l)
{
    if (l->v2)
        buf_printf(&l->out, "<KeyCount>%llu</KeyCount>", (unsigned long long)l->n);
    buf_printf(&l->out, "<IsTruncated>%s</IsTruncated>", l->truncated ? "true" : "false");
    if (l->truncated && l->v2)
        add_token(l, "NextContinuationToken", l->last);
    else if (l->truncated)
        add_name(l, "NextMarker", l->last);
    buf_add_str(&l->out, "</ListBucketResult>");
}

void op_list_start(struct request *r)
{
    struct listing l = {.r = r, .v2 = r->op == OP_LIST_V2};
    struct listed *o;
    struct cursor *c;
    enum s3_error error;

    if (!request_find_bucket(r))
        return;
    error = read_parameters(&l);
    if (error) {
        response_error(r, error);
        return;
    }
    add_head(&l);
    if (l.max_keys) {
        o = xmalloc(sizeof(*o));
        c = r->bucket->ops->list_begin(r->bucket);
        while (list_one(&l, c, o))
            ;
        r->bucket->ops->list_end(c);
        free(o);
    }
    add_tail(&l);
    buf_add(&r->response.text, l.out.data, l.out.len);
    buf_free(&l.out);
    response_xml(r, 200);
}
