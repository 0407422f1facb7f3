// SPDX-License-Identifier: Apache-2.0
// Operations on buckets as such.
#include "base/clock.h"
#include "s3d/options.h"
#include "s3d/response.h"
#include "s3d/server.h"
#include "s3d/xml.h"

#include <string.h>

static void add_bucket(struct bucket *b, void *arg)
{
    struct buf *out = arg;
    char date[25];

    clock_format_iso8601(b->created_s, date);
    buf_add_str(out, "<Bucket>");
    xml_add_element(out, "Name", b->name);
    xml_add_element(out, "CreationDate", date);
    buf_add_str(out, "</Bucket>");
}

void op_list_buckets_start(struct request *r)
{
    struct buf *b = &r->response.text;

    buf_add_str(b, XML_HEAD "<ListAllMyBucketsResult" XML_NS
                            "><Owner><ID>s3d</ID><DisplayName>s3d</DisplayName></Owner><Buckets>");
    store_each(&r->worker->server->store, add_bucket, b);
    buf_add_str(b, "</Buckets></ListAllMyBucketsResult>");
    response_xml(r, 200);
}

void op_head_bucket_start(struct request *r)
{
    if (!request_find_bucket(r))
        return;
    response_header(r, "x-amz-bucket-region", r->worker->server->options->region);
    response_empty(r, 200);
}

void op_create_bucket_start(struct request *r)
{
    enum s3_error error;

    if (!bucket_name_is_valid(r->bucket_name)) {
        response_error(r, S3_InvalidBucketName);
        return;
    }
    // the body may name a location, which is always ours
    r->payload.kind = PAYLOAD_TEXT;
    error = payload_begin(r, false);
    if (error)
        response_error(r, error);
}

void op_create_bucket_finish(struct request *r)
{
    int rc = store_create(&r->worker->server->store, r->bucket_name);

    if (rc == -EEXIST) {
        response_error(r, S3_BucketAlreadyOwnedByYou);
    } else if (rc < 0) {
        response_errno(r, rc);
    } else {
        buf_printf(&r->response.headers, "Location: /%s\r\n", r->bucket_name);
        response_empty(r, 200);
    }
}

void op_delete_bucket_start(struct request *r)
{
    int rc = store_delete(&r->worker->server->store, r->bucket_name);

    if (rc == -ENOENT)
        response_error(r, S3_NoSuchBucket);
    else if (rc == -ENOTEMPTY || rc == -EEXIST)
        response_error(r, S3_BucketNotEmpty);
    else if (rc < 0)
        response_errno(r, rc);
    else
        response_empty(r, 204);
}

void op_location_start(struct request *r)
{
    const char *region = r->worker->server->options->region;
    struct buf *b = &r->response.text;

    if (!request_find_bucket(r))
        return;
    // us-east-1 is said by saying nothing
    buf_add_str(b, XML_HEAD "<LocationConstraint" XML_NS ">");
    xml_add_text(b, strcmp(region, "us-east-1") ? region : "");
    buf_add_str(b, "</LocationConstraint>");
    response_xml(r, 200);
}

void op_versioning_start(struct request *r)
{
    if (!request_find_bucket(r))
        return;
    buf_add_str(&r->response.text, XML_HEAD "<VersioningConfiguration" XML_NS "/>");
    response_xml(r, 200);
}

void op_unknown_start(struct request *r)
{
    response_error(r, *r->head.method == 'G' ? S3_NotImplemented : S3_MethodNotAllowed);
}
