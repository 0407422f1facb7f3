// SPDX-License-Identifier: Apache-2.0
#include "s3d/xml.h"

#include <expat.h>
#include <stdlib.h>
#include <string.h>

void xml_add_text(struct buf *b, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        switch (c) {
        case '&':
            buf_add(b, "&amp;", 5);
            break;
        case '<':
            buf_add(b, "&lt;", 4);
            break;
        case '>':
            buf_add(b, "&gt;", 4);
            break;
        case '"':
            buf_add(b, "&quot;", 6);
            break;
        case '\'':
            buf_add(b, "&#39;", 5);
            break;
        default:
            if (c < 0x20 || c == 0x7f)
                buf_printf(b, "&#x%x;", c);
            else
                buf_add(b, s, 1);
        }
    }
}

void xml_add_element(struct buf *b, const char *name, const char *text)
{
    buf_add(b, "<", 1);
    buf_add_str(b, name);
    buf_add(b, ">", 1);
    xml_add_text(b, text);
    buf_add(b, "</", 2);
    buf_add_str(b, name);
    buf_add(b, ">", 1);
}

struct walk {
    XML_Parser parser;
    const char *root, *item;
    const char *const *fields;
    int (*fn)(const char *const *values, void *arg);
    void *arg;
    unsigned depth, item_depth; // item_depth: 0 outside
    int field;                  // whose text is being read, or -1
    struct buf values[XML_MAX_FIELDS];
    bool has[XML_MAX_FIELDS];
    int error;
};

static void stop(struct walk *w, int error)
{
    w->error = error;
    XML_StopParser(w->parser, XML_FALSE);
}

static void on_start(void *arg, const char *name, const char **attributes)
{
    struct walk *w = arg;

    w->depth++;
    if (w->depth == 1 && strcmp(name, w->root) != 0) {
        stop(w, -EBADMSG);
        return;
    }
    if (!w->item_depth && !strcmp(name, w->item)) {
        w->item_depth = w->depth;
        memset(w->has, 0, sizeof(w->has));
        return;
    }
    if (w->item_depth && w->depth == w->item_depth + 1) {
        w->field = -1;
        for (int i = 0; w->fields[i]; i++) {
            if (!strcmp(w->fields[i], name)) {
                w->field = i;
                w->has[i] = true;
                buf_reset(&w->values[i]);
                buf_add(&w->values[i], "", 0);
            }
        }
    }
}

static void on_text(void *arg, const char *text, int len)
{
    struct walk *w = arg;

    if (w->field >= 0)
        buf_add(&w->values[w->field], text, (size_t)len);
}

static void on_end(void *arg, const char *name)
{
    struct walk *w = arg;

    if (w->item_depth && w->depth == w->item_depth) {
        const char *values[XML_MAX_FIELDS];
        int rc;

        for (int i = 0; i < XML_MAX_FIELDS; i++)
            values[i] = w->has[i] ? buf_str(&w->values[i]) : NULL;
        w->item_depth = 0;
        rc = w->fn(values, w->arg);
        if (rc < 0)
            stop(w, rc);
    }
    w->field = -1;
    w->depth--;
}

static void on_doctype(void *arg, const char *name, const char *sysid, const char *pubid, int has)
{
    // S3's requests have none, and entities are how small texts become large
    stop(arg, -EBADMSG);
}

int xml_each(const char *data, size_t len, const char *root, const char *item,
             const char *const *fields,
             int (*fn)(const char *const values[static XML_MAX_FIELDS], void *arg), void *arg)
{
    struct walk w = {
        .root = root, .item = item, .fields = fields, .fn = fn, .arg = arg, .field = -1};

    if (len > INT32_MAX)
        return -EBADMSG;
    w.parser = XML_ParserCreate(NULL);
    if (!w.parser)
        return -ENOMEM;
    XML_SetUserData(w.parser, &w);
    XML_SetElementHandler(w.parser, on_start, on_end);
    XML_SetCharacterDataHandler(w.parser, on_text);
    XML_SetStartDoctypeDeclHandler(w.parser, on_doctype);
    if (XML_Parse(w.parser, data, (int)len, 1) != XML_STATUS_OK && !w.error)
        w.error = -EBADMSG;
    XML_ParserFree(w.parser);
    for (int i = 0; i < XML_MAX_FIELDS; i++)
        buf_free(&w.values[i]);
    return w.error;
}
