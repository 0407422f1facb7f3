// SPDX-License-Identifier: Apache-2.0
#include "link_front.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

static bool on_send(void *arg, const struct vhost_command *c, int fd)
{
    struct front *f = arg;

    if (!f->worker)
        return false;
    assert_true(f->n_commands < FRONT_COMMANDS_MAX);
    f->files[f->n_commands] = (struct stat){0};
    if (fd >= 0)
        assert_int_equal(fstat(fd, &f->files[f->n_commands]), 0);
    f->commands[f->n_commands++] = *c;
    return true;
}

static void keep(struct front *f, int rc, char *why)
{
    f->rc = rc;
    if (rc < 0) {
        free(f->why);
        f->why = why;
    }
}

static void answer_all(struct front *f)
{
    while (f->rc == 0 && f->answers && f->n_answered < f->n_commands)
        front_done(f, f->commands[f->n_answered].seq, 0);
}

void front_pump(struct front *f)
{
    for (unsigned i = 0; i < 1000 && f->rc == 0; i++) {
        struct pollfd p = {.fd = vhost_link_fd(f->link)};
        char *why = NULL;
        int rc;

        answer_all(f);
        p.events = vhost_link_events(f->link);
        if (!p.events || poll(&p, 1, 0) != 1)
            return;
        rc = vhost_link_ready(f->link, &why);
        keep(f, rc, why);
    }
}

void front_open(struct front *f, const char *tag)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    *f = (struct front){.fd = pair[0], .worker = true, .answers = true};
    {
        const struct vhost_link_config config = {
            .fd = pair[1],
            .session = 7,
            .uid = 1000,
            .gid = 100,
            .pid = 4711,
            .memory_fd = front_memfd(4096),
            .tag = tag,
            .send = on_send,
            .arg = f,
        };

        f->link = vhost_link_new(&config);
    }
    answer_all(f);
}

void front_close(struct front *f)
{
    vhost_link_free(f->link);
    free(f->why);
    if (f->fd >= 0)
        close(f->fd);
}

void front_send(struct front *f, uint32_t request, uint32_t flags, const void *payload,
                uint32_t size, const int *fds, unsigned n_fds)
{
    const struct vhost_user_header header = {request, VHOST_USER_VERSION | flags, size};
    struct iovec iov[] = {{(void *)&header, sizeof(header)}, {(void *)payload, size}};
    union {
        char space[CMSG_SPACE(16 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    if (n_fds) {
        struct cmsghdr *c;

        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    assert_int_equal(sendmsg(f->fd, &msg, MSG_NOSIGNAL), (ssize_t)(sizeof(header) + size));
    front_pump(f);
}

void front_send_u64(struct front *f, uint32_t request, uint64_t value)
{
    front_send(f, request, 0, &value, sizeof(value), NULL, 0);
}

void front_send_state(struct front *f, uint32_t request, uint32_t index, uint32_t num)
{
    const struct vhost_user_vring_state state = {index, num};

    front_send(f, request, 0, &state, sizeof(state), NULL, 0);
}

void front_send_fd(struct front *f, uint32_t request, uint64_t value, int fd)
{
    front_send(f, request, 0, &value, sizeof(value), &fd, fd >= 0);
}

void front_send_region(struct front *f, uint32_t request, uint64_t addr, uint64_t size, int fd)
{
    const struct vhost_user_mem_reg m = {
        .region = {.guest_addr = addr, .size = size, .user_addr = addr + (1ULL << 40)}};

    front_send(f, request, VHOST_USER_NEED_REPLY, &m, sizeof(m), &fd, fd >= 0);
}

void front_send_ring(struct front *f, uint32_t index, uint64_t user_addr, int kick, int call)
{
    const struct vhost_user_vring_addr addr = {
        .index = index,
        .desc = user_addr,
        .avail = user_addr + 4096,
        .used = user_addr + 8192,
    };

    front_send_state(f, VHOST_USER_SET_VRING_NUM, index, 128);
    front_send_state(f, VHOST_USER_SET_VRING_BASE, index, 5);
    front_send(f, VHOST_USER_SET_VRING_ADDR, 0, &addr, sizeof(addr), NULL, 0);
    front_send_fd(f, VHOST_USER_SET_VRING_CALL, index, call);
    front_send_fd(f, VHOST_USER_SET_VRING_KICK, index, kick);
}

int front_reply(struct front *f, uint32_t request, void *payload, size_t size)
{
    struct vhost_user_header header;

    if (recv(f->fd, &header, sizeof(header), MSG_DONTWAIT) != sizeof(header))
        return -1;
    assert_int_equal(header.request, request);
    assert_int_equal(header.flags, VHOST_USER_VERSION | VHOST_USER_REPLY);
    assert_true(header.size <= size);
    if (header.size)
        assert_int_equal(recv(f->fd, payload, header.size, MSG_DONTWAIT), header.size);
    return (int)header.size;
}

uint64_t front_reply_u64(struct front *f, uint32_t request)
{
    uint64_t value = 0;

    assert_int_equal(front_reply(f, request, &value, sizeof(value)), sizeof(value));
    return value;
}

bool front_has_reply(struct front *f)
{
    char byte;

    return recv(f->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
}

const struct vhost_command *front_command(struct front *f, unsigned n, uint32_t kind)
{
    assert_true(n < f->n_commands);
    assert_int_equal(f->commands[n].kind, kind);
    assert_int_equal(f->commands[n].session, 7);
    return &f->commands[n];
}

void front_forget(struct front *f)
{
    f->n_commands = f->n_answered = 0;
}

void front_done(struct front *f, uint64_t seq, uint64_t value)
{
    const struct vhost_event e = {.kind = VHOST_DONE, .session = 7, .seq = seq, .value = value};
    char *why = NULL;
    int rc;

    f->n_answered++;
    rc = vhost_link_event(f->link, &e, &why);
    keep(f, rc, why);
}

void front_kill_worker(struct front *f)
{
    char *why = NULL;
    int rc;

    f->worker = false;
    f->n_answered = f->n_commands;
    rc = vhost_link_worker_died(f->link, &why);
    keep(f, rc, why);
}

void front_new_worker(struct front *f)
{
    char *why = NULL;
    int rc;

    f->worker = true;
    front_forget(f);
    rc = vhost_link_resume(f->link, &why);
    keep(f, rc, why);
}

int front_memfd(uint64_t size)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return fd;
}
