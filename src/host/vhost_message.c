// SPDX-License-Identifier: Apache-2.0
#include "host/vhost_message.h"

#include "base/clock.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int wait_for(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = clock_monotonic_ns();
        struct pollfd p = {.fd = fd, .events = events};
        int n;

        if (now >= deadline_ns)
            return -ETIMEDOUT;
        n = poll(&p, 1, (int)MIN((deadline_ns - now) / NS_PER_MS + 1, 60000));
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

// The daemon's going can be told in several ways.
static int error_of_socket(int error)
{
    return error == ECONNRESET || error == EPIPE ? -EPIPE : -error;
}

static int send_bytes(int socket, const void *data, size_t len, int fd, uint64_t deadline_ns)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    size_t at = 0;

    while (at < len) {
        struct iovec iov = {(char *)data + at, len - at};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n;

        if (fd >= 0 && at == 0) {
            struct cmsghdr *c;

            m.msg_control = control.bytes;
            m.msg_controllen = sizeof(control.bytes);
            c = CMSG_FIRSTHDR(&m);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(c), &fd, sizeof(int));
        }
        n = sendmsg(socket, &m, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return error_of_socket(errno);
        if (n < 0) {
            int rc = wait_for(socket, POLLOUT, deadline_ns);

            if (rc < 0)
                return rc;
        } else {
            at += (size_t)n;
        }
    }
    return 0;
}

static int recv_bytes(int socket, void *data, size_t len, uint64_t deadline_ns)
{
    size_t at = 0;

    while (at < len) {
        ssize_t n = recv(socket, (char *)data + at, len - at, 0);

        if (n == 0)
            return -EPIPE;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return error_of_socket(errno);
        if (n < 0) {
            int rc = wait_for(socket, POLLIN, deadline_ns);

            if (rc < 0)
                return rc;
        } else {
            at += (size_t)n;
        }
    }
    return 0;
}

static int send_message(int socket, uint32_t request, uint32_t flags, const void *payload,
                        uint32_t size, int fd, uint64_t deadline_ns)
{
    struct {
        struct vhost_user_header header;
        union vhost_user_payload payload;
    } __attribute__((packed)) m = {{request, VHOST_USER_VERSION | flags, size}};

    assert(size <= sizeof(m.payload));
    if (size)
        memcpy(&m.payload, payload, size);
    return send_bytes(socket, &m, sizeof(m.header) + size, fd, deadline_ns);
}

static int recv_u64(int socket, uint32_t request, uint64_t *ret, uint64_t deadline_ns)
{
    struct vhost_user_header h;
    int rc = recv_bytes(socket, &h, sizeof(h), deadline_ns);

    if (rc < 0)
        return rc;
    if (h.request != request || h.size != sizeof(*ret) || !(h.flags & VHOST_USER_REPLY) ||
        (h.flags & VHOST_USER_VERSION_MASK) != VHOST_USER_VERSION)
        return -EBADMSG;
    return recv_bytes(socket, ret, sizeof(*ret), deadline_ns);
}

int message_get(int socket, uint32_t request, uint64_t *ret, uint64_t deadline_ns)
{
    int rc = send_message(socket, request, 0, NULL, 0, -1, deadline_ns);

    return rc < 0 ? rc : recv_u64(socket, request, ret, deadline_ns);
}

int message_set(int socket, uint32_t request, const void *payload, uint32_t size, int fd,
                bool with_reply, uint64_t deadline_ns)
{
    uint64_t refused;
    int rc = send_message(socket, request, with_reply ? VHOST_USER_NEED_REPLY : 0, payload, size,
                          fd, deadline_ns);

    if (rc == 0 && with_reply) {
        rc = recv_u64(socket, request, &refused, deadline_ns);
        if (rc == 0 && refused)
            rc = -EREMOTEIO;
    }
    return rc;
}
