// SPDX-License-Identifier: Apache-2.0
#include "net/http_head.h"

#include "base/text.h"

#include <string.h>
#include <strings.h>

// RFC 9110 §5.6.2
static bool is_token_char(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

// Where the empty line that ends the head has ended, or 0. A lone LF ends a line too
// (RFC 9112 §2.2).
static size_t find_end(const char *data, size_t len)
{
    const char *end = data + len, *p = data;

    while ((p = memchr(p, '\n', (size_t)(end - p)))) {
        p++;
        if (p < end && *p == '\n')
            return (size_t)(p + 1 - data);
        if (end - p >= 2 && p[0] == '\r' && p[1] == '\n')
            return (size_t)(p + 2 - data);
    }
    return 0;
}

// Takes the line at *pos: ends it with a zero byte, moves *pos behind it. NULL when it holds a
// byte that no line may hold. The empty line that find_end found guarantees the LF.
static char *take_line(char **pos)
{
    char *line = *pos, *lf = strchrnul(line, '\n'), *end = lf;

    if (!*lf)
        return NULL; // a zero byte before the line's end
    if (end > line && end[-1] == '\r')
        end--;
    *end = 0;
    *pos = lf + 1;
    for (char *p = line; p < end; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 127)
            return NULL;
    return line;
}

// A value may go on in the next line if that begins with a blank (obs-fold, RFC 9112 §5.2): a
// response's line ends become blanks, a request with one is refused.
static int unfold(char *pos, enum http_kind kind)
{
    char *lf;

    for (; (lf = strchr(pos, '\n')) && is_blank(lf[1]); pos = lf + 1) {
        if (kind == HTTP_REQUEST)
            return -EBADMSG;
        *lf = ' ';
        if (lf > pos && lf[-1] == '\r')
            lf[-1] = ' ';
    }
    return 0;
}

// "HTTP/1." and one digit; returns what follows or NULL.
static char *take_version(struct http_head *head, char *s)
{
    if (strncmp(s, "HTTP/1.", 7) != 0 || s[7] < '0' || s[7] > '9')
        return NULL;
    head->minor_version = s[7] - '0';
    return s + 8;
}

static int parse_status_line(struct http_head *head, char *line)
{
    char *s = take_version(head, line);

    if (!s || s[0] != ' ')
        return -EBADMSG;
    for (int i = 1; i <= 3; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -EBADMSG;
        head->status = head->status * 10 + (s[i] - '0');
    }
    if ((s[4] && s[4] != ' ') || head->status < 100 || head->status > 599)
        return -EBADMSG;
    return 0;
}

static int parse_request_line(struct http_head *head, char *line)
{
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    const char *rest;

    if (!version || target == line || version == target + 1)
        return -EBADMSG;
    *target++ = 0;
    *version++ = 0;
    for (const char *p = line; *p; p++)
        if (!is_token_char((unsigned char)*p))
            return -EBADMSG;
    if (strchr(target, '\t'))
        return -EBADMSG;
    rest = take_version(head, version);
    if (!rest || *rest)
        return -EBADMSG;
    head->method = line;
    head->target = target;
    return 0;
}

static int parse_header(struct http_header *h, char *line)
{
    char *colon = line, *value, *end;

    while (is_token_char((unsigned char)*colon))
        colon++;
    if (colon == line || *colon != ':')
        return -EBADMSG;
    *colon = 0;
    value = colon + 1 + strspn(colon + 1, " \t");
    end = value + strlen(value);
    while (end > value && is_blank(end[-1]))
        end--;
    *end = 0;
    h->name = line;
    h->value = value;
    return 0;
}

// Whether word is in the comma-separated list.
static bool list_has(const char *list, const char *word)
{
    size_t word_len = strlen(word);

    while (*list) {
        size_t len;

        list += strspn(list, ", \t");
        len = strcspn(list, ", \t");
        if (len == word_len && !strncasecmp(list, word, len))
            return true;
        list += len;
    }
    return false;
}

static int note_content_length(struct http_head *head, const char *value)
{
    uint64_t n;

    if (text_parse_u64(value, &n) < 0 || n > INT64_MAX)
        return -EBADMSG;
    if (head->content_length >= 0 && head->content_length != (int64_t)n)
        return -EBADMSG;
    head->content_length = (int64_t)n;
    return 0;
}

// What the headers say about framing. Whoever could read it in two ways is refused (RFC 9112 §6).
static int note_framing(struct http_head *head)
{
    bool close = false, keep = false;

    for (size_t i = 0; i < head->n_headers; i++) {
        const struct http_header *h = &head->headers[i];

        if (!strcasecmp(h->name, "content-length")) {
            if (note_content_length(head, h->value) < 0)
                return -EBADMSG;
        } else if (!strcasecmp(h->name, "transfer-encoding")) {
            if (head->chunked || strcasecmp(h->value, "chunked") != 0 || head->minor_version == 0)
                return -EBADMSG;
            head->chunked = true;
        } else if (!strcasecmp(h->name, "connection")) {
            close = close || list_has(h->value, "close");
            keep = keep || list_has(h->value, "keep-alive");
        }
    }
    if (head->chunked && head->content_length >= 0)
        return -EBADMSG;
    head->keep_alive = !close && (keep || head->minor_version >= 1);
    return 0;
}

// Garbage is told from a slow response by its first bytes, not by its missing end.
static bool may_be_response(const char *data, size_t len)
{
    return !memcmp(data, "HTTP/1.", MIN(len, (size_t)7));
}

ssize_t http_head_parse(struct http_head *head, enum http_kind kind, char *data, size_t len)
{
    size_t skip = 0, end;
    char *pos, *line;
    int rc;

    if (kind == HTTP_RESPONSE && !may_be_response(data, len))
        return -EBADMSG;
    // some clients end a body with an empty line too many (RFC 9112 §2.2)
    if (kind == HTTP_REQUEST && len >= 2 && data[0] == '\r' && data[1] == '\n')
        skip = 2;
    end = find_end(data + skip, MIN(len, (size_t)HTTP_MAX_HEAD_BYTES) - skip);
    if (!end)
        return len >= HTTP_MAX_HEAD_BYTES ? -EBADMSG : 0;

    // A head is text; with its last byte a zero the string functions stop inside it, and
    // take_line finds any other zero byte. The last LF is that of the empty line.
    pos = data + skip;
    if (memchr(pos, 0, end))
        return -EBADMSG;
    head->status = 0;
    head->method = head->target = NULL;
    head->chunked = false;
    head->content_length = -1;
    head->n_headers = 0;

    line = take_line(&pos);
    if (!line)
        return -EBADMSG;
    rc = kind == HTTP_RESPONSE ? parse_status_line(head, line) : parse_request_line(head, line);
    if (rc < 0)
        return rc;
    for (;;) {
        if (pos[0] == '\n' || (pos[0] == '\r' && pos[1] == '\n'))
            break;
        if (is_blank(*pos) || head->n_headers == HTTP_MAX_HEADERS || unfold(pos, kind) < 0)
            return -EBADMSG;
        line = take_line(&pos);
        if (!line || parse_header(&head->headers[head->n_headers], line) < 0)
            return -EBADMSG;
        head->n_headers++;
    }
    rc = note_framing(head);
    return rc < 0 ? rc : (ssize_t)(skip + end);
}

const char *http_head_find(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->n_headers; i++)
        if (!strcasecmp(head->headers[i].name, name))
            return head->headers[i].value;
    return NULL;
}

// --- chunked transfer coding (RFC 9112 §7.1) ---

#define CHUNK_LINE_MAX (16 * 1024) // a chunk's extensions, or the whole trailer

enum chunked_state {
    CHUNK_SIZE,         // the first digit is due
    CHUNK_SIZE_MORE,    // further digits, or what ends them
    CHUNK_SIZE_BLANK,   // blanks before an extension or the line's end
    CHUNK_EXTENSION,    // ignored up to the line's end
    CHUNK_SIZE_LF,      //
    CHUNK_DATA,         // data_left bytes, then the CR and LF that end the chunk
    CHUNK_DATA_LF,      //
    CHUNK_TRAILER,      // a line begins
    CHUNK_TRAILER_REST, // ignored up to its end
    CHUNK_TRAILER_LF,   //
    CHUNK_LAST_LF,      // of the empty line
};

static int chunk_digit(struct http_chunked *c, char ch)
{
    uint8_t value;
    char pair[2] = {'0', ch};

    if (text_unhex(pair, &value, 1) < 0)
        return -EBADMSG;
    if (c->size > (uint64_t)INT64_MAX >> 4)
        return -EBADMSG;
    c->size = c->size << 4 | value;
    c->state = CHUNK_SIZE_MORE;
    return 0;
}

static int chunk_after_size(struct http_chunked *c, char ch)
{
    if (ch == '\r')
        c->state = CHUNK_SIZE_LF;
    else if (ch == ';')
        c->state = CHUNK_EXTENSION;
    else if (is_blank(ch))
        c->state = CHUNK_SIZE_BLANK;
    else
        return -EBADMSG;
    return 0;
}

// A line that is ignored: up to its CR; a lone LF does not end it.
static int chunk_ignore(struct http_chunked *c, char ch, enum chunked_state at_cr)
{
    if (ch == '\n' || ++c->line_len > CHUNK_LINE_MAX)
        return -EBADMSG;
    if (ch == '\r')
        c->state = at_cr;
    return 0;
}

static int chunk_expect(struct http_chunked *c, char ch, char due, enum chunked_state next)
{
    if (ch != due)
        return -EBADMSG;
    c->state = next;
    return 0;
}

static int chunk_begin(struct http_chunked *c, char ch)
{
    if (ch != '\n')
        return -EBADMSG;
    c->line_len = 0;
    c->data_left = c->size;
    c->state = c->size ? CHUNK_DATA : CHUNK_TRAILER;
    c->size = 0;
    return 0;
}

static int chunk_step(struct http_chunked *c, char ch)
{
    switch ((enum chunked_state)c->state) {
    case CHUNK_SIZE:
        return chunk_digit(c, ch);
    case CHUNK_SIZE_MORE:
        return chunk_digit(c, ch) < 0 ? chunk_after_size(c, ch) : 0;
    case CHUNK_SIZE_BLANK:
        return ++c->line_len > CHUNK_LINE_MAX ? -EBADMSG : chunk_after_size(c, ch);
    case CHUNK_EXTENSION:
        return chunk_ignore(c, ch, CHUNK_SIZE_LF);
    case CHUNK_SIZE_LF:
        return chunk_begin(c, ch);
    case CHUNK_DATA:
        return chunk_expect(c, ch, '\r', CHUNK_DATA_LF);
    case CHUNK_DATA_LF:
        return chunk_expect(c, ch, '\n', CHUNK_SIZE);
    case CHUNK_TRAILER:
        c->state = ch == '\r' ? CHUNK_LAST_LF : CHUNK_TRAILER_REST;
        return ch == '\r' ? 0 : chunk_ignore(c, ch, CHUNK_TRAILER_LF);
    case CHUNK_TRAILER_REST:
        return chunk_ignore(c, ch, CHUNK_TRAILER_LF);
    case CHUNK_TRAILER_LF:
        return chunk_expect(c, ch, '\n', CHUNK_TRAILER);
    case CHUNK_LAST_LF:
        c->done = ch == '\n';
        return c->done ? 0 : -EBADMSG;
    }
    return -EBADMSG;
}

ssize_t http_chunked_feed(struct http_chunked *c, const char *data, size_t len)
{
    size_t n = 0;

    assert(c->data_left == 0 && !c->done);
    while (n < len && c->data_left == 0 && !c->done)
        if (chunk_step(c, data[n++]) < 0)
            return -EBADMSG;
    return (ssize_t)n;
}

void http_chunked_took(struct http_chunked *c, uint64_t n)
{
    assert(n <= c->data_left);
    c->data_left -= n;
}
