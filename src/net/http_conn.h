// SPDX-License-Identifier: Apache-2.0
// One connection: one exchange after the other, its request sent, its response framed. The pool
// (http_client.c) decides which exchange goes where. Private to net/.
#pragma once

#include "net/http_client.h"
#include "net/http_link.h"

//              open                    connected, or start
//   (nothing) ------> CONN_CONNECTING --------------------> CONN_BUSY <------> CONN_IDLE
//                            |          response complete       |                  |
//                            '------------> CONN_CLOSED <-------+------------------'
enum http_conn_state { CONN_CONNECTING, CONN_BUSY, CONN_IDLE, CONN_CLOSED };

enum http_recv_state {
    RECV_HEAD,
    RECV_BODY,    // body_left bytes, or up to the connection's end
    RECV_CHUNKED, // as chunked says: framing bytes or data
};

struct http_conn {
    struct list link; // in one of the pool's lists until closed
    struct http_client *client;
    struct loop *loop;
    enum http_conn_state state;
    struct http_exchange *x; // while connecting or busy

    bool tls;
    char *host;
    uint16_t port;
    struct http_link *bytes;
    struct loop_io *io;
    uint64_t opened_ns, idle_since_ns;
    bool reused;     // has completed an exchange before
    bool keep_alive; // may go on after this exchange

    // Looked at now and then, not restarted with each byte.
    struct loop_timer stall;
    uint64_t last_activity_ns;

    // sending: the next byte is iov_off into request[iov_at]
    int iov_at;
    size_t iov_off;
    bool sending;

    // receiving: in[in_pos..in_len) has arrived and is not used yet
    enum http_recv_state recv;
    char *in;
    size_t in_pos, in_len, in_size;
    unsigned interim; // 1xx heads seen
    uint64_t body_left;
    bool until_close;
    bool paused; // by on_room
    struct http_chunked chunked;

    struct loop_msg kick; // goes on reading what the descriptor does not show
    bool kicked;
    struct loop_msg bye; // frees it, once nobody up the stack uses it any more
};

// Begins to connect for x. NULL when even that failed; *ret_error tells why.
struct http_conn *http_conn_open(struct http_client *c, struct http_link_env *env,
                                 struct http_exchange *x, int *ret_error);
bool http_conn_serves(const struct http_conn *c, const struct http_exchange *x);
// Nothing has arrived on the idle connection that nobody asked for, nor its end.
bool http_conn_is_quiet(struct http_conn *c);
// An idle connection takes x. Sends at once what goes; no call-back comes within this call.
void http_conn_start(struct http_conn *c, struct http_exchange *x);
// Takes the connection out of every list. The exchange, if any, is the caller's to end.
void http_conn_close(struct http_conn *c);
void http_conn_resume(struct http_conn *c); // after on_room gave 0

// --- receiving (http_recv.c) ---

void http_recv_begin(struct http_conn *c);
// Reads what is there, up to a fair share.
void http_recv_run(struct http_conn *c);

// --- what only the connection's own files use ---

// The exchange ends; the connection is kept if it can be. c and x are not the caller's afterwards.
void http_conn_complete(struct http_conn *c);
void http_conn_fail(struct http_conn *c, int error, const char *text); // text may be NULL
// The connection broke: as fail, or once more on a fresh one.
void http_conn_broken(struct http_conn *c, int error, const char *text);
// Has http_recv_run called soon.
void http_conn_kick(struct http_conn *c);

// --- what the pool does for its connections; they come last in whatever calls them ---

void http_client_conn_closed(struct http_client *cl, struct http_conn *c);
void http_client_conn_idle(struct http_client *cl, struct http_conn *c);
void http_client_exchange_again(struct http_client *cl, struct http_exchange *x);
void http_client_exchange_end(struct http_client *cl, struct http_exchange *x, int error);
uint64_t http_client_stall_timeout_ns(const struct http_client *cl);
struct http_client_stats *http_client_counters(struct http_client *cl);
