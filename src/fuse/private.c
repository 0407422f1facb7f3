// SPDX-License-Identifier: Apache-2.0
// HELLO, FETCH and REGION (wire/ops.h): requests of libos2g. What READ's large landing and FETCH
// have in common lies in fs/; here they are checked and answered.
#include "cache/dest.h"
#include "fuse/internal.h"
#include "wire/ops.h"

#include <stdio.h>

static const struct fuse_wire *wire_of(const struct fuse_request *r)
{
    return r->session->config.wire;
}

// Answers with data beside an error, or with a len that counts landed bytes too.
static void answer(struct fuse_request *r, int error, const void *data, size_t len, uint64_t landed)
{
    struct fuse_out_header h = {
        .len = (uint32_t)(sizeof(h) + len + landed), .error = error, .unique = r->unique};
    struct iovec iov[] = {{&h, sizeof(h)}, {(void *)data, len}};

    fuse_reply_send(r, iov, 2);
    fuse_reply_end(r);
}

// The newest version that both speak, or 0.
static uint32_t version_in_common(const struct os2g_hello_in *in)
{
    uint32_t version = MIN(in->version_max, OS2G_WIRE_VERSION);

    return version >= MAX(in->version_min, OS2G_WIRE_VERSION_MIN) ? version : 0;
}

// What is served, as it follows os2g_hello_out. Its length, 0 if there is no room to tell.
static uint32_t tell_source(const struct fuse_session_config *c, char to[static OS2G_SOURCE_MAX])
{
    int len = c->source ? snprintf(to, OS2G_SOURCE_MAX, "%s%c%s", c->source, 0,
                                   c->endpoint ? c->endpoint : "")
                        : -1;

    return len > 0 && len < OS2G_SOURCE_MAX ? (uint32_t)len + 1 : 0;
}

// A replayed one agrees on the same again.
void fuse_hello(struct fuse_request *r, const void *arg, size_t len)
{
    const struct os2g_hello_in *in = arg;
    struct fuse_session *s = r->session;
    uint32_t version = version_in_common(in);
    struct {
        struct os2g_hello_out head;
        char source[OS2G_SOURCE_MAX];
    } out = {.head = {.version = version ? version : OS2G_WIRE_VERSION,
                      .max_read = s->config.max_read_landing}};

    snprintf(out.head.release, sizeof(out.head.release), "%s", OS2G_VERSION);
    if (version >= 3)
        out.head.source_len = tell_source(&s->config, out.source);
    if (!wire_of(r)->hello) {
        fuse_reply_error(r, -ENOSYS);
    } else if (in->version_min > in->version_max || in->flags) {
        fuse_reply_error(r, -EINVAL);
    } else if (!version) {
        answer(r, -EPROTO, &out.head, sizeof(out.head), 0);
    } else {
        s->negotiated.hello = version;
        s->negotiated.max_read = s->config.max_read_landing;
        wire_of(r)->hello(s->config.wire_arg);
        answer(r, 0, &out, sizeof(out.head) + out.head.source_len, 0);
    }
}

void fuse_fetch(struct fuse_request *r, const void *arg, size_t len)
{
    const struct os2g_fetch_in *in = arg;
    const struct fuse_session_config *c = &r->session->config;

    if (!r->session->negotiated.hello)
        fuse_reply_error(r, -ENOSYS);
    else if (!in->key_len || in->key_len > OS2G_KEY_MAX || in->flags ||
             in->key_len != len - sizeof(*in) || !r->fs.dest)
        fuse_reply_error(r, -EINVAL);
    else
        c->ops->fetch(c->fs, &r->fs, (const char *)(in + 1), in->key_len);
}

void fuse_reply_fetched(struct fs_request *req, int error, uint64_t size)
{
    struct fuse_request *r = container_of(req, struct fuse_request, fs);
    struct os2g_fetch_out out = {.size = size};

    if (error && error != -EFBIG) {
        fuse_reply_error(r, error);
        return;
    }
    assert(error || size <= r->fs.dest->len);
    answer(r, error, &out, sizeof(out), error ? 0 : size);
}

void fuse_region(struct fuse_request *r, const void *arg, size_t len)
{
    if (!r->session->negotiated.hello || !wire_of(r)->region)
        fuse_reply_error(r, -ENOSYS);
    else
        wire_of(r)->region(r, arg);
}

void fuse_session_answer(struct fuse_request *r, int error)
{
    fuse_reply_error(r, error);
}

size_t fuse_session_data_offset(const void *in, size_t len)
{
    const struct fuse_in_header *h = in;

    switch (h->opcode) {
    case FUSE_READ:
        return sizeof(struct fuse_out_header);
    case OS2G_OP_FETCH:
        return sizeof(struct fuse_out_header) + sizeof(struct os2g_fetch_out);
    default:
        return 0;
    }
}
