// SPDX-License-Identifier: Apache-2.0
#include "net/http_conn.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SEND_IOVS 16

// --- the end of an exchange ---

void http_conn_fail(struct http_conn *c, int error, const char *text)
{
    struct http_exchange *x = c->x;

    if (text)
        snprintf(x->error_text, sizeof(x->error_text), "%s", text);
    http_conn_close(c);
    http_client_exchange_end(c->client, x, error);
}

void http_conn_broken(struct http_conn *c, int error, const char *text)
{
    struct http_exchange *x = c->x;

    if (!c->reused || x->first_byte_ns || !x->resend_when_stale || x->resent) {
        http_conn_fail(c, error, text);
        return;
    }
    x->resent = true;
    counter_add(&http_client_counters(c->client)->stale_retries, 1);
    http_conn_close(c);
    http_client_exchange_again(c->client, x);
}

void http_conn_complete(struct http_conn *c)
{
    struct http_exchange *x = c->x;

    // bytes behind the end answer no request of ours
    if (c->keep_alive && !c->sending && c->in_pos == c->in_len) {
        c->x = NULL;
        c->state = CONN_IDLE;
        c->reused = true;
        c->idle_since_ns = c->last_activity_ns;
        http_client_conn_idle(c->client, c);
    } else {
        http_conn_close(c);
    }
    http_client_exchange_end(c->client, x, 0);
}

// --- sending ---

static int unsent_iovs(const struct http_conn *c, struct iovec *iov, int max)
{
    const struct http_exchange *x = c->x;
    int n = 0;

    for (int i = c->iov_at; i < x->request_iovs && n < max; i++) {
        size_t off = i == c->iov_at ? c->iov_off : 0;

        iov[n].iov_base = (char *)x->request[i].iov_base + off;
        iov[n].iov_len = x->request[i].iov_len - off;
        n += iov[n].iov_len > 0;
    }
    return n;
}

static void note_sent(struct http_conn *c, size_t sent)
{
    const struct http_exchange *x = c->x;

    counter_add(&http_client_counters(c->client)->bytes_out, sent);
    while (c->iov_at < x->request_iovs && sent >= x->request[c->iov_at].iov_len - c->iov_off) {
        sent -= x->request[c->iov_at++].iov_len - c->iov_off;
        c->iov_off = 0;
    }
    c->iov_off += sent;
}

// Calls nobody back: a connection that cannot be written to is read for what it still says, and
// then for its end.
static void send_request(struct http_conn *c)
{
    struct iovec iov[SEND_IOVS];
    unsigned want = LOOP_READ;

    while (c->sending) {
        int n = unsent_iovs(c, iov, SEND_IOVS);
        ssize_t sent;

        if (n == 0) {
            c->sending = false;
            break;
        }
        sent = http_link_send(c->bytes, iov, n);
        if (sent == -EAGAIN) {
            want |= LOOP_WRITE;
            break;
        }
        if (sent < 0) {
            c->sending = false;
            c->keep_alive = false;
            break;
        }
        c->last_activity_ns = clock_monotonic_ns();
        note_sent(c, (size_t)sent);
    }
    loop_io_want(c->io, want);
}

static void on_ready(struct loop_io *io, unsigned events, void *arg)
{
    struct http_conn *c = arg;

    if (c->state == CONN_IDLE) {
        if (!http_conn_is_quiet(c))
            http_conn_close(c);
        return;
    }
    if (events & LOOP_WRITE && c->sending)
        send_request(c);
    if (events & LOOP_READ)
        http_recv_run(c);
}

// --- time-outs ---

static void on_stall(struct loop_timer *t)
{
    struct http_conn *c = container_of(t, struct http_conn, stall);
    const struct http_exchange *x = c->x;
    uint64_t now = clock_monotonic_ns(), limit;

    if (c->state != CONN_BUSY)
        return; // the next exchange starts it again
    limit = x->first_byte_ns || !x->first_byte_timeout_ns ? http_client_stall_timeout_ns(c->client)
                                                          : x->first_byte_timeout_ns;
    if (c->paused)
        c->last_activity_ns = now; // it is us who wait
    if (now >= c->last_activity_ns + limit) {
        http_conn_fail(c, -ETIMEDOUT,
                       x->first_byte_ns ? "the answer stopped coming" : "no answer came in time");
        return;
    }
    loop_timer_start_ns(t, c->last_activity_ns + limit - now);
}

static void watch_for_stall(struct http_conn *c)
{
    uint64_t limit = http_client_stall_timeout_ns(c->client);

    if (c->x->first_byte_timeout_ns)
        limit = MIN(limit, c->x->first_byte_timeout_ns);
    // one that fires early finds nothing to do
    if (!loop_timer_active(&c->stall) || c->stall.due_ns > c->last_activity_ns + limit)
        loop_timer_start_ns(&c->stall, limit);
}

// --- life ---

void http_conn_start(struct http_conn *c, struct http_exchange *x)
{
    assert(c->state == CONN_IDLE || c->state == CONN_CONNECTING);
    c->state = CONN_BUSY;
    c->x = x;
    c->keep_alive = true;
    c->paused = false;
    c->iov_at = 0;
    c->iov_off = 0;
    c->sending = true;
    c->last_activity_ns = clock_monotonic_ns();
    x->conn = c;
    x->started_ns = c->last_activity_ns;
    snprintf(x->peer, sizeof(x->peer), "%s", http_link_peer(c->bytes));
    http_recv_begin(c);
    watch_for_stall(c);
    send_request(c);
}

static void on_connected(struct http_link *link, int error, void *arg)
{
    struct http_conn *c = arg;
    struct http_client_stats *stats = http_client_counters(c->client);

    if (!error)
        error = loop_io_new(&c->io, c->loop, http_link_fd(link), on_ready, c);
    if (error) {
        counter_add(&stats->connect_failures, 1);
        log_debug("net", "connecting to %s port %u: %s", c->host, c->port,
                  http_link_error_text(link));
        http_conn_fail(c, error, http_link_error_text(link));
        return;
    }
    counter_add(&stats->connections_opened, 1);
    histogram_add(&stats->connect_time, clock_monotonic_ns() - c->opened_ns);
    http_conn_start(c, c->x);
}

struct http_conn *http_conn_open(struct http_client *cl, struct http_link_env *env,
                                 struct http_exchange *x, int *ret_error)
{
    struct http_conn *c = xcalloc(1, sizeof(*c));
    int rc;

    rc = http_link_open(&c->bytes, env, x->tls, x->host, x->port, on_connected, c);
    if (rc < 0) {
        free(c);
        *ret_error = rc;
        return NULL;
    }
    list_init(&c->link);
    c->client = cl;
    c->loop = env->loop;
    c->state = CONN_CONNECTING;
    c->x = x;
    c->tls = x->tls;
    c->host = xstrdup(x->host);
    c->port = x->port;
    c->opened_ns = clock_monotonic_ns();
    loop_timer_init(&c->stall, c->loop, on_stall);
    x->conn = c;
    return c;
}

bool http_conn_serves(const struct http_conn *c, const struct http_exchange *x)
{
    return c->tls == x->tls && c->port == x->port && !strcasecmp(c->host, x->host);
}

bool http_conn_is_quiet(struct http_conn *c)
{
    char byte;
    struct iovec iov = {&byte, 1};

    return http_link_recv(c->bytes, &iov, 1) == -EAGAIN;
}

static void bye(struct loop_msg *msg)
{
    struct http_conn *c = container_of(msg, struct http_conn, bye);

    free(c->in);
    free(c->host);
    free(c);
}

void http_conn_close(struct http_conn *c)
{
    if (c->state == CONN_CLOSED)
        return;
    http_client_conn_closed(c->client, c);
    c->state = CONN_CLOSED;
    c->x = NULL;
    loop_timer_stop(&c->stall);
    loop_io_free(c->io);
    http_link_close(c->bytes);
    c->io = NULL;
    c->bytes = NULL;
    loop_post(c->loop, &c->bye, bye);
}

static void go_on(struct loop_msg *msg)
{
    struct http_conn *c = container_of(msg, struct http_conn, kick);

    c->kicked = false;
    if (c->state == CONN_BUSY && !c->paused)
        http_recv_run(c);
}

void http_conn_kick(struct http_conn *c)
{
    if (c->kicked)
        return;
    c->kicked = true;
    loop_post(c->loop, &c->kick, go_on);
}

void http_conn_resume(struct http_conn *c)
{
    if (!c->paused)
        return;
    c->paused = false;
    c->last_activity_ns = clock_monotonic_ns();
    loop_io_want(c->io, LOOP_READ);
    http_conn_kick(c);
}
