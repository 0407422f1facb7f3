// SPDX-License-Identifier: Apache-2.0
#include "fake_device.h"

#include "base/unix_address.h"
#include "wire/ops.h"
#include "wire/vhost_user.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define HOSTS_MAX   32
#define REGIONS_MAX 32
#define WINDOWS_MAX 2
#define HELD_MAX    2048
#define MAX_READ    (1 * MIB)

struct file {
    uint64_t parent;
    const char *name, *path;
    uint64_t size;
    bool dir;
};

// The index is the node.
static const struct file files[] = {
    [1] = {0, "", "", 0, true},
    [2] = {1, "a.bin", "a.bin", 100000, false},
    [3] = {1, "big.bin", "big.bin", 40 * MIB + 5, false},
    [4] = {1, "empty", "empty", 0, false},
    [5] = {1, "dir", "dir", 0, true},
    [6] = {5, "x", "dir/x", 10, false},
    [7] = {5, "y", "dir/y", 20, false},
    [8] = {5, "deep", "dir/deep", 0, true},
    [9] = {8, "z", "dir/deep/z", 30, false},
};

uint8_t fake_byte(const char *name, uint64_t offset)
{
    return (uint8_t)(offset * 31 + (offset >> 12) + (uint64_t)name[0]);
}

struct region {
    struct vhost_user_region r;
    uint8_t *map;
};

struct queue {
    struct vring v;
    unsigned size;
    uint16_t last_avail, used_idx;
    int kick, call;
    bool enabled;
};

struct chain {
    uint16_t head;
    uint64_t epoch;
    struct iovec in[4], out[16];
    unsigned n_in, n_out;
};

struct host {
    struct fake_device *device;
    pthread_t thread;
    int socket;
    struct region regions[REGIONS_MAX];
    struct queue queues[2];
    struct chain held[HELD_MAX];
    unsigned n_held, n_windows;
};

struct fake_device {
    pthread_mutex_t source_lock;
    const char *source;
    size_t source_len;
    char *path;
    int listener, wake;
    pthread_t thread;
    _Atomic int fault;
    _Atomic bool stop;
    _Atomic unsigned drop; // connections made before this count are closed
    struct fake_counts counts;
    struct host hosts[HOSTS_MAX];
    unsigned n_hosts;
};

static bool take_fault(struct fake_device *f, enum fake_fault fault)
{
    int expected = (int)fault;

    return atomic_compare_exchange_strong(&f->fault, &expected, FAKE_FINE);
}

// --- memory ---

static uint8_t *at(struct host *h, uint64_t address, uint64_t len)
{
    for (unsigned i = 0; i < REGIONS_MAX; i++) {
        const struct vhost_user_region *r = &h->regions[i].r;

        if (h->regions[i].map && address >= r->guest_addr &&
            address + len <= r->guest_addr + r->size)
            return h->regions[i].map + r->mmap_offset + (address - r->guest_addr);
    }
    return NULL;
}

static uint64_t add_region(struct host *h, const struct vhost_user_region *r, int fd)
{
    unsigned n = 0;

    for (; n < REGIONS_MAX && h->regions[n].map; n++)
        ;
    if (n == REGIONS_MAX || fd < 0 || (n && h->device->fault == FAKE_REFUSE))
        return 1;
    h->regions[n].r = *r;
    h->regions[n].map =
        mmap(NULL, r->size + r->mmap_offset, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h->regions[n].map == MAP_FAILED) {
        h->regions[n].map = NULL;
        return 1;
    }
    h->device->counts.regions++;
    return 0;
}

static void unmap(struct region *r)
{
    munmap(r->map, r->r.size + r->r.mmap_offset);
    r->map = NULL;
}

// What names memory that is gone is not answered any more, as a device may do.
static uint64_t remove_region(struct host *h, const struct vhost_user_region *r)
{
    for (unsigned i = 0; i < REGIONS_MAX; i++)
        if (h->regions[i].map && h->regions[i].r.guest_addr == r->guest_addr) {
            uint8_t *from = h->regions[i].map, *to = from + r->size + r->mmap_offset;

            for (unsigned k = 0; k < h->n_held;) {
                const struct chain *c = &h->held[k];
                uint8_t *last = c->out[c->n_out - 1].iov_base;

                if (last >= from && last < to)
                    h->held[k] = h->held[--h->n_held];
                else
                    k++;
            }
            unmap(&h->regions[i]);
            h->device->counts.regions--;
            return 0;
        }
    return 1;
}

// --- answering ---

static void push(struct host *h, struct queue *q, uint16_t head, uint32_t len)
{
    uint64_t one = 1;

    q->v.used->ring[q->used_idx % q->size] = (struct vring_used_elem){head, len};
    __atomic_store_n(&q->v.used->idx, ++q->used_idx, __ATOMIC_RELEASE);
    atomic_thread_fence(memory_order_seq_cst);
    if (vring_need_event(__atomic_load_n(&vring_used_event(&q->v), __ATOMIC_RELAXED), q->used_idx,
                         (uint16_t)(q->used_idx - 1)) &&
        write(q->call, &one, sizeof(one)) < 0)
        abort();
    (void)h;
}

static void put(const struct chain *c, size_t skip, const void *data, size_t len)
{
    const uint8_t *p = data;

    for (unsigned i = 0; i < c->n_out && len; i++) {
        size_t n = c->out[i].iov_len;

        if (skip >= n) {
            skip -= n;
            continue;
        }
        n = MIN(n - skip, len);
        memcpy((uint8_t *)c->out[i].iov_base + skip, p, n);
        skip = 0;
        p += n;
        len -= n;
    }
}

static void reply(struct host *h, struct queue *q, const struct chain *c, int error,
                  const void *data, size_t len)
{
    struct fake_device *f = h->device;
    struct fuse_in_header in;
    struct fuse_out_header out = {.len = (uint32_t)(sizeof(out) + len), .error = error};
    uint16_t head = c->head;

    memcpy(&in, c->in[0].iov_base, sizeof(in));
    out.unique = in.unique;
    if (take_fault(f, FAKE_BAD_UNIQUE))
        out.unique += 77;
    if (take_fault(f, FAKE_BAD_LENGTH))
        out.len = 0x7fffffff;
    if (take_fault(f, FAKE_BAD_ID))
        head = 999;
    put(c, sizeof(out), data, len);
    put(c, 0, &out, sizeof(out));
    push(h, q, head, out.len);
    if (take_fault(f, FAKE_TWICE))
        push(h, q, head, out.len);
}

// --- the file system ---

static void fill_attr(struct fuse_attr *a, uint64_t node)
{
    *a = (struct fuse_attr){
        .ino = node,
        .size = files[node].size,
        .mtime = 1000 + node,
        .mode = (files[node].dir ? S_IFDIR | 0755 : S_IFREG | 0644),
    };
}

static void answer_lookup(struct host *h, struct queue *q, const struct chain *c, uint64_t parent,
                          const char *name)
{
    struct fuse_entry_out out = {0};

    if (h->device->fault == FAKE_DOUBT_FAILS) {
        reply(h, q, c, -EIO, NULL, 0);
        return;
    }
    for (uint64_t n = 2; n < ARRAY_LEN(files); n++)
        if (files[n].parent == parent && !strcmp(files[n].name, name) &&
            !(h->device->fault == FAKE_DOUBT && !strcmp(name, "empty"))) {
            out.nodeid = n;
            fill_attr(&out.attr, n);
        }
    reply(h, q, c, 0, &out, sizeof(out));
}

static void answer_readdir(struct host *h, struct queue *q, const struct chain *c, uint64_t dir,
                           uint64_t offset)
{
    uint8_t bytes[1024] = {0};
    size_t len = 0;
    unsigned sent = 0;

    // two at a time, so that a listing takes several requests
    for (uint64_t n = MAX(offset, 2); n < ARRAY_LEN(files) && sent < 2; n++) {
        struct fuse_direntplus d = {0};

        if (files[n].parent != dir)
            continue;
        if (h->device->fault != FAKE_DOUBT && h->device->fault != FAKE_DOUBT_FAILS) {
            d.entry_out.nodeid = n;
            fill_attr(&d.entry_out.attr, n);
        }
        d.dirent.ino = n;
        d.dirent.off = n + 1;
        d.dirent.namelen = (uint32_t)strlen(files[n].name);
        memcpy(bytes + len, &d, FUSE_NAME_OFFSET_DIRENTPLUS);
        memcpy(bytes + len + FUSE_NAME_OFFSET_DIRENTPLUS, files[n].name, d.dirent.namelen);
        len += FUSE_DIRENTPLUS_SIZE(&d);
        sent++;
    }
    reply(h, q, c, 0, bytes, len);
}

static void answer_data(struct host *h, struct queue *q, const struct chain *c, uint64_t node,
                        uint64_t offset, uint64_t size, bool fetch)
{
    struct os2g_fetch_out head = {.size = files[node].size};
    uint64_t len = offset < files[node].size ? MIN(size, files[node].size - offset) : 0;
    uint8_t *bytes = malloc(sizeof(head) + len);
    size_t at_data = fetch ? sizeof(head) : 0;

    if (fetch && files[node].size > size) {
        reply(h, q, c, -EFBIG, &head, sizeof(head));
    } else {
        memcpy(bytes, &head, sizeof(head));
        for (uint64_t i = 0; i < len; i++)
            bytes[at_data + i] = fake_byte(files[node].name, offset + i);
        reply(h, q, c, 0, bytes, at_data + len);
    }
    free(bytes);
}

static uint64_t out_room(const struct chain *c)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < c->n_out; i++)
        n += c->out[i].iov_len;
    return n;
}

static void answer_fetch(struct host *h, struct queue *q, const struct chain *c, const uint8_t *in)
{
    struct os2g_fetch_in f;

    memcpy(&f, in, sizeof(f));
    for (uint64_t n = 2; n < ARRAY_LEN(files); n++)
        if (!files[n].dir && strlen(files[n].path) == f.key_len &&
            !memcmp(files[n].path, in + sizeof(f), f.key_len)) {
            answer_data(
                h, q, c, n, 0,
                out_room(c) - sizeof(struct fuse_out_header) - sizeof(struct os2g_fetch_out), true);
            return;
        }
    reply(h, q, c, -ENOENT, NULL, 0);
}

static int carry_out_region(struct host *h, const uint8_t *arg)
{
    struct os2g_region_in in;

    memcpy(&in, arg, sizeof(in));
    if (h->device->fault != FAKE_GPU)
        return -ENOSYS;
    if (in.op == OS2G_REGION_WAIT)
        return 0;
    if (in.op == OS2G_REGION_REMOVE) {
        h->n_windows--;
        h->device->counts.windows--;
        return 0;
    }
    if (h->n_windows == WINDOWS_MAX)
        return -ENOSPC;
    h->n_windows++;
    h->device->counts.windows++;
    return 0;
}

// False: the connection is to be closed.
static bool carry_out(struct host *h, struct queue *q, const struct chain *c)
{
    struct fake_device *f = h->device;
    uint8_t message[32768] __attribute__((aligned(8)));
    const uint8_t *arg = message + sizeof(struct fuse_in_header);
    struct fuse_in_header *head = (void *)message;
    size_t len = 0;

    for (unsigned i = 0; i < c->n_in; i++) {
        if (c->in[i].iov_len > sizeof(message) - 8 - len)
            abort();
        memcpy(message + len, c->in[i].iov_base, c->in[i].iov_len);
        len += c->in[i].iov_len;
    }
    message[len] = 0;
    if (head->len != len)
        abort();
    switch (head->opcode) {
    case FUSE_INIT: {
        struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                    .minor = FUSE_KERNEL_MINOR_VERSION};

        reply(h, q, c, 0, &out, sizeof(out));
        break;
    }
    case OS2G_OP_HELLO: {
        struct {
            struct os2g_hello_out head;
            char source[OS2G_SOURCE_MAX];
        } out = {.head = {OS2G_WIRE_VERSION, MAX_READ, 0, 0, "fake"}};

        f->counts.hellos++;
        if (f->fault == FAKE_VERSION)
            out.head.version = 99;
        pthread_mutex_lock(&f->source_lock);
        out.head.source_len = (uint32_t)f->source_len;
        if (f->source_len)
            memcpy(out.source, f->source, f->source_len);
        pthread_mutex_unlock(&f->source_lock);
        reply(h, q, c,
              f->fault == FAKE_VERSION    ? -EPROTO
              : f->fault == FAKE_NO_HELLO ? -ENOSYS
                                          : 0,
              &out, f->fault == FAKE_NO_HELLO ? 0 : sizeof(out.head) + out.head.source_len);
        break;
    }
    case FUSE_LOOKUP:
        answer_lookup(h, q, c, head->nodeid, (const char *)arg);
        break;
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {0};

        fill_attr(&out.attr, head->nodeid);
        reply(h, q, c, 0, &out, sizeof(out));
        break;
    }
    case FUSE_GETXATTR: {
        const char *etag = f->fault == FAKE_OTHER_ETAG ? "\"v2\"" : "\"v1\"";

        reply(h, q, c, 0, etag, strlen(etag));
        break;
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.fh = head->nodeid + 1000};

        f->counts.opens++;
        reply(h, q, c, 0, &out, sizeof(out));
        break;
    }
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        f->counts.released++;
        reply(h, q, c, 0, NULL, 0);
        break;
    case FUSE_READDIRPLUS: {
        struct fuse_read_in in;

        memcpy(&in, arg, sizeof(in));
        answer_readdir(h, q, c, head->nodeid, in.offset);
        break;
    }
    case FUSE_BATCH_FORGET: {
        struct fuse_batch_forget_in in;

        memcpy(&in, arg, sizeof(in));
        f->counts.forgotten += in.count;
        push(h, q, c->head, 0);
        break;
    }
    case OS2G_OP_REGION:
        reply(h, q, c, carry_out_region(h, arg), NULL, 0);
        break;
    case FUSE_INTERRUPT:
        f->counts.interrupts++;
        reply(h, q, c, -EAGAIN, NULL, 0);
        break;
    case FUSE_READ:
    case OS2G_OP_FETCH: {
        struct fuse_read_in in;

        if (f->fault == FAKE_HOLD) {
            h->held[h->n_held++] = *c;
            f->counts.held++;
            break;
        }
        if (take_fault(f, FAKE_CLOSE))
            return false;
        if (f->fault == FAKE_ERROR) {
            reply(h, q, c, -EIO, NULL, 0);
            break;
        }
        if (head->opcode == FUSE_READ) {
            memcpy(&in, arg, sizeof(in));
            f->counts.reads++;
            if (in.fh < 1000 || in.fh - 1000 >= ARRAY_LEN(files))
                reply(h, q, c, -EBADF, NULL, 0);
            else
                answer_data(h, q, c, in.fh - 1000, in.offset, in.size, false);
        } else {
            f->counts.fetches++;
            answer_fetch(h, q, c, arg);
        }
        break;
    }
    default:
        reply(h, q, c, -ENOSYS, NULL, 0);
    }
    return true;
}

static void read_chain(struct host *h, struct queue *q, uint16_t head, struct chain *c)
{
    struct vring_desc d = q->v.desc[head], *table;
    unsigned n = d.len / (unsigned)sizeof(d);

    *c = (struct chain){.head = head};
    table = (void *)at(h, d.addr, d.len);
    if (!(d.flags & VRING_DESC_F_INDIRECT) || !table || !n)
        abort();
    for (unsigned i = 0; i < n; i++) {
        struct iovec v = {at(h, table[i].addr, table[i].len), table[i].len};

        if (!v.iov_base)
            abort();
        if (table[i].flags & VRING_DESC_F_WRITE)
            c->out[c->n_out++] = v;
        else
            c->in[c->n_in++] = v;
    }
}

static bool serve_queue(struct host *h, struct queue *q)
{
    for (;;) {
        uint16_t idx = __atomic_load_n(&q->v.avail->idx, __ATOMIC_ACQUIRE);
        struct chain c;

        if (idx == q->last_avail) {
            __atomic_store_n(&vring_avail_event(&q->v), idx, __ATOMIC_RELAXED);
            atomic_thread_fence(memory_order_seq_cst);
            if (__atomic_load_n(&q->v.avail->idx, __ATOMIC_ACQUIRE) == idx)
                return true;
            continue;
        }
        read_chain(h, q, q->v.avail->ring[q->last_avail++ % q->size], &c);
        if (!carry_out(h, q, &c))
            return false;
    }
}

static bool let_go(struct host *h)
{
    unsigned n = h->n_held;

    if (h->device->fault == FAKE_HOLD)
        return true;
    h->n_held = 0;
    for (unsigned i = 0; i < n; i++)
        if (!carry_out(h, &h->queues[1], &h->held[i]))
            return false;
    return true;
}

// --- messages ---

static bool receive(int fd, void *data, size_t len, int *ret_fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {data, len};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(fd, &m, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;

    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
    return n == (ssize_t)len;
}

static void send_u64(struct host *h, uint32_t request, uint64_t value)
{
    struct {
        struct vhost_user_header header;
        uint64_t value;
    } __attribute__((packed)) m = {{request, VHOST_USER_VERSION | VHOST_USER_REPLY, 8}, value};

    if (h->device->fault != FAKE_SILENT && send(h->socket, &m, sizeof(m), MSG_NOSIGNAL) < 0)
        return;
}

static void start_addresses(struct host *h, const struct vhost_user_vring_addr *a)
{
    struct queue *q = &h->queues[a->index];

    q->v.num = q->size;
    q->v.desc = (void *)at(h, a->desc, 1);
    q->v.avail = (void *)at(h, a->avail, 1);
    q->v.used = (void *)at(h, a->used, 1);
    q->last_avail = q->used_idx = 0;
}

static bool message(struct host *h)
{
    struct vhost_user_header m;
    union vhost_user_payload p = {0};
    int fd = -1, other = -1;
    uint64_t status = 0;

    if (!receive(h->socket, &m, sizeof(m), &fd) || m.size > sizeof(p) ||
        (m.size && !receive(h->socket, &p, m.size, &other)))
        return false;
    switch (m.request) {
    case VHOST_USER_GET_FEATURES:
        send_u64(h, m.request,
                 1ULL << VIRTIO_F_VERSION_1 | 1ULL << VIRTIO_RING_F_INDIRECT_DESC |
                     1ULL << VIRTIO_RING_F_EVENT_IDX | 1ULL << VHOST_USER_F_PROTOCOL_FEATURES);
        return true;
    case VHOST_USER_GET_PROTOCOL_FEATURES:
        send_u64(h, m.request,
                 1ULL << VHOST_USER_PROTOCOL_F_MQ | 1ULL << VHOST_USER_PROTOCOL_F_REPLY_ACK |
                     1ULL << VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS);
        return true;
    case VHOST_USER_GET_MAX_MEM_SLOTS:
        send_u64(h, m.request, REGIONS_MAX);
        return true;
    case VHOST_USER_ADD_MEM_REG:
        status = add_region(h, &p.reg.region, fd);
        break;
    case VHOST_USER_REM_MEM_REG:
        status = remove_region(h, &p.reg.region);
        break;
    case VHOST_USER_SET_VRING_NUM:
        h->queues[p.state.index].size = p.state.num;
        break;
    case VHOST_USER_SET_VRING_ADDR:
        start_addresses(h, &p.addr);
        break;
    case VHOST_USER_SET_VRING_KICK:
        h->queues[p.u64 & 1].kick = fd;
        fd = -1;
        break;
    case VHOST_USER_SET_VRING_CALL:
        h->queues[p.u64 & 1].call = fd;
        fd = -1;
        break;
    case VHOST_USER_SET_VRING_ENABLE:
        h->queues[p.state.index].enabled = p.state.num;
        break;
    default:
        break;
    }
    if (fd >= 0)
        close(fd);
    if (m.flags & VHOST_USER_NEED_REPLY)
        send_u64(h, m.request, status);
    return true;
}

static void *host_thread(void *arg)
{
    struct host *h = arg;
    struct fake_device *f = h->device;
    unsigned number = (unsigned)(h - f->hosts);
    bool on = true;

    while (on && !f->stop && number >= f->drop) {
        struct pollfd p[3] = {{.fd = h->socket, .events = POLLIN}};

        for (unsigned i = 0; i < 2; i++)
            p[1 + i] = (struct pollfd){.fd = h->queues[i].enabled ? h->queues[i].kick : -1,
                                       .events = POLLIN};
        poll(p, 3, 2);
        for (unsigned i = 0; on && i < 2; i++) {
            uint64_t n;

            if (p[1 + i].revents && read(h->queues[i].kick, &n, sizeof(n)) > 0)
                f->counts.kicks++;
            if (h->queues[i].enabled)
                on = serve_queue(h, &h->queues[i]);
        }
        on = on && let_go(h);
        if (on && p[0].revents)
            on = message(h);
    }
    close(h->socket);
    for (unsigned i = 0; i < 2; i++) {
        if (h->queues[i].kick >= 0)
            close(h->queues[i].kick);
        if (h->queues[i].call >= 0)
            close(h->queues[i].call);
    }
    for (unsigned i = 0; i < REGIONS_MAX; i++)
        if (h->regions[i].map)
            unmap(&h->regions[i]);
    return NULL;
}

static void *listen_thread(void *arg)
{
    struct fake_device *f = arg;

    while (!f->stop) {
        struct pollfd p[] = {{.fd = f->listener, .events = POLLIN},
                             {.fd = f->wake, .events = POLLIN}};
        struct host *h = &f->hosts[f->n_hosts];
        int fd;

        poll(p, 2, -1);
        if (!(p[0].revents & POLLIN) || f->n_hosts == HOSTS_MAX)
            continue;
        fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        h->device = f;
        h->socket = fd;
        for (unsigned i = 0; i < 2; i++)
            h->queues[i].kick = h->queues[i].call = -1;
        f->counts.connections++;
        f->n_hosts++;
        pthread_create(&h->thread, NULL, host_thread, h);
    }
    return NULL;
}

struct fake_device *fake_device_new(const char *path)
{
    struct fake_device *f = xcalloc(1, sizeof(*f));
    struct sockaddr_un address;

    f->path = xstrdup(path);
    pthread_mutex_init(&f->source_lock, NULL);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    f->wake = eventfd(0, EFD_CLOEXEC);
    unix_address(&address, path);
    unlink(path);
    if (bind(f->listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(f->listener, 16) < 0)
        abort();
    pthread_create(&f->thread, NULL, listen_thread, f);
    return f;
}

void fake_device_serve(struct fake_device *f, const char *source, size_t len)
{
    pthread_mutex_lock(&f->source_lock);
    f->source = source;
    f->source_len = len;
    pthread_mutex_unlock(&f->source_lock);
}

void fake_device_free(struct fake_device *f)
{
    uint64_t one = 1;

    f->stop = true;
    if (write(f->wake, &one, sizeof(one)) < 0)
        abort();
    pthread_join(f->thread, NULL);
    for (unsigned i = 0; i < f->n_hosts; i++)
        pthread_join(f->hosts[i].thread, NULL);
    close(f->listener);
    close(f->wake);
    unlink(f->path);
    free(f->path);
    free(f);
}

void fake_device_set(struct fake_device *f, enum fake_fault fault)
{
    f->fault = (int)fault;
}

struct fake_counts *fake_device_counts(struct fake_device *f)
{
    return &f->counts;
}

void fake_device_disconnect(struct fake_device *f)
{
    f->drop = f->counts.connections;
}
