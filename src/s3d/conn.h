// SPDX-License-Identifier: Apache-2.0
// One connection of a client.
#pragma once

#include "s3d/request.h"
#include "s3d/server.h"

#include <sys/uio.h>

//            ┌───────────────── keep-alive ─────────────────┐
//            ▼                                              │
//   HEAD ─► BODY ─► WAIT (latency, faults) ─► SEND ◄─► PACE ┤
//                                              │            ▼
//                                              └► STALL   CLOSED
enum conn_state {
    CONN_HEAD,  // reading a request's head
    CONN_BODY,  // reading its body
    CONN_WAIT,  // the answer is ready and not due yet
    CONN_SEND,  // sending
    CONN_PACE,  // sending, held back by a bandwidth limit
    CONN_STALL, // a fault holds it
    CONN_CLOSED // being taken down
};

enum conn_ending { CONN_ORDERLY, CONN_RESET };

struct conn {
    struct worker *worker;
    struct list link; // worker's conns
    int fd;
    struct loop_io *io;
    SSL *ssl; // NULL: plain
    bool ssl_ready;
    size_t ssl_retry; // the length that a blocked SSL_write has to be called with again
    enum conn_state state;
    struct loop_timer timer; // of WAIT, PACE, STALL; of idle connections
    bool wants_write, eof;
    uint64_t n_requests;

    // what has been read and not used; the head being served is at its start
    char *in;
    size_t in_len, in_size, head_len;
    struct http_chunked chunked;
    uint64_t body_left; // of a body with a length
    bool expects_continue;

    struct request request;
    uint64_t arrived_ns;

    // sending
    struct buf out; // the head
    size_t out_sent;
    uint64_t body_len; // to be sent, which a fault may have changed
    uint64_t body_sent;
    uint64_t stop_at;      // where in the body a fault strikes; UINT64_MAX: nowhere
    bool stop_before_head; // or before everything
    uint64_t granted;      // bytes that the pacers let through
    struct pacer pace;
};

// Owns fd from now on. On the worker's thread.
void conn_new(struct worker *w, int fd);
void conn_free(struct conn *c, enum conn_ending how);
void conn_step(struct conn *c); // goes on as far as possible; c may be gone afterwards

// conn_send.c: begins to send the response; goes on with it. 1 when all is sent, 0 when it waits
// (for the socket, a pacer or a fault's end), negative when the connection is to be reset, and
// CONN_SEND_CLOSE when it is to be closed.
enum { CONN_SEND_CLOSE = 2 };
void conn_send_begin(struct conn *c);
int conn_send_step(struct conn *c);

// wire.c: TCP or TLS. Bytes moved; 0 at the end (reading); -EAGAIN; another -errno.
ssize_t wire_read(struct conn *c, void *out, size_t len);
ssize_t wire_writev(struct conn *c, const struct iovec *iov, int n, bool more);
ssize_t wire_sendfile(struct conn *c, int fd, uint64_t off, size_t len);
int wire_handshake(struct conn *c); // 0, -EAGAIN, or another -errno
