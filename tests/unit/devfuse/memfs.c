// SPDX-License-Identifier: Apache-2.0
#include "memfs.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/rand.h"
#include "cache/dest.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define NODE_BIG   2
#define NODE_STUCK 3
#define NODE_DIR   4
#define NODE_FILE0 16

// The bytes of every file repeat after this many. Not a power of two, so that no mistaken offset
// shows the right bytes.
#define PERIOD   ((size_t)257 * 4096)
#define MAX_READ MIB
#define PIECE    (64 * KIB) // as the pages of the cache are

struct fs {
    struct memfs_options options;
    _Atomic uint64_t reads;
    _Atomic int64_t references, handles;
    uint32_t serial;  // of the last handle
    struct list held; // struct read
};

// One period and, so that each read is contiguous, the largest read behind it.
static unsigned char *bytes;
static int bytes_fd;

static void make_bytes(void)
{
    struct rand r;

    if (bytes)
        return;
    bytes_fd = memfd_create("memfs", MFD_CLOEXEC);
    if (bytes_fd < 0 || ftruncate(bytes_fd, PERIOD + MAX_READ) < 0)
        abort();
    bytes = mmap(NULL, PERIOD + MAX_READ, PROT_READ | PROT_WRITE, MAP_SHARED, bytes_fd, 0);
    if (bytes == MAP_FAILED)
        abort();
    rand_seed(&r, 7);
    for (size_t i = 0; i < PERIOD; i += 8) {
        uint64_t v = rand_u64(&r);

        memcpy(bytes + i, &v, 8);
    }
    memcpy(bytes + PERIOD, bytes, MAX_READ);
}

// A process that was forked has none of the pages yet. An answer whose page is missing while the
// process is being killed fails in the kernel, and with it the request; a daemon's never is, for it
// has written them itself.
static void touch_bytes(void)
{
    for (size_t i = 0; i < PERIOD + MAX_READ; i += 4096)
        (void)*(volatile unsigned char *)&bytes[i];
}

bool memfs_equal(const void *p, uint64_t offset, size_t len)
{
    const unsigned char *at = p;

    make_bytes();
    while (len) {
        size_t n = MIN(len, MAX_READ);

        if (memcmp(at, bytes + offset % PERIOD, n))
            return false;
        at += n;
        offset += n;
        len -= n;
    }
    return true;
}

void memfs_memory(int *ret_fd, void **ret_base, uint64_t *ret_len)
{
    make_bytes();
    *ret_fd = bytes_fd;
    *ret_base = bytes;
    *ret_len = PERIOD + MAX_READ;
}

struct fs *memfs_new(const struct memfs_options *o)
{
    struct fs *fs = xcalloc(1, sizeof(*fs));

    make_bytes();
    touch_bytes();
    fs->options = *o;
    list_init(&fs->held);
    return fs;
}

void memfs_free(struct fs *fs)
{
    free(fs);
}

uint64_t memfs_reads(const struct fs *fs)
{
    return atomic_load(&fs->reads);
}

int64_t memfs_references(const struct fs *fs)
{
    return atomic_load(&fs->references);
}

int64_t memfs_handles(const struct fs *fs)
{
    return atomic_load(&fs->handles);
}

static bool attr_of(const struct fs *fs, uint64_t node, struct fs_attr *a)
{
    bool dir = node == FS_ROOT || node == NODE_DIR;

    *a = (struct fs_attr){
        .node = node,
        .mtime_s = 1000000000,
        .mode = dir ? S_IFDIR | 0755 : S_IFREG | 0644,
        .nlink = dir ? 2 : 1,
    };
    if (node == NODE_BIG || node == NODE_STUCK)
        a->size = fs->options.big_size;
    else if (node >= NODE_FILE0 && node < NODE_FILE0 + fs->options.files)
        a->size = fs->options.file_size;
    else
        return dir;
    return true;
}

static struct fs_entry entry_of(const struct fs *fs, uint64_t node)
{
    struct fs_entry e = {.entry_valid_ns = 60 * NS_PER_S, .attr_valid_ns = 60 * NS_PER_S};

    if (node)
        attr_of(fs, node, &e.attr);
    return e;
}

static uint64_t node_named(const struct fs *fs, uint64_t parent, const char *name)
{
    unsigned i;

    if (parent == FS_ROOT && !strcmp(name, "big"))
        return NODE_BIG;
    if (parent == FS_ROOT && !strcmp(name, "stuck"))
        return NODE_STUCK;
    if (parent == FS_ROOT && !strcmp(name, "dir"))
        return NODE_DIR;
    if (parent == NODE_DIR && sscanf(name, "f%u", &i) == 1 && i < fs->options.files)
        return NODE_FILE0 + i;
    return 0;
}

static void lookup(struct fs *fs, struct fs_request *req, uint64_t parent, const char *name,
                   size_t len)
{
    struct fs_entry e = entry_of(fs, node_named(fs, parent, name));

    fs->references += e.attr.node != 0;
    req->reply->entry(req, &e);
}

static void forget(struct fs *fs, uint64_t node, uint64_t n)
{
    fs->references -= (int64_t)n;
}

static void unopen(struct fs *fs, uint64_t handle)
{
    fs->handles--;
}

static void getattr(struct fs *fs, struct fs_request *req, uint64_t node)
{
    struct fs_attr a;

    if (attr_of(fs, node, &a))
        req->reply->attr(req, &a, 60 * NS_PER_S);
    else
        req->reply->error(req, -ESTALE);
}

static void access_(struct fs *fs, struct fs_request *req, uint64_t node, int mask)
{
    req->reply->error(req, mask & 2 ? -EROFS : 0);
}

// The lower half of a handle is its node's number.
static uint64_t handle_new(struct fs *fs, uint64_t node)
{
    fs->handles++;
    return (uint64_t)++fs->serial << 32 | node;
}

static uint64_t node_of(uint64_t handle)
{
    return (uint32_t)handle;
}

static void open_(struct fs *fs, struct fs_request *req, uint64_t node, int flags)
{
    struct fs_opened o = {.handle = handle_new(fs, node),
                          .direct_io = fs->options.direct_io,
                          .keep_cache = true,
                          .cache_dir = false};

    req->reply->opened(req, &o);
}

struct landing {
    struct cache_put put;
    struct fs_request *req;
    struct iovec iov[MAX_READ / PIECE];
    size_t len;
};

static void landed(struct landing *l, int error)
{
    if (error < 0)
        l->req->reply->error(l->req, error);
    else
        l->req->reply->landed(l->req, l->len);
    free(l);
}

static void on_put(struct cache_put *p, int error)
{
    landed(container_of(p, struct landing, put), error);
}

static void land(struct fs_request *req, const struct iovec *iov, int n, size_t len)
{
    struct landing *l = xcalloc(1, sizeof(*l));
    int rc = 0;

    l->put.done = on_put;
    l->req = req;
    l->len = len;
    memcpy(l->iov, iov, sizeof(*iov) * (size_t)n);
    if (n > 0)
        rc = req->dest->ops->put(req->dest, 0, l->iov, n, &l->put);
    if (rc != -EINPROGRESS)
        landed(l, rc);
}

static void answer_read(struct fs_request *req, uint64_t size_of_file, uint64_t offset,
                        uint32_t size)
{
    const unsigned char *from = bytes + offset % PERIOD;
    size_t n = offset >= size_of_file ? 0 : MIN(size, size_of_file - offset);
    struct iovec iov[MAX_READ / PIECE];
    int pieces = 0;

    for (size_t at = 0; at < n; at += PIECE)
        iov[pieces++] = (struct iovec){(void *)(from + at), MIN(PIECE, n - at)};
    if (req->dest)
        land(req, iov, pieces, n);
    else
        req->reply->data(req, iov, pieces);
}

struct read {
    struct loop_msg msg;
    struct list link;
    struct fs_request *req;
    uint64_t size_of_file, offset;
    uint32_t size;
};

static void finish_read(struct read *r)
{
    answer_read(r->req, r->size_of_file, r->offset, r->size);
    free(r);
}

static void on_data_loop(struct loop_msg *msg)
{
    finish_read(container_of(msg, struct read, msg));
}

void memfs_answer_held(struct fs *fs)
{
    fs->options.hold_reads = false;
    list_for_each_safe (it, &fs->held)
        finish_read(list_entry(it, struct read, link));
    list_init(&fs->held);
}

static void interrupted(struct fs_request *req, void *arg)
{
    req->cancel = NULL;
    req->reply->error(req, -EINTR);
}

static void read_(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                  uint32_t size)
{
    struct fs_attr a;
    struct read *r;

    atomic_fetch_add(&fs->reads, 1);
    if (node_of(handle) == NODE_STUCK) {
        req->cancel = interrupted;
        return;
    }
    if (!attr_of(fs, node_of(handle), &a)) {
        req->reply->error(req, -EBADF);
        return;
    }
    r = xmalloc(sizeof(*r));
    *r = (struct read){.req = req, .size_of_file = a.size, .offset = offset, .size = size};
    if (fs->options.hold_reads)
        list_push_back(&fs->held, &r->link);
    else if (fs->options.data_loop)
        loop_post(fs->options.data_loop, &r->msg, on_data_loop);
    else
        finish_read(r);
}

// Keys are paths. Whole objects of up to a mebibyte.
static void fetch(struct fs *fs, struct fs_request *req, const char *key, size_t len)
{
    uint64_t node = 0, size;
    struct fs_attr a;
    struct iovec iov;
    int rc = 0;

    if (len == 3 && !memcmp(key, "big", len))
        node = NODE_BIG;
    else if (len > 4 && !memcmp(key, "dir/f", 5))
        node = NODE_FILE0 + (unsigned)atoi(key + 5);
    if (!node || !attr_of(fs, node, &a)) {
        req->reply->fetched(req, -ENOENT, 0);
        return;
    }
    size = a.size;
    iov = (struct iovec){bytes, MIN(size, MAX_READ)};
    if (size > req->dest->len)
        rc = -EFBIG;
    else if (size)
        rc = req->dest->ops->put(req->dest, 0, &iov, 1, NULL);
    req->reply->fetched(req, rc, size);
}

static void release(struct fs *fs, struct fs_request *req, uint64_t handle)
{
    fs->handles--;
    req->reply->error(req, 0);
}

static void opendir_(struct fs *fs, struct fs_request *req, uint64_t node)
{
    struct fs_opened o = {.handle = handle_new(fs, node)};

    req->reply->opened(req, &o);
}

// The name at place i of a directory; its node, or 0 behind the last.
static uint64_t child(const struct fs *fs, uint64_t dir, uint64_t i, char name[static 32])
{
    static const char *const root[] = {"big", "stuck", "dir"};
    static const uint64_t root_nodes[] = {NODE_BIG, NODE_STUCK, NODE_DIR};

    if (dir == FS_ROOT && i < ARRAY_LEN(root)) {
        snprintf(name, 32, "%s", root[i]);
        return root_nodes[i];
    }
    if (dir == NODE_DIR && i < fs->options.files) {
        snprintf(name, 32, "f%u", (unsigned)i);
        return NODE_FILE0 + i;
    }
    return 0;
}

static void readdir_(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                     bool plus)
{
    char name[32];
    uint64_t node;

    for (uint64_t i = offset; (node = child(fs, node_of(handle), i, name)); i++) {
        struct fs_entry e = entry_of(fs, node);

        if (!req->reply->dirent(req, name, strlen(name), i + 1, &e))
            break;
        fs->references += plus;
    }
    req->reply->dirents_end(req);
}

static void statfs_(struct fs *fs, struct fs_request *req)
{
    req->reply->statfs(req, fs->options.files + 2);
}

static void getxattr(struct fs *fs, struct fs_request *req, uint64_t node, const char *name)
{
    if (!strcmp(name, "user.test"))
        req->reply->xattr(req, "value", 5);
    else
        req->reply->error(req, -ENODATA);
}

static void listxattr(struct fs *fs, struct fs_request *req, uint64_t node)
{
    req->reply->xattr(req, "user.test", 10);
}

// Answers with what it was given.
static void ioctl_(struct fs *fs, struct fs_request *req, uint64_t node, uint64_t handle,
                   uint32_t cmd, const void *in, size_t in_len, size_t out_size)
{
    if (_IOC_TYPE(cmd) != 'o')
        req->reply->error(req, -ENOTTY);
    else
        req->reply->ioctl(req, 42, in, MIN(in_len, out_size));
}

const struct fs_ops memfs_ops = {
    .lookup = lookup,
    .forget = forget,
    .unlookup = forget,
    .unopen = unopen,
    .getattr = getattr,
    .access = access_,
    .open = open_,
    .read = read_,
    .fetch = fetch,
    .release = release,
    .opendir = opendir_,
    .readdir = readdir_,
    .releasedir = release,
    .statfs = statfs_,
    .getxattr = getxattr,
    .listxattr = listxattr,
    .ioctl = ioctl_,
};
