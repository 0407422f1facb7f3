// SPDX-License-Identifier: Apache-2.0
// The operations: what a request turns out to be, by method, path and query. Names are S3's; the
// class is what faults, counters and rights group them by.
#pragma once

#include "base/base.h"

#define S3D_OPS(X)                                                                                 \
    X(UNKNOWN, "Unknown", "OTHER", 0)                                                              \
    X(LIST_BUCKETS, "ListBuckets", "LIST", RIGHT_LIST)                                             \
    X(HEAD_BUCKET, "HeadBucket", "HEAD", RIGHT_LIST)                                               \
    X(CREATE_BUCKET, "CreateBucket", "PUT", RIGHT_PUT)                                             \
    X(DELETE_BUCKET, "DeleteBucket", "DELETE", RIGHT_DELETE)                                       \
    X(GET_LOCATION, "GetBucketLocation", "LIST", RIGHT_LIST)                                       \
    X(GET_VERSIONING, "GetBucketVersioning", "LIST", RIGHT_LIST)                                   \
    X(LIST_V1, "ListObjects", "LIST", RIGHT_LIST)                                                  \
    X(LIST_V2, "ListObjectsV2", "LIST", RIGHT_LIST)                                                \
    X(GET, "GetObject", "GET", RIGHT_GET)                                                          \
    X(HEAD, "HeadObject", "HEAD", RIGHT_GET)                                                       \
    X(PUT, "PutObject", "PUT", RIGHT_PUT)                                                          \
    X(COPY, "CopyObject", "PUT", RIGHT_PUT)                                                        \
    X(DELETE, "DeleteObject", "DELETE", RIGHT_DELETE)                                              \
    X(DELETE_MANY, "DeleteObjects", "DELETE", RIGHT_DELETE)                                        \
    X(UPLOAD_CREATE, "CreateMultipartUpload", "UPLOAD", RIGHT_PUT)                                 \
    X(UPLOAD_PART, "UploadPart", "UPLOAD", RIGHT_PUT)                                              \
    X(UPLOAD_PART_COPY, "UploadPartCopy", "UPLOAD", RIGHT_PUT)                                     \
    X(UPLOAD_COMPLETE, "CompleteMultipartUpload", "UPLOAD", RIGHT_PUT)                             \
    X(UPLOAD_ABORT, "AbortMultipartUpload", "UPLOAD", RIGHT_PUT)                                   \
    X(UPLOAD_PARTS, "ListParts", "LIST", RIGHT_LIST)                                               \
    X(UPLOADS, "ListMultipartUploads", "LIST", RIGHT_LIST)                                         \
    X(STS, "AssumeRoleWithWebIdentity", "CREDENTIALS", 0)                                          \
    X(IMDS, "InstanceMetadata", "CREDENTIALS", 0)                                                  \
    X(CONTAINER, "ContainerCredentials", "CREDENTIALS", 0)                                         \
    X(ADMIN, "Admin", "ADMIN", 0)

enum op {
#define X(id, name, class, right) OP_##id,
    S3D_OPS(X)
#undef X
        OP_COUNT
};

enum { RIGHT_GET = 1, RIGHT_LIST = 2, RIGHT_PUT = 4, RIGHT_DELETE = 8, RIGHT_ALL = 15 };

const char *op_name(enum op op);
const char *op_class(enum op op);
unsigned op_right(enum op op);
// An S3 operation, as opposed to those of credentials and of the server itself.
bool op_is_s3(enum op op);

struct request;

// start runs when the head has come and access is granted; it may answer, or leave the body to be
// read and finish to answer. Both fill in r->response.
struct op_handler {
    void (*start)(struct request *r);
    void (*finish)(struct request *r);
};
const struct op_handler *op_handler(enum op op);

void op_get_start(struct request *r); // GetObject, HeadObject
void op_put_start(struct request *r);
void op_put_finish(struct request *r);
void op_copy_start(struct request *r);
void op_delete_start(struct request *r);
void op_delete_many_start(struct request *r);
void op_delete_many_finish(struct request *r);
void op_list_start(struct request *r); // ListObjects, ListObjectsV2
void op_list_buckets_start(struct request *r);
void op_head_bucket_start(struct request *r);
void op_create_bucket_start(struct request *r);
void op_create_bucket_finish(struct request *r);
void op_delete_bucket_start(struct request *r);
void op_location_start(struct request *r);
void op_versioning_start(struct request *r);
void op_upload_create_start(struct request *r);
void op_upload_part_start(struct request *r);
void op_upload_part_finish(struct request *r);
void op_upload_part_copy_start(struct request *r);
void op_upload_complete_start(struct request *r);
void op_upload_complete_finish(struct request *r);
void op_upload_abort_start(struct request *r);
void op_upload_parts_start(struct request *r);
void op_uploads_start(struct request *r);
void op_sts_start(struct request *r);
void op_sts_finish(struct request *r);
void op_imds_start(struct request *r);
void op_container_start(struct request *r);
void op_admin_start(struct request *r);
void op_admin_finish(struct request *r);
void op_unknown_start(struct request *r);
