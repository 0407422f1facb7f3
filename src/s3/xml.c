// SPDX-License-Identifier: Apache-2.0
#include "s3/xml.h"

#include "base/clock.h"
#include "base/text.h"

#include <expat.h>
#include <stdlib.h>
#include <string.h>

// Keys have up to 1,024 bytes (S3 API Reference), three times that when percent-encoded; some
// stores allow more.
#define MAX_TEXT  (16 * 1024)
#define MAX_DEPTH 16

static void refuse_doctype(void *arg, const XML_Char *name, const XML_Char *sysid,
                           const XML_Char *pubid, int has_internal_subset)
{
    XML_StopParser(*(XML_Parser *)arg, XML_FALSE);
}

// The parser is the first member of each user's struct, for refuse_doctype.
static XML_Parser parser_new(void *arg, XML_StartElementHandler start, XML_EndElementHandler end,
                             XML_CharacterDataHandler text)
{
    XML_Parser parser = XML_ParserCreate(NULL);

    if (!parser)
        abort();
    XML_SetUserData(parser, arg);
    XML_SetElementHandler(parser, start, end);
    XML_SetCharacterDataHandler(parser, text);
    XML_SetStartDoctypeDeclHandler(parser, refuse_doctype);
    return parser;
}

// --- errors ---

struct error_doc {
    XML_Parser parser;
    struct s3_xml_error *ret;
    char server_time[40];
    char *field; // where the text of the current element goes, NULL: nowhere
    size_t field_size;
    unsigned depth;
};

static void error_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct error_doc *d = arg;
    const struct {
        const char *name;
        char *field;
        size_t size;
    } fields[] = {
        {"Code", d->ret->code, sizeof(d->ret->code)},
        {"Message", d->ret->message, sizeof(d->ret->message)},
        {"Region", d->ret->region, sizeof(d->ret->region)},
        {"Endpoint", d->ret->endpoint, sizeof(d->ret->endpoint)},
        {"ServerTime", d->server_time, sizeof(d->server_time)},
    };

    d->field = NULL;
    if (++d->depth > MAX_DEPTH) {
        XML_StopParser(d->parser, XML_FALSE);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        // the first of each counts
        if (!strcmp(name, fields[i].name) && !*fields[i].field) {
            d->field = fields[i].field;
            d->field_size = fields[i].size;
        }
    }
}

static void error_end(void *arg, const XML_Char *name)
{
    struct error_doc *d = arg;

    d->field = NULL;
    d->depth--;
}

static void error_text(void *arg, const XML_Char *s, int len)
{
    struct error_doc *d = arg;
    size_t have, n;

    if (!d->field)
        return;
    have = strlen(d->field);
    n = MIN((size_t)len, d->field_size - 1 - have);
    memcpy(d->field + have, s, n);
    d->field[have + n] = 0;
}

bool s3_xml_error_parse(const char *data, size_t len, struct s3_xml_error *ret)
{
    struct error_doc d = {.ret = ret};

    *ret = (struct s3_xml_error){0};
    if (len > S3_XML_MAX_ERROR)
        return false;
    d.parser = parser_new(&d, error_start, error_end, error_text);
    // what came before an error in the document is as good as without it
    XML_Parse(d.parser, data, (int)len, 1);
    XML_ParserFree(d.parser);
    if (clock_parse_iso8601(d.server_time, &ret->server_time_s) < 0)
        ret->server_time_s = 0;
    return *ret->code;
}

// --- pages ---

#define NO_KEY  SIZE_MAX
#define NO_SIZE UINT64_MAX

struct page_entry {
    size_t key, etag, storage_class; // offsets in strings
    size_t key_len;
    uint64_t size;
    int64_t mtime_s;
    bool is_prefix;
};

struct s3_xml_page {
    XML_Parser parser;
    unsigned depth;
    bool in_contents, in_prefixes, wants_text;
    bool saw_root, truncated, url_encoded, bad;
    uint64_t fed;
    struct buf text;    // of the current element
    struct buf strings; // of all entries, each with its zero
    struct page_entry entry;
    struct page_entry *entries;
    size_t n, size, skipped;
    char *continuation;
};

static void page_stop(struct s3_xml_page *p)
{
    p->bad = true;
    XML_StopParser(p->parser, XML_FALSE);
}

static void page_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct s3_xml_page *p = arg;

    p->depth++;
    buf_reset(&p->text);
    if (p->depth == 1) {
        if (strcmp(name, "ListBucketResult") != 0)
            page_stop(p);
        p->saw_root = true;
    } else if (p->depth > MAX_DEPTH) {
        page_stop(p);
    } else if (p->depth == 2 && !strcmp(name, "Contents")) {
        p->entry = (struct page_entry){.key = NO_KEY, .size = NO_SIZE};
        p->in_contents = true;
    } else if (p->depth == 2 && !strcmp(name, "CommonPrefixes")) {
        p->entry = (struct page_entry){.key = NO_KEY, .is_prefix = true};
        p->in_prefixes = true;
    }
    p->wants_text = p->depth == 2 || p->depth == 3;
}

static void page_text(void *arg, const XML_Char *s, int len)
{
    struct s3_xml_page *p = arg;

    if (!p->wants_text)
        return;
    if (p->text.len + (size_t)len > MAX_TEXT) {
        page_stop(p);
        return;
    }
    buf_add(&p->text, s, (size_t)len);
}

// Keeps the current text; its offset.
static size_t keep_text(struct s3_xml_page *p)
{
    size_t offset = p->strings.len;

    buf_add(&p->strings, buf_str(&p->text), p->text.len + 1);
    return offset;
}

static void set_key(struct s3_xml_page *p)
{
    p->entry.key_len = p->text.len;
    p->entry.key = keep_text(p);
}

static int parse_size(const char *s, uint64_t *ret)
{
    uint64_t v = 0;

    if (!*s)
        return -EINVAL;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || v > (INT64_MAX - 9) / 10)
            return -EINVAL;
        v = v * 10 + (uint64_t)(*s - '0');
    }
    *ret = v;
    return 0;
}

static bool is_header_value(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 127)
            return false;
    return true;
}

static void end_in_contents(struct s3_xml_page *p, const char *name)
{
    struct page_entry *e = &p->entry;

    if (!strcmp(name, "Key")) {
        set_key(p);
    } else if (!strcmp(name, "Size")) {
        if (parse_size(buf_str(&p->text), &e->size) < 0)
            page_stop(p);
    } else if (!strcmp(name, "LastModified")) {
        if (clock_parse_iso8601(buf_str(&p->text), &e->mtime_s) < 0)
            e->mtime_s = 0; // a listing is worth more than one date
    } else if (!strcmp(name, "ETag")) {
        // it will be a header of requests
        if (!is_header_value(buf_str(&p->text)))
            page_stop(p);
        e->etag = keep_text(p);
    } else if (!strcmp(name, "StorageClass") && strcmp(buf_str(&p->text), "STANDARD") != 0) {
        e->storage_class = keep_text(p);
    }
}

static void end_entry(struct s3_xml_page *p)
{
    if (p->entry.key == NO_KEY || p->entry.size == NO_SIZE) {
        page_stop(p);
        return;
    }
    if (p->n == p->size) {
        p->size = MAX(p->size * 2, (size_t)128);
        p->entries = xrealloc(p->entries, p->size * sizeof(*p->entries));
    }
    p->entries[p->n++] = p->entry;
}

static void end_top(struct s3_xml_page *p, const char *name)
{
    const char *text = buf_str(&p->text);

    if (!strcmp(name, "IsTruncated")) {
        p->truncated = !strcmp(text, "true");
    } else if (!strcmp(name, "EncodingType")) {
        p->url_encoded = !strcmp(text, "url");
    } else if (!strcmp(name, "NextContinuationToken")) {
        free(p->continuation);
        p->continuation = xstrdup(text);
    }
}

static void page_end(void *arg, const XML_Char *name)
{
    struct s3_xml_page *p = arg;

    if (p->depth == 3 && p->in_contents) {
        end_in_contents(p, name);
    } else if (p->depth == 3 && p->in_prefixes) {
        if (!strcmp(name, "Prefix"))
            set_key(p);
    } else if (p->depth == 2 && (p->in_contents || p->in_prefixes)) {
        end_entry(p);
        p->in_contents = p->in_prefixes = false;
    } else if (p->depth == 2) {
        end_top(p, name);
    }
    p->depth--;
    p->wants_text = false;
}

struct s3_xml_page *s3_xml_page_new(void)
{
    struct s3_xml_page *p = xcalloc(1, sizeof(*p));

    p->parser = parser_new(p, page_start, page_end, page_text);
    // offset 0 is the empty string
    buf_add(&p->strings, "", 1);
    return p;
}

void s3_xml_page_free(struct s3_xml_page *p)
{
    if (!p)
        return;
    XML_ParserFree(p->parser);
    buf_free(&p->text);
    buf_free(&p->strings);
    free(p->entries);
    free(p->continuation);
    free(p);
}

void *s3_xml_page_room(struct s3_xml_page *p, size_t *ret_len)
{
    void *room;

    *ret_len = 64 * KIB;
    room = XML_GetBuffer(p->parser, (int)*ret_len);
    if (!room)
        abort();
    return room;
}

int s3_xml_page_fed(struct s3_xml_page *p, size_t len)
{
    p->fed += len;
    if (p->fed > S3_XML_MAX_PAGE)
        return -EBADMSG;
    if (XML_ParseBuffer(p->parser, (int)len, 0) != XML_STATUS_OK || p->bad)
        return -EBADMSG;
    return 0;
}

// As in a form: stores that encode a space as '+' encode a plus as %2B, the others leave neither.
static int url_decode(char *s, size_t *len)
{
    char *out = s;

    for (size_t i = 0; i < *len; i++) {
        char c = s[i];

        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            if (i + 2 >= *len || text_unhex(s + i + 1, &c, 1) < 0)
                return -EBADMSG;
            i += 2;
        }
        *out++ = c;
    }
    *out = 0;
    *len = (size_t)(out - s);
    return 0;
}

static int decode_keys(struct s3_xml_page *p)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->n; i++) {
        struct page_entry *e = &p->entries[i];
        char *key = p->strings.data + e->key;

        if (p->url_encoded && url_decode(key, &e->key_len) < 0)
            return -EBADMSG;
        if (e->key_len == 0 || memchr(key, 0, e->key_len))
            p->skipped++;
        else
            p->entries[kept++] = *e;
    }
    p->n = kept;
    return 0;
}

static int compare_entries(const void *va, const void *vb, void *arg)
{
    const struct page_entry *a = va, *b = vb;
    const char *strings = arg;
    int d = memcmp(strings + a->key, strings + b->key, MIN(a->key_len, b->key_len));

    if (d)
        return d;
    if (a->key_len != b->key_len)
        return a->key_len < b->key_len ? -1 : 1;
    return (int)a->is_prefix - (int)b->is_prefix;
}

int s3_xml_page_finish(struct s3_xml_page *p)
{
    if (XML_ParseBuffer(p->parser, 0, 1) != XML_STATUS_OK || p->bad || !p->saw_root)
        return -EBADMSG;
    // a page that goes on without saying where cannot be followed
    if (p->truncated && (!p->continuation || !*p->continuation))
        return -EBADMSG;
    if (decode_keys(p) < 0)
        return -EBADMSG;
    for (size_t i = 1; i < p->n; i++) {
        if (compare_entries(&p->entries[i - 1], &p->entries[i], p->strings.data) > 0) {
            qsort_r(p->entries, p->n, sizeof(*p->entries), compare_entries, p->strings.data);
            break;
        }
    }
    return 0;
}

size_t s3_xml_page_count(const struct s3_xml_page *p)
{
    return p->n;
}

void s3_xml_page_entry(const struct s3_xml_page *p, size_t i, struct s3_list_entry *ret)
{
    const struct page_entry *e = &p->entries[i];
    const char *strings = p->strings.data;

    *ret = (struct s3_list_entry){
        .key = strings + e->key, .key_len = e->key_len, .is_prefix = e->is_prefix};
    if (!e->is_prefix)
        ret->info = (struct s3_object_info){.size = e->size,
                                            .mtime_s = e->mtime_s,
                                            .etag = strings + e->etag,
                                            .storage_class = strings + e->storage_class,
                                            .content_type = ""};
}

const char *s3_xml_page_continuation(const struct s3_xml_page *p)
{
    return p->truncated ? p->continuation : NULL;
}

size_t s3_xml_page_skipped(const struct s3_xml_page *p)
{
    return p->skipped;
}
