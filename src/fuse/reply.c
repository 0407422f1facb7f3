// SPDX-License-Identifier: Apache-2.0
// Answers encoded. All but the answer to a READ are given on the namespace loop.
#include "base/clock.h"
#include "base/log.h"
#include "fuse/internal.h"

#include <stdlib.h>
#include <string.h>

// An object store has no size; df shows this much, all of it free.
#define STATFS_BLOCK_SIZE 4096
#define STATFS_BLOCKS     ((uint64_t)1 << 38)

// The kernel refuses an answer with a number beyond these.
#define ERRNO_MAX 511

static struct fuse_request *from_fs(struct fs_request *req)
{
    return container_of(req, struct fuse_request, fs);
}

void fuse_reply_end(struct fuse_request *r)
{
    free(r->dirents);
    r->dirents = NULL;
    r->session->config.wire->finished(r);
}

int fuse_reply_send(struct fuse_request *r, const struct iovec *iov, int n)
{
    int rc = r->session->config.wire->send(r, iov, n);

    if (rc < 0 && rc != -ENOENT)
        log_debug("fuse", "answer to request %llu (opcode %u): %s", (unsigned long long)r->unique,
                  r->opcode, strerror(-rc));
    return rc;
}

static int send_one(struct fuse_request *r, int error, const void *data, size_t len)
{
    struct fuse_out_header h = {
        .len = (uint32_t)(sizeof(h) + len), .error = error, .unique = r->unique};
    struct iovec iov[] = {{&h, sizeof(h)}, {(void *)data, len}};

    return fuse_reply_send(r, iov, len ? 2 : 1);
}

void fuse_reply_error(struct fuse_request *r, int error)
{
    send_one(r, error > 0 || error < -ERRNO_MAX ? -EIO : error, NULL, 0);
    fuse_reply_end(r);
}

void fuse_reply_bytes(struct fuse_request *r, const void *data, size_t len)
{
    send_one(r, 0, data, len);
    fuse_reply_end(r);
}

void fuse_attr_encode(struct fuse_attr *to, const struct fs_attr *a)
{
    *to = (struct fuse_attr){
        .ino = a->node,
        .size = a->size,
        .blocks = a->size / 512 + (a->size % 512 != 0),
        .atime = (uint64_t)a->mtime_s,
        .mtime = (uint64_t)a->mtime_s,
        .ctime = (uint64_t)a->mtime_s,
        .mode = a->mode,
        .nlink = a->nlink,
        .uid = a->uid,
        .gid = a->gid,
        // Some programs (Python) size their buffers by this: larger would turn small scattered
        // reads into large ones.
        .blksize = 4096,
    };
}

void fuse_entry_encode(struct fuse_entry_out *to, const struct fs_entry *e)
{
    *to = (struct fuse_entry_out){
        .nodeid = e->attr.node,
        .generation = e->generation,
        .entry_valid = e->entry_valid_ns / NS_PER_S,
        .entry_valid_nsec = (uint32_t)(e->entry_valid_ns % NS_PER_S),
        .attr_valid = e->attr_valid_ns / NS_PER_S,
        .attr_valid_nsec = (uint32_t)(e->attr_valid_ns % NS_PER_S),
    };
    fuse_attr_encode(&to->attr, &e->attr);
}

static void reply_error(struct fs_request *req, int error)
{
    fuse_reply_error(from_fs(req), error);
}

// node 0 is a name that does not exist, which the kernel may remember.
static void reply_entry(struct fs_request *req, const struct fs_entry *e)
{
    struct fuse_request *r = from_fs(req);
    struct fuse_session *s = r->session;
    struct fuse_entry_out out;

    fuse_entry_encode(&out, e);
    if (out.nodeid && fuse_hold_node(s, out.nodeid) < 0) {
        s->config.ops->unlookup(s->config.fs, out.nodeid, 1);
        fuse_reply_error(r, -ENOMEM);
        return;
    }
    if (send_one(r, 0, &out, sizeof(out)) == -ENOENT && out.nodeid)
        fuse_unhold_node(s, out.nodeid);
    fuse_reply_end(r);
}

static void reply_attr(struct fs_request *req, const struct fs_attr *a, uint64_t valid_ns)
{
    struct fuse_attr_out out = {
        .attr_valid = valid_ns / NS_PER_S,
        .attr_valid_nsec = (uint32_t)(valid_ns % NS_PER_S),
    };

    fuse_attr_encode(&out.attr, a);
    fuse_reply_bytes(from_fs(req), &out, sizeof(out));
}

static void reply_opened(struct fs_request *req, const struct fs_opened *o)
{
    struct fuse_request *r = from_fs(req);
    struct fuse_session *s = r->session;
    struct fuse_open_out out = {
        .fh = o->handle,
        .open_flags = (o->direct_io ? FOPEN_DIRECT_IO : 0) |
                      (o->keep_cache ? FOPEN_KEEP_CACHE : 0) | (o->cache_dir ? FOPEN_CACHE_DIR : 0),
    };
    bool dir = r->opcode == FUSE_OPENDIR;

    if (fuse_hold_handle(s, out.fh, dir) < 0) {
        s->config.ops->unopen(s->config.fs, out.fh);
        fuse_reply_error(r, -ENOMEM);
        return;
    }
    if (send_one(r, 0, &out, sizeof(out)) == -ENOENT && !o->known)
        fuse_unhold_handle(s, out.fh, dir);
    fuse_reply_end(r);
}

// The hot path, on any loop: nothing is copied or allocated here.
static void reply_data(struct fs_request *req, const struct iovec *iov, int n)
{
    struct fuse_request *r = from_fs(req);
    struct fuse_out_header h = {.unique = r->unique};
    struct iovec all[1 + FS_DATA_IOVS];
    size_t len = 0;

    assert(n >= 0 && n <= FS_DATA_IOVS);
    all[0] = (struct iovec){&h, sizeof(h)};
    for (int i = 0; i < n; i++) {
        all[1 + i] = iov[i];
        len += iov[i].iov_len;
    }
    assert(len <= r->max_out);
    h.len = (uint32_t)(sizeof(h) + len);
    fuse_reply_send(r, all, 1 + n);
    fuse_reply_end(r);
}

// The same where the bytes are in the host's memory already.
static void reply_landed(struct fs_request *req, uint64_t len)
{
    struct fuse_request *r = from_fs(req);
    struct fuse_out_header h = {.len = (uint32_t)(sizeof(h) + len), .unique = r->unique};
    struct iovec iov = {&h, sizeof(h)};

    assert(len <= r->max_out);
    fuse_reply_send(r, &iov, 1);
    fuse_reply_end(r);
}

static void reply_statfs(struct fs_request *req, uint64_t files)
{
    struct fuse_statfs_out out = {.st = {
                                      .blocks = STATFS_BLOCKS,
                                      .bfree = STATFS_BLOCKS,
                                      .bavail = STATFS_BLOCKS,
                                      .files = files,
                                      .bsize = STATFS_BLOCK_SIZE,
                                      .frsize = STATFS_BLOCK_SIZE,
                                      .namelen = FUSE_NAME_MAX_BYTES,
                                  }};

    fuse_reply_bytes(from_fs(req), &out, sizeof(out));
}

// More than the program made room for would be refused by the kernel: restricted ioctls are not
// asked again with more.
static void reply_ioctl(struct fs_request *req, int result, const void *out, size_t len)
{
    struct fuse_request *r = from_fs(req);
    struct fuse_ioctl_out head = {.result = result};
    struct fuse_out_header h = {.len = (uint32_t)(sizeof(h) + sizeof(head) + len),
                                .unique = r->unique};
    struct iovec iov[] = {{&h, sizeof(h)}, {&head, sizeof(head)}, {(void *)out, len}};

    assert(len <= r->max_out);
    fuse_reply_send(r, iov, len ? 3 : 2);
    fuse_reply_end(r);
}

static void reply_xattr(struct fs_request *req, const void *value, size_t len)
{
    struct fuse_request *r = from_fs(req);

    if (!r->max_out) {
        struct fuse_getxattr_out out = {.size = (uint32_t)len};

        fuse_reply_bytes(r, &out, sizeof(out));
    } else if (len > r->max_out) {
        fuse_reply_error(r, -ERANGE);
    } else {
        fuse_reply_bytes(r, value, len);
    }
}

const struct fs_reply fuse_fs_reply = {
    .error = reply_error,
    .entry = reply_entry,
    .attr = reply_attr,
    .opened = reply_opened,
    .data = reply_data,
    .landed = reply_landed,
    .fetched = fuse_reply_fetched,
    .statfs = reply_statfs,
    .ioctl = reply_ioctl,
    .dirent = fuse_dirents_add,
    .dirents_end = fuse_dirents_end,
    .xattr = reply_xattr,
};
