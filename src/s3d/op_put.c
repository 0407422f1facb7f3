// SPDX-License-Identifier: Apache-2.0
// PutObject, CopyObject, DeleteObject, DeleteObjects.
#include "base/clock.h"
#include "base/text.h"
#include "s3d/auth.h"
#include "s3d/conditions.h"
#include "s3d/copy_source.h"
#include "s3d/response.h"
#include "s3d/server.h"
#include "s3d/upload_meta.h"
#include "s3d/xml.h"

#include <string.h>

// --- PutObject ---

void op_put_start(struct request *r)
{
    enum s3_error error;
    int rc;

    if (!request_find_bucket(r))
        return;
    if (r->head.content_length < 0 && !r->head.chunked) {
        response_error(r, S3_MissingContentLength);
        return;
    }
    rc = r->bucket->ops->blob_new(r->bucket, &r->payload.blob);
    if (rc < 0) {
        response_errno(r, rc);
        return;
    }
    r->payload.kind = PAYLOAD_BLOB;
    error = payload_begin(r, true);
    if (error)
        response_error(r, error);
}

// If-Match and If-None-Match of a PUT; false when it has been answered.
static bool check_put_conditions(struct request *r, bool *ret_must_be_new)
{
    const char *match = request_header(r, "if-match"), *none = request_header(r, "if-none-match");
    struct object present;
    int rc, status;

    *ret_must_be_new = none && !strcmp(none, "*");
    if (none && strcmp(none, "*") != 0) {
        response_error(r, S3_NotImplemented);
        return false;
    }
    if (!match)
        return true;
    rc = r->bucket->ops->get(r->bucket, r->key, false, &present);
    if (rc < 0) {
        response_errno(r, rc);
        return false;
    }
    status = conditions_check(r, "", &present);
    object_fini(&present);
    if (status)
        response_error(r, S3_PreconditionFailed);
    return !status;
}

void op_put_finish(struct request *r)
{
    struct object o = {.size = r->payload.len, .blob = r->payload.blob};
    bool must_be_new;
    int rc;

    if (!check_put_conditions(r, &must_be_new))
        return;
    payload_md5_hex(&r->payload, o.etag);
    o.meta = upload_meta_of_request(r);
    rc = r->bucket->ops->put(r->bucket, r->key, &o, must_be_new);
    meta_unref(o.meta);
    if (rc < 0) {
        response_errno(r, rc);
        return;
    }
    response_header_etag(r, o.etag);
    response_empty(r, 200);
}

// --- CopyObject ---

static void answer_copy(struct request *r, const char *etag)
{
    struct buf *b = &r->response.text;
    char date[25];

    clock_format_iso8601(worker_wall_s(r->worker), date);
    buf_add_str(b, XML_HEAD "<CopyObjectResult" XML_NS ">");
    buf_printf(b, "<LastModified>%s</LastModified><ETag>&quot;%s&quot;</ETag></CopyObjectResult>",
               date, etag);
    response_xml(r, 200);
}

void op_copy_start(struct request *r)
{
    const char *directive = request_header(r, "x-amz-metadata-directive");
    bool replaces = directive && !strcmp(directive, "REPLACE");
    struct object source, o;
    int rc;

    if (!request_find_bucket(r) || !copy_source_open(r, &source))
        return;
    object_copy(&o, &source);
    if (replaces) {
        meta_unref(o.meta);
        o.meta = upload_meta_of_request(r);
    } else if (request_header(r, "x-amz-storage-class")) {
        struct meta *old = o.meta;

        o.meta = meta_new(old ? old->content_type : NULL, request_header(r, "x-amz-storage-class"),
                          old ? old->headers : "");
        meta_unref(old);
    }
    rc = copy_source_materialize(r, &o, 0, o.size);
    if (rc == 0)
        rc = r->bucket->ops->put(r->bucket, r->key, &o, false);
    if (rc < 0)
        response_errno(r, rc);
    else
        answer_copy(r, o.etag);
    object_fini(&o);
    object_fini(&source);
}

// --- DeleteObject, DeleteObjects ---

void op_delete_start(struct request *r)
{
    int rc;

    if (!request_find_bucket(r))
        return;
    rc = r->bucket->ops->remove(r->bucket, r->key);
    if (rc < 0 && rc != -ENOENT)
        response_errno(r, rc);
    else
        response_empty(r, 204);
}

void op_delete_many_start(struct request *r)
{
    enum s3_error error;

    if (!request_find_bucket(r))
        return;
    r->payload.kind = PAYLOAD_TEXT;
    error = payload_begin(r, false);
    if (error)
        response_error(r, error);
}

struct delete_many {
    struct request *r;
    struct buf out;
    bool quiet;
    unsigned n;
};

static int on_quiet(const char *const values[static XML_MAX_FIELDS], void *arg)
{
    struct delete_many *d = arg;

    d->quiet = values[0] && !strcmp(values[0], "true");
    return 0;
}

static int on_delete(const char *const values[static XML_MAX_FIELDS], void *arg)
{
    struct delete_many *d = arg;
    struct bucket *b = d->r->bucket;
    const char *key = values[0];
    int rc;

    if (!key || ++d->n > 1000)
        return -EBADMSG;
    rc = auth_may(d->r, RIGHT_DELETE, b->name, key) ? b->ops->remove(b, key) : -EACCES;
    if (rc == 0 || rc == -ENOENT) {
        if (d->quiet)
            return 0;
        buf_add_str(&d->out, "<Deleted>");
        xml_add_element(&d->out, "Key", key);
        buf_add_str(&d->out, "</Deleted>");
        return 0;
    }
    buf_add_str(&d->out, "<Error>");
    xml_add_element(&d->out, "Key", key);
    xml_add_element(&d->out, "Code", rc == -EACCES ? "AccessDenied" : "InternalError");
    xml_add_element(&d->out, "Message", strerror(-rc));
    buf_add_str(&d->out, "</Error>");
    return 0;
}

void op_delete_many_finish(struct request *r)
{
    static const char *const quiet[] = {"Quiet", NULL}, *const fields[] = {"Key", NULL};
    struct delete_many d = {.r = r};
    struct buf *text = &r->payload.text;

    buf_add_str(&d.out, XML_HEAD "<DeleteResult" XML_NS ">");
    if (xml_each(buf_str(text), text->len, "Delete", "Delete", quiet, on_quiet, &d) < 0 ||
        xml_each(buf_str(text), text->len, "Delete", "Object", fields, on_delete, &d) < 0) {
        response_error(r, S3_MalformedXML);
    } else {
        buf_add_str(&d.out, "</DeleteResult>");
        buf_add(&r->response.text, d.out.data, d.out.len);
        response_xml(r, 200);
    }
    buf_free(&d.out);
}
