// SPDX-License-Identifier: Apache-2.0
#include "s3d/conn.h"

#include "base/clock.h"
#include "base/log.h"
#include "s3d/auth.h"
#include "s3d/fault_answer.h"
#include "s3d/options.h"
#include "s3d/request_log.h"
#include "s3d/response.h"

#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_FIRST (8 * KIB)
#define IN_MAX   (HTTP_MAX_HEAD_BYTES + 4 * KIB)

// --- life ---

static void on_io(struct loop_io *io, unsigned events, void *arg);
static void on_timer(struct loop_timer *t);

void conn_new(struct worker *w, int fd)
{
    struct conn *c = xcalloc(1, sizeof(*c));
    int one = 1;

    c->worker = w;
    c->fd = fd;
    c->in = xmalloc(IN_FIRST);
    c->in_size = IN_FIRST;
    request_init(&c->request, w);
    loop_timer_init(&c->timer, w->loop, on_timer);
    list_push_back(&w->conns, &c->link);
    counter_add(&w->counters.connections, 1);
    atomic_fetch_add(&w->server->open_connections, 1);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (w->server->tls) {
        c->ssl = SSL_new(w->server->tls);
        if (!c->ssl || !SSL_set_fd(c->ssl, fd)) {
            conn_free(c, CONN_RESET);
            return;
        }
        SSL_set_accept_state(c->ssl);
    }
    if (loop_io_new(&c->io, w->loop, fd, on_io, c) < 0) {
        conn_free(c, CONN_RESET);
        return;
    }
    conn_step(c);
}

static void leave_flight(struct conn *c)
{
    if (op_is_s3(c->request.op))
        atomic_fetch_sub_explicit(&c->worker->server->in_flight, 1, memory_order_relaxed);
}

void conn_free(struct conn *c, enum conn_ending how)
{
    if (c->state > CONN_HEAD) {
        leave_flight(c);
        counter_add(&c->worker->counters.broken, 1);
        if (c->state > CONN_BODY)
            request_log_write(c);
    }
    if (how == CONN_RESET) {
        struct linger now = {.l_onoff = 1};

        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    } else if (c->ssl && c->ssl_ready) {
        SSL_shutdown(c->ssl);
        ERR_clear_error();
    }
    list_remove(&c->link);
    loop_timer_stop(&c->timer);
    loop_io_free(c->io);
    SSL_free(c->ssl);
    close(c->fd);
    request_fini(&c->request);
    buf_free(&c->out);
    free(c->in);
    atomic_fetch_sub(&c->worker->server->open_connections, 1);
    free(c);
}

// --- reading ---

// Bytes that are decrypted already: no event will announce them.
static bool tls_has_more(const struct conn *c)
{
    return c->ssl && SSL_pending(c->ssl) > 0;
}

// Reads what fits; false when the connection is gone.
static bool fill(struct conn *c)
{
    // while a request is served its head must not move
    size_t room = c->in_size - c->in_len;
    ssize_t n;

    if (c->state == CONN_HEAD && room < KIB && c->in_size < IN_MAX) {
        c->in_size = MIN(2 * c->in_size, IN_MAX);
        c->in = xrealloc(c->in, c->in_size);
        room = c->in_size - c->in_len;
    }
    if (!room || c->eof)
        return true;
    n = wire_read(c, c->in + c->in_len, room);
    if (n == -EAGAIN)
        return true;
    if (n < 0)
        return false;
    if (n == 0)
        c->eof = true;
    c->in_len += (size_t)n;
    return true;
}

static void want(struct conn *c)
{
    unsigned events = 0;
    bool reads = c->state <= CONN_BODY || c->in_len < c->in_size;

    if (!c->eof && reads)
        events |= LOOP_READ;
    if (c->wants_write || c->state == CONN_SEND)
        events |= LOOP_WRITE;
    if (c->ssl && !c->ssl_ready)
        events = c->wants_write ? LOOP_WRITE : LOOP_READ;
    loop_io_want(c->io, events);
}

static void begin_head(struct conn *c)
{
    uint64_t idle_ns = c->worker->server->options->idle_timeout_ns;

    c->state = CONN_HEAD;
    if (idle_ns)
        loop_timer_start_ns(&c->timer, idle_ns);
}

static void enter_flight(struct conn *c)
{
    struct server *s = c->worker->server;
    unsigned now, peak;

    if (!op_is_s3(c->request.op))
        return;
    now = atomic_fetch_add_explicit(&s->in_flight, 1, memory_order_relaxed) + 1;
    peak = atomic_load_explicit(&s->peak_in_flight, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak(&s->peak_in_flight, &peak, now))
        ;
}

// --- a request ---

// The head has come: what is asked, may it be, and what becomes of the body.
static void start_request(struct conn *c)
{
    struct request *r = &c->request;
    const char *expect = request_header(r, "expect");
    enum s3_error error;

    r->id = ++r->worker->next_id;
    r->response.close = !r->head.keep_alive;
    c->arrived_ns = clock_monotonic_ns();
    c->n_requests++;
    c->chunked = (struct http_chunked){0};
    c->body_left = r->head.content_length > 0 ? (uint64_t)r->head.content_length : 0;
    c->expects_continue = expect && !strcasecmp(expect, "100-continue");
    error = request_route(r);
    enter_flight(c);
    counter_add(&r->worker->counters.ops[r->op], 1);
    if (error) {
        response_error(r, error);
        return;
    }
    fault_decide(r);
    if (!fault_answers(r) && auth_check(r))
        op_handler(r->op)->start(r);
}

static void finish_request(struct conn *c)
{
    struct request *r = &c->request;

    if (!r->response.status) {
        enum s3_error error = payload_end(r);

        if (error)
            response_error(r, error);
        else
            op_handler(r->op)->finish(r);
    }
    assert(r->response.status);
}

static void begin_body(struct conn *c)
{
    struct request *r = &c->request;

    c->state = CONN_BODY;
    // for an empty body, too: botocore waits for it, and takes the next answer on the connection
    // wrongly when none came
    if (!c->expects_continue)
        return;
    if (r->response.status) {
        // the client waits for a word before it sends the body: it will not be asked to
        c->body_left = 0;
        r->head.chunked = false;
        r->response.close = true;
    } else {
        static char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
        struct iovec iov = {text, sizeof(text) - 1};

        wire_writev(c, &iov, 1, false);
    }
}

static void take_body(struct conn *c, const char *data, size_t len)
{
    if (!len)
        return;
    counter_add(&c->worker->counters.body_bytes_in, len);
    if (!c->request.response.status)
        payload_feed(&c->request, data, len);
}

// Uses up to len bytes of the body's transfer; how many, or -EBADMSG.
static ssize_t use_body(struct conn *c, const char *data, size_t len)
{
    size_t used = 0;

    if (!c->request.head.chunked) {
        used = (size_t)MIN(c->body_left, len);
        take_body(c, data, used);
        c->body_left -= used;
        return (ssize_t)used;
    }
    while (used < len && !c->chunked.done) {
        size_t n = (size_t)MIN(c->chunked.data_left, len - used);

        if (n) {
            take_body(c, data + used, n);
            http_chunked_took(&c->chunked, n);
        } else {
            ssize_t taken = http_chunked_feed(&c->chunked, data + used, len - used);

            if (taken < 0)
                return taken;
            n = (size_t)taken;
        }
        used += n;
    }
    return (ssize_t)used;
}

static bool body_is_complete(const struct conn *c)
{
    return c->request.head.chunked ? c->chunked.done : c->body_left == 0;
}

// What was read beyond the body is the beginning of the next request.
static bool keep_leftover(struct conn *c, const char *data, size_t len)
{
    if (len > c->in_size - c->in_len)
        return false;
    memcpy(c->in + c->in_len, data, len);
    c->in_len += len;
    return true;
}

// 1 when the body is complete, 0 when more has to come, negative when the connection is of no use.
static int read_body(struct conn *c)
{
    ssize_t used = use_body(c, c->in + c->head_len, c->in_len - c->head_len);

    if (used < 0)
        return (int)used;
    c->in_len -= (size_t)used;
    memmove(c->in + c->head_len, c->in + c->head_len + used, c->in_len - c->head_len);
    // a few rounds, so that one fast upload doesn't keep the others waiting
    for (int round = 0; (round < 16 || tls_has_more(c)) && !body_is_complete(c); round++) {
        char *scratch = c->worker->scratch;
        ssize_t n = wire_read(c, scratch, WORKER_SCRATCH);

        if (n == -EAGAIN)
            return 0;
        if (n <= 0)
            return -ECONNRESET;
        used = use_body(c, scratch, (size_t)n);
        if (used < 0 || !keep_leftover(c, scratch + used, (size_t)(n - used)))
            return -EBADMSG;
    }
    return body_is_complete(c);
}

// --- answering ---

static void begin_answer(struct conn *c)
{
    struct request *r = &c->request;
    uint64_t delay_ns = 0, spent_ns;
    uint64_t max = r->worker->server->options->max_requests;

    if (max && c->n_requests >= max)
        r->response.close = true;
    conn_send_begin(c);
    if (op_is_s3(r->op))
        delay_ns = worker_draw_latency_ns(c->worker);
    if (r->fault.action == FAULT_DELAY)
        delay_ns += r->fault.ns;
    spent_ns = clock_monotonic_ns() - c->arrived_ns;
    if (delay_ns > spent_ns) {
        c->state = CONN_WAIT;
        loop_timer_start_ns(&c->timer, delay_ns - spent_ns);
    } else {
        c->state = CONN_SEND;
    }
}

// The answer is out: the connection is ready for the next request, or false when it is to close.
static bool end_request(struct conn *c)
{
    struct request *r = &c->request;
    bool close_it = r->response.close || r->fault.action == FAULT_HANGUP;

    request_log_write(c);
    leave_flight(c);
    c->state = CONN_HEAD;
    request_reset(r);
    c->in_len -= c->head_len;
    memmove(c->in, c->in + c->head_len, c->in_len);
    c->head_len = 0;
    if (close_it)
        return false;
    begin_head(c);
    return true;
}

static int step_head(struct conn *c)
{
    struct request *r = &c->request;
    ssize_t n = c->in_len ? http_head_parse(&r->head, HTTP_REQUEST, c->in, c->in_len) : 0;

    if (n == 0)
        return c->eof || c->in_len == IN_MAX ? -ECONNRESET : 0;
    if (n < 0) {
        // whatever it was, it was not HTTP
        static char text[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n"
                             "Connection: close\r\n\r\n";
        struct iovec iov = {text, sizeof(text) - 1};

        wire_writev(c, &iov, 1, false);
        return -EBADMSG;
    }
    loop_timer_stop(&c->timer);
    c->head_len = (size_t)n;
    c->state = CONN_BODY;
    start_request(c);
    begin_body(c);
    return 1;
}

static int step_body(struct conn *c)
{
    int rc = read_body(c);

    if (rc > 0) {
        finish_request(c);
        begin_answer(c);
    }
    return rc;
}

// 1: the state has changed, go on; 0: wait; negative: c is gone.
static int step_send(struct conn *c)
{
    int rc = conn_send_step(c);

    if (rc == 0)
        return 0;
    if (rc == 1 && end_request(c))
        return 1;
    conn_free(c, rc < 0 ? CONN_RESET : CONN_ORDERLY);
    return -1;
}

void conn_step(struct conn *c)
{
    int rc = wire_handshake(c);

    if (rc == 0)
        rc = 1;
    while (rc == 1) {
        switch (c->state) {
        case CONN_HEAD:
            rc = step_head(c);
            if (rc == 0 && tls_has_more(c))
                rc = fill(c) ? 1 : -ECONNRESET;
            break;
        case CONN_BODY:
            rc = step_body(c);
            break;
        case CONN_SEND:
            rc = step_send(c);
            if (rc < 0)
                return;
            break;
        default:
            rc = 0;
        }
    }
    if (rc < 0 && rc != -EAGAIN) {
        conn_free(c, CONN_ORDERLY);
        return;
    }
    want(c);
}

static void on_io(struct loop_io *io, unsigned events, void *arg)
{
    struct conn *c = arg;
    bool ready = wire_handshake(c) == 0;

    c->wants_write = c->wants_write && !ready;
    if (ready && (events & LOOP_READ) && c->state != CONN_BODY && !fill(c)) {
        conn_free(c, CONN_RESET);
        return;
    }
    // a stalled answer ends when its client gives up
    if (c->eof && c->state == CONN_STALL) {
        conn_free(c, CONN_ORDERLY);
        return;
    }
    conn_step(c);
}

static void on_timer(struct loop_timer *t)
{
    struct conn *c = container_of(t, struct conn, timer);

    if (c->state == CONN_HEAD) {
        conn_free(c, CONN_ORDERLY); // idle
        return;
    }
    c->state = CONN_SEND;
    conn_step(c);
}
