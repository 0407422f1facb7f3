// SPDX-License-Identifier: Apache-2.0
#include "s3d/query.h"

#include "base/text.h"

#include <string.h>

// Appends the decoded piece and a zero; NULL if it is broken. There is room: see query_parse.
static const char *decode(struct query *q, const char *s, size_t len, bool plus_is_space)
{
    size_t at = q->text.len;
    char *p = q->text.data + at;

    if (text_percent_decode(&q->text, s, len) < 0 || memchr(p, 0, q->text.len - at))
        return NULL;
    // a '+' that was sent as %2B is one; so look at what was sent
    if (plus_is_space && memchr(s, '+', len)) {
        size_t out = at;

        for (size_t i = 0; i < len; i++, out++) {
            if (s[i] == '+')
                q->text.data[out] = ' ';
            else if (s[i] == '%')
                i += 2;
        }
    }
    buf_add(&q->text, "", 1);
    return p;
}

int query_parse(struct query *q, const char *raw, bool plus_is_space)
{
    q->n = 0;
    buf_reset(&q->text);
    // nothing grows by decoding, and each pair adds two zeros: pointers into the text stay valid
    buf_reserve(&q->text, strlen(raw) + 2 * QUERY_MAX_PAIRS + 1);
    while (*raw) {
        size_t len = strcspn(raw, "&");
        const char *equals = memchr(raw, '=', len);
        size_t name_len = equals ? (size_t)(equals - raw) : len;
        struct query_pair *pair = &q->pairs[q->n];

        if (len) {
            if (q->n == QUERY_MAX_PAIRS)
                return -EINVAL;
            pair->name = decode(q, raw, name_len, plus_is_space);
            pair->value = !equals ? "" : decode(q, equals + 1, len - name_len - 1, plus_is_space);
            if (!pair->name || !pair->value)
                return -EINVAL;
            q->n++;
        }
        raw += len + (raw[len] == '&');
    }
    return 0;
}

void query_fini(struct query *q)
{
    buf_free(&q->text);
    q->n = 0;
}

const char *query_get(const struct query *q, const char *name)
{
    for (unsigned i = 0; i < q->n; i++)
        if (!strcmp(q->pairs[i].name, name))
            return q->pairs[i].value;
    return NULL;
}
