// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "s3d/conn.h"
#include "s3d/options.h"
#include "s3d/response.h"

#include <string.h>

// Below this a copy costs less than the pinning and splicing of pages that sendfile does.
#define COPY_MAX (32 * KIB)
// Bytes for one connection before the others get their turn.
#define TURN_MAX (4 * MIB)

// --- faults that change what is sent ---

static uint64_t place(const struct fault_at *at, uint64_t body_len)
{
    return at->kind == FAULT_AT_FRACTION ? (uint64_t)((double)body_len * at->fraction) : at->byte;
}

// Sets the length that the head promises, what is sent, and where it stops.
static uint64_t apply_fault(struct conn *c)
{
    const struct fault *f = &c->request.fault;
    uint64_t len = response_body_len(&c->request), n = (uint64_t)f->number;

    c->body_len = len;
    c->stop_at = UINT64_MAX;
    c->stop_before_head = false;
    c->pace.bytes_per_s = c->worker->server->options->bandwidth;
    switch (f->action) {
    case FAULT_SHORT:
        c->body_len = len - MIN(n, len);
        return c->body_len;
    case FAULT_LONG:
        c->body_len = len + n;
        return c->body_len;
    case FAULT_GARBAGE:
        c->body_len = len + n;
        return len;
    case FAULT_RATE:
        c->pace.bytes_per_s = n;
        return len;
    case FAULT_RESET:
    case FAULT_CLOSE:
    case FAULT_STALL:
        if (f->at.kind == FAULT_AT_HEAD)
            c->stop_before_head = true;
        else
            c->stop_at = MIN(place(&f->at, len), len);
        return len;
    default:
        return len;
    }
}

void conn_send_begin(struct conn *c)
{
    struct request *r = &c->request;
    uint64_t promised = apply_fault(c);

    buf_reset(&c->out);
    response_write_head(r, promised, &c->out);
    c->out_sent = 0;
    c->body_sent = 0;
    c->granted = 0;
    if (response_is_bodyless(r)) {
        c->body_len = 0;
        c->stop_at = c->stop_at == UINT64_MAX ? UINT64_MAX : 0;
    }
    counter_add(&c->worker->counters.statuses[r->response.status], 1);
    counter_add(&c->worker->counters.head_bytes_out, c->out.len);
}

// The moment has come.
static int strike(struct conn *c)
{
    const struct fault *f = &c->request.fault;

    c->stop_before_head = false;
    c->stop_at = UINT64_MAX;
    if (f->action == FAULT_RESET)
        return -ECONNRESET;
    if (f->action == FAULT_CLOSE)
        return CONN_SEND_CLOSE;
    c->state = CONN_STALL;
    if (f->ns != UINT64_MAX)
        loop_timer_start_ns(&c->timer, f->ns);
    return 0;
}

// --- bytes ---

// The next bytes of the body, at most max.
static struct piece next_piece(struct conn *c, uint64_t at, uint64_t max)
{
    static const uint8_t junk[4096];
    struct response *p = &c->request.response;
    uint64_t real = response_body_len(&c->request);
    struct piece piece;

    if (at >= real) {
        piece = (struct piece){.mem = junk, .fd = -1, .len = sizeof(junk)};
    } else {
        if (p->has_object)
            piece = object_piece(&p->object, &c->worker->server->table, p->body_off + at);
        else
            piece = (struct piece){
                .mem = (const uint8_t *)p->text.data + at, .fd = -1, .len = real - at};
        piece.len = MIN(piece.len, real - at);
    }
    piece.len = MIN(piece.len, max);
    return piece;
}

static bool is_copied(const struct piece *p)
{
    return p->mem && (p->fd < 0 || p->len <= COPY_MAX);
}

// What is left of the head and, in the same packet, a body that is worth copying.
static ssize_t send_head(struct conn *c, uint64_t max)
{
    size_t head = c->out.len - c->out_sent;
    struct iovec iov[4] = {{c->out.data + c->out_sent, head}};
    uint64_t at = c->body_sent;
    bool copies = true;
    ssize_t n;
    int used = 1;

    while (max && copies && used < (int)ARRAY_LEN(iov)) {
        struct piece p = next_piece(c, at, max);

        copies = is_copied(&p);
        if (copies) {
            iov[used++] = (struct iovec){(void *)p.mem, (size_t)p.len};
            at += p.len;
            max -= p.len;
        }
    }
    n = wire_writev(c, iov, used, max > 0);
    if (n <= 0)
        return n;
    c->out_sent += MIN((size_t)n, head);
    return n > (ssize_t)head ? n - (ssize_t)head : 0;
}

static ssize_t send_body(struct conn *c, uint64_t max)
{
    struct piece p = next_piece(c, c->body_sent, MIN(max, TURN_MAX));
    struct iovec iov = {(void *)p.mem, (size_t)p.len};

    if (is_copied(&p))
        return wire_writev(c, &iov, 1, false);
    return wire_sendfile(c, p.fd, p.file_off, (size_t)p.len);
}

// Asks the pacers for the next bytes; false when the connection has to wait.
static bool get_grant(struct conn *c)
{
    struct pacer *total = &c->worker->server->total;
    uint64_t now, when, total_when, step = MIB;

    if (c->granted || !(c->pace.bytes_per_s || total->bytes_per_s))
        return true;
    if (c->pace.bytes_per_s)
        step = MIN(step, pacer_step(c->pace.bytes_per_s));
    if (total->bytes_per_s)
        step = MIN(step, pacer_step(total->bytes_per_s));
    c->granted = MIN(step, c->body_len - c->body_sent);
    now = clock_monotonic_ns();
    when = pacer_reserve_ns(&c->pace, now, c->granted);
    total_when = pacer_reserve_ns(total, now, c->granted);
    when = MAX(when, total_when);
    if (when <= now)
        return true;
    c->state = CONN_PACE;
    loop_timer_start_ns(&c->timer, when - now);
    return false;
}

int conn_send_step(struct conn *c)
{
    bool paced = c->pace.bytes_per_s || c->worker->server->total.bytes_per_s;
    uint64_t turn = 0;

    if (c->stop_before_head && c->out_sent == 0)
        return strike(c);
    while (c->out_sent < c->out.len || c->body_sent < c->body_len) {
        uint64_t max = MIN(c->body_len, c->stop_at) - c->body_sent;
        bool in_head = c->out_sent < c->out.len;
        ssize_t n;

        if (!in_head && !max)
            break;
        if (max && !get_grant(c))
            return 0;
        if (paced)
            max = MIN(max, c->granted);
        n = in_head ? send_head(c, max) : send_body(c, max);
        if (n < 0)
            return n == -EAGAIN ? 0 : (int)n;
        c->body_sent += (uint64_t)n;
        c->granted -= paced ? (uint64_t)n : 0;
        counter_add(&c->worker->counters.body_bytes_out, (uint64_t)n);
        if (c->request.response.has_object)
            counter_add(&c->worker->counters.object_bytes_out, (uint64_t)n);
        turn += (uint64_t)n;
        if (turn >= TURN_MAX)
            return 0; // writable as it is, it comes round again
    }
    if (c->stop_at != UINT64_MAX)
        return strike(c);
    return c->request.fault.action == FAULT_GARBAGE ? CONN_SEND_CLOSE : 1;
}
