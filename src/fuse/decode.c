// SPDX-License-Identifier: Apache-2.0
// Requests checked and handed to fs/. Whatever is wrong with one is answered here.
#include "cache/dest.h"
#include "fuse/internal.h"
#include "wire/ops.h"

#include <fcntl.h>
#include <string.h>

static const struct fuse_session_config *config(const struct fuse_request *r)
{
    return &r->session->config;
}

// The string at s, which must end within the len bytes there. 0, or the error to answer.
static int check_string(const char *s, size_t len, size_t *ret_len)
{
    size_t n = strnlen(s, len);

    if (n == len || n == 0)
        return -EINVAL;
    if (n > FUSE_NAME_MAX_BYTES)
        return -ENAMETOOLONG;
    *ret_len = n;
    return 0;
}

static void op_lookup(struct fuse_request *r, const void *arg, size_t len)
{
    const char *name = arg;
    size_t n;
    int rc = check_string(name, len, &n);

    // "." and ".." come only to those who set EXPORT_SUPPORT
    if (rc == 0 && (memchr(name, '/', n) || !strcmp(name, ".") || !strcmp(name, "..")))
        rc = -EINVAL;
    if (rc < 0)
        fuse_reply_error(r, rc);
    else
        config(r)->ops->lookup(config(r)->fs, &r->fs, r->nodeid, name, n);
}

// The root's one reference is the mount's.
static void forget(struct fuse_request *r, uint64_t node, uint64_t n)
{
    if (node != FS_ROOT)
        n = fuse_drop_node(r->session, node, n);
    if (node != FS_ROOT && n)
        config(r)->ops->forget(config(r)->fs, node, n);
}

static void op_forget(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_forget_in *in = arg;

    forget(r, r->nodeid, in->nlookup);
    fuse_reply_end(r);
}

static void op_batch_forget(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_batch_forget_in *in = arg;
    const struct fuse_forget_one *one = (const void *)(in + 1);
    size_t n = MIN(in->count, (len - sizeof(*in)) / sizeof(*one));

    for (size_t i = 0; i < n; i++)
        forget(r, one[i].nodeid, one[i].nlookup);
    fuse_reply_end(r);
}

static void op_getattr(struct fuse_request *r, const void *arg, size_t len)
{
    config(r)->ops->getattr(config(r)->fs, &r->fs, r->nodeid);
}

static void op_access(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_access_in *in = arg;

    if (in->mask & ~(uint32_t)07)
        fuse_reply_error(r, -EINVAL);
    else
        config(r)->ops->access(config(r)->fs, &r->fs, r->nodeid, (int)in->mask);
}

static void op_open(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_open_in *in = arg;

    if ((in->flags & O_ACCMODE) != O_RDONLY || (in->flags & O_TRUNC))
        fuse_reply_error(r, -EROFS);
    else
        config(r)->ops->open(config(r)->fs, &r->fs, r->nodeid, (int)in->flags);
}

static void op_read(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_read_in *in = arg;

    if (in->size > r->session->negotiated.max_read || in->offset > (uint64_t)INT64_MAX - in->size ||
        (r->fs.dest && in->size > r->fs.dest->len)) {
        fuse_reply_error(r, -EINVAL);
    } else if (!fuse_holds_handle(r->session, in->fh, false)) {
        fuse_reply_error(r, -EBADF);
    } else if (!in->size) {
        fuse_reply_bytes(r, NULL, 0);
    } else {
        r->max_out = in->size;
        config(r)->ops->read(config(r)->fs, &r->fs, in->fh, in->offset, in->size);
    }
}

// A replayed one finds its work done.
static bool may_release(struct fuse_request *r, uint64_t handle, bool dir)
{
    if (fuse_drop_handle(r->session, handle, dir))
        return true;
    fuse_reply_error(r, r->fs.replayed ? 0 : -EBADF);
    return false;
}

static void op_release(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_release_in *in = arg;

    if (may_release(r, in->fh, false))
        config(r)->ops->release(config(r)->fs, &r->fs, in->fh);
}

static void op_opendir(struct fuse_request *r, const void *arg, size_t len)
{
    config(r)->ops->opendir(config(r)->fs, &r->fs, r->nodeid);
}

static void op_readdir(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_read_in *in = arg;

    if (!in->size || !fuse_holds_handle(r->session, in->fh, true)) {
        fuse_reply_error(r, in->size ? -EBADF : -EINVAL);
        return;
    }
    fuse_dirents_begin(r, in->size);
    config(r)->ops->readdir(config(r)->fs, &r->fs, in->fh, in->offset,
                            r->opcode == FUSE_READDIRPLUS);
}

static void op_releasedir(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_release_in *in = arg;

    if (may_release(r, in->fh, true))
        config(r)->ops->releasedir(config(r)->fs, &r->fs, in->fh);
}

static void op_statfs(struct fuse_request *r, const void *arg, size_t len)
{
    config(r)->ops->statfs(config(r)->fs, &r->fs);
}

static void op_getxattr(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_getxattr_in *in = arg;
    const char *name = (const char *)(in + 1);
    size_t n;
    int rc = check_string(name, len - sizeof(*in), &n);

    if (rc < 0) {
        fuse_reply_error(r, rc == -ENAMETOOLONG ? -ERANGE : rc); // as getxattr(2) says it
        return;
    }
    r->max_out = in->size;
    config(r)->ops->getxattr(config(r)->fs, &r->fs, r->nodeid, name);
}

static void op_listxattr(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_getxattr_in *in = arg;

    r->max_out = in->size;
    config(r)->ops->listxattr(config(r)->fs, &r->fs, r->nodeid);
}

// Restricted mode only: the kernel has copied what the command's number says.
static void op_ioctl(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_ioctl_in *in = arg;

    if (in->in_size > len - sizeof(*in) || (in->flags & FUSE_IOCTL_UNRESTRICTED)) {
        fuse_reply_error(r, -EINVAL);
        return;
    }
    if (!fuse_holds_handle(r->session, in->fh, in->flags & FUSE_IOCTL_DIR)) {
        fuse_reply_error(r, -EBADF);
        return;
    }
    r->max_out = in->out_size;
    config(r)->ops->ioctl(config(r)->fs, &r->fs, r->nodeid, in->fh, in->cmd, in + 1, in->in_size,
                          in->out_size);
}

// Only a request that has not been seen yet needs the kernel to send this again; it does not
// when the request has been answered meanwhile.
static void op_interrupt(struct fuse_request *r, const void *arg, size_t len)
{
    const struct fuse_interrupt_in *in = arg;
    const struct fuse_wire *wire = config(r)->wire;
    struct fuse_request *target = wire->find ? wire->find(config(r)->wire_arg, in->unique) : NULL;

    if (!target) {
        fuse_reply_error(r, -EAGAIN);
        return;
    }
    if (target->fs.cancel)
        target->fs.cancel(&target->fs, target->fs.cancel_arg);
    fuse_reply_end(r);
}

static void op_destroy(struct fuse_request *r, const void *arg, size_t len)
{
    r->session->destroyed = true;
    fuse_session_give_back(r->session, UINT64_MAX);
    fuse_reply_error(r, 0);
}

// A kind that is not here is answered ENOSYS, which the kernel remembers and then does the right
// thing by itself: nothing to FLUSH or FSYNC, LSEEK without holes, POLL always ready.
static const struct fuse_op ops[] = {
    [FUSE_INIT] = {fuse_init, offsetof(struct fuse_init_in, flags2), .any_user = true},
    [FUSE_DESTROY] = {op_destroy, .any_user = true},
    [FUSE_INTERRUPT] = {op_interrupt, sizeof(struct fuse_interrupt_in), .any_user = true},

    [FUSE_LOOKUP] = {op_lookup, .node = true},
    [FUSE_FORGET] = {op_forget, sizeof(struct fuse_forget_in), .any_user = true},
    [FUSE_BATCH_FORGET] = {op_batch_forget, sizeof(struct fuse_batch_forget_in), .any_user = true},
    [FUSE_GETATTR] = {op_getattr, sizeof(struct fuse_getattr_in), .node = true},
    [FUSE_ACCESS] = {op_access, sizeof(struct fuse_access_in), .node = true},
    [FUSE_STATFS] = {op_statfs},
    [FUSE_GETXATTR] = {op_getxattr, sizeof(struct fuse_getxattr_in), .node = true},
    [FUSE_LISTXATTR] = {op_listxattr, sizeof(struct fuse_getxattr_in), .node = true},
    [FUSE_IOCTL] = {op_ioctl, sizeof(struct fuse_ioctl_in), .node = true},
    // there are no symbolic links
    [FUSE_READLINK] = {.error = -EINVAL},

    [FUSE_OPEN] = {op_open, sizeof(struct fuse_open_in), .node = true},
    [FUSE_READ] = {op_read, sizeof(struct fuse_read_in), .any_user = true},
    [FUSE_RELEASE] = {op_release, sizeof(struct fuse_release_in), .any_user = true},
    [FUSE_OPENDIR] = {op_opendir, .node = true},
    [FUSE_READDIR] = {op_readdir, sizeof(struct fuse_read_in), .any_user = true},
    [FUSE_READDIRPLUS] = {op_readdir, sizeof(struct fuse_read_in), .any_user = true},
    [FUSE_RELEASEDIR] = {op_releasedir, sizeof(struct fuse_release_in), .any_user = true},

    [FUSE_SETATTR] = {.error = -EROFS},
    [FUSE_SYMLINK] = {.error = -EROFS},
    [FUSE_MKNOD] = {.error = -EROFS},
    [FUSE_MKDIR] = {.error = -EROFS},
    [FUSE_UNLINK] = {.error = -EROFS},
    [FUSE_RMDIR] = {.error = -EROFS},
    [FUSE_RENAME] = {.error = -EROFS},
    [FUSE_RENAME2] = {.error = -EROFS},
    [FUSE_LINK] = {.error = -EROFS},
    [FUSE_WRITE] = {.error = -EROFS},
    [FUSE_CREATE] = {.error = -EROFS},
    [FUSE_TMPFILE] = {.error = -EROFS},
    [FUSE_FALLOCATE] = {.error = -EROFS},
    [FUSE_COPY_FILE_RANGE] = {.error = -EROFS},
    [FUSE_SETXATTR] = {.error = -EROFS},
    [FUSE_REMOVEXATTR] = {.error = -EROFS},
};

// Of wire/ops.h, from OS2G_OP_HELLO on.
static const struct fuse_op private_ops[] = {
    {fuse_hello, sizeof(struct os2g_hello_in), .any_user = true},
    {fuse_fetch, sizeof(struct os2g_fetch_in)},
    {fuse_region, sizeof(struct os2g_region_in), .any_user = true},
};

const struct fuse_op *fuse_op_find(uint32_t opcode)
{
    static const struct fuse_op unknown = {.error = -ENOSYS};

    if (opcode - OS2G_OP_HELLO < ARRAY_LEN(private_ops))
        return &private_ops[opcode - OS2G_OP_HELLO];
    if (opcode >= ARRAY_LEN(ops) || (!ops[opcode].run && !ops[opcode].error))
        return &unknown;
    return &ops[opcode];
}
