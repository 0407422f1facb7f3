// SPDX-License-Identifier: Apache-2.0
#include "s3d/copy_source.h"

#include "base/text.h"
#include "s3d/auth.h"
#include "s3d/conditions.h"
#include "s3d/response.h"
#include "s3d/server.h"

#include <string.h>

static bool open_source(struct request *r, const char *path, struct object *ret)
{
    const char *slash;
    char name[256];
    struct bucket *b;
    int rc, status;

    path += *path == '/';
    slash = strchr(path, '/');
    if (!slash || (size_t)(slash - path) >= sizeof(name) || !slash[1]) {
        response_error_with(r, S3_InvalidArgument, "x-amz-copy-source is BUCKET/KEY", NULL);
        return false;
    }
    memcpy(name, path, (size_t)(slash - path));
    name[slash - path] = 0;
    if (!auth_may(r, RIGHT_GET, name, slash + 1)) {
        response_error(r, S3_AccessDenied);
        return false;
    }
    b = store_find(&r->worker->server->store, name);
    rc = b ? b->ops->get(b, slash + 1, true, ret) : -ENOENT;
    bucket_unref(b);
    if (rc < 0) {
        response_errno(r, rc);
        return false;
    }
    status = conditions_check(r, "x-amz-copy-source-", ret);
    if (status || object_is_archived(ret)) {
        object_fini(ret);
        response_error(r, status ? S3_PreconditionFailed : S3_InvalidObjectState);
        return false;
    }
    return true;
}

bool copy_source_open(struct request *r, struct object *ret)
{
    const char *header = request_header(r, "x-amz-copy-source");
    struct buf path = {0};
    bool found = false;

    if (text_percent_decode(&path, header, strcspn(header, "?")) < 0 ||
        memchr(buf_str(&path), 0, path.len))
        response_error(r, S3_InvalidArgument);
    else
        found = open_source(r, buf_str(&path), ret);
    buf_free(&path);
    return found;
}

int copy_source_materialize(struct request *r, struct object *o, uint64_t off, uint64_t len)
{
    const struct s3d_table *table = &r->worker->server->table;
    struct checksum *md5 = checksum_new(1u << CHECKSUM_MD5);
    uint8_t sum[CHECKSUM_MAX_BYTES];
    struct blob *copy;
    int rc = r->bucket->ops->blob_new(r->bucket, &copy);

    for (uint64_t done = 0; rc == 0 && done < len;) {
        struct piece p = object_piece(o, table, off + done);
        size_t n = (size_t)MIN(MIN(p.len, len - done), WORKER_SCRATCH);
        const void *data = p.mem;

        if (!data) {
            rc = blob_read(o->blob, off + done, r->worker->scratch, n);
            data = r->worker->scratch;
        }
        if (rc == 0)
            rc = blob_append(copy, data, n);
        checksum_add(md5, data, n);
        done += n;
    }
    if (rc == 0) {
        checksum_get(md5, CHECKSUM_MD5, sum);
        text_hex(sum, 16, o->etag);
        blob_unref(o->blob);
        o->blob = copy;
        o->size = len;
    } else {
        blob_unref(copy);
    }
    checksum_free(md5);
    return rc;
}
