// SPDX-License-Identifier: Apache-2.0
// Messages into a FUSE session whose file system answers what it likes, now or later.
//
// Input: one byte that seeds the answers, one of options (1: no INIT came before, 2: keep others
// out, 4: a host that is not believed and may be libos2g, 8: it has said HELLO), then messages,
// each two bytes of length and that many bytes. A length with its top bit set says that the
// header's own length is to be made right.
#include "base/base.h"
#include "base/rand.h"
#include "cache/dest.h"
#include "fuse/fuse_session.h"
#include "fuse/holdings.h"
#include "wire/ops.h"

#include <stdlib.h>
#include <string.h>

#define REQUESTS 16

struct pending {
    struct fuse_request request; // first
    void *message;
    struct cache_dest dest;
    bool busy;
    bool sent;
};

// One run's state: "struct fs" as far as the session is concerned.
struct fs {
    struct rand rand;
    struct fuse_session *session;
    struct fuse_holdings *holdings; // or NULL
    bool hello;
    struct pending pending[REQUESTS];
};

static struct fs *the_fs;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

// --- the wire checks every answer as the kernel does ---

static int wire_send(struct fuse_request *r, const struct iovec *iov, int n)
{
    struct pending *p = container_of(r, struct pending, request);
    struct fuse_out_header h;
    size_t len = 0;

    must(p->busy && !p->sent);
    p->sent = true;
    must(n >= 1 && iov[0].iov_len == sizeof(h));
    memcpy(&h, iov[0].iov_base, sizeof(h));
    for (int i = 0; i < n; i++) {
        volatile unsigned char last = 0;

        len += iov[i].iov_len;
        if (iov[i].iov_len)
            last = ((const unsigned char *)iov[i].iov_base)[iov[i].iov_len - 1];
        (void)last;
    }
    must(h.unique == r->unique);
    must(h.len == len ||
         (r->fs.dest && h.error == 0 && h.len > len && h.len - len <= r->fs.dest->len &&
          len == fuse_session_data_offset(p->message, sizeof(struct fuse_in_header))));
    must(h.error <= 0 && h.error > -512);
    must(h.error == 0 || len == sizeof(h) || h.error == -EFBIG || h.error == -EPROTO);
    must(r->opcode != FUSE_FORGET && r->opcode != FUSE_BATCH_FORGET);
    if (r->opcode == FUSE_READ || r->opcode == FUSE_READDIR || r->opcode == FUSE_READDIRPLUS)
        must(len - sizeof(h) <= r->max_out);
    return rand_below(&the_fs->rand, 4) ? 0 : -ENOENT;
}

static void wire_finished(struct fuse_request *r)
{
    struct pending *p = container_of(r, struct pending, request);

    must(p->busy);
    p->busy = false;
    free(p->message);
    p->message = NULL;
}

static struct fuse_request *wire_find(void *arg, uint64_t unique)
{
    struct fs *fs = arg;

    for (unsigned i = 0; i < REQUESTS; i++)
        if (fs->pending[i].busy && fs->pending[i].request.unique == unique)
            return &fs->pending[i].request;
    return NULL;
}

static void wire_hello(void *arg)
{
    struct fs *fs = arg;

    must(fuse_session_negotiated(fs->session)->hello);
    fs->hello = true;
}

static void wire_region(struct fuse_request *r, const struct os2g_region_in *in)
{
    struct os2g_region_in copy = *in;

    must(the_fs->hello);
    fuse_session_answer(r, copy.op == OS2G_REGION_REMOVE ? 0 : -EINVAL);
}

static const struct fuse_wire wire = {
    .send = wire_send, .finished = wire_finished, .find = wire_find};
static const struct fuse_wire host_wire = {.send = wire_send,
                                           .finished = wire_finished,
                                           .find = wire_find,
                                           .hello = wire_hello,
                                           .region = wire_region};

// --- the file system answers at random ---

static struct fs_entry any_entry(struct rand *r)
{
    struct fs_entry e = {
        .attr = {.node = rand_below(r, 5),
                 .size = rand_u64(r),
                 .mtime_s = (int64_t)rand_u64(r),
                 .mode = rand_below(r, 2) ? S_IFREG : S_IFDIR},
        .entry_valid_ns = rand_u64(r),
        .attr_valid_ns = rand_u64(r),
    };

    return e;
}

static void list(struct fs *fs, struct fs_request *req)
{
    static const char name[] = "a-name-of-some-length";
    uint64_t cookie = 1;

    while (rand_below(&fs->rand, 50)) {
        struct fs_entry e = any_entry(&fs->rand);
        size_t len = 1 + rand_below(&fs->rand, sizeof(name) - 1);

        if (!req->reply->dirent(req, len == 1 ? "." : name, len, cookie++, &e))
            break;
    }
    req->reply->dirents_end(req);
}

static void send_data(struct fs *fs, struct fs_request *req, uint32_t size)
{
    static char bytes[1 << 20];
    size_t first = rand_below(&fs->rand, MIN(size, sizeof(bytes)) + 1);
    struct iovec iov[] = {{bytes, first},
                          {bytes, rand_below(&fs->rand, MIN(size, sizeof(bytes)) - first + 1)}};

    if (req->dest && rand_below(&fs->rand, 2))
        req->reply->landed(req, rand_below(&fs->rand, size + 1));
    else
        req->reply->data(req, iov, (int)rand_below(&fs->rand, 3));
}

static void answer(struct fs *fs, struct pending *p)
{
    struct fs_request *req = &p->request.fs;
    struct fs_entry e = any_entry(&fs->rand);
    static const char bytes[128];

    if (rand_below(&fs->rand, 4) == 0) {
        req->reply->error(req, (int)rand_below(&fs->rand, 1000) - 900);
        return;
    }
    switch (p->request.opcode) {
    case FUSE_LOOKUP:
        req->reply->entry(req, &e);
        break;
    case FUSE_GETATTR:
        req->reply->attr(req, &e.attr, rand_u64(&fs->rand));
        break;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        req->reply->opened(req, &(struct fs_opened){.handle = rand_u64(&fs->rand)});
        break;
    case FUSE_READ:
        send_data(fs, req, p->request.max_out);
        break;
    case OS2G_OP_FETCH:
        if (rand_below(&fs->rand, 2))
            req->reply->fetched(req, 0, rand_below(&fs->rand, req->dest->len + 1));
        else
            req->reply->fetched(req, rand_below(&fs->rand, 2) ? -EFBIG : -ENOENT,
                                rand_u64(&fs->rand));
        break;
    case FUSE_READDIR:
    case FUSE_READDIRPLUS:
        list(fs, req);
        break;
    case FUSE_STATFS:
        req->reply->statfs(req, rand_u64(&fs->rand));
        break;
    case FUSE_IOCTL:
        req->reply->ioctl(req, 0, bytes, MIN(sizeof(bytes), p->request.max_out));
        break;
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR:
        req->reply->xattr(req, bytes, rand_below(&fs->rand, sizeof(bytes)));
        break;
    default:
        req->reply->error(req, 0);
    }
}

static void cancel(struct fs_request *req, void *arg)
{
    req->cancel = NULL;
    req->reply->error(req, -EINTR);
}

static void asked(struct fs *fs, struct fs_request *req)
{
    if (rand_below(&fs->rand, 3))
        answer(fs, container_of(req, struct pending, request.fs));
    else if (rand_below(&fs->rand, 2))
        req->cancel = cancel;
}

// The message is in memory of its exact size: a name that is not ended is read beyond it.
static void op_lookup(struct fs *fs, struct fs_request *req, uint64_t parent, const char *name,
                      size_t len)
{
    must(strlen(name) == len && len > 0 && len <= 255 && !strchr(name, '/'));
    asked(fs, req);
}

static void op_forget(struct fs *fs, uint64_t node, uint64_t n)
{
    must(n > 0);
}

static void op_unopen(struct fs *fs, uint64_t handle) {}

static void op_node(struct fs *fs, struct fs_request *req, uint64_t node)
{
    asked(fs, req);
}

static void op_flags(struct fs *fs, struct fs_request *req, uint64_t node, int flags)
{
    asked(fs, req);
}

static void op_read(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                    uint32_t size)
{
    must(size > 0 && size <= (fs->hello ? 8 << 20 : 1 << 20) && offset + size <= INT64_MAX);
    must(!req->dest || size <= req->dest->len);
    must(!fs->holdings || fuse_holdings_has_handle(fs->holdings, handle, false));
    asked(fs, req);
}

static void op_fetch(struct fs *fs, struct fs_request *req, const char *key, size_t len)
{
    volatile char last = key[len - 1];

    (void)last;
    must(fs->hello && req->dest && len > 0 && len <= OS2G_KEY_MAX);
    asked(fs, req);
}

static void op_readdir(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                       bool plus)
{
    asked(fs, req);
}

static void op_statfs(struct fs *fs, struct fs_request *req)
{
    asked(fs, req);
}

static void op_getxattr(struct fs *fs, struct fs_request *req, uint64_t node, const char *name)
{
    must(strlen(name) > 0 && strlen(name) <= 255);
    asked(fs, req);
}

static void op_ioctl(struct fs *fs, struct fs_request *req, uint64_t node, uint64_t handle,
                     uint32_t cmd, const void *in, size_t in_len, size_t out_size)
{
    volatile unsigned char sum = 0;

    for (size_t i = 0; i < in_len; i++)
        sum += ((const unsigned char *)in)[i];
    (void)sum;
    asked(fs, req);
}

static const struct fs_ops ops = {
    .lookup = op_lookup,
    .forget = op_forget,
    .unlookup = op_forget,
    .unopen = op_unopen,
    .getattr = op_node,
    .access = op_flags,
    .open = op_flags,
    .read = op_read,
    .fetch = op_fetch,
    .release = op_node,
    .opendir = op_node,
    .readdir = op_readdir,
    .releasedir = op_node,
    .statfs = op_statfs,
    .getxattr = op_getxattr,
    .listxattr = op_node,
    .ioctl = op_ioctl,
};

// --- a run ---

static struct pending *any_pending(struct fs *fs, bool busy)
{
    for (unsigned i = 0; i < REQUESTS; i++)
        if (fs->pending[i].busy == busy)
            return &fs->pending[i];
    return NULL;
}

static void dispatch(struct fs *fs, const uint8_t *bytes, size_t len, bool set_len)
{
    struct fuse_arrival arrival = {.replayed = rand_below(&fs->rand, 2)};
    struct pending *p = any_pending(fs, false);

    if (!p) {
        p = &fs->pending[rand_below(&fs->rand, REQUESTS)];
        answer(fs, p);
    }
    p->message = malloc(len ? len : 1);
    must(p->message != NULL);
    memcpy(p->message, bytes, len);
    if (set_len && len >= sizeof(uint32_t))
        memcpy(p->message, &(uint32_t){(uint32_t)len}, sizeof(uint32_t));
    p->busy = true;
    p->sent = false;
    p->dest = (struct cache_dest){.len = rand_below(&fs->rand, 2 << 20)};
    if (fs->holdings && len >= sizeof(struct fuse_in_header) &&
        fuse_session_data_offset(p->message, len) > 0 && rand_below(&fs->rand, 8))
        arrival.dest = &p->dest;
    if (fuse_session_dispatch(fs->session, &p->request, p->message, len, &arrival) < 0) {
        p->busy = false;
        free(p->message);
        p->message = NULL;
    }
}

static void run(struct fs *fs, const uint8_t *data, size_t size)
{
    struct pending *p;

    while (size >= 2) {
        size_t len = data[0] | (size_t)(data[1] & 0x7f) << 8;

        len = MIN(len, size - 2);
        dispatch(fs, data + 2, len, data[1] & 0x80);
        data += 2 + len;
        size -= 2 + len;
    }
    while ((p = any_pending(fs, true)))
        answer(fs, p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuse_negotiated agreed = {.minor = 38, .max_read = 1 << 20};
    struct fuse_session_config c = {
        .wire = &wire,
        .source = "s3://bucket/a/",
        .endpoint = "http://server",
        .ops = &ops,
        .max_read = 1 << 20,
        .max_read_landing = 8 << 20,
        .max_readahead = 1 << 20,
        .max_background = 64,
    };

    if (size < 2)
        return 0;
    the_fs = xcalloc(1, sizeof(*the_fs));
    rand_seed(&the_fs->rand, data[0]);
    c.fs = c.wire_arg = the_fs;
    c.deny_others = data[1] & 2;
    if (data[1] & 4) {
        must(fuse_holdings_open(&the_fs->holdings, -1, 0) == 0);
        must(fuse_holdings_add_node(the_fs->holdings, 4, 1) == 0);
        must(fuse_holdings_add_handle(the_fs->holdings, 0, false) == 0);
        must(fuse_holdings_add_handle(the_fs->holdings, 0, true) == 0);
        c.holdings = the_fs->holdings;
        c.wire = &host_wire;
        c.unique_key = 77;
        the_fs->hello = (data[1] & 8) && !(data[1] & 1);
        agreed.hello = the_fs->hello ? OS2G_WIRE_VERSION : 0;
        agreed.max_read = the_fs->hello ? c.max_read_landing : c.max_read;
    }
    the_fs->session = fuse_session_new(&c, data[1] & 1 ? NULL : &agreed);
    run(the_fs, data + 2, size - 2);
    fuse_session_give_back(the_fs->session, UINT64_MAX);
    fuse_session_free(the_fs->session);
    fuse_holdings_close(the_fs->holdings);
    free(the_fs);
    return 0;
}
