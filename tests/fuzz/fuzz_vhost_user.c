// SPDX-License-Identifier: Apache-2.0
// A host's vhost-user messages, read by a link, with a worker that answers when the input says so.
//
// The input is a list of steps: a byte that chooses, and what it takes.
//   0..63    so many bytes of the host follow, without a descriptor
//   64..127  the same with 1 to 8 descriptors: the byte before them says how many and of what
//   128..    the worker: does the oldest command (128), does any (129, a byte), calls the session
//   bad
//            (130), dies (131), starts (132), says something that nobody asked for (133)
#include "front/vhost/link.h"
#include "wire/vhost_user.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define COMMANDS_MAX 4096

struct run {
    const uint8_t *data;
    size_t left;
    int host;
    struct vhost_link *link;
    bool worker, ended;
    uint64_t waiting[COMMANDS_MAX]; // commands that are not done
    unsigned n_waiting;
};

static int memory = -1, event = -1;

static uint8_t take(struct run *r)
{
    if (!r->left)
        return 0;
    r->left--;
    return *r->data++;
}

static bool on_send(void *arg, const struct vhost_command *c, int fd)
{
    struct run *r = arg;
    bool with_fd =
        c->kind == VHOST_SESSION_ADD || c->kind == VHOST_REGION_ADD || c->kind == VHOST_QUEUE_START;

    if (!r->worker)
        return false;
    // what a worker may rely on
    if (c->session != 1 || c->seq == 0 || c->queue >= VHOST_QUEUES || (with_fd && fd < 0))
        abort();
    if (c->kind == VHOST_REGION_ADD &&
        (c->region.size == 0 || c->region.addr + c->region.size < c->region.addr))
        abort();
    if (c->kind == VHOST_QUEUE_START && (c->ring.size == 0 || c->ring.size > VHOST_RING_MAX ||
                                         c->ring.base > UINT16_MAX || c->ring.desc % 16))
        abort();
    if (r->n_waiting < COMMANDS_MAX)
        r->waiting[r->n_waiting++] = c->seq;
    return true;
}

static void keep(struct run *r, int rc, char *why)
{
    // a sentence comes with an end only
    if (rc == 0 && why)
        abort();
    free(why);
    r->ended |= rc < 0;
}

static void pump(struct run *r)
{
    while (!r->ended) {
        struct pollfd p = {.fd = vhost_link_fd(r->link), .events = vhost_link_events(r->link)};
        char *why = NULL;
        uint8_t replies[4096];
        int rc;

        if (recv(r->host, replies, sizeof(replies), MSG_DONTWAIT) == 0)
            abort(); // it is the caller that ends a session
        if (!p.events || poll(&p, 1, 0) != 1)
            return;
        rc = vhost_link_ready(r->link, &why);
        keep(r, rc, why);
    }
}

static void say(struct run *r, struct vhost_event e)
{
    char *why = NULL;
    int rc;

    e.session = 1;
    rc = vhost_link_event(r->link, &e, &why);
    keep(r, rc, why);
}

static void done(struct run *r, unsigned i)
{
    const struct vhost_event e = {
        .kind = VHOST_DONE, .seq = r->waiting[i], .value = r->waiting[i] * 0x10001};

    memmove(&r->waiting[i], &r->waiting[i + 1], (--r->n_waiting - i) * sizeof(r->waiting[0]));
    say(r, e);
}

static void worker_step(struct run *r, uint8_t step)
{
    char *why = NULL;
    int rc;

    switch (step) {
    case 128:
    case 129:
        if (r->n_waiting)
            done(r, step == 128 ? 0 : take(r) % r->n_waiting);
        break;
    case 130:
        if (r->worker)
            say(r, (struct vhost_event){.kind = VHOST_BAD, .text = "bad"});
        break;
    case 131:
        if (!r->worker)
            break;
        r->worker = false;
        r->n_waiting = 0;
        rc = vhost_link_worker_died(r->link, &why);
        keep(r, rc, why);
        break;
    case 132:
        if (r->worker)
            break;
        r->worker = true;
        rc = vhost_link_resume(r->link, &why);
        keep(r, rc, why);
        break;
    default:
        if (r->worker)
            say(r, (struct vhost_event){.kind = step, .seq = take(r), .value = UINT64_MAX});
    }
}

static void host_step(struct run *r, uint8_t step)
{
    unsigned how = step >= 64 ? take(r) : 0, n_fds = step >= 64 ? how % 8 + 1 : 0;
    uint8_t bytes[64], n = 0;
    struct iovec iov = {bytes, 0};
    union {
        char space[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    while (n < step % 64 && r->left)
        bytes[n++] = take(r);
    if (!n)
        return;
    iov.iov_len = n;
    if (n_fds) {
        struct cmsghdr *c;

        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        for (unsigned i = 0; i < n_fds; i++)
            memcpy(CMSG_DATA(c) + i * sizeof(int), how & 8 ? &event : &memory, sizeof(int));
    }
    // the socket is full when the link does not read: then the host waits
    if (sendmsg(r->host, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == n)
        pump(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run r;
    int pair[2], before, after;

    if (memory < 0) {
        memory = memfd_create("fuzz", MFD_CLOEXEC);
        event = eventfd(0, EFD_CLOEXEC);
    }
    before = dup(event);
    if (before < 0 || memory < 0 || ftruncate(memory, 1 << 20) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
        abort();
    r = (struct run){.data = data, .left = size, .host = pair[0], .worker = true};
    {
        const struct vhost_link_config config = {
            .fd = pair[1],
            .session = 1,
            .memory_fd = dup(memory),
            .tag = size % 2 ? "fuzz" : NULL,
            .send = on_send,
            .arg = &r,
        };

        r.link = vhost_link_new(&config);
    }
    while (r.left && !r.ended) {
        uint8_t step = take(&r);

        if (step < 128)
            host_step(&r, step);
        else
            worker_step(&r, step);
        if (!r.ended)
            pump(&r);
    }
    vhost_link_free(r.link);
    close(r.host);
    close(before);
    // none of all the descriptors is left
    after = dup(event);
    if (after != before)
        abort();
    close(after);
    return 0;
}
