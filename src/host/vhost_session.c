// SPDX-License-Identifier: Apache-2.0
#include "host/vhost_session.h"

#include "base/clock.h"
#include "host/error.h"
#include "wire/ops.h"

#include <fcntl.h>
#include <linux/vhost_types.h>
#include <linux/virtio_config.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define BIT(n) ((uint64_t)1 << (n))

#define FEATURES                                                                                   \
    (BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_RING_F_INDIRECT_DESC) | BIT(VIRTIO_RING_F_EVENT_IDX) |   \
     BIT(VHOST_USER_F_PROTOCOL_FEATURES))
#define PROTOCOL_FEATURES                                                                          \
    (BIT(VHOST_USER_PROTOCOL_F_MQ) | BIT(VHOST_USER_PROTOCOL_F_REPLY_ACK) |                        \
     BIT(VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS))

enum queue { QUEUE_HIPRIO, QUEUE_REQUESTS, QUEUES };

// --- memory ---

struct areas {
    size_t hiprio, requests, hiprio_slots, slots, end;
};

static struct areas areas_of(unsigned n_small)
{
    struct areas a;

    a.hiprio = 0;
    a.requests = ALIGN_UP(ring_bytes(SESSION_HIPRIO), 4096);
    a.hiprio_slots = a.requests + ALIGN_UP(ring_bytes(SESSION_RING), 4096);
    a.slots = a.hiprio_slots + ALIGN_UP(slots_bytes(SESSION_FORGETS, 0), 4096);
    a.end = ALIGN_UP(a.slots + slots_bytes(n_small, SESSION_LARGE), 4096);
    return a;
}

static int make_memory(struct vhost_session *s, unsigned n_small, int *ret_fd)
{
    struct areas a = areas_of(n_small);
    int fd = memfd_create("os2g-requests", MFD_CLOEXEC | MFD_ALLOW_SEALING), rc;
    uint8_t *p;

    if (fd < 0)
        return -errno;
    p = ftruncate(fd, (off_t)a.end) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0
            ? MAP_FAILED
            : mmap(NULL, a.end, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        rc = -errno;
        close(fd);
        return rc;
    }
    s->memory = p;
    s->memory_bytes = a.end;
    ring_init(&s->hiprio, p + a.hiprio, SESSION_HIPRIO);
    ring_init(&s->requests, p + a.requests, SESSION_RING);
    s->hiprio_slots =
        (struct slots){p + a.hiprio_slots, SESSION_ADDRESS + a.hiprio_slots, SESSION_FORGETS, 0};
    s->slots = (struct slots){p + a.slots, SESSION_ADDRESS + a.slots, n_small, SESSION_LARGE};
    *ret_fd = fd;
    return 0;
}

static int region_message(struct vhost_session *s, uint32_t request, uint64_t address,
                          uint64_t size, int fd, uint64_t fd_offset, uint64_t deadline_ns)
{
    struct vhost_user_mem_reg m = {.region = {address, size, address, fd_offset}};

    return message_set(s->socket, request, &m, sizeof(m), fd, true, deadline_ns);
}

int session_region_add(struct vhost_session *s, uint64_t address, uint64_t size, int fd,
                       uint64_t fd_offset, uint64_t deadline_ns)
{
    int rc = region_message(s, VHOST_USER_ADD_MEM_REG, address, size, fd, fd_offset, deadline_ns);

    s->n_regions += rc == 0;
    return rc;
}

int session_region_remove(struct vhost_session *s, uint64_t address, uint64_t size,
                          uint64_t deadline_ns)
{
    int rc = region_message(s, VHOST_USER_REM_MEM_REG, address, size, -1, 0, deadline_ns);

    s->n_regions -= rc == 0;
    return rc;
}

int session_regions_max(struct vhost_session *s, uint64_t *ret, uint64_t deadline_ns)
{
    return message_get(s->socket, VHOST_USER_GET_MAX_MEM_SLOTS, ret, deadline_ns);
}

// --- agreeing ---

static int set_u64(struct vhost_session *s, uint32_t request, uint64_t value, int fd,
                   bool with_reply, uint64_t deadline_ns)
{
    return message_set(s->socket, request, &value, sizeof(value), fd, with_reply, deadline_ns);
}

static int negotiate(struct vhost_session *s, uint64_t deadline_ns)
{
    uint64_t features, protocol;
    int rc = message_get(s->socket, VHOST_USER_GET_FEATURES, &features, deadline_ns);

    if (rc == 0 && (features & FEATURES) != FEATURES)
        return client_fail(-EPROTO, "the device lacks features that libos2g needs (%#llx)",
                           (unsigned long long)(FEATURES & ~features));
    if (rc == 0)
        rc = message_get(s->socket, VHOST_USER_GET_PROTOCOL_FEATURES, &protocol, deadline_ns);
    if (rc == 0 && (protocol & PROTOCOL_FEATURES) != PROTOCOL_FEATURES)
        return client_fail(-EPROTO, "the device lacks protocol features that libos2g needs (%#llx)",
                           (unsigned long long)(PROTOCOL_FEATURES & ~protocol));
    if (rc == 0)
        rc =
            set_u64(s, VHOST_USER_SET_PROTOCOL_FEATURES, PROTOCOL_FEATURES, -1, false, deadline_ns);
    if (rc == 0)
        rc = message_set(s->socket, VHOST_USER_SET_OWNER, NULL, 0, -1, true, deadline_ns);
    if (rc == 0)
        rc = set_u64(s, VHOST_USER_SET_FEATURES, FEATURES, -1, true, deadline_ns);
    return rc;
}

static int start_queue(struct vhost_session *s, enum queue q, struct ring *r, int kick_fd,
                       int call_fd, uint64_t deadline_ns)
{
    uint64_t base = SESSION_ADDRESS - (uint64_t)(uintptr_t)s->memory;
    struct vhost_user_vring_state num = {q, r->size}, from = {q, 0}, enable = {q, 1};
    struct vhost_user_vring_addr addr = {
        .index = q,
        .desc = base + (uint64_t)(uintptr_t)r->v.desc,
        .avail = base + (uint64_t)(uintptr_t)r->v.avail,
        .used = base + (uint64_t)(uintptr_t)r->v.used,
    };
    const struct {
        uint32_t request;
        const void *payload;
        uint32_t size;
        int fd;
    } steps[] = {
        {VHOST_USER_SET_VRING_NUM, &num, sizeof(num), -1},
        {VHOST_USER_SET_VRING_BASE, &from, sizeof(from), -1},
        {VHOST_USER_SET_VRING_ADDR, &addr, sizeof(addr), -1},
        {VHOST_USER_SET_VRING_CALL, &(uint64_t){q}, sizeof(uint64_t), call_fd},
        {VHOST_USER_SET_VRING_KICK, &(uint64_t){q}, sizeof(uint64_t), kick_fd},
        {VHOST_USER_SET_VRING_ENABLE, &enable, sizeof(enable), -1},
    };
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < ARRAY_LEN(steps); i++)
        rc = message_set(s->socket, steps[i].request, steps[i].payload, steps[i].size, steps[i].fd,
                         true, deadline_ns);
    return rc;
}

int session_explain(int error, const char *path)
{
    switch (error) {
    case -ENOENT:
    case -ECONNREFUSED:
        return client_fail(error, "no daemon listens at %s: start one (os2gd, os2g mount)", path);
    case -EACCES:
        return client_fail(error, "%s: not allowed to this user: see socket-mode and socket-group",
                           path);
    case -EPIPE:
        return client_fail(error, "the daemon at %s has closed the connection", path);
    case -EBADMSG:
        return client_fail(-EPROTO, "%s: whoever listens there does not speak vhost-user", path);
    case -EREMOTEIO:
        return client_fail(-EPROTO, "the daemon at %s refuses what libos2g needs", path);
    case -ETIMEDOUT:
        return client_fail(error, "the daemon at %s does not answer", path);
    case -EPROTO:
        return error; // said already
    default:
        return client_fail_errno(error, path);
    }
}

int session_open(struct vhost_session **ret, int socket, const char *path, unsigned n_small,
                 int call_fd, uint64_t deadline_ns)
{
    struct vhost_session *s = xcalloc(1, sizeof(*s));
    int memory_fd = -1, rc;

    s->socket = socket;
    s->kick_hiprio = s->kick_requests = -1;
    s->identity =
        (struct fuse_in_header){.uid = geteuid(), .gid = getegid(), .pid = (uint32_t)getpid()};
    rc = make_memory(s, n_small, &memory_fd);
    if (rc == 0) {
        s->kick_hiprio = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        s->kick_requests = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        rc = s->kick_hiprio < 0 || s->kick_requests < 0 ? -errno : 0;
    }
    if (rc == 0)
        rc = negotiate(s, deadline_ns);
    if (rc == 0)
        rc = session_region_add(s, SESSION_ADDRESS, s->memory_bytes, memory_fd, 0, deadline_ns);
    if (rc == 0)
        rc = start_queue(s, QUEUE_HIPRIO, &s->hiprio, s->kick_hiprio, call_fd, deadline_ns);
    if (rc == 0)
        rc = start_queue(s, QUEUE_REQUESTS, &s->requests, s->kick_requests, call_fd, deadline_ns);
    if (memory_fd >= 0)
        close(memory_fd);
    if (rc < 0) {
        session_close(s);
        return session_explain(rc, path);
    }
    *ret = s;
    return 0;
}

void session_close(struct vhost_session *s)
{
    if (!s)
        return;
    if (s->socket >= 0)
        close(s->socket);
    if (s->kick_hiprio >= 0)
        close(s->kick_hiprio);
    if (s->kick_requests >= 0)
        close(s->kick_requests);
    if (s->memory)
        munmap(s->memory, s->memory_bytes);
    source_fini(&s->source);
    free(s);
}

// --- the first requests ---

struct fuse_in_header session_header(const struct vhost_session *s, uint32_t opcode,
                                     uint64_t nodeid, uint64_t unique)
{
    struct fuse_in_header h = s->identity;

    h.opcode = opcode;
    h.nodeid = nodeid;
    h.unique = unique;
    return h;
}

void session_kick(struct vhost_session *s)
{
    uint64_t one = 1;

    // a full counter (EAGAIN) is a kick, too
    if (ring_kick_needed(&s->hiprio) && write(s->kick_hiprio, &one, sizeof(one)) < 0)
        return;
    if (ring_kick_needed(&s->requests) && write(s->kick_requests, &one, sizeof(one)) < 0)
        return;
}

static int wait_for_answer(struct vhost_session *s, unsigned slot, int call_fd,
                           uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p[] = {{.fd = call_fd, .events = POLLIN},
                             {.fd = s->socket, .events = POLLRDHUP}};
        uint64_t now, n;
        uint32_t id, len;
        int rc = ring_take(&s->requests, &id, &len);

        if (rc != 0)
            return rc < 0 || id != slot ? -EBADMSG : 0;
        if (!ring_arm(&s->requests, 1))
            continue;
        now = clock_monotonic_ns();
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        if (poll(p, 2, (int)MIN((deadline_ns - now) / NS_PER_MS + 1, 60000)) < 0 && errno != EINTR)
            return -errno;
        if (p[0].revents && read(call_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
            return -errno;
        if (p[1].revents && ring_arm(&s->requests, 1))
            return -EPIPE;
    }
}

int session_exchange(struct vhost_session *s, int call_fd, uint32_t opcode, const void *in,
                     size_t in_len, void *out, size_t out_len, uint64_t deadline_ns)
{
    struct iovec iov = {(void *)in, in_len};
    struct slot_message m = {
        .head = session_header(s, opcode, FUSE_ROOT_ID, 1),
        .in = &iov,
        .n_in = 1,
        .out_len = out_len,
    };
    unsigned slot = s->slots.n_small; // the first large one
    struct slot_answer a;
    int rc;

    slots_fill(&s->slots, slot, &s->requests, &m);
    ring_add(&s->requests, (uint16_t)slot);
    session_kick(s);
    rc = wait_for_answer(s, slot, call_fd, deadline_ns);
    if (rc == 0)
        rc = slots_answer(&s->slots, slot, 1, out_len, 0, &a);
    if (rc != 0)
        return rc;
    if (a.out_got)
        memcpy(out, a.out, a.out_got);
    return a.error ? a.error : (int)a.out_got;
}

static int init(struct vhost_session *s, int call_fd, uint64_t deadline_ns)
{
    struct fuse_init_in in = {
        .major = FUSE_KERNEL_VERSION,
        .minor = FUSE_KERNEL_MINOR_VERSION,
        .max_readahead = 0,
        .flags = FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS | FUSE_DO_READDIRPLUS | FUSE_MAX_PAGES |
                 FUSE_HAS_IOCTL_DIR | FUSE_INIT_EXT,
    };
    struct fuse_init_out out = {0};
    int rc =
        session_exchange(s, call_fd, FUSE_INIT, &in, sizeof(in), &out, sizeof(out), deadline_ns);

    if (rc < 0)
        return rc;
    return rc < (int)offsetof(struct fuse_init_out, max_readahead) ||
                   out.major != FUSE_KERNEL_VERSION
               ? -EBADMSG
               : 0;
}

static int hello(struct vhost_session *s, int call_fd, uint64_t deadline_ns)
{
    struct os2g_hello_in in = {.version_min = OS2G_WIRE_VERSION_MIN,
                               .version_max = OS2G_WIRE_VERSION};
    struct {
        struct os2g_hello_out head;
        char source[OS2G_SOURCE_MAX];
    } answer = {0};
    struct os2g_hello_out *out = &answer.head;
    int rc = session_exchange(s, call_fd, OS2G_OP_HELLO, &in, sizeof(in), &answer, sizeof(answer),
                              deadline_ns);

    out->release[sizeof(out->release) - 1] = 0;
    if (rc == -EPROTO)
        return client_fail(-EPROTO,
                           "this libos2g speaks versions %d to %d of the wire, the daemon (%s) "
                           "version %u at most: update the older one",
                           OS2G_WIRE_VERSION_MIN, OS2G_WIRE_VERSION,
                           out->release[0] ? out->release : "unknown", out->version);
    if (rc == -ENOSYS)
        return client_fail(-EPROTO, "the device is no os2gd: it does not know HELLO");
    if (rc < 0)
        return rc;
    if (rc < (int)sizeof(*out) || out->version < OS2G_WIRE_VERSION_MIN ||
        out->version > OS2G_WIRE_VERSION || out->max_read < 4096 ||
        (size_t)rc - sizeof(*out) != out->source_len)
        return -EBADMSG;
    s->max_read = out->max_read;
    memcpy(s->release, out->release, sizeof(s->release));
    return source_read(&s->source, answer.source, out->source_len);
}

int session_hello(struct vhost_session *s, int call_fd, uint64_t deadline_ns)
{
    int rc = init(s, call_fd, deadline_ns);

    if (rc == 0)
        rc = hello(s, call_fd, deadline_ns);
    if (rc == -EBADMSG)
        return client_fail(-EPROTO, "the daemon's answer makes no sense");
    return rc == 0 || rc == -EPROTO ? rc : client_fail_errno(rc, "greeting the daemon");
}
