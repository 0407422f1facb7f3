// SPDX-License-Identifier: Apache-2.0
#include "s3/list.h"

#include "base/log.h"
#include "base/text.h"
#include "s3/op.h"

#include <stdlib.h>
#include <string.h>

struct list_op {
    struct s3_op op;
    struct s3_list *user;
    struct s3_request request;
    struct buf query;
    struct s3_xml_page *page;
    bool telling; // within the user's entry
};

// --- the query, in canonical order ---

static void add_pair(struct buf *b, const char *name, const char *value, size_t len)
{
    if (b->len)
        buf_add(b, "&", 1);
    buf_add_str(b, name);
    buf_add(b, "=", 1);
    text_percent_encode(b, value, len, false);
}

static void build_query(const struct s3_list *l, struct buf *b)
{
    if (l->continuation)
        add_pair(b, "continuation-token", l->continuation, strlen(l->continuation));
    if (l->delimiter)
        add_pair(b, "delimiter", &l->delimiter, 1);
    add_pair(b, "encoding-type", "url", 3);
    add_pair(b, "list-type", "2", 1);
    if (l->max_keys)
        buf_printf(b, "&max-keys=%u", l->max_keys);
    add_pair(b, "prefix", l->prefix, l->prefix_len);
    if (l->start_after)
        add_pair(b, "start-after", l->start_after, l->start_after_len);
}

// --- attempts ---

static int on_head(struct s3_request *r, const struct http_head *head)
{
    struct list_op *o = container_of(r->op, struct list_op, op);

    s3_xml_page_free(o->page);
    o->page = s3_xml_page_new();
    return 0;
}

static int on_room(struct s3_request *r, struct iovec *iov, int max)
{
    struct list_op *o = container_of(r->op, struct list_op, op);

    iov->iov_base = s3_xml_page_room(o->page, &iov->iov_len);
    return 1;
}

static int not_a_page(struct s3_request *r)
{
    return s3_request_fail(r, S3_RETRY, -EIO, "the answer is not a page of ListObjectsV2");
}

static int on_body(struct s3_request *r, size_t n)
{
    struct list_op *o = container_of(r->op, struct list_op, op);

    return s3_xml_page_fed(o->page, n) < 0 ? not_a_page(r) : 0;
}

static int tell_entries(struct list_op *o)
{
    size_t skipped = s3_xml_page_skipped(o->page);
    int rc = 0;

    if (skipped)
        log_debug("s3", "LIST %.*s: %zu keys with a zero byte left out", (int)o->user->prefix_len,
                  o->user->prefix, skipped);
    o->telling = true;
    for (size_t i = 0; i < s3_xml_page_count(o->page) && rc >= 0 && !o->op.cancelled; i++) {
        struct s3_list_entry e;

        s3_xml_page_entry(o->page, i, &e);
        rc = o->user->entry(o->user, &e);
    }
    o->telling = false;
    return rc;
}

static void on_done(struct s3_request *r, struct s3_outcome out)
{
    struct list_op *o = container_of(r->op, struct list_op, op);
    int rc;

    if (out.class == S3_OK && s3_xml_page_finish(o->page) < 0) {
        not_a_page(r);
        out = r->outcome;
    }
    if (out.class == S3_OK && (rc = tell_entries(o)) < 0)
        out = (struct s3_outcome){S3_FATAL, rc};
    s3_op_settle(&o->op, r, out);
}

static void attempt(struct s3_op *op)
{
    static const struct s3_request_ops ops = {NULL, on_head, on_room, on_body, on_done};
    struct list_op *o = container_of(op, struct list_op, op);
    struct s3_request *r = &o->request;

    s3_op_prepare(op, r);
    r->ops = &ops;
    r->method = "GET";
    r->query = buf_str(&o->query);
    r->priority = o->user->priority;
    s3_request_start(r);
}

static void finish(struct s3_op *op, int error)
{
    struct list_op *o = container_of(op, struct list_op, op);
    struct s3_list *user = o->user;

    s3_op_report(op, error, user->prefix, user->prefix_len, user->error_text);
    user->op = NULL;
    s3_request_fini(&o->request);
    s3_op_fini(op);
    user->done(user, error, error ? NULL : s3_xml_page_continuation(o->page));
    s3_xml_page_free(o->page);
    buf_free(&o->query);
    free(o);
}

void s3_list_start_for(struct s3_client *c, struct s3_list *user, uint64_t retry_timeout_ns)
{
    struct list_op *o = xcalloc(1, sizeof(*o));

    o->user = user;
    user->op = o;
    build_query(user, &o->query);
    s3_op_init(&o->op, c, S3_LIST, retry_timeout_ns, attempt, finish);
    attempt(&o->op);
}

void s3_list_start(struct s3_client *c, struct s3_list *user)
{
    s3_list_start_for(c, user, 0);
}

void s3_list_cancel(struct s3_list *user)
{
    struct list_op *o = user->op;

    if (o && o->telling)
        o->op.cancelled = true; // the end is near anyway
    else if (o)
        s3_op_cancel(&o->op, &o->request);
}
