// SPDX-License-Identifier: Apache-2.0
#include "s3d/http_get.h"

#include "base/text.h"
#include "net/http_head.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int fd, rc = 0;

    if (getaddrinfo(host, port, &hints, &found))
        return -EHOSTUNREACH;
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0)
        rc = -errno;
    freeaddrinfo(found);
    if (rc < 0 && fd >= 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

static int exchange(int fd, const char *request, struct buf *body)
{
    struct http_head *head = xmalloc(sizeof(*head));
    struct buf answer = {0};
    ssize_t n = -1;
    int rc = 0;

    if (send(fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request))
        rc = -EPIPE;
    while (rc == 0 && n != 0) {
        buf_reserve(&answer, 4096);
        n = recv(fd, answer.data + answer.len, 4096, 0);
        if (n < 0)
            rc = -errno;
        else
            answer.len += (size_t)n;
    }
    if (rc == 0) {
        n = http_head_parse(head, HTTP_RESPONSE, answer.data, answer.len);
        if (n <= 0 || head->status != 200)
            rc = -EBADMSG;
        else
            buf_add(body, answer.data + n, answer.len - (size_t)n);
    }
    buf_free(&answer);
    free(head);
    return rc;
}

int http_get(const char *url, const char *path, struct buf *body)
{
    char *host, *port, *request;
    int fd, rc;

    if (!text_starts_with(url, "http://"))
        return -EINVAL;
    host = xstrdup(url + 7);
    host[strcspn(host, "/")] = 0;
    port = strrchr(host, ':');
    if (port)
        *port++ = 0;
    fd = connect_to(host, port ? port : "80");
    rc = fd;
    if (fd >= 0) {
        request = xasprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host);
        rc = exchange(fd, request, body);
        free(request);
        close(fd);
    }
    free(host);
    return rc;
}
