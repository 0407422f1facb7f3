// SPDX-License-Identifier: Apache-2.0
// The byte stream to one server. libcurl connects: names, all addresses, proxies, TLS. A plain
// socket is ours alone from then on; TLS goes on through libcurl. Private to net/.
#pragma once

#include "loop/loop.h"

#include <curl/curl.h>
#include <openssl/x509.h>

#include <sys/types.h>
#include <sys/uio.h>

// What all links of one client have in common.
struct http_link_env {
    struct loop *loop;
    char *proxy; // NULL: the environment's
    uint64_t connect_timeout_ns;
    X509_STORE *trust; // read once: anew for each connection it costs more than the handshake
    CURLSH *share;     // TLS sessions, so that a further connection resumes one
};

// proxy may be NULL; ca_file, too: the system's authorities. -EINVAL when it holds none, -errno.
int http_link_env_init(struct http_link_env *env, struct loop *l, const char *ca_file,
                       const char *proxy, uint64_t connect_timeout_ns);
void http_link_env_fini(struct http_link_env *env);

struct http_link;

// fn gets the outcome once, never from within this call: 0; -ENOENT (name not known),
// -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT, -EKEYREJECTED (certificate), -ECONNRESET. It may
// close the link. 0 or -errno; fn is not called after an error.
int http_link_open(struct http_link **ret, struct http_link_env *env, bool tls, const char *host,
                   uint16_t port, void (*fn)(struct http_link *link, int error, void *arg),
                   void *arg);
// The loop_io on its descriptor must be gone. NULL is allowed.
void http_link_close(struct http_link *link);

// --- from when fn got 0 ---

int http_link_fd(const struct http_link *link);
const char *http_link_peer(const struct http_link *link); // "127.0.0.1:9000"
// Bytes may wait inside that the descriptor does not show: read until -EAGAIN.
bool http_link_buffers(const struct http_link *link);
// Bytes moved (fewer than asked: there was no more at that moment), 0 at the stream's end (recv),
// -EAGAIN, -ECONNRESET, -EPIPE or another -errno.
ssize_t http_link_recv(struct http_link *link, const struct iovec *iov, int n);
ssize_t http_link_send(struct http_link *link, const struct iovec *iov, int n);

// --- from when fn got an error ---

const char *http_link_error_text(const struct http_link *link); // for people
