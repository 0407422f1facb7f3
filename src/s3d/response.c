// SPDX-License-Identifier: Apache-2.0
#include "s3d/response.h"

#include "base/clock.h"
#include "s3d/server.h"
#include "s3d/xml.h"

#include <stdio.h>
#include <string.h>

#define HOST_ID "b3Mydy1zM2Q="

void response_reset(struct request *r)
{
    struct response *p = &r->response;

    buf_reset(&p->headers);
    buf_reset(&p->text);
    if (p->has_object)
        object_fini(&p->object);
    p->has_object = false;
    p->body_off = p->body_len = 0;
}

void response_header(struct request *r, const char *name, const char *value)
{
    struct buf *b = &r->response.headers;

    buf_add_str(b, name);
    buf_add(b, ": ", 2);
    // what came from outside must not begin a header of its own
    for (const char *s = value; *s; s++)
        if (*s != '\r' && *s != '\n')
            buf_add(b, s, 1);
    buf_add(b, "\r\n", 2);
}

void response_header_etag(struct request *r, const char *etag)
{
    struct buf *b = &r->response.headers;

    buf_add_str(b, "ETag: \"");
    buf_add_str(b, etag);
    buf_add_str(b, "\"\r\n");
}

void response_xml(struct request *r, int status)
{
    r->response.status = status;
    buf_add_str(&r->response.headers, "Content-Type: application/xml\r\n");
}

void response_json(struct request *r, int status)
{
    r->response.status = status;
    buf_add_str(&r->response.headers, "Content-Type: application/json\r\n");
}

void response_empty(struct request *r, int status)
{
    r->response.status = status;
}

void response_error_raw(struct request *r, int status, const char *code, const char *message,
                        const char *extra)
{
    struct buf *b = &r->response.text;

    response_reset(r);
    buf_add_str(b, XML_HEAD "<Error>");
    xml_add_element(b, "Code", code);
    xml_add_element(b, "Message", message);
    if (extra)
        buf_add_str(b, extra);
    if (*r->key)
        xml_add_element(b, "Key", r->key);
    xml_add_element(b, "Resource", buf_str(&r->path));
    buf_printf(b, "<RequestId>%016llX</RequestId><HostId>" HOST_ID "</HostId></Error>",
               (unsigned long long)r->id);
    response_xml(r, status);
}

void response_error_with(struct request *r, enum s3_error e, const char *message, const char *extra)
{
    response_error_raw(r, s3_error_status(e), s3_error_code(e),
                       message ? message : s3_error_message(e), extra);
}

void response_error(struct request *r, enum s3_error e)
{
    response_error_with(r, e, NULL, NULL);
}

void response_errno(struct request *r, int rc)
{
    switch (rc) {
    case -ENOENT:
        response_error(r, S3_NoSuchKey);
        break;
    case -EEXIST:
        response_error(r, S3_PreconditionFailed);
        break;
    case -EACCES:
    case -EPERM:
        response_error(r, S3_AccessDenied);
        break;
    case -ENAMETOOLONG:
        response_error(r, S3_KeyTooLongError);
        break;
    default:
        response_error_with(r, S3_InternalError, strerror(-rc), NULL);
    }
}

static const char *reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 204:
        return "No Content";
    case 206:
        return "Partial Content";
    case 301:
        return "Moved Permanently";
    case 304:
        return "Not Modified";
    case 307:
        return "Temporary Redirect";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 409:
        return "Conflict";
    case 412:
        return "Precondition Failed";
    case 416:
        return "Requested Range Not Satisfiable";
    case 500:
        return "Internal Server Error";
    case 503:
        return "Service Unavailable";
    default:
        return "Status";
    }
}

uint64_t response_body_len(const struct request *r)
{
    return r->response.has_object ? r->response.body_len : r->response.text.len;
}

bool response_is_bodyless(const struct request *r)
{
    return !strcmp(r->head.method, "HEAD") || r->response.status == 204 ||
           r->response.status == 304;
}

static void add_number(struct buf *b, uint64_t n)
{
    char digits[20], *p = digits + sizeof(digits);

    do
        *--p = (char)('0' + n % 10);
    while (n /= 10);
    buf_add(b, p, (size_t)(digits + sizeof(digits) - p));
}

void response_write_head(struct request *r, uint64_t promised, struct buf *out)
{
    char id[17];

    // called for every request: no formatted printing
    for (int i = 0; i < 16; i++)
        id[i] = "0123456789ABCDEF"[r->id >> (60 - 4 * i) & 15];
    id[16] = 0;
    buf_add_str(out, "HTTP/1.1 ");
    add_number(out, (uint64_t)r->response.status);
    buf_add(out, " ", 1);
    buf_add_str(out, reason(r->response.status));
    buf_add_str(out, "\r\nServer: os2g-s3d\r\nDate: ");
    buf_add_str(out, worker_date(r->worker));
    buf_add_str(out, "\r\nx-amz-request-id: ");
    buf_add_str(out, id);
    buf_add_str(out, "\r\nx-amz-id-2: " HOST_ID "\r\n");
    buf_add(out, buf_str(&r->response.headers), r->response.headers.len);
    if (r->response.status != 204 && r->response.status != 304) {
        buf_add_str(out, "Content-Length: ");
        add_number(out, promised);
        buf_add(out, "\r\n", 2);
    }
    buf_add_str(out, r->response.close ? "Connection: close\r\n\r\n" : "\r\n");
}
