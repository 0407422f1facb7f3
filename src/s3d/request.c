// SPDX-License-Identifier: Apache-2.0
#include "s3d/request.h"

#include "base/text.h"
#include "s3d/options.h"
#include "s3d/response.h"
#include "s3d/server.h"
#include "s3d/xml.h"

#include <string.h>
#include <strings.h>

void request_init(struct request *r, struct worker *w)
{
    memset(r, 0, sizeof(*r));
    r->worker = w;
    r->key = "";
    payload_init(&r->payload);
}

void request_reset(struct request *r)
{
    response_reset(r);
    r->response.status = 0;
    r->response.close = false;
    bucket_unref(r->bucket);
    r->bucket = NULL;
    r->bucket_name[0] = 0;
    r->key = "";
    r->who = NULL;
    r->signature.present = false;
    r->op = OP_UNKNOWN;
    fault_release(&r->fault);
    payload_reset(&r->payload);
}

void request_fini(struct request *r)
{
    request_reset(r);
    buf_free(&r->path);
    buf_free(&r->response.headers);
    buf_free(&r->response.text);
    query_fini(&r->query);
    payload_fini(&r->payload);
}

const char *request_header(const struct request *r, const char *name)
{
    return http_head_find(&r->head, name);
}

const char *request_query(const struct request *r, const char *name)
{
    return query_get(&r->query, name);
}

// "bucket.DOMAIN[:port]" gives the bucket; anything else none.
static bool bucket_of_host(struct request *r)
{
    const char *domain = r->worker->server->options->domain, *host = request_header(r, "host");
    size_t len, domain_len;

    if (!domain || !host)
        return false;
    len = strcspn(host, ":");
    domain_len = strlen(domain);
    if (len < domain_len + 2 || strncasecmp(host + len - domain_len, domain, domain_len) != 0 ||
        host[len - domain_len - 1] != '.' || len - domain_len - 1 >= sizeof(r->bucket_name))
        return false;
    memcpy(r->bucket_name, host, len - domain_len - 1);
    r->bucket_name[len - domain_len - 1] = 0;
    return true;
}

static enum s3_error split_path(struct request *r)
{
    const char *path = buf_str(&r->path);
    size_t n;

    r->key = "";
    if (path[0] != '/')
        return S3_InvalidURI;
    if (bucket_of_host(r)) {
        r->key = path + 1;
    } else {
        n = strcspn(path + 1, "/");
        if (n >= sizeof(r->bucket_name))
            return S3_InvalidBucketName;
        memcpy(r->bucket_name, path + 1, n);
        r->bucket_name[n] = 0;
        if (path[1 + n])
            r->key = path + n + 2;
    }
    return strlen(r->key) > KEY_MAX_BYTES ? S3_KeyTooLongError : S3_OK;
}

static enum op op_of_object(const struct request *r)
{
    const char *m = r->head.method;
    bool upload = request_query(r, "uploadId"), copy = request_header(r, "x-amz-copy-source");

    if (!strcmp(m, "GET"))
        return upload ? OP_UPLOAD_PARTS : OP_GET;
    if (!strcmp(m, "HEAD"))
        return OP_HEAD;
    if (!strcmp(m, "PUT")) {
        if (upload)
            return copy ? OP_UPLOAD_PART_COPY : OP_UPLOAD_PART;
        return copy ? OP_COPY : OP_PUT;
    }
    if (!strcmp(m, "DELETE"))
        return upload ? OP_UPLOAD_ABORT : OP_DELETE;
    if (!strcmp(m, "POST") && request_query(r, "uploads"))
        return OP_UPLOAD_CREATE;
    if (!strcmp(m, "POST") && upload)
        return OP_UPLOAD_COMPLETE;
    return OP_UNKNOWN;
}

static enum op op_of_bucket(const struct request *r)
{
    const char *m = r->head.method, *type = request_query(r, "list-type");

    if (!strcmp(m, "GET")) {
        if (request_query(r, "location"))
            return OP_GET_LOCATION;
        if (request_query(r, "versioning"))
            return OP_GET_VERSIONING;
        if (request_query(r, "uploads"))
            return OP_UPLOADS;
        return type && !strcmp(type, "2") ? OP_LIST_V2 : OP_LIST_V1;
    }
    if (!strcmp(m, "HEAD"))
        return OP_HEAD_BUCKET;
    if (!strcmp(m, "PUT"))
        return OP_CREATE_BUCKET;
    if (!strcmp(m, "DELETE"))
        return OP_DELETE_BUCKET;
    if (!strcmp(m, "POST") && request_query(r, "delete"))
        return OP_DELETE_MANY;
    return OP_UNKNOWN;
}

// Sub-resources that would be something else entirely if they were taken for the object itself.
static bool asks_for_unknown_resource(const struct request *r)
{
    static const char *const names[] = {"acl",        "tagging",    "policy",      "cors",
                                        "lifecycle",  "torrent",    "retention",   "versions",
                                        "website",    "logging",    "restore",     "select",
                                        "legal-hold", "attributes", "object-lock", "encryption"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (request_query(r, names[i]))
            return true;
    return false;
}

enum s3_error request_route(struct request *r)
{
    const struct options *opt = r->worker->server->options;
    const char *target = r->head.target, *query = strchr(target, '?'), *path;
    size_t path_len = query ? (size_t)(query - target) : strlen(target);
    enum s3_error error;

    r->raw_query = query ? query + 1 : "";
    buf_reset(&r->path);
    if (text_percent_decode(&r->path, target, path_len) < 0) {
        buf_reset(&r->path); // half decoded
        return S3_InvalidURI;
    }
    if (memchr(buf_str(&r->path), 0, r->path.len) ||
        query_parse(&r->query, r->raw_query, false) < 0)
        return S3_InvalidURI;
    path = buf_str(&r->path);
    if (text_starts_with(path, "/_s3d/"))
        r->op = OP_ADMIN;
    else if (opt->imds_role && text_starts_with(path, "/latest/"))
        r->op = OP_IMDS;
    else if (opt->container_token && !strcmp(path, "/credentials"))
        r->op = OP_CONTAINER;
    else if (opt->web_identity_token && !strcmp(path, "/") &&
             (!strcmp(r->head.method, "POST") || request_query(r, "Action")))
        r->op = OP_STS;
    if (r->op != OP_UNKNOWN)
        return S3_OK;
    error = split_path(r);
    if (error || asks_for_unknown_resource(r))
        return error;
    if (*r->key)
        r->op = op_of_object(r);
    else if (r->bucket_name[0])
        r->op = op_of_bucket(r);
    else if (!strcmp(r->head.method, "GET"))
        r->op = OP_LIST_BUCKETS;
    return S3_OK;
}

bool request_find_bucket(struct request *r)
{
    const char *payer;

    r->bucket = store_find(&r->worker->server->store, r->bucket_name);
    if (!r->bucket) {
        struct buf extra = {0};

        xml_add_element(&extra, "BucketName", r->bucket_name);
        response_error_with(r, S3_NoSuchBucket, NULL, buf_str(&extra));
        buf_free(&extra);
        return false;
    }
    payer = request_header(r, "x-amz-request-payer");
    if (!payer)
        payer = request_query(r, "x-amz-request-payer");
    if (r->bucket->requester_pays && (!payer || strcasecmp(payer, "requester") != 0)) {
        response_error(r, S3_AccessDenied);
        return false;
    }
    return true;
}
