// SPDX-License-Identifier: Apache-2.0
// Receiving a response. Its head goes through a small buffer; what of the body came with it is
// copied once, everything else is read straight into the room that the exchange gives.
//
// A call-back of the exchange may cancel it, or anything else: after each, whether the connection
// still serves this exchange is looked at before either is touched.
#include "net/http_conn.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define IN_SIZE     4096 // most heads; a larger one grows it up to HTTP_MAX_HEAD_BYTES
#define ROOM_IOVS   64
#define FAIR_SHARE  (1 * MIB) // before the loop's other connections have their turn
#define MAX_INTERIM 16        // 1xx heads before the final one

enum next {
    GO_ON,
    WAIT, // for the descriptor, or for resume
    GONE, // the exchange has ended, the connection is not ours any more
};

void http_recv_begin(struct http_conn *c)
{
    c->recv = RECV_HEAD;
    c->in_pos = c->in_len = 0;
    c->interim = 0;
    c->body_left = 0;
    c->until_close = false;
    c->chunked = (struct http_chunked){0};
}

static enum next fail(struct http_conn *c, int error, const char *text)
{
    http_conn_fail(c, error, text);
    return GONE;
}

static enum next complete(struct http_conn *c)
{
    http_conn_complete(c);
    return GONE;
}

// The stream has ended (got 0) or broken where more was due.
static enum next cut_short(struct http_conn *c, ssize_t got)
{
    const char *text = c->x->first_byte_ns ? "the connection was closed within the answer"
                                           : "the connection was closed before an answer";

    http_conn_broken(c, got == 0 ? -ECONNRESET : (int)got, text);
    return GONE;
}

static void note_received(struct http_conn *c, size_t n)
{
    c->last_activity_ns = clock_monotonic_ns();
    if (!c->x->first_byte_ns)
        c->x->first_byte_ns = c->last_activity_ns;
    counter_add(&http_client_counters(c->client)->bytes_in, n);
}

// Reads more into the buffer, behind what is there.
static enum next fill(struct http_conn *c)
{
    struct iovec iov;
    ssize_t got;

    if (c->in_pos == c->in_len)
        c->in_pos = c->in_len = 0;
    if (c->in_len == c->in_size && c->in_pos > 0) {
        memmove(c->in, c->in + c->in_pos, c->in_len - c->in_pos);
        c->in_len -= c->in_pos;
        c->in_pos = 0;
    }
    if (c->in_len == c->in_size) {
        c->in_size = c->in_size ? 2 * c->in_size : IN_SIZE;
        c->in = xrealloc(c->in, c->in_size);
    }
    iov = (struct iovec){c->in + c->in_len, c->in_size - c->in_len};
    got = http_link_recv(c->bytes, &iov, 1);
    if (got == -EAGAIN)
        return WAIT;
    if (got <= 0)
        return cut_short(c, got);
    c->in_len += (size_t)got;
    note_received(c, (size_t)got);
    return GO_ON;
}

// --- head ---

// How the body is framed (RFC 9112 §6.3). 0 or -EBADMSG.
static int begin_body(struct http_conn *c, const struct http_head *head)
{
    c->recv = RECV_BODY;
    c->keep_alive = c->keep_alive && head->keep_alive;
    if (c->x->head_only || head->status == 204 || head->status == 304) {
        c->body_left = 0;
    } else if (head->chunked) {
        c->recv = RECV_CHUNKED;
    } else if (head->content_length >= 0) {
        c->body_left = (uint64_t)head->content_length;
    } else {
        // Only a server that said it would close may mark the end by closing: from others a
        // body cut short could not be told from a whole one.
        if (head->keep_alive)
            return -EBADMSG;
        c->until_close = true;
        c->body_left = UINT64_MAX;
    }
    return 0;
}

static enum next recv_head(struct http_conn *c)
{
    struct http_exchange *x = c->x;
    struct http_head head;
    ssize_t len = 0;
    int rc;

    if (c->in_pos < c->in_len)
        len = http_head_parse(&head, HTTP_RESPONSE, c->in + c->in_pos, c->in_len - c->in_pos);
    if (len < 0)
        return fail(c, -EBADMSG, "the answer is not HTTP");
    if (len == 0)
        return fill(c);
    c->in_pos += (size_t)len;
    if (head.status == 101 || (head.status < 200 && ++c->interim > MAX_INTERIM))
        return fail(c, -EBADMSG, "an interim answer that was not asked for");
    if (head.status < 200)
        return GO_ON;

    if (c->sending) {
        // it has made up its mind without the rest of the request
        c->sending = false;
        c->keep_alive = false;
        loop_io_want(c->io, LOOP_READ);
    }
    if (begin_body(c, &head) < 0)
        return fail(c, -EBADMSG, "the answer does not say where it ends");
    x->content_length = head.content_length;
    rc = x->on_head(x, &head);
    if (c->x != x)
        return GONE;
    return rc < 0 ? fail(c, rc, NULL) : GO_ON;
}

// --- body ---

// Limits iov to len bytes in all; returns how many iovecs are left.
static int trim(struct iovec *iov, int n, uint64_t len, size_t *ret_total)
{
    int i;

    *ret_total = 0;
    for (i = 0; i < n && len > 0; i++) {
        iov[i].iov_len = (size_t)MIN((uint64_t)iov[i].iov_len, len);
        len -= iov[i].iov_len;
        *ret_total += iov[i].iov_len;
    }
    return i;
}

static size_t copy_out(struct http_conn *c, const struct iovec *iov, int n)
{
    size_t total = 0;

    for (int i = 0; i < n && c->in_pos < c->in_len; i++) {
        size_t len = MIN(iov[i].iov_len, c->in_len - c->in_pos);

        memcpy(iov[i].iov_base, c->in + c->in_pos, len);
        c->in_pos += len;
        total += len;
    }
    return total;
}

// Up to left bytes of body go where the exchange wants them.
static enum next move_body(struct http_conn *c, uint64_t left, size_t *budget)
{
    struct http_exchange *x = c->x;
    struct iovec iov[ROOM_IOVS];
    bool drained = false;
    size_t room;
    ssize_t got;
    int n, rc;

    if (*budget == 0) {
        if (c->in_pos < c->in_len || http_link_buffers(c->bytes))
            http_conn_kick(c);
        return WAIT;
    }
    n = x->on_room(x, iov, ROOM_IOVS);
    if (c->x != x)
        return GONE;
    if (n < 0)
        return fail(c, n, NULL);
    if (n == 0) {
        c->paused = true;
        loop_io_want(c->io, 0);
        return WAIT;
    }
    n = trim(iov, n, MIN(left, (uint64_t)*budget), &room);
    if (c->in_pos < c->in_len) {
        got = (ssize_t)copy_out(c, iov, n);
    } else {
        got = http_link_recv(c->bytes, iov, n);
        if (got == -EAGAIN)
            return WAIT;
        if (got == 0 && c->until_close)
            return complete(c);
        if (got <= 0)
            return cut_short(c, got);
        note_received(c, (size_t)got);
        drained = (size_t)got < room && !http_link_buffers(c->bytes);
    }
    *budget -= MIN(*budget, (size_t)got);
    x->body_len += (uint64_t)got;
    if (c->recv == RECV_CHUNKED)
        http_chunked_took(&c->chunked, (uint64_t)got);
    else if (!c->until_close)
        c->body_left -= (uint64_t)got;
    rc = x->on_body(x, (size_t)got);
    if (c->x != x)
        return GONE;
    if (rc < 0)
        return fail(c, rc, NULL);
    // asking a socket that has given all it had only costs a system call
    return drained && (uint64_t)got < left ? WAIT : GO_ON;
}

static enum next recv_body(struct http_conn *c, size_t *budget)
{
    return c->body_left ? move_body(c, c->body_left, budget) : complete(c);
}

static enum next recv_chunked(struct http_conn *c, size_t *budget)
{
    ssize_t took;

    if (c->chunked.data_left)
        return move_body(c, c->chunked.data_left, budget);
    if (c->chunked.done)
        return complete(c);
    if (c->in_pos == c->in_len)
        return fill(c);
    took = http_chunked_feed(&c->chunked, c->in + c->in_pos, c->in_len - c->in_pos);
    if (took < 0)
        return fail(c, -EBADMSG, "the answer's chunks are broken");
    c->in_pos += (size_t)took;
    return GO_ON;
}

void http_recv_run(struct http_conn *c)
{
    size_t budget = FAIR_SHARE;
    enum next next = GO_ON;

    while (next == GO_ON) {
        switch (c->recv) {
        case RECV_HEAD:
            next = recv_head(c);
            break;
        case RECV_BODY:
            next = recv_body(c, &budget);
            break;
        case RECV_CHUNKED:
            next = recv_chunked(c, &budget);
            break;
        }
    }
}
