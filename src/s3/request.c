// SPDX-License-Identifier: Apache-2.0
#include "s3/refusal.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int s3_request_fail(struct s3_request *r, enum s3_class class, int error, const char *fmt, ...)
{
    va_list args;
    char text[S3_ERROR_TEXT];

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    free(r->why);
    r->why = xstrdup(text);
    r->failed = true;
    r->outcome = (struct s3_outcome){class, error};
    return -ECANCELED;
}

// --- sending ---

const char *s3_request_path(struct s3_request *r)
{
    const struct s3_target *t = r->sent_to;
    struct buf *path = &r->client->path;

    buf_reset(path);
    buf_add_str(path, t->endpoint.base_path);
    if (r->key) {
        buf_add(path, "/", 1);
        text_percent_encode(path, r->key, r->key_len, true);
    } else if (path->len == 0) {
        buf_add(path, "/", 1);
    }
    return path->data;
}

static void add_line(struct buf *b, const char *name, const char *value)
{
    buf_add_str(b, name);
    buf_add(b, ": ", 2);
    buf_add_str(b, value);
    buf_add(b, "\r\n", 2);
}

// The headers that are signed, in the order of their names; at most 5.
static size_t signed_headers(struct s3_request *r, struct sigv4_header *h)
{
    const struct credentials *cr = r->sent_by;
    size_t n = 0;

    h[n++] = (struct sigv4_header){"host", r->sent_to->endpoint.host_header};
    if (cr) {
        h[n++] = (struct sigv4_header){"x-amz-content-sha256", SIGV4_EMPTY_SHA256};
        h[n++] = (struct sigv4_header){"x-amz-date", r->client->amz_date};
    }
    if (s3_bucket_settings(r->client->bucket)->requester_pays)
        h[n++] = (struct sigv4_header){"x-amz-request-payer", "requester"};
    if (cr && cr->session_token)
        h[n++] = (struct sigv4_header){"x-amz-security-token", cr->session_token};
    return n;
}

static void add_range(struct s3_request *r, struct buf *b)
{
    char value[64];

    if (r->last == UINT64_MAX)
        snprintf(value, sizeof(value), "bytes=%llu-", (unsigned long long)r->first);
    else
        snprintf(value, sizeof(value), "bytes=%llu-%llu", (unsigned long long)r->first,
                 (unsigned long long)r->last);
    add_line(b, "Range", value);
}

static void add_if_match(struct s3_request *r, struct buf *b)
{
    const char *quote = *r->if_match == '"' || text_starts_with(r->if_match, "W/") ? "" : "\"";

    buf_add_str(b, "If-Match: ");
    buf_add_str(b, quote);
    buf_add_str(b, r->if_match);
    buf_add_str(b, quote);
    buf_add(b, "\r\n", 2);
}

// No Content-Length: a GET has no body, and proxies drop a signed length of 0.
static void build_head(struct s3_request *r)
{
    struct s3_client *c = r->client;
    struct sigv4_header headers[5];
    const struct sigv4_key *key = NULL;
    struct buf *b = &r->head;
    size_t n;

    if (r->sent_by)
        key = s3_client_signing_key(c, r->sent_by, r->sent_to->region,
                                    clock_wall_s() + r->clock_offset_s);
    n = signed_headers(r, headers);
    s3_request_path(r);

    buf_reset(b);
    buf_reserve(b, 1024);
    buf_add_str(b, r->method);
    buf_add(b, " ", 1);
    buf_add(b, c->path.data, c->path.len);
    if (*r->query) {
        buf_add(b, "?", 1);
        buf_add_str(b, r->query);
    }
    buf_add_str(b, " HTTP/1.1\r\n");
    for (size_t i = 0; i < n; i++)
        add_line(b, headers[i].name, headers[i].value);
    if (r->ranged)
        add_range(r, b);
    if (r->if_match && *r->if_match)
        add_if_match(r, b);
    if (key) {
        struct sigv4_request to_sign = {
            .method = r->method,
            .path = c->path.data,
            .query = r->query,
            .headers = headers,
            .n_headers = n,
            .payload_hash = SIGV4_EMPTY_SHA256,
            .amz_date = c->amz_date,
        };

        buf_reset(&c->authorization);
        sigv4_authorization(key, r->sent_by->access_key, &to_sign, &c->authorization);
        add_line(b, "Authorization", c->authorization.data);
    }
    buf_add_str(b, "User-Agent: os2g/" OS2G_VERSION "\r\n\r\n");
}

static int on_head(struct http_exchange *x, const struct http_head *head);
static int on_room(struct http_exchange *x, struct iovec *iov, int max);
static int on_body(struct http_exchange *x, size_t n);
static void on_done(struct http_exchange *x, int error);

// Has its turn; cr is the request's reference now.
static void send_signed(struct s3_request *r, struct credentials *cr)
{
    struct s3_client *c = r->client;

    if (cr->anonymous) {
        credentials_unref(cr);
        cr = NULL;
    }
    r->sent_by = cr;
    r->clock_offset_s = s3_bucket_clock_offset_s(c->bucket);
    r->sent_to = s3_target_ref(r->target ? r->target : s3_client_target(c));
    build_head(r);
    r->iov = (struct iovec){r->head.data, r->head.len};
    r->x = (struct http_exchange){
        .tls = r->sent_to->endpoint.tls,
        .host = r->sent_to->endpoint.host,
        .port = r->sent_to->endpoint.port,
        .request = &r->iov,
        .request_iovs = 1,
        .head_only = r->kind == S3_HEAD && r->method[0] == 'H',
        .resend_when_stale = true,
        .priority = r->priority,
        .first_byte_timeout_ns = r->patience_ns,
        .on_head = on_head,
        .on_room = on_room,
        .on_body = on_body,
        .on_done = on_done,
    };
    r->state = S3_REQUEST_SENT;
    r->sent_ns = clock_monotonic_ns();
    counter_add(&c->stats.requests[r->kind], 1);
    http_exchange_start(c->http, &r->x);
    if (r->ops->on_sent)
        r->ops->on_sent(r);
}

void s3_request_admitted(struct s3_request *r)
{
    struct credentials *cr = credentials_provider_peek(s3_bucket_credentials(r->client->bucket));

    if (cr) {
        send_signed(r, cr);
        return;
    }
    // nobody's turn is kept for one who cannot use it
    r->state = S3_REQUEST_UNSIGNED;
    s3_client_leave(r->client, LOAD_SAYS_NOTHING, 0);
    s3_client_wait_for_credentials(r->client, r);
}

void s3_request_signable(struct s3_request *r)
{
    r->state = S3_REQUEST_QUEUED;
    if (s3_client_admit(r->client, r))
        s3_request_admitted(r);
}

void s3_request_start(struct s3_request *r)
{
    assert(r->state == S3_REQUEST_IDLE);
    free(r->why);
    r->why = NULL;
    r->failed = r->cancelled = false;
    r->status = 0;
    r->retry_after_ns = 0;
    r->sent_ns = r->queued_ns = 0;
    list_init(&r->link);
    s3_request_signable(r);
}

bool s3_request_cancel(struct s3_request *r)
{
    switch (r->state) {
    case S3_REQUEST_IDLE:
        break;
    case S3_REQUEST_QUEUED:
    case S3_REQUEST_UNSIGNED:
        list_remove(&r->link);
        r->state = S3_REQUEST_IDLE;
        break;
    case S3_REQUEST_SENT:
        r->cancelled = true;
        http_exchange_cancel(&r->x);
        return false;
    }
    return true;
}

void s3_request_raise(struct s3_request *r)
{
    if (r->priority == HTTP_DEMAND)
        return;
    r->priority = HTTP_DEMAND;
    if (r->state != S3_REQUEST_QUEUED)
        return;
    list_remove(&r->link);
    s3_request_signable(r);
}

void s3_request_fini(struct s3_request *r)
{
    assert(r->state == S3_REQUEST_IDLE);
    buf_free(&r->head);
    free(r->why);
    s3_target_unref(r->redirect);
}

// --- the answer ---

static int on_head(struct http_exchange *x, const struct http_head *head)
{
    struct s3_request *r = container_of(x, struct s3_request, x);

    if (head->status == 200 || head->status == 206)
        return r->ops->on_head(r, head);
    r->refusal = s3_refusal_new(head);
    r->status = head->status;
    r->retry_after_ns = s3_retry_after_ns(head, clock_wall_s());
    return 0;
}

static int on_room(struct http_exchange *x, struct iovec *iov, int max)
{
    struct s3_request *r = container_of(x, struct s3_request, x);
    struct s3_refusal *f = r->refusal;

    if (!f)
        return r->ops->on_room(r, iov, max);
    // whatever this is, it is no error document; the status has to do
    if (f->len == sizeof(f->body))
        return -EFBIG;
    iov[0] = (struct iovec){f->body + f->len, sizeof(f->body) - f->len};
    return 1;
}

static int on_body(struct http_exchange *x, size_t n)
{
    struct s3_request *r = container_of(x, struct s3_request, x);

    if (!r->refusal)
        return r->ops->on_body(r, n);
    r->refusal->len += n;
    return 0;
}

static struct s3_outcome read_failure(struct s3_request *r, int error)
{
    const struct s3_endpoint *e = &r->sent_to->endpoint;

    free(r->why);
    r->why =
        xasprintf("%s: %s", e->host_header, *r->x.error_text ? r->x.error_text : strerror(-error));
    // the memory that the body was to go to is no memory: not the store's doing
    if (error == -EFAULT)
        return (struct s3_outcome){S3_FATAL, -EFAULT};
    // a certificate that is not trusted will not be the next time either
    return (struct s3_outcome){error == -EKEYREJECTED ? S3_FATAL : S3_RETRY, -EIO};
}

static enum load_answer load_answer_of(const struct s3_request *r, struct s3_outcome o)
{
    if (o.class == S3_THROTTLED)
        return LOAD_TOO_MUCH;
    if (o.class == S3_RETRY || r->cancelled)
        return LOAD_SAYS_NOTHING;
    return LOAD_GOOD;
}

static void on_done(struct http_exchange *x, int error)
{
    struct s3_request *r = container_of(x, struct s3_request, x);
    struct s3_client *c = r->client;
    struct s3_outcome o;

    if (r->cancelled)
        o = (struct s3_outcome){S3_FATAL, -ECANCELED};
    else if (r->failed)
        o = r->outcome;
    else if (r->refusal)
        o = s3_refusal_read(r);
    else if (error < 0)
        o = read_failure(r, error);
    else
        o = (struct s3_outcome){S3_OK, 0};

    if (x->first_byte_ns)
        histogram_add(&c->stats.first_byte[r->kind], x->first_byte_ns - x->started_ns);
    free(r->refusal);
    r->refusal = NULL;
    if (r->sent_by)
        credentials_unref(r->sent_by);
    r->sent_by = NULL;
    s3_target_unref(r->sent_to);
    r->sent_to = NULL;
    r->state = S3_REQUEST_IDLE;
    s3_client_leave(c, load_answer_of(r, o), r->sent_ns);
    r->ops->on_done(r, o);
}

void s3_request_unsignable(struct s3_request *r, int error, const char *text)
{
    r->state = S3_REQUEST_IDLE;
    free(r->why);
    r->why = xasprintf("no credentials: %s", text ? text : strerror(-error));
    r->ops->on_done(r, error == -ETIMEDOUT ? (struct s3_outcome){S3_RETRY, -EIO}
                                           : (struct s3_outcome){S3_FATAL, -EACCES});
}
