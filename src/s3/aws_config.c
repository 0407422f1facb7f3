// SPDX-License-Identifier: Apache-2.0
#include "s3/aws_config.h"

#include "base/text.h"
#include "s3/file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

// One key of one section; a section as such is an entry with an empty key. A file has a few dozen:
// searching them one after the other is fast enough.
struct entry {
    enum aws_section section;
    char *name;
    char *key;
    struct buf value;
};

struct aws_config {
    char *path;
    struct entry *entries;
    size_t n, size;
};

static struct entry *find(const struct aws_config *c, enum aws_section section, const char *name,
                          const char *key)
{
    for (size_t i = 0; i < c->n; i++) {
        struct entry *e = &c->entries[i];

        if (e->section == section && strcmp(e->name, name) == 0 && strcmp(e->key, key) == 0)
            return e;
    }
    return NULL;
}

// The entry, emptied: a later value replaces an earlier one.
static size_t entry_renew(struct aws_config *c, enum aws_section section, const char *name,
                          const char *key)
{
    struct entry *e = find(c, section, name, key);

    if (!e) {
        if (c->n == c->size) {
            c->size = c->size ? 2 * c->size : 16;
            c->entries = xrealloc(c->entries, c->size * sizeof(*c->entries));
        }
        e = &c->entries[c->n++];
        *e = (struct entry){.section = section, .name = xstrdup(name), .key = xstrdup(key)};
    }
    buf_reset(&e->value);
    return (size_t)(e - c->entries);
}

// --- lines ---

struct span {
    const char *s;
    size_t len;
};

static struct span trimmed(const char *s, size_t len)
{
    while (len && isspace((unsigned char)*s))
        s++, len--;
    while (len && isspace((unsigned char)s[len - 1]))
        len--;
    return (struct span){s, len};
}

// A '#' or ';' begins a comment where white space is before it.
static struct span without_comment(struct span v)
{
    for (size_t i = 0; i < v.len; i++)
        if ((v.s[i] == '#' || v.s[i] == ';') && (i == 0 || isspace((unsigned char)v.s[i - 1])))
            return trimmed(v.s, i);
    return v;
}

#define NOWHERE ((size_t)-1)

struct parser {
    struct aws_config *config;
    enum aws_file kind;
    bool in_section; // in one that is of interest
    bool before_sections;
    enum aws_section section;
    char *name;
    size_t current; // entry that an indented line goes on with, or NOWHERE
    bool nested;    // that entry had no value of its own: indented lines are keys below it
};

static char *unquoted(struct span v)
{
    if (v.len >= 2 && (*v.s == '"' || *v.s == '\'') && v.s[v.len - 1] == *v.s)
        return xstrndup(v.s + 1, v.len - 2);
    return xstrndup(v.s, v.len);
}

// "profile train", "sso-session corp", "services local", "default"; false for any other kind.
static bool name_section(struct parser *p, struct span title)
{
    static const struct {
        const char *word;
        enum aws_section section;
    } kinds[] = {
        {"profile", AWS_PROFILE}, {"sso-session", AWS_SSO_SESSION}, {"services", AWS_SERVICES}};
    char *text = xstrndup(title.s, title.len);
    size_t word = strcspn(text, " \t");
    bool known = false;

    free(p->name);
    p->name = NULL;
    p->section = AWS_PROFILE;
    if (p->kind == AWS_CREDENTIALS_FILE || strcmp(text, "default") == 0) {
        p->name = unquoted(title);
        known = true;
    }
    for (size_t i = 0; i < ARRAY_LEN(kinds) && !known; i++) {
        if (word == title.len || strlen(kinds[i].word) != word ||
            strncmp(text, kinds[i].word, word) != 0)
            continue;
        p->section = kinds[i].section;
        p->name = unquoted(trimmed(title.s + word, title.len - word));
        known = true;
    }
    free(text);
    return known;
}

static const char *take_section(struct parser *p, struct span line)
{
    const char *close = memchr(line.s, ']', line.len);
    struct span title, rest;

    if (!close)
        return "the bracket of the section is not closed";
    title = trimmed(line.s + 1, (size_t)(close - line.s) - 1);
    rest = trimmed(close + 1, line.len - (size_t)(close + 1 - line.s));
    if (rest.len && *rest.s != '#' && *rest.s != ';')
        return "there is something behind the section's bracket";
    p->before_sections = false;
    p->current = NOWHERE;
    p->in_section = name_section(p, title);
    if (p->in_section)
        entry_renew(p->config, p->section, p->name, "");
    return NULL;
}

// credential_process is kept whole: the AWS CLI strips no comments, and '#' may be an argument.
static struct span value_of(const char *key, struct span v)
{
    return strcmp(key, "credential_process") == 0 ? v : without_comment(v);
}

static const char *take_pair(struct parser *p, struct span line, const char *parent)
{
    const char *equals = memchr(line.s, '=', line.len);
    struct span key_span, value;
    char *key;
    size_t entry;

    if (!equals || equals == line.s)
        return "a line must be NAME = VALUE";
    if (p->before_sections)
        return "there is a value before the first [section]";
    if (!p->in_section)
        return NULL;
    key_span = trimmed(line.s, (size_t)(equals - line.s));
    key = parent ? xasprintf("%s.%.*s", parent, (int)key_span.len, key_span.s)
                 : xstrndup(key_span.s, key_span.len);
    for (char *k = key; *k; k++)
        *k = (char)tolower((unsigned char)*k);
    value = value_of(key, trimmed(equals + 1, line.len - (size_t)(equals + 1 - line.s)));
    entry = entry_renew(p->config, p->section, p->name, key);
    buf_add(&p->config->entries[entry].value, value.s, value.len);
    if (!parent) {
        p->current = entry;
        p->nested = value.len == 0;
    }
    free(key);
    return NULL;
}

static const char *take_indented(struct parser *p, struct span line)
{
    struct entry *e;

    if (p->current == NOWHERE) // below a section that was passed over
        return p->in_section ? take_pair(p, line, NULL) : NULL;
    e = &p->config->entries[p->current];
    if (p->nested) {
        char *parent = xstrdup(e->key); // adding an entry may move this one
        const char *wrong = take_pair(p, line, parent);

        free(parent);
        return wrong;
    }
    buf_add(&e->value, "\n", 1);
    line = value_of(e->key, line);
    buf_add(&e->value, line.s, line.len);
    return NULL;
}

static const char *take_line(struct parser *p, const char *s, size_t len)
{
    struct span line = trimmed(s, len);

    if (line.len == 0 || *line.s == '#' || *line.s == ';')
        return NULL;
    if (isspace((unsigned char)*s) && !p->before_sections)
        return take_indented(p, line);
    if (*line.s == '[')
        return take_section(p, line);
    return take_pair(p, line, NULL);
}

// --- whole files ---

int aws_config_parse(struct aws_config **ret, enum aws_file kind, const char *path,
                     const char *text, size_t len, char **ret_error)
{
    struct aws_config *c = xcalloc(1, sizeof(*c));
    struct parser p = {.config = c, .kind = kind, .before_sections = true, .current = NOWHERE};
    const char *wrong = NULL;
    unsigned line = 0;

    c->path = xstrdup(path);
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3, len -= 3;
    if (memchr(text, 0, len) || !text_is_utf8(text, len))
        wrong = "this is not text in UTF-8";
    while (len && !wrong) {
        const char *newline = memchr(text, '\n', len);
        size_t n = newline ? (size_t)(newline - text) : len;

        line++;
        wrong = take_line(&p, text, n);
        text += n + !!newline;
        len -= n + !!newline;
    }
    free(p.name);
    if (wrong) {
        *ret_error = line ? xasprintf("%s, line %u: %s", path, line, wrong)
                          : xasprintf("%s: %s", path, wrong);
        aws_config_free(c);
        return -EBADMSG;
    }
    *ret = c;
    return 0;
}

int aws_config_load(struct aws_config **ret, enum aws_file kind, const char *path, char **ret_error)
{
    struct buf text = {0};
    int rc = file_read_small(path, AWS_CONFIG_MAX_BYTES, &text, ret_error);

    if (rc == -ENOENT) {
        free(*ret_error);
        *ret_error = NULL;
        rc = 0;
    }
    if (rc == 0)
        rc = aws_config_parse(ret, kind, path, buf_str(&text), text.len, ret_error);
    file_forget(&text);
    return rc;
}

void aws_config_free(struct aws_config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++) {
        free(c->entries[i].name);
        free(c->entries[i].key);
        buf_free(&c->entries[i].value);
    }
    free(c->entries);
    free(c->path);
    free(c);
}

const char *aws_config_path(const struct aws_config *c)
{
    return c->path;
}

bool aws_config_has(const struct aws_config *c, enum aws_section section, const char *name)
{
    return find(c, section, name, "") != NULL;
}

const char *aws_config_get(const struct aws_config *c, enum aws_section section, const char *name,
                           const char *key)
{
    const struct entry *e = find(c, section, name, key);

    return e && e->value.len ? e->value.data : NULL;
}
