// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/unix_address.h"
#include "daemon/control_client.h"
#include "daemon/privilege.h"
#include "net/http_head.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define HEAD_MAX       (8 * KIB)
#define PEER_TIME_S    2 // one peer at a time: none may hold up the others for longer
#define WORKER_TIME_MS 1000

// --- where to listen ---

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
};

static int parse_port(const char *text, in_port_t *ret)
{
    uint64_t port;

    if (text_parse_u64(text, &port) < 0 || port == 0 || port > 65535)
        return -EINVAL;
    *ret = htons((uint16_t)port);
    return 0;
}

static int parse_local(const char *path, union address *ret, socklen_t *ret_len)
{
    *ret_len = sizeof(ret->local);
    return path[0] == '/' ? unix_address(&ret->local, path) : -EINVAL;
}

static int parse_internet(const char *where, union address *ret, socklen_t *ret_len)
{
    const char *colon = strrchr(where, ':');
    char *host;
    int rc = -EINVAL;

    if (!colon)
        return -EINVAL;
    host = where[0] == '[' && colon > where && colon[-1] == ']'
               ? xstrndup(where + 1, (size_t)(colon - where) - 2)
               : xstrndup(where, (size_t)(colon - where));
    if (inet_pton(AF_INET, host, &ret->v4.sin_addr) == 1 &&
        ntohl(ret->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET) {
        ret->v4.sin_family = AF_INET;
        *ret_len = sizeof(ret->v4);
        rc = parse_port(colon + 1, &ret->v4.sin_port);
    } else if (inet_pton(AF_INET6, host, &ret->v6.sin6_addr) == 1 &&
               IN6_IS_ADDR_LOOPBACK(&ret->v6.sin6_addr)) {
        ret->v6.sin6_family = AF_INET6;
        *ret_len = sizeof(ret->v6);
        rc = parse_port(colon + 1, &ret->v6.sin6_port);
    }
    free(host);
    return rc;
}

int metrics_listen(const char *where, char **ret_error)
{
    union address a = {0};
    socklen_t len;
    bool local = text_starts_with(where, "unix:");
    int fd, on = 1,
            rc = local ? parse_local(where + strlen("unix:"), &a, &len)
                       : parse_internet(where, &a, &len);

    if (rc < 0) {
        *ret_error = xasprintf("metrics: '%s' will not do; write 127.0.0.1:9464, [::1]:9464 or "
                               "unix:/path",
                               where);
        return rc;
    }
    if (local)
        unlink(a.local.sun_path);
    fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, &a.any, len) < 0 || listen(fd, 64) < 0 ||
        (local && chmod(a.local.sun_path, 0666) < 0)) {
        rc = -errno;
        *ret_error = xasprintf("metrics: %s: %s", where, strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    return fd;
}

// --- answering ---

static void send_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

static void answer(int fd, const char *status, const struct buf *body)
{
    struct buf head = {0};

    buf_printf(&head,
               "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
               "Content-Length: %zu\r\nConnection: close\r\n\r\n",
               status, body->len);
    send_all(fd, head.data, head.len);
    send_all(fd, buf_str(body), body->len);
    buf_free(&head);
}

// The status line's words, or NULL when the peer is not worth an answer.
static const char *read_request(int fd)
{
    static char head_bytes[HEAD_MAX + 1];
    static struct http_head head;
    uint64_t end_ns = clock_monotonic_ns() + PEER_TIME_S * NS_PER_S;
    size_t len = 0;

    for (;;) {
        ssize_t n = recv(fd, head_bytes + len, HEAD_MAX - len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        // the socket's limit is on each piece: a peer must not go on byte by byte
        if (n <= 0 || clock_monotonic_ns() > end_ns)
            return NULL;
        len += (size_t)n;
        n = http_head_parse(&head, HTTP_REQUEST, head_bytes, len);
        if (n < 0 || (n == 0 && len == HEAD_MAX))
            return "400 Bad Request";
        if (n > 0)
            break;
    }
    if (strcmp(head.method, "GET") != 0)
        return "405 Method Not Allowed";
    return !strcmp(head.target, "/metrics") || text_starts_with(head.target, "/metrics?")
               ? "200 OK"
               : "404 Not Found";
}

static void collect(struct buf *out, char *const *names_and_sockets, size_t n)
{
    struct metrics_export *exports = xcalloc(n + 1, sizeof(*exports));

    for (size_t i = 0; i < n; i++) {
        char *error = NULL;

        exports[i].name = names_and_sockets[2 * i];
        if (control_request(names_and_sockets[2 * i + 1], "status", WORKER_TIME_MS,
                            &exports[i].status, &error) < 0) {
            log_debug("metrics", "%s", error);
            free(error);
        }
    }
    metrics_format(out, exports, n);
    for (size_t i = 0; i < n; i++)
        json_decref(exports[i].status);
    free(exports);
}

static void serve(int fd, char *const *names_and_sockets, size_t n)
{
    const struct timeval limit = {.tv_sec = PEER_TIME_S};
    const char *status;
    struct buf body = {0};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    status = read_request(fd);
    if (!status)
        return;
    if (status[0] == '2')
        collect(&body, names_and_sockets, n);
    answer(fd, status, &body);
    buf_free(&body);
}

int metrics_main(int argc, char **argv)
{
    uint64_t uid, gid;

    if (argc < 4 || argc % 2 || text_parse_u64(argv[2], &uid) < 0 ||
        text_parse_u64(argv[3], &gid) < 0)
        return 2;
    prctl(PR_SET_NAME, "os2g-metrics");
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (privilege_drop((uid_t)uid, (gid_t)gid) < 0)
        return 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        int fd = accept4(METRICS_FD, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0 && errno != EINTR && errno != ECONNABORTED && errno != EMFILE)
            return 1;
        if (fd < 0)
            continue;
        serve(fd, argv + 4, (size_t)(argc - 4) / 2);
        close(fd);
    }
}
