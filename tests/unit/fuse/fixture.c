// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "fixture.h"

#include <stdlib.h>
#include <string.h>

// --- the file system ---

static void note(struct fs *fs, const char *op, struct fs_request *req, uint64_t node)
{
    fs->op = op;
    fs->ops++;
    fs->req = req;
    fs->node = node;
    fs->uniques[1] = fs->uniques[0];
    fs->uniques[0] = req ? req->unique : 0;
}

static void note_name(struct fs *fs, const char *name, size_t len)
{
    assert_true(len < sizeof(fs->name));
    memcpy(fs->name, name, len);
    fs->name[len] = 0;
    fs->name_len = len;
}

static void op_lookup(struct fs *fs, struct fs_request *req, uint64_t parent, const char *name,
                      size_t len)
{
    note(fs, "lookup", req, parent);
    note_name(fs, name, len);
}

static void op_forget(struct fs *fs, uint64_t node, uint64_t n)
{
    note(fs, "forget", NULL, node);
    fs->n += n;
}

static void op_unlookup(struct fs *fs, uint64_t node, uint64_t n)
{
    fs->undone += (unsigned)n;
    fs->undone_sum += node;
}

static void op_unopen(struct fs *fs, uint64_t handle)
{
    fs->undone++;
    fs->undone_sum += handle;
}

static void op_getattr(struct fs *fs, struct fs_request *req, uint64_t node)
{
    note(fs, "getattr", req, node);
}

static void op_access(struct fs *fs, struct fs_request *req, uint64_t node, int mask)
{
    note(fs, "access", req, node);
    fs->flags = mask;
}

static void op_open(struct fs *fs, struct fs_request *req, uint64_t node, int flags)
{
    note(fs, "open", req, node);
    fs->flags = flags;
}

static void op_read(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                    uint32_t size)
{
    note(fs, "read", req, 0);
    fs->handle = handle;
    fs->offset = offset;
    fs->size = size;
}

static void op_fetch(struct fs *fs, struct fs_request *req, const char *key, size_t len)
{
    note(fs, "fetch", req, 0);
    note_name(fs, key, len);
}

static void op_release(struct fs *fs, struct fs_request *req, uint64_t handle)
{
    note(fs, "release", req, 0);
    fs->handle = handle;
}

static void op_opendir(struct fs *fs, struct fs_request *req, uint64_t node)
{
    note(fs, "opendir", req, node);
}

static void op_readdir(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                       bool plus)
{
    note(fs, "readdir", req, 0);
    fs->handle = handle;
    fs->offset = offset;
    fs->plus = plus;
}

static void op_releasedir(struct fs *fs, struct fs_request *req, uint64_t handle)
{
    note(fs, "releasedir", req, 0);
    fs->handle = handle;
}

static void op_statfs(struct fs *fs, struct fs_request *req)
{
    note(fs, "statfs", req, 0);
}

static void op_getxattr(struct fs *fs, struct fs_request *req, uint64_t node, const char *name)
{
    note(fs, "getxattr", req, node);
    note_name(fs, name, strlen(name));
}

static void op_listxattr(struct fs *fs, struct fs_request *req, uint64_t node)
{
    note(fs, "listxattr", req, node);
}

static void op_ioctl(struct fs *fs, struct fs_request *req, uint64_t node, uint64_t handle,
                     uint32_t cmd, const void *in, size_t in_len, size_t out_size)
{
    note(fs, "ioctl", req, node);
    note_name(fs, in, in_len);
    fs->handle = handle;
    fs->cmd = cmd;
    fs->in_len = in_len;
    fs->out_size = out_size;
}

static const struct fs_ops noting_ops = {
    .lookup = op_lookup,
    .forget = op_forget,
    .unlookup = op_unlookup,
    .unopen = op_unopen,
    .getattr = op_getattr,
    .access = op_access,
    .open = op_open,
    .read = op_read,
    .fetch = op_fetch,
    .release = op_release,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .releasedir = op_releasedir,
    .statfs = op_statfs,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .ioctl = op_ioctl,
};

// --- the wire ---

static struct fixture *the_fixture;

static int wire_send(struct fuse_request *r, const struct iovec *iov, int n)
{
    struct fixture *f = the_fixture;

    f->sent++;
    f->answer_len = 0;
    for (int i = 0; i < n; i++) {
        assert_true(f->answer_len + iov[i].iov_len <= ANSWER_MAX);
        memcpy(f->answer + f->answer_len, iov[i].iov_base, iov[i].iov_len);
        f->answer_len += iov[i].iov_len;
    }
    f->landed = answer_header(f)->len - f->answer_len;
    assert_true(f->landed == 0 || (r->fs.dest && f->landed <= r->fs.dest->len));
    assert_int_equal(answer_header(f)->unique, r->unique);
    return f->send_result;
}

static void wire_finished(struct fuse_request *r)
{
    the_fixture->finished++;
}

static struct fuse_request *wire_find(void *arg, uint64_t unique)
{
    struct fixture *f = arg;

    return f->findable && f->findable->fs.unique == unique ? f->findable : NULL;
}

static const struct fuse_wire noting_wire = {
    .send = wire_send,
    .finished = wire_finished,
    .find = wire_find,
};

static void wire_hello(void *arg)
{
    struct fixture *f = arg;

    f->hellos++;
}

static void wire_region(struct fuse_request *r, const struct os2g_region_in *in)
{
    the_fixture->regions++;
    fuse_session_answer(r, -EBUSY);
}

static const struct fuse_wire noting_host_wire = {
    .send = wire_send,
    .finished = wire_finished,
    .find = wire_find,
    .hello = wire_hello,
    .region = wire_region,
};

// --- set-up ---

struct fuse_session_config fixture_config(struct fixture *f)
{
    return (struct fuse_session_config){
        .wire = &noting_wire,
        .wire_arg = f,
        .ops = &noting_ops,
        .fs = &f->fs,
        .max_read = 1 << 20,
        .max_readahead = 4 << 20,
        .max_background = 64,
    };
}

int fixture_setup_new(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct fuse_session_config c = fixture_config(f);

    f->session = fuse_session_new(&c, NULL);
    *state = the_fixture = f;
    return 0;
}

int fixture_setup(void **state)
{
    struct fixture *f;

    fixture_setup_new(state);
    f = *state;
    init_with(f, FUSE_KERNEL_VERSION, FUSE_KERNEL_MINOR_VERSION, ~0ULL);
    f->sent = f->finished = 0;
    return 0;
}

// A session from INIT on.
static void begin_host(struct fixture *f, const char *source, const char *endpoint)
{
    struct fuse_session_config c = fixture_config(f);

    c.wire = &noting_host_wire;
    c.max_read_landing = 8 << 20;
    c.peer_uid = 7;
    c.peer_gid = 8;
    c.peer_pid = 9;
    c.holdings = f->holdings;
    c.unique_key = 0x1234567;
    c.source = source;
    c.endpoint = endpoint;
    f->session = fuse_session_new(&c, NULL);
    init_with(f, FUSE_KERNEL_VERSION, FUSE_KERNEL_MINOR_VERSION, ~0ULL);
    f->sent = f->finished = 0;
}

int fixture_setup_host(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    *state = the_fixture = f;
    assert_int_equal(fuse_holdings_open(&f->holdings, -1, 0), 0);
    begin_host(f, NULL, NULL);
    return 0;
}

void fixture_serve(struct fixture *f, const char *source, const char *endpoint)
{
    fuse_session_free(f->session);
    begin_host(f, source, endpoint);
}

int fixture_teardown(void **state)
{
    struct fixture *f = *state;

    fuse_session_free(f->session);
    fuse_holdings_close(f->holdings);
    free(f);
    return 0;
}

// --- messages ---

void message_begin(struct fixture *f, uint32_t opcode, uint64_t node)
{
    struct fuse_in_header h = {
        .opcode = opcode, .unique = 1234, .nodeid = node, .uid = 1000, .gid = 1001, .pid = 77};

    memcpy(f->message, &h, sizeof(h));
    f->message_len = sizeof(h);
}

void message_add(struct fixture *f, const void *data, size_t len)
{
    assert_true(f->message_len + len <= sizeof(f->message));
    if (len)
        memcpy(f->message + f->message_len, data, len);
    f->message_len += len;
}

int message_dispatch(struct fixture *f)
{
    unsigned char *exact = malloc(f->message_len); // so that reading beyond it is seen
    uint32_t len = (uint32_t)f->message_len;
    int rc;

    memcpy(f->message, &len, sizeof(len));
    memcpy(exact, f->message, f->message_len);
    rc = fuse_session_dispatch(f->session, &f->request, exact, f->message_len,
                               &(struct fuse_arrival){.replayed = f->replayed, .dest = f->dest});
    free(exact);
    return rc;
}

void ask(struct fixture *f, uint32_t opcode, uint64_t node, const void *arg, size_t len,
         const char *name)
{
    message_begin(f, opcode, node);
    message_add(f, arg, len);
    if (name)
        message_add(f, name, strlen(name) + 1);
    assert_int_equal(message_dispatch(f), 0);
}

void init_with(struct fixture *f, uint32_t major, uint32_t minor, uint64_t flags)
{
    struct fuse_init_in in = {
        .major = major,
        .minor = minor,
        .max_readahead = 128 << 10,
        .flags = (uint32_t)flags,
        .flags2 = (uint32_t)(flags >> 32),
    };

    ask(f, FUSE_INIT, 0, &in, sizeof(in), NULL);
}

const struct fuse_out_header *answer_header(struct fixture *f)
{
    return (const struct fuse_out_header *)f->answer;
}

const void *answer_body(struct fixture *f, size_t *ret_len)
{
    assert_true(f->answer_len >= sizeof(struct fuse_out_header));
    if (ret_len)
        *ret_len = f->answer_len - sizeof(struct fuse_out_header);
    return f->answer + sizeof(struct fuse_out_header);
}
