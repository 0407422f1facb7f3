// SPDX-License-Identifier: Apache-2.0
// Multipart uploads.
#include "base/clock.h"
#include "base/text.h"
#include "s3d/conditions.h"
#include "s3d/copy_source.h"
#include "s3d/response.h"
#include "s3d/server.h"
#include "s3d/upload_meta.h"
#include "s3d/xml.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_MIN (5 * MIB) // of all but the last

void op_upload_create_start(struct request *r)
{
    struct buf *b = &r->response.text;
    struct meta *meta;
    char *id;

    if (!request_find_bucket(r))
        return;
    meta = upload_meta_of_request(r);
    id = upload_create(&r->worker->server->uploads, r->bucket_name, r->key, meta);
    meta_unref(meta);
    buf_add_str(b, XML_HEAD "<InitiateMultipartUploadResult" XML_NS ">");
    xml_add_element(b, "Bucket", r->bucket_name);
    xml_add_element(b, "Key", r->key);
    xml_add_element(b, "UploadId", id);
    buf_add_str(b, "</InitiateMultipartUploadResult>");
    response_xml(r, 200);
    free(id);
}

// --- parts ---

static bool part_number(struct request *r, unsigned *ret)
{
    const char *text = request_query(r, "partNumber");
    uint64_t n;

    if (!text || text_parse_u64(text, &n) < 0 || n < 1 || n > UPLOAD_MAX_PARTS) {
        response_error_with(r, S3_InvalidArgument,
                            "Part number must be an integer between 1 and 10000, inclusive", NULL);
        return false;
    }
    *ret = (unsigned)n;
    return true;
}

static void do_nothing(const struct upload *u, void *arg) {}

static bool find_upload(struct request *r)
{
    if (upload_visit(&r->worker->server->uploads, request_query(r, "uploadId"), r->bucket_name,
                     r->key, do_nothing, NULL))
        return true;
    response_error(r, S3_NoSuchUpload);
    return false;
}

void op_upload_part_start(struct request *r)
{
    unsigned number;

    if (part_number(r, &number) && request_find_bucket(r) && find_upload(r)) {
        bucket_unref(r->bucket);
        op_put_start(r); // the bytes come in like those of an object
    }
}

static bool store_part(struct request *r, const char *etag, struct blob *blob)
{
    uint8_t md5[16];
    unsigned number;

    if (!part_number(r, &number))
        return false;
    text_unhex(etag, md5, sizeof(md5));
    if (upload_put_part(&r->worker->server->uploads, request_query(r, "uploadId"), r->bucket_name,
                        r->key, number, md5, blob) == 0)
        return true;
    response_error(r, S3_NoSuchUpload);
    return false;
}

void op_upload_part_finish(struct request *r)
{
    char etag[33];

    payload_md5_hex(&r->payload, etag);
    if (!store_part(r, etag, r->payload.blob))
        return;
    response_header_etag(r, etag);
    response_empty(r, 200);
}

void op_upload_part_copy_start(struct request *r)
{
    const char *range = request_header(r, "x-amz-copy-source-range");
    struct buf *b = &r->response.text;
    struct object source;
    uint64_t off = 0, len;
    char date[25];
    int rc;

    if (!request_find_bucket(r) || !find_upload(r) || !copy_source_open(r, &source))
        return;
    len = source.size;
    if (range && range_parse(range, source.size, &off, &len) != 0) {
        response_error(r, S3_InvalidArgument);
    } else if ((rc = copy_source_materialize(r, &source, off, len)) < 0) {
        response_errno(r, rc);
    } else if (store_part(r, source.etag, source.blob)) {
        clock_format_iso8601(worker_wall_s(r->worker), date);
        buf_add_str(b, XML_HEAD "<CopyPartResult" XML_NS ">");
        buf_printf(b, "<LastModified>%s</LastModified><ETag>&quot;%s&quot;</ETag></CopyPartResult>",
                   date, source.etag);
        response_xml(r, 200);
    }
    object_fini(&source);
}

// --- completion ---

void op_upload_complete_start(struct request *r)
{
    enum s3_error error;

    if (!request_find_bucket(r))
        return;
    r->payload.kind = PAYLOAD_TEXT;
    error = payload_begin(r, false);
    if (error)
        response_error(r, error);
}

struct completion {
    struct upload *upload;
    struct blob *blobs[UPLOAD_MAX_PARTS];
    size_t n;
    unsigned last_number;
    EVP_MD_CTX *md5; // of the parts' MD5s
    enum s3_error error;
};

static int fail(struct completion *c, enum s3_error error)
{
    c->error = error;
    return -EBADMSG;
}

static int on_part(const char *const values[static XML_MAX_FIELDS], void *arg)
{
    struct completion *c = arg;
    const struct upload_part *part;
    const char *etag = values[1];
    char known[33];
    uint64_t number;

    if (!values[0] || !etag || text_parse_u64(values[0], &number) < 0)
        return fail(c, S3_MalformedXML);
    if (number <= c->last_number)
        return fail(c, S3_InvalidPartOrder);
    part = number <= UPLOAD_MAX_PARTS ? upload_find_part(c->upload, (unsigned)number) : NULL;
    if (!part)
        return fail(c, S3_InvalidPart);
    text_hex(part->md5, 16, known);
    etag += *etag == '"';
    if (strncmp(etag, known, 32) != 0 || (etag[32] && strcmp(etag + 32, "\"") != 0))
        return fail(c, S3_InvalidPart);
    if (c->n && c->blobs[c->n - 1]->len < PART_MIN)
        return fail(c, S3_EntityTooSmall);
    c->blobs[c->n++] = part->blob;
    c->last_number = (unsigned)number;
    EVP_DigestUpdate(c->md5, part->md5, 16);
    return 0;
}

static int put_completed(struct request *r, struct completion *c, char etag[static 48])
{
    const char *none = request_header(r, "if-none-match");
    struct object o = {.meta = c->upload->meta};
    uint8_t digest[16];
    int rc;

    EVP_DigestFinal_ex(c->md5, digest, NULL);
    text_hex(digest, 16, o.etag);
    snprintf(o.etag + 32, sizeof(o.etag) - 32, "-%zu", c->n);
    o.blob = blob_join(c->blobs, c->n);
    o.size = o.blob->len;
    rc = r->bucket->ops->put(r->bucket, r->key, &o, none && !strcmp(none, "*"));
    blob_unref(o.blob);
    memcpy(etag, o.etag, 48);
    return rc;
}

static void complete(struct request *r, struct completion *c)
{
    static const char *const fields[] = {"PartNumber", "ETag", NULL};
    struct buf *text = &r->payload.text, *b = &r->response.text;
    char etag[48];
    int rc;

    rc = xml_each(buf_str(text), text->len, "CompleteMultipartUpload", "Part", fields, on_part, c);
    if (rc < 0 || c->n == 0) {
        response_error(r, c->error ? c->error : S3_MalformedXML);
        return;
    }
    rc = put_completed(r, c, etag);
    if (rc < 0) {
        response_errno(r, rc);
        return;
    }
    upload_free(c->upload);
    c->upload = NULL;
    buf_add_str(b, XML_HEAD "<CompleteMultipartUploadResult" XML_NS ">");
    buf_add_str(b, "<Location>");
    xml_add_text(b, buf_str(&r->path));
    buf_add_str(b, "</Location>");
    xml_add_element(b, "Bucket", r->bucket_name);
    xml_add_element(b, "Key", r->key);
    buf_printf(b, "<ETag>&quot;%s&quot;</ETag></CompleteMultipartUploadResult>", etag);
    response_xml(r, 200);
}

void op_upload_complete_finish(struct request *r)
{
    struct upload_table *uploads = &r->worker->server->uploads;
    struct completion *c = xcalloc(1, sizeof(*c));

    c->md5 = EVP_MD_CTX_new();
    c->upload = upload_take(uploads, request_query(r, "uploadId"), r->bucket_name, r->key);
    if (!c->upload)
        response_error(r, S3_NoSuchUpload);
    else if (!c->md5 || !EVP_DigestInit_ex(c->md5, EVP_md5(), NULL))
        response_error(r, S3_InternalError);
    else
        complete(r, c);
    if (c->upload)
        upload_give_back(uploads, c->upload);
    EVP_MD_CTX_free(c->md5);
    free(c);
}

void op_upload_abort_start(struct request *r)
{
    struct upload *u = upload_take(&r->worker->server->uploads, request_query(r, "uploadId"),
                                   r->bucket_name, r->key);

    if (!u) {
        response_error(r, S3_NoSuchUpload);
        return;
    }
    upload_free(u);
    response_empty(r, 204);
}

// --- listings, whole ---

static void add_parts(const struct upload *u, void *arg)
{
    struct buf *b = arg;
    char date[25], md5[33];

    for (size_t i = 0; i < u->n_parts; i++) {
        clock_format_iso8601(u->parts[i].mtime_s, date);
        text_hex(u->parts[i].md5, 16, md5);
        buf_printf(b,
                   "<Part><PartNumber>%u</PartNumber><LastModified>%s</LastModified>"
                   "<ETag>&quot;%s&quot;</ETag><Size>%llu</Size></Part>",
                   u->parts[i].number, date, md5, (unsigned long long)u->parts[i].blob->len);
    }
}

void op_upload_parts_start(struct request *r)
{
    const char *id = request_query(r, "uploadId");
    struct buf *b = &r->response.text;

    buf_add_str(b, XML_HEAD "<ListPartsResult" XML_NS ">");
    xml_add_element(b, "Bucket", r->bucket_name);
    xml_add_element(b, "Key", r->key);
    xml_add_element(b, "UploadId", id);
    buf_add_str(b, "<IsTruncated>false</IsTruncated>");
    if (!upload_visit(&r->worker->server->uploads, id, r->bucket_name, r->key, add_parts, b)) {
        response_error(r, S3_NoSuchUpload);
        return;
    }
    buf_add_str(b, "</ListPartsResult>");
    response_xml(r, 200);
}

static void add_upload(const struct upload *u, void *arg)
{
    struct buf *b = arg;
    char date[25];

    clock_format_iso8601(u->created_s, date);
    buf_add_str(b, "<Upload>");
    xml_add_element(b, "Key", u->key);
    xml_add_element(b, "UploadId", u->id);
    xml_add_element(b, "Initiated", date);
    buf_add_str(b, "</Upload>");
}

void op_uploads_start(struct request *r)
{
    struct buf *b = &r->response.text;

    if (!request_find_bucket(r))
        return;
    buf_add_str(b, XML_HEAD "<ListMultipartUploadsResult" XML_NS ">");
    xml_add_element(b, "Bucket", r->bucket_name);
    buf_add_str(b, "<IsTruncated>false</IsTruncated>");
    upload_each(&r->worker->server->uploads, r->bucket_name, add_upload, b);
    buf_add_str(b, "</ListMultipartUploadsResult>");
    response_xml(r, 200);
}
