// SPDX-License-Identifier: Apache-2.0
#include "s3d/ops.h"

static const struct {
    const char *name, *class;
    unsigned right;
} ops[] = {
#define X(id, name, class, right) [OP_##id] = {name, class, right},
    S3D_OPS(X)
#undef X
};

static const struct op_handler handlers[] = {
    [OP_UNKNOWN] = {op_unknown_start},
    [OP_LIST_BUCKETS] = {op_list_buckets_start},
    [OP_HEAD_BUCKET] = {op_head_bucket_start},
    [OP_CREATE_BUCKET] = {op_create_bucket_start, op_create_bucket_finish},
    [OP_DELETE_BUCKET] = {op_delete_bucket_start},
    [OP_GET_LOCATION] = {op_location_start},
    [OP_GET_VERSIONING] = {op_versioning_start},
    [OP_LIST_V1] = {op_list_start},
    [OP_LIST_V2] = {op_list_start},
    [OP_GET] = {op_get_start},
    [OP_HEAD] = {op_get_start},
    [OP_PUT] = {op_put_start, op_put_finish},
    [OP_COPY] = {op_copy_start},
    [OP_DELETE] = {op_delete_start},
    [OP_DELETE_MANY] = {op_delete_many_start, op_delete_many_finish},
    [OP_UPLOAD_CREATE] = {op_upload_create_start},
    [OP_UPLOAD_PART] = {op_upload_part_start, op_upload_part_finish},
    [OP_UPLOAD_PART_COPY] = {op_upload_part_copy_start},
    [OP_UPLOAD_COMPLETE] = {op_upload_complete_start, op_upload_complete_finish},
    [OP_UPLOAD_ABORT] = {op_upload_abort_start},
    [OP_UPLOAD_PARTS] = {op_upload_parts_start},
    [OP_UPLOADS] = {op_uploads_start},
    [OP_STS] = {op_sts_start, op_sts_finish},
    [OP_IMDS] = {op_imds_start},
    [OP_CONTAINER] = {op_container_start},
    [OP_ADMIN] = {op_admin_start, op_admin_finish},
};

_Static_assert(ARRAY_LEN(handlers) == OP_COUNT, "each operation has its handler");

const char *op_name(enum op op)
{
    return ops[op].name;
}

const char *op_class(enum op op)
{
    return ops[op].class;
}

unsigned op_right(enum op op)
{
    return ops[op].right;
}

bool op_is_s3(enum op op)
{
    return op < OP_STS;
}

const struct op_handler *op_handler(enum op op)
{
    return &handlers[op];
}
