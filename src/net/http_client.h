// SPDX-License-Identifier: Apache-2.0
// net/: HTTP/1.1 exchanges on pooled keep-alive connections. libcurl connects (names, proxies,
// TLS); the framing is ours, so that a body's bytes go from the socket (or TLS) straight to where
// the caller wants them. Uses loop/ and base/.
//
// One client per loop; all functions and call-backs are on that loop's thread. A program whose
// main thread is the loop ignores SIGPIPE (the threads of loop_start have it blocked).
#pragma once

#include "base/counter.h"
#include "loop/loop.h"
#include "net/http_head.h"

#include <sys/uio.h>

struct http_client;

struct http_client_config {
    const char *ca_file; // PEM of trusted authorities; NULL: the system's
    const char *proxy; // URL; "": none; NULL: https_proxy, http_proxy, no_proxy of the environment
    unsigned max_connections; // over all origins; further exchanges wait in line
    uint64_t connect_timeout_ns;
    uint64_t stall_timeout_ns; // no byte in either direction: the exchange ends with -ETIMEDOUT
    uint64_t idle_timeout_ns;  // an unused connection is closed after this
};

struct http_client_stats {
    struct counter connections_opened, connections_closed, connect_failures;
    struct counter exchanges, stale_retries; // kept-alive connection found dead before an answer
    struct counter bytes_in, bytes_out;      // heads and bodies, before TLS
    struct histogram connect_time;
};

// Whether a file of trusted authorities is one: 0, or -errno and a sentence.
int http_ca_file_check(const char *path, char **ret_error);
// Whether it is a proxy's URL, the same way.
int http_proxy_check(const char *url, char **ret_error);

// Strings of config are copied. 0; -EINVAL when ca_file holds no certificate; -errno.
int http_client_new(struct http_client **ret, struct loop *l, const struct http_client_config *c);
// Every exchange must have ended. NULL is allowed.
void http_client_free(struct http_client *c);
const struct http_client_stats *http_client_stats(const struct http_client *c); // any thread
// In use and idle connections, exchanges in line. For load control and tests.
unsigned http_client_active(const struct http_client *c);
unsigned http_client_idle(const struct http_client *c);
unsigned http_client_waiting(const struct http_client *c);
void http_client_set_max_connections(struct http_client *c, unsigned n);

enum http_priority { HTTP_DEMAND, HTTP_BACKGROUND, HTTP_PRIORITIES };

// One request and its response. Embedded in the caller's operation.
struct http_exchange {
    // --- set by the caller before http_exchange_start; all stays valid until on_done ---
    bool tls;
    const char *host; // name or address, without brackets; also the name TLS verifies
    uint16_t port;
    const struct iovec *request; // the whole head (with Host) and body, ready to send
    int request_iovs;
    bool head_only; // HEAD: the response has no body whatever it says
    // May be sent again, once, if a kept-alive connection turns out dead before any byte of
    // answer came. (GET, HEAD, LIST; not for anything whose body is not at hand.)
    bool resend_when_stale;
    enum http_priority priority;
    uint64_t first_byte_timeout_ns; // 0: the client's stall_timeout

    // The final head has arrived (1xx are passed over). <0 ends the exchange with that error.
    // head is valid during the call only.
    int (*on_head)(struct http_exchange *x, const struct http_head *head);
    // Where the next body bytes go: fills up to max iovecs, returns how many (0: stop reading
    // until http_exchange_resume), or <0 to end the exchange with that error. The memory must
    // stay valid until the next on_body, on_room or on_done.
    int (*on_room)(struct http_exchange *x, struct iovec *iov, int max);
    // n > 0 bytes have landed in the iovecs of the last on_room, in order. <0 ends the exchange.
    int (*on_body)(struct http_exchange *x, size_t n);
    // The end, exactly once, never from within http_exchange_start or _cancel:
    // 0 when the response was complete; -ECANCELED; -ETIMEDOUT; -ECONNRESET or -EPIPE when the
    // connection broke; -EBADMSG when it was not HTTP; -EHOSTUNREACH, -ECONNREFUSED, -ENOENT
    // (name not known), -EINVAL (host is no name), -EKEYREJECTED (certificate) when there was none;
    // -EFAULT when the room was no memory;
    // or what a call-back gave.
    void (*on_done)(struct http_exchange *x, int error);

    // --- to be read by the caller ---
    uint64_t started_ns;    // when it got a connection
    uint64_t first_byte_ns; // when the answer began; 0 before
    uint64_t body_len;      // body bytes landed so far
    int64_t content_length; // as announced, -1 if not
    char peer[64];          // address of the server, for logs; "" before
    // Why it failed, for people ("certificate has expired"); "" if error says it all.
    char error_text[160];

    // --- private ---
    struct list link;
    struct http_client *client;
    struct http_conn *conn;
    struct loop_msg msg;
    int state, error;
    bool resent;
};

// Takes a zeroed struct with the caller's part filled in.
void http_exchange_start(struct http_client *c, struct http_exchange *x);
// on_done(-ECANCELED) follows, unless on_done was already under way with another result; no other
// call-back comes. A connection in the middle of a response is closed. Idempotent.
void http_exchange_cancel(struct http_exchange *x);
void http_exchange_resume(struct http_exchange *x); // after on_room gave 0
