// SPDX-License-Identifier: Apache-2.0
// GetObject and HeadObject.
#include "base/clock.h"
#include "s3d/auth.h"
#include "s3d/conditions.h"
#include "s3d/response.h"
#include "s3d/server.h"
#include "s3d/xml.h"

#include <stdio.h>
#include <string.h>

static void add_etag(struct request *r, const struct object *o)
{
    const struct fault *f = &r->fault;
    char etag[48];

    memcpy(etag, o->etag, sizeof(etag));
    if (f->action == FAULT_ETAG) {
        bool changing = !strcmp(f->text, "changing");

        snprintf(etag, 33, "bad%029llx", changing ? (unsigned long long)f->serial : 0);
    }
    response_header_etag(r, etag);
}

static void add_override(struct request *r, const char *parameter, const char *header,
                         const char *otherwise)
{
    const char *value = request_query(r, parameter);

    if (!value)
        value = otherwise;
    if (value)
        response_header(r, header, value);
}

static void add_object_headers(struct request *r, const struct object *o)
{
    const struct meta *m = o->meta;
    struct buf *b = &r->response.headers;
    char date[30];

    add_etag(r, o);
    clock_format_http_date(o->mtime_s, date);
    response_header(r, "Last-Modified", date);
    buf_add_str(b, "Accept-Ranges: bytes\r\n");
    add_override(r, "response-content-type", "Content-Type",
                 m && m->content_type ? m->content_type : "binary/octet-stream");
    if (m)
        buf_add_str(b, m->headers);
    if (r->query.n) {
        add_override(r, "response-content-language", "Content-Language", NULL);
        add_override(r, "response-expires", "Expires", NULL);
        add_override(r, "response-cache-control", "Cache-Control", NULL);
        add_override(r, "response-content-disposition", "Content-Disposition", NULL);
        add_override(r, "response-content-encoding", "Content-Encoding", NULL);
    }
    if (m && m->storage_class && strcmp(m->storage_class, "STANDARD") != 0)
        response_header(r, "x-amz-storage-class", m->storage_class);
}

static void refuse_range(struct request *r, const char *range, uint64_t size)
{
    struct buf extra = {0};

    xml_add_element(&extra, "RangeRequested", range);
    buf_printf(&extra, "<ActualObjectSize>%llu</ActualObjectSize>", (unsigned long long)size);
    response_error_with(r, S3_InvalidRange, NULL, buf_str(&extra));
    buf_printf(&r->response.headers, "Content-Range: bytes */%llu\r\n", (unsigned long long)size);
    buf_free(&extra);
}

static void add_content_range(struct request *r, uint64_t off, uint64_t len, uint64_t size)
{
    const struct fault *f = &r->fault;
    uint64_t shift = f->action == FAULT_CONTENT_RANGE ? (uint64_t)f->number : 0;
    uint64_t first = off + shift, last = first + len - 1;

    if (f->action == FAULT_CONTENT_RANGE && shift == 0)
        return;
    buf_printf(&r->response.headers, "Content-Range: bytes %llu-%llu/%llu\r\n",
               (unsigned long long)first, (unsigned long long)last, (unsigned long long)size);
}

static void answer_missing(struct request *r, int rc)
{
    // who may not list is not told what is not there
    if (rc == -ENOENT && !auth_may(r, RIGHT_LIST, r->bucket_name, r->key))
        response_error(r, S3_AccessDenied);
    else
        response_errno(r, rc);
}

static void answer_object(struct request *r)
{
    struct response *p = &r->response;
    const struct object *o = &p->object;
    const char *range = request_header(r, "range"), *if_range = request_header(r, "if-range");
    uint64_t off = 0, len = o->size;
    int status = conditions_check(r, "", o), rc = 1;

    if (status == 412) {
        response_error(r, S3_PreconditionFailed);
        return;
    }
    if (if_range && strncmp(if_range + (*if_range == '"'), o->etag, strlen(o->etag)) != 0)
        range = NULL;
    if (range && !status) {
        rc = range_parse(range, o->size, &off, &len);
        if (rc < 0) {
            refuse_range(r, range, o->size);
            return;
        }
    }
    if (object_is_archived(o) && r->op == OP_GET && !status) {
        response_error(r, S3_InvalidObjectState);
        return;
    }
    p->body_off = off;
    p->body_len = len;
    add_object_headers(r, o);
    if (rc == 0)
        add_content_range(r, off, len, o->size);
    p->status = status ? status : rc == 0 ? 206 : 200;
}

void op_get_start(struct request *r)
{
    struct response *p = &r->response;
    int rc;

    if (!request_find_bucket(r))
        return;
    rc = r->bucket->ops->get(r->bucket, r->key, r->op == OP_GET, &p->object);
    if (rc < 0) {
        answer_missing(r, rc);
        return;
    }
    p->has_object = true;
    answer_object(r);
}
