// SPDX-License-Identifier: Apache-2.0
#include "s3/sts_answer.h"

#include "s3/file.h"

#include <expat.h>
#include <string.h>

#define FIELD_MAX ((size_t)64 * KIB)

struct reader {
    XML_Parser parser;
    struct sts_answer *answer;
    int field; // being read, or -1
    bool refused;
};

static void refuse(struct reader *r)
{
    r->refused = true;
    XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL on_start(void *arg, const char *name, const char **attributes)
{
    static const char *const names[STS_FIELDS] = {[STS_ACCESS_KEY] = "AccessKeyId",
                                                  [STS_SECRET_KEY] = "SecretAccessKey",
                                                  [STS_TOKEN] = "SessionToken",
                                                  [STS_EXPIRATION] = "Expiration",
                                                  [STS_CODE] = "Code",
                                                  [STS_MESSAGE] = "Message"};
    struct reader *r = arg;

    r->field = -1;
    for (int i = 0; i < STS_FIELDS; i++)
        if (strcmp(name, names[i]) == 0 && r->answer->fields[i].len == 0)
            r->field = i;
}

static void XMLCALL on_end(void *arg, const char *name)
{
    struct reader *r = arg;

    r->field = -1;
}

static void XMLCALL on_text(void *arg, const char *s, int len)
{
    struct reader *r = arg;
    struct buf *to;

    if (r->field < 0)
        return;
    to = &r->answer->fields[r->field];
    if (to->len + (size_t)len > FIELD_MAX)
        refuse(r);
    else
        buf_add(to, s, (size_t)len);
}

// Without a DTD there are no entities that could grow.
static void XMLCALL on_doctype(void *arg, const char *name, const char *system_id,
                               const char *public_id, int has_internal_subset)
{
    refuse(arg);
}

int sts_answer_parse(struct sts_answer *a, const char *xml, size_t len)
{
    struct reader r = {.parser = XML_ParserCreate(NULL), .answer = a, .field = -1};
    bool ok;

    *a = (struct sts_answer){0};
    if (!r.parser)
        return -ENOMEM;
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetCharacterDataHandler(r.parser, on_text);
    XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
    ok = len <= INT32_MAX && XML_Parse(r.parser, xml, (int)len, XML_TRUE) == XML_STATUS_OK;
    XML_ParserFree(r.parser);
    return ok && !r.refused ? 0 : -EBADMSG;
}

void sts_answer_fini(struct sts_answer *a)
{
    for (int i = 0; i < STS_FIELDS; i++)
        file_forget(&a->fields[i]);
}
