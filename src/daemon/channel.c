// SPDX-License-Identifier: Apache-2.0
#include "daemon/channel.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int channel_pair(int ret[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret) < 0 ? -errno
                                                                                          : 0;
}

int channel_send(int channel, enum channel_kind kind, uint64_t number, int fd, const char *text)
{
    struct channel_msg m = {.kind = kind, .number = number};
    struct iovec iov = {&m, sizeof(m)};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    snprintf(m.text, sizeof(m.text), "%s", text ? text : "");
    if (fd >= 0) {
        struct cmsghdr *cmsg;

        msg.msg_control = control.space;
        msg.msg_controllen = sizeof(control.space);
        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
    }
    return sendmsg(channel, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int take_descriptor(struct msghdr *msg)
{
    int fd = -1;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
            c->cmsg_len == CMSG_LEN(sizeof(int)))
            memcpy(&fd, CMSG_DATA(c), sizeof(int));
    return fd;
}

int channel_receive(int channel, struct channel_msg *ret, int *ret_fd)
{
    struct iovec iov = {ret, sizeof(*ret)};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n = recvmsg(channel, &msg, MSG_CMSG_CLOEXEC);
    int fd;

    if (n < 0)
        return errno == ECONNRESET ? 0 : errno == EINTR ? -EAGAIN : -errno;
    if (n == 0)
        return 0;
    fd = take_descriptor(&msg);
    if (n != sizeof(*ret) || !memchr(ret->text, 0, sizeof(ret->text))) {
        if (fd >= 0)
            close(fd);
        return -EBADMSG;
    }
    for (char *p = ret->text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = '?';
    *ret_fd = fd;
    return 1;
}
