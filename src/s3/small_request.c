// SPDX-License-Identifier: Apache-2.0
#include "s3/small_request.h"

#include "base/clock.h"
#include "s3/refusal.h"
#include "s3/retry.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define FIRST_PAUSE_NS (100 * NS_PER_MS)
#define ROOM           ((size_t)16 * KIB)

static void start_try(struct small_request *r);

static bool is_servers_fault(int status)
{
    return status == 429 || status >= 500;
}

// Not what would be the same the next time: another certificate, no HTTP, an endless answer.
static bool may_pass(int error)
{
    return error != -ECANCELED && error != -EKEYREJECTED && error != -EBADMSG && error != -EFBIG;
}

static void finish(struct small_request *r, int error)
{
    const char *why = r->exchange.error_text[0] ? r->exchange.error_text : strerror(-error);

    if (error && strstr(why, r->url.host))
        snprintf(r->error_text, sizeof(r->error_text), "%s", why);
    else if (error)
        snprintf(r->error_text, sizeof(r->error_text), "%.80s: %s", r->url.host, why);
    r->done(r, error);
}

static void on_timer(struct loop_timer *t)
{
    struct small_request *r = container_of(t, struct small_request, timer);

    if (!r->in_flight) {
        start_try(r);
        return;
    }
    r->too_late = true;
    http_exchange_cancel(&r->exchange);
}

static void on_done(struct http_exchange *x, int error)
{
    struct small_request *r = container_of(x, struct small_request, exchange);
    bool again;

    r->in_flight = false;
    loop_timer_stop(&r->timer);
    if (r->cancelled)
        error = -ECANCELED;
    else if (error == -ECANCELED && r->too_late)
        error = -ETIMEDOUT;
    again = error ? may_pass(error) : is_servers_fault(r->status);
    if (again && r->tried < r->tries) {
        uint64_t pause = FIRST_PAUSE_NS << (r->tried - 1);

        pause = pause / 2 + rand_below(&r->rand, pause);
        loop_timer_start_ns(&r->timer, pause + MIN(r->retry_after_ns, RETRY_ASKED_MAX_NS));
        return;
    }
    finish(r, error);
}

static int on_head(struct http_exchange *x, const struct http_head *head)
{
    struct small_request *r = container_of(x, struct small_request, exchange);

    r->status = head->status;
    r->retry_after_ns = s3_retry_after_ns(head, clock_wall_s());
    return 0;
}

static int on_room(struct http_exchange *x, struct iovec *iov, int max)
{
    struct small_request *r = container_of(x, struct small_request, exchange);

    if (r->answer.len >= SMALL_ANSWER_MAX)
        return -EFBIG;
    buf_reserve(&r->answer, ROOM);
    iov[0] = (struct iovec){r->answer.data + r->answer.len, ROOM};
    return 1;
}

static int on_body(struct http_exchange *x, size_t n)
{
    struct small_request *r = container_of(x, struct small_request, exchange);

    r->answer.len += n;
    r->answer.data[r->answer.len] = 0;
    return 0;
}

static void start_try(struct small_request *r)
{
    r->tried++;
    r->status = 0;
    r->retry_after_ns = 0;
    r->too_late = false;
    buf_reset(&r->answer);
    r->exchange = (struct http_exchange){
        .tls = r->url.tls,
        .host = r->url.host,
        .port = r->url.port,
        .request = &r->request,
        .request_iovs = 1,
        .resend_when_stale = true,
        .on_head = on_head,
        .on_room = on_room,
        .on_body = on_body,
        .on_done = on_done,
    };
    r->in_flight = true;
    loop_timer_start_ns(&r->timer, r->timeout_ns);
    http_exchange_start(r->client, &r->exchange);
}

static void forget(struct buf *b)
{
    if (b->data)
        OPENSSL_cleanse(b->data, b->size);
    buf_reset(b);
}

void small_request_init(struct small_request *r, struct loop *l)
{
    r->loop = l;
    loop_timer_init(&r->timer, l, on_timer);
    rand_seed_from_system(&r->rand);
}

void small_request_fini(struct small_request *r)
{
    struct buf *all[] = {&r->headers, &r->body, &r->answer, &r->head};

    loop_timer_stop(&r->timer);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        forget(all[i]);
        buf_free(all[i]);
    }
}

void small_request_begin(struct small_request *r, const char *method, const struct url *url)
{
    assert(!r->in_flight);
    r->method = method;
    r->url = *url;
    r->tried = 0;
    r->cancelled = false;
    r->error_text[0] = 0;
    forget(&r->headers);
    forget(&r->body);
    forget(&r->answer);
}

void small_request_send(struct small_request *r, struct http_client *c, uint64_t timeout_ns,
                        unsigned tries, void (*done)(struct small_request *r, int error))
{
    r->client = c;
    r->timeout_ns = timeout_ns;
    r->tries = tries;
    r->done = done;

    forget(&r->head);
    buf_printf(&r->head, "%s %s HTTP/1.1\r\nHost: ", r->method, r->url.target);
    url_host_header(&r->url, &r->head);
    buf_add_str(&r->head, "\r\nUser-Agent: os2g/" OS2G_VERSION "\r\nAccept: */*\r\n");
    buf_add_str(&r->head, buf_str(&r->headers));
    if (strcmp(r->method, "GET") != 0)
        buf_printf(&r->head, "Content-Length: %zu\r\n", r->body.len);
    buf_add_str(&r->head, "\r\n");
    buf_add(&r->head, buf_str(&r->body), r->body.len);
    r->request = (struct iovec){r->head.data, r->head.len};
    start_try(r);
}

bool small_request_cancel(struct small_request *r)
{
    loop_timer_stop(&r->timer);
    if (r->in_flight) {
        r->cancelled = true; // the exchange may be ending with another result just now
        http_exchange_cancel(&r->exchange);
    }
    return r->in_flight;
}
