// SPDX-License-Identifier: Apache-2.0
#include "s3d/conn.h"

#include <limits.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define TLS_STEP (64 * KIB)

static int tls_error(struct conn *c, int rc)
{
    int error = SSL_get_error(c->ssl, rc);

    ERR_clear_error();
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        c->wants_write = error == SSL_ERROR_WANT_WRITE;
        return -EAGAIN;
    }
    return error == SSL_ERROR_ZERO_RETURN ? 0 : -ECONNRESET;
}

int wire_handshake(struct conn *c)
{
    int rc;

    if (!c->ssl || c->ssl_ready)
        return 0;
    rc = SSL_do_handshake(c->ssl);
    if (rc != 1) {
        rc = tls_error(c, rc);
        return rc == 0 ? -ECONNRESET : rc;
    }
    c->ssl_ready = true;
    return 0;
}

ssize_t wire_read(struct conn *c, void *out, size_t len)
{
    ssize_t n;

    if (c->ssl) {
        int rc = SSL_read(c->ssl, out, (int)MIN(len, (size_t)INT_MAX));

        return rc > 0 ? rc : tls_error(c, rc);
    }
    do
        n = recv(c->fd, out, len, 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static ssize_t tls_write(struct conn *c, const void *data, size_t len)
{
    int rc = SSL_write(c->ssl, data, (int)len);

    if (rc > 0) {
        c->ssl_retry = 0;
        return rc;
    }
    c->ssl_retry = len;
    rc = tls_error(c, rc);
    return rc == 0 ? -EPIPE : rc;
}

ssize_t wire_writev(struct conn *c, const struct iovec *iov, int n, bool more)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    ssize_t sent;

    if (c->ssl) {
        // a record for all of it, and the same bytes again if the last try was blocked
        size_t limit = c->ssl_retry ? c->ssl_retry : TLS_STEP, len = 0;

        if (n == 1)
            return tls_write(c, iov->iov_base, MIN(iov->iov_len, limit));
        for (int i = 0; i < n && len < limit; i++) {
            size_t step = MIN(iov[i].iov_len, limit - len);

            memcpy(c->worker->scratch + len, iov[i].iov_base, step);
            len += step;
        }
        return tls_write(c, c->worker->scratch, len);
    }
    do
        sent = sendmsg(c->fd, &msg, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

ssize_t wire_sendfile(struct conn *c, int fd, uint64_t off, size_t len)
{
    off_t at = (off_t)off;
    ssize_t n;

    if (c->ssl) {
        size_t limit = c->ssl_retry ? c->ssl_retry : TLS_STEP;

        n = pread(fd, c->worker->scratch, MIN(len, limit), at);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        return tls_write(c, c->worker->scratch, (size_t)n);
    }
    do
        n = sendfile(c->fd, fd, &at, len);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return -EIO; // the file has shrunk
    return n < 0 ? -errno : n;
}
