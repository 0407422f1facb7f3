// SPDX-License-Identifier: Apache-2.0
#include "s3/answer.h"
#include "s3/op.h"

#include <stdlib.h>
#include <string.h>

// An answer to HEAD has no body, so an error has no code: 403 may be a matter of rights, of an
// expired token or of the region. Where that matters, the object's first byte is asked for instead,
// only for the sake of the error document.
struct head_op {
    struct s3_op op;
    struct s3_head *user;
    struct s3_request request;
    bool explain;
    struct s3_object_info info;
    struct buf strings; // of info
    struct http_header *metadata;
};

// --- keeping what the head says until the exchange has ended ---

static size_t keep(struct buf *b, const char *s)
{
    size_t offset = b->len;

    buf_add(b, s, strlen(s) + 1);
    return offset;
}

static void keep_info(struct head_op *h, const struct s3_object_info *i)
{
    struct buf *b = &h->strings;
    size_t etag, class, type, meta, at;

    buf_reset(b);
    etag = keep(b, i->etag);
    class = keep(b, i->storage_class);
    type = keep(b, i->content_type);
    meta = b->len;
    for (size_t k = 0; k < i->n_metadata; k++) {
        keep(b, i->metadata[k].name);
        keep(b, i->metadata[k].value);
    }
    // from here on the buffer does not move
    h->metadata = xrealloc(h->metadata, (i->n_metadata + 1) * sizeof(*h->metadata));
    at = meta;
    for (size_t k = 0; k < i->n_metadata; k++) {
        h->metadata[k].name = b->data + at;
        at += strlen(b->data + at) + 1;
        h->metadata[k].value = b->data + at;
        at += strlen(b->data + at) + 1;
    }
    h->info = *i;
    h->info.etag = b->data + etag;
    h->info.storage_class = b->data + class;
    h->info.content_type = b->data + type;
    h->info.metadata = h->metadata;
}

// --- attempts ---

static int on_head(struct s3_request *r, const struct http_head *head)
{
    struct head_op *h = container_of(r->op, struct head_op, op);
    struct s3_answer a;

    if (h->explain)
        return s3_request_fail(r, S3_RETRY, -EIO, "refused to HEAD, but not to GET");
    if (s3_answer_read(&a, head) < 0 || !a.has_size || head->status != 200)
        return s3_request_fail(r, S3_RETRY, -EIO, "the answer does not tell the object's size");
    keep_info(h, &a.info);
    return 0;
}

static int on_room(struct s3_request *r, struct iovec *iov, int max)
{
    return s3_request_fail(r, S3_RETRY, -EIO, "an answer to HEAD with a body");
}

static int on_body(struct s3_request *r, size_t n)
{
    return 0; // no room was given
}

static void on_done(struct s3_request *r, struct s3_outcome o)
{
    struct head_op *h = container_of(r->op, struct head_op, op);
    bool mute = o.class == S3_FATAL && (r->status == 301 || r->status == 400 || r->status == 403);

    if (mute && !h->explain && !h->op.cancelled) {
        h->explain = true;
        h->op.attempt(&h->op);
        return;
    }
    h->explain = false;
    s3_op_settle(&h->op, r, o);
}

static void attempt(struct s3_op *op)
{
    static const struct s3_request_ops ops = {NULL, on_head, on_room, on_body, on_done};
    struct head_op *h = container_of(op, struct head_op, op);
    struct s3_request *r = &h->request;

    s3_op_prepare(op, r);
    r->ops = &ops;
    r->method = h->explain ? "GET" : "HEAD";
    r->key = h->user->key;
    r->key_len = h->user->key_len;
    r->query = "";
    r->ranged = h->explain;
    r->first = r->last = 0;
    s3_request_start(r);
}

static void finish(struct s3_op *op, int error)
{
    struct head_op *h = container_of(op, struct head_op, op);
    struct s3_head *user = h->user;

    s3_op_report(op, error, user->key, user->key_len, user->error_text);
    user->op = NULL;
    s3_request_fini(&h->request);
    s3_op_fini(op);
    user->done(user, error, error ? NULL : &h->info);
    free(h->metadata);
    buf_free(&h->strings);
    free(h);
}

void s3_head_start(struct s3_client *c, struct s3_head *user)
{
    struct head_op *h = xcalloc(1, sizeof(*h));

    h->user = user;
    user->op = h;
    s3_op_init(&h->op, c, S3_HEAD, 0, attempt, finish);
    attempt(&h->op);
}

void s3_head_cancel(struct s3_head *user)
{
    struct head_op *h = user->op;

    if (h)
        s3_op_cancel(&h->op, &h->request);
}
