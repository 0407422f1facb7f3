// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "host.h"

#include "base/clock.h"
#include "cache/cache.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE (10 * NS_PER_S * TEST_SLOWED_DOWN)

// --- the cache, as far as a wire knows it: a fence over the loop that answers ---

struct cache {
    struct loop *data;
};

static void on_fenced(struct loop_msg *msg)
{
    struct cache_fence *f = container_of(msg, struct cache_fence, msg);

    f->done(f);
}

static void on_data(struct loop_msg *msg)
{
    struct cache_fence *f = container_of(msg, struct cache_fence, msg);

    loop_post(f->loop, &f->msg, on_fenced);
}

void cache_fence_start(struct cache *c, struct cache_fence *f)
{
    f->loop = loop_self();
    loop_post(c->data, &f->msg, on_data);
}

void cache_arena(const struct cache *c, int *ret_fd, void **ret_base, uint64_t *ret_len)
{
    memfs_memory(ret_fd, ret_base, ret_len);
}

// --- the device ---

static struct cache the_cache;

// What was left behind is still reachable: it is no leak.
static struct vhost *left_behind[64];
static unsigned n_left;

static void pause_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(ms * NS_PER_MS)}, NULL);
}

static void on_event(void *arg, const struct vhost_event *e)
{
    struct device *d = arg;

    pthread_mutex_lock(&d->locked.mutex);
    d->locked.events[d->locked.n++ % EVENTS] = *e;
    pthread_mutex_unlock(&d->locked.mutex);
}

static void make(void *arg)
{
    struct device *d = arg;
    const struct vhost_config c = {
        .ops = &memfs_ops,
        .fs = d->fs,
        .cache = &the_cache,
        .max_readahead = 1 << 20,
        .max_background = 64,
        .helper_program = "/proc/self/exe",
        .event = on_event,
        .arg = d,
    };

    assert_return_code(vhost_new(&d->vhost, d->loop, &c), 0);
}

void device_init(struct device *d, const struct memfs_options *o)
{
    struct memfs_options options = *o;

    *d = (struct device){0};
    pthread_mutex_init(&d->locked.mutex, NULL);
    assert_return_code(loop_start(&d->loop, "namespace"), 0);
    assert_return_code(loop_start(&d->data, "data"), 0);
    the_cache.data = options.data_loop = d->data;
    d->fs = memfs_new(&options);
    loop_call(d->loop, make, d);
}

void device_fini(struct device *d)
{
    struct vhost_stats s;

    for (uint64_t end = clock_monotonic_ns() + PATIENCE;;) {
        vhost_stats_read(d->vhost, &s);
        if (s.sessions == 0)
            break;
        assert_true(clock_monotonic_ns() < end);
        pause_ms(1);
    }
    left_behind[n_left++] = d->vhost;
    loop_stop(d->loop);
    loop_stop(d->data);
    memfs_free(d->fs);
    pthread_mutex_destroy(&d->locked.mutex);
}

static void answer_held(void *arg)
{
    struct device *d = arg;

    memfs_answer_held(d->fs);
}

void device_answer_held(struct device *d)
{
    loop_call(d->loop, answer_held, d);
}

struct command {
    struct device *device;
    struct vhost_command command;
    int fd;
};

static void give(void *arg)
{
    struct command *c = arg;

    vhost_command(c->device->vhost, &c->command, c->fd);
}

uint64_t device_command(struct device *d, struct vhost_command c, int fd)
{
    struct command one = {.device = d, .command = c, .fd = fd < 0 ? -1 : dup(fd)};

    one.command.seq = ++d->seq;
    loop_call(d->loop, give, &one);
    return one.command.seq;
}

static bool find_event(struct device *d, uint32_t kind, uint64_t seq, uint32_t session,
                       struct vhost_event *ret)
{
    bool found = false;

    pthread_mutex_lock(&d->locked.mutex);
    for (unsigned i = 0; i < MIN(d->locked.n, EVENTS) && !found; i++) {
        const struct vhost_event *e = &d->locked.events[i];

        found = e->kind == kind && (kind == VHOST_DONE ? e->seq == seq : e->session == session);
        if (found)
            *ret = *e;
    }
    pthread_mutex_unlock(&d->locked.mutex);
    return found;
}

static struct vhost_event wait_event(struct device *d, uint32_t kind, uint64_t seq,
                                     uint32_t session)
{
    uint64_t end = clock_monotonic_ns() + PATIENCE;
    struct vhost_event e = {0};

    while (!find_event(d, kind, seq, session, &e)) {
        assert_true(clock_monotonic_ns() < end);
        pause_ms(1);
    }
    return e;
}

uint64_t device_done(struct device *d, uint64_t seq)
{
    return wait_event(d, VHOST_DONE, seq, 0).value;
}

bool device_is_done(struct device *d, uint64_t seq)
{
    struct vhost_event e;

    return find_event(d, VHOST_DONE, seq, 0, &e);
}

void device_do(struct device *d, struct vhost_command c, int fd)
{
    device_done(d, device_command(d, c, fd));
}

const char *device_bad(struct device *d, uint32_t session)
{
    static struct vhost_event e;

    e = wait_event(d, VHOST_BAD, 0, session);
    return e.text;
}

struct vhost_stats device_stats(struct device *d)
{
    struct vhost_stats s;

    vhost_stats_read(d->vhost, &s);
    return s;
}

// --- hosts ---

static struct vhost_command with(const struct host *h, struct vhost_command c)
{
    c.session = h->session;
    c.queue = h->queue;
    return c;
}

static struct vhost_command plain(const struct host *h, enum vhost_command_kind kind)
{
    return with(
        h, (struct vhost_command){.kind = kind, .peer = {.uid = 1000, .gid = 1001, .pid = 1002}});
}

void host_start(struct host *h, uint32_t base, bool resumed)
{
    struct vhost_command c = with(h, driver_start(&h->driver, base));

    h->starts += !resumed;
    c.start = MAX(h->starts, 1u); // another process may have counted
    device_do(h->device, c, h->kick_fd);
    device_do(h->device, plain(h, VHOST_QUEUE_CALL), h->call_fd);
}

void host_make(struct host *h, uint32_t session)
{
    *h = (struct host){.session = session, .queue = 1, .unique = 100};
    driver_init(&h->driver, 32, DRIVER_EVENT_IDX | DRIVER_INDIRECT, true);
    h->memory_fd = memfd_create("session", MFD_CLOEXEC);
    h->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void host_attach(struct host *h, struct device *d, bool resumed)
{
    h->device = d;
    device_do(d, plain(h, VHOST_SESSION_ADD), h->memory_fd);
    device_do(d, with(h, driver_region(&h->driver)), h->driver.fd);
    host_start(h, 0, resumed);
}

void host_init(struct host *h, struct device *d, uint32_t session)
{
    host_make(h, session);
    host_attach(h, d, false);
}

uint64_t host_stop(struct host *h)
{
    return device_done(h->device, device_command(h->device, plain(h, VHOST_QUEUE_STOP), -1));
}

void host_remove(struct host *h)
{
    device_do(h->device, plain(h, VHOST_SESSION_REMOVE), -1);
}

void host_fini(struct host *h)
{
    driver_fini(&h->driver);
    close(h->memory_fd);
    close(h->kick_fd);
    close(h->call_fd);
}

static uint64_t slot_offset(unsigned i)
{
    return DRIVER_HEAP + i * HOST_SLOT_BYTES;
}

char *host_out(struct host *h, unsigned i)
{
    return h->driver.memory + slot_offset(i) + HOST_IN_BYTES;
}

uint64_t host_out_addr(const struct host *h, unsigned i)
{
    return DRIVER_ADDR + slot_offset(i) + HOST_IN_BYTES;
}

static void offer(struct host *h, unsigned i, uint32_t opcode, uint64_t node, const void *arg,
                  size_t len, bool has_out)
{
    struct fuse_in_header in = {.len = (uint32_t)(sizeof(in) + len),
                                .opcode = opcode,
                                .unique = h->unique += 2,
                                .nodeid = node,
                                .uid = 5,
                                .gid = 6,
                                .pid = 7};
    char *to = h->driver.memory + slot_offset(i);

    assert_true(sizeof(in) + len <= HOST_IN_BYTES);
    memcpy(to, &in, sizeof(in));
    if (len > 0)
        memcpy(to + sizeof(in), arg, len);
    memset(host_out(h, i), 0, sizeof(struct fuse_out_header));
    h->answered[i] = false;
    driver_describe(&h->driver, (uint16_t)(2 * i), DRIVER_ADDR + slot_offset(i), in.len,
                    has_out ? VRING_DESC_F_NEXT : 0, (uint16_t)(2 * i + 1));
    driver_offer(&h->driver, (uint16_t)(2 * i));
    eventfd_write(h->kick_fd, 1);
}

void host_send_to(struct host *h, unsigned i, uint32_t opcode, uint64_t node, const void *arg,
                  size_t len)
{
    offer(h, i, opcode, node, arg, len, true);
}

void host_send(struct host *h, unsigned i, uint32_t opcode, uint64_t node, const void *arg,
               size_t len, uint32_t out_len)
{
    if (out_len > 0)
        driver_describe(&h->driver, (uint16_t)(2 * i + 1), host_out_addr(h, i), out_len,
                        VRING_DESC_F_WRITE, 0);
    offer(h, i, opcode, node, arg, len, out_len > 0);
}

bool host_answered(struct host *h, unsigned i)
{
    uint32_t head, len;

    while (driver_take(&h->driver, &head, &len)) {
        assert_true(head / 2 < HOST_SLOTS && head % 2 == 0 && !h->answered[head / 2]);
        h->answered[head / 2] = true;
        h->used[head / 2] = len;
    }
    return h->answered[i];
}

const struct fuse_out_header *host_wait(struct host *h, unsigned i)
{
    uint64_t end = clock_monotonic_ns() + PATIENCE;

    while (!host_answered(h, i)) {
        assert_true(clock_monotonic_ns() < end);
        pause_ms(1);
    }
    return (const void *)host_out(h, i);
}

const void *host_body(struct host *h, unsigned i)
{
    return host_out(h, i) + sizeof(struct fuse_out_header);
}

// --- ordinary requests ---

void host_mount(struct host *h)
{
    const struct fuse_init_in in = {.major = FUSE_KERNEL_VERSION,
                                    .minor = FUSE_KERNEL_MINOR_VERSION,
                                    .max_readahead = 1 << 20,
                                    .flags = FUSE_MAX_PAGES};

    host_send(h, 0, FUSE_INIT, 0, &in, sizeof(in), 4096);
    assert_int_equal(host_wait(h, 0)->error, 0);
}

void host_hello(struct host *h)
{
    const struct os2g_hello_in in = {.version_min = 1, .version_max = OS2G_WIRE_VERSION};

    host_send(h, 0, OS2G_OP_HELLO, 0, &in, sizeof(in), 4096);
    assert_int_equal(host_wait(h, 0)->error, 0);
}

uint64_t host_lookup(struct host *h, uint64_t parent, const char *name)
{
    const struct fuse_entry_out *e = host_body(h, 0);

    host_send(h, 0, FUSE_LOOKUP, parent, name, strlen(name) + 1, 4096);
    return host_wait(h, 0)->error ? 0 : e->nodeid;
}

uint64_t host_open(struct host *h, uint64_t node)
{
    const struct fuse_open_in in = {0};
    const struct fuse_open_out *o = host_body(h, 0);

    host_send(h, 0, FUSE_OPEN, node, &in, sizeof(in), 4096);
    return host_wait(h, 0)->error ? 0 : o->fh;
}

void host_read(struct host *h, unsigned i, uint64_t handle, uint64_t offset, uint32_t size)
{
    const struct fuse_read_in in = {.fh = handle, .offset = offset, .size = size};

    host_send(h, i, FUSE_READ, 0, &in, sizeof(in), (uint32_t)sizeof(struct fuse_out_header) + size);
}

// --- workers that are killed ---

pid_t host_worker_start(struct host *h, const struct memfs_options *o, bool resumed)
{
    pid_t parent = getpid(), pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        static struct device device;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        device_init(&device, o);
        host_attach(h, &device, resumed);
        for (;;)
            pause();
    }
    return pid;
}

void host_worker_kill(pid_t worker)
{
    assert_return_code(kill(worker, SIGKILL), errno);
    assert_int_equal(waitpid(worker, NULL, 0), worker);
}
