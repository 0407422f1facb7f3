// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/foreign_fd.h"
#include "front/vhost/link_impl.h"

#include <string.h>
#include <sys/socket.h>

int link_io_take_fd(struct vhost_link *l, unsigned i)
{
    int fd = l->message_fds[i];

    l->message_fds[i] = -1;
    return fd;
}

void link_io_drop_fds(struct vhost_link *l)
{
    for (unsigned i = 0; i < ARRAY_LEN(l->message_fds); i++)
        link_close_fd(&l->message_fds[i]);
}

// All descriptors of one recvmsg. False when there were more than a message may have.
static bool collect_fds(struct link_io *io, struct msghdr *msg)
{
    bool fit = !(msg->msg_flags & MSG_CTRUNC);

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (io->n_fds < VHOST_USER_FDS_MAX) {
                io->fds[io->n_fds++] = fd;
            } else {
                foreign_fd_close(fd);
                fit = false;
            }
        }
    }
    return fit;
}

// Up to len bytes to p. Their number; 0 when there are none now; <0 as vhost_link_ready.
static ssize_t receive(struct vhost_link *l, void *p, size_t len, char **ret_why)
{
    struct iovec iov = {p, len};
    union {
        char space[CMSG_SPACE(VHOST_USER_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n = recvmsg(l->config.fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (!collect_fds(&l->io, &msg))
        return link_broken(ret_why, "more descriptors than a message may have");
    if (n == 0 && l->io.len > 0)
        return link_broken(ret_why, "it ended within a message");
    return n == 0 ? -ENOTCONN : n;
}

// 1 when all of the current part (header, then payload) is there.
static int receive_part(struct vhost_link *l, void *part, size_t begin, size_t size, char **ret_why)
{
    struct link_io *io = &l->io;

    while (io->len < begin + size) {
        ssize_t n =
            receive(l, (uint8_t *)part + (io->len - begin), begin + size - io->len, ret_why);

        if (n <= 0)
            return (int)n;
        io->len += (size_t)n;
    }
    return 1;
}

int link_io_receive(struct vhost_link *l, char **ret_why)
{
    struct link_io *io = &l->io;
    const char *why = NULL;
    uint32_t size;
    int rc = receive_part(l, &io->header, 0, sizeof(io->header), ret_why);

    if (rc <= 0)
        return rc;
    if (vhost_user_read_header(&io->header, &size, &why) < 0)
        return link_broken(ret_why, "%s", why);
    rc = receive_part(l, io->payload, sizeof(io->header), size, ret_why);
    if (rc <= 0)
        return rc;
    if (vhost_user_read(&io->header, io->payload, io->n_fds, &l->message, &why) < 0)
        return link_broken(ret_why, "request %u: %s", io->header.request, why);
    memcpy(l->message_fds, io->fds, io->n_fds * sizeof(int));
    io->len = 0;
    io->n_fds = 0;
    return 1;
}

int link_io_reply(struct vhost_link *l, const void *payload, uint32_t size)
{
    const struct vhost_user_header header = {
        .request = l->message.request,
        .flags = VHOST_USER_VERSION | VHOST_USER_REPLY,
        .size = size,
    };
    struct link_io *io = &l->io;

    memcpy(io->out, &header, sizeof(header));
    if (size)
        memcpy(io->out + sizeof(header), payload, size);
    io->out_len = sizeof(header) + size;
    io->out_sent = 0;
    return link_io_flush(l);
}

int link_io_flush(struct vhost_link *l)
{
    struct link_io *io = &l->io;

    while (io->out_sent < io->out_len) {
        ssize_t n = send(l->config.fd, io->out + io->out_sent, io->out_len - io->out_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        io->out_sent += (size_t)n;
    }
    io->out_len = io->out_sent = 0;
    return 0;
}
