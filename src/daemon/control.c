// SPDX-License-Identifier: Apache-2.0
#include "daemon/control.h"

#include "base/clock.h"
#include "daemon/status.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_MAX     4096
#define CONNECTIONS_MAX 64
#define CONNECTION_TIME (10 * NS_PER_S)

struct control {
    struct loop *loop;
    struct control_config config;
    struct loop_io *listener;
    uint64_t started_ns;
    unsigned connections;
};

struct connection {
    struct control *control;
    int fd;
    struct loop_io *io;
    struct loop_timer timer;
    char request[REQUEST_MAX];
    size_t request_len;
    char *answer;
    size_t answer_len, sent;
};

static void connection_free(struct connection *n)
{
    struct control *c = n->control;

    if (c->connections-- == CONNECTIONS_MAX)
        loop_io_want(c->listener, LOOP_READ);
    loop_timer_stop(&n->timer);
    loop_io_free(n->io);
    close(n->fd);
    free(n->answer);
    free(n);
}

static void on_time(struct loop_timer *t)
{
    connection_free(container_of(t, struct connection, timer));
}

static json_t *answer(struct control *c, const char *request)
{
    if (!strcmp(request, "status"))
        return status_collect(c->config.export, c->config.restarts, c->started_ns);
    if (!strcmp(request, "ping"))
        return json_object();
    return json_pack("{s:s}", "error", "there is no such request");
}

// false: not a whole request yet
static bool take_request(struct connection *n)
{
    char *end = memchr(n->request, '\n', n->request_len);
    json_t *request, *reply;
    const char *what = NULL;

    if (!end)
        return false;
    request = json_loadb(n->request, (size_t)(end - n->request), 0, NULL);
    if (request && json_unpack(request, "{s:s}", "request", &what) == 0)
        reply = answer(n->control, what);
    else
        reply = json_pack("{s:s}", "error", "not a request");
    n->answer = json_dumps(reply, JSON_COMPACT);
    n->answer_len = n->answer ? strlen(n->answer) : 0;
    json_decref(reply);
    json_decref(request);
    return true;
}

static void on_connection(struct loop_io *io, unsigned events, void *arg)
{
    struct connection *n = arg;
    ssize_t got;

    if (!n->answer) {
        got = recv(n->fd, n->request + n->request_len, sizeof(n->request) - n->request_len, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            connection_free(n);
            return;
        }
        n->request_len += (size_t)got;
        if (!take_request(n)) {
            if (n->request_len == sizeof(n->request))
                connection_free(n);
            return;
        }
        loop_io_want(io, LOOP_WRITE);
    }
    got = send(n->fd, n->answer + n->sent, n->answer_len - n->sent, MSG_NOSIGNAL);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0)
        n->sent += (size_t)got;
    if (got < 0 || n->sent == n->answer_len)
        connection_free(n);
}

static void on_listener(struct loop_io *io, unsigned events, void *arg)
{
    struct control *c = arg;
    struct connection *n;
    int fd = accept4(c->config.listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0)
        return;
    n = xcalloc(1, sizeof(*n));
    n->control = c;
    n->fd = fd;
    loop_timer_init(&n->timer, c->loop, on_time);
    if (loop_io_new(&n->io, c->loop, fd, on_connection, n) < 0) {
        close(fd);
        free(n);
        return;
    }
    loop_io_want(n->io, LOOP_READ);
    loop_timer_start_ns(&n->timer, CONNECTION_TIME);
    if (++c->connections == CONNECTIONS_MAX)
        loop_io_want(io, 0);
}

int control_new(struct control **ret, struct loop *l, const struct control_config *config)
{
    struct control *c = xcalloc(1, sizeof(*c));
    int rc;

    c->loop = l;
    c->config = *config;
    c->started_ns = clock_monotonic_ns();
    rc = loop_io_new(&c->listener, l, config->listen_fd, on_listener, c);
    if (rc < 0) {
        free(c);
        return rc;
    }
    loop_io_want(c->listener, LOOP_READ);
    *ret = c;
    return 0;
}
