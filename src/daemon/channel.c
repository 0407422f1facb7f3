// SPDX-License-Identifier: Apache-2.0
#include "daemon/channel.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int channel_pair(int ret[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret) < 0 ? -errno
                                                                                          : 0;
}

// What of a message travels; 0: there is no such kind.
static size_t length(uint32_t kind)
{
    switch ((enum channel_kind)kind) {
    case CHANNEL_READY:
    case CHANNEL_FAILED:
    case CHANNEL_SERVING:
    case CHANNEL_RESOLVE:
    case CHANNEL_GONE:
    case CHANNEL_SERVE:
    case CHANNEL_CREDENTIALS:
        return sizeof(struct channel_msg);
    case CHANNEL_VHOST_EVENT:
        return offsetof(struct channel_msg, event) + sizeof(struct vhost_event);
    case CHANNEL_VHOST:
        return offsetof(struct channel_msg, command) + sizeof(struct vhost_command);
    }
    return 0;
}

static int send_message(int channel, const struct channel_msg *m, int fd)
{
    struct iovec iov = {(void *)m, length(m->kind)};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

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

int channel_send(int channel, enum channel_kind kind, uint64_t number, int fd, const char *text)
{
    struct channel_msg m = {.kind = kind, .number = number};

    snprintf(m.text, sizeof(m.text), "%s", text ? text : "");
    return send_message(channel, &m, fd);
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

// Texts end, and do nothing to a terminal. False: one has no end.
static bool make_printable(struct channel_msg *m)
{
    char *text = m->kind == CHANNEL_VHOST_EVENT ? m->event.text : m->text;
    size_t size = m->kind == CHANNEL_VHOST_EVENT ? sizeof(m->event.text) : sizeof(m->text);

    if (m->kind == CHANNEL_VHOST)
        return true;
    if (!memchr(text, 0, size))
        return false;
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = '?';
    return true;
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
    if ((size_t)n < sizeof(ret->kind) || (size_t)n != length(ret->kind) || !make_printable(ret)) {
        if (fd >= 0)
            close(fd);
        return -EBADMSG;
    }
    *ret_fd = fd;
    return 1;
}

// --- messages that wait ---

struct waiting {
    struct list link;
    struct channel_msg msg;
    int fd; // or -1
};

void channel_queue_init(struct channel_queue *q)
{
    list_init(&q->waiting);
}

bool channel_queue_empty(const struct channel_queue *q)
{
    return list_empty(&q->waiting);
}

static void drop(struct waiting *w)
{
    list_remove(&w->link);
    if (w->fd >= 0)
        close(w->fd);
    free(w);
}

void channel_queue_clear(struct channel_queue *q)
{
    list_for_each_safe (it, &q->waiting)
        drop(list_entry(it, struct waiting, link));
}

static int queue_message(struct channel_queue *q, int channel, const struct channel_msg *m, int fd)
{
    int rc = channel_queue_empty(q) ? send_message(channel, m, fd) : -EAGAIN, copy = -1;
    struct waiting *w;

    if (rc != -EAGAIN)
        return rc;
    if (fd >= 0) {
        copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (copy < 0)
            return -errno;
    }
    w = xcalloc(1, sizeof(*w));
    w->msg = *m;
    w->fd = copy;
    list_push_back(&q->waiting, &w->link);
    return 0;
}

int channel_queue_command(struct channel_queue *q, int channel, const struct vhost_command *c,
                          int fd)
{
    const struct channel_msg m = {.kind = CHANNEL_VHOST, .command = *c};

    return queue_message(q, channel, &m, fd);
}

int channel_queue_event(struct channel_queue *q, int channel, const struct vhost_event *e)
{
    const struct channel_msg m = {.kind = CHANNEL_VHOST_EVENT, .event = *e};

    return queue_message(q, channel, &m, -1);
}

int channel_queue_flush(struct channel_queue *q, int channel)
{
    list_for_each_safe (it, &q->waiting) {
        struct waiting *w = list_entry(it, struct waiting, link);
        int rc = send_message(channel, &w->msg, w->fd);

        if (rc < 0)
            return rc == -EAGAIN ? 0 : rc;
        drop(w);
    }
    return 0;
}
