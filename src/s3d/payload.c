// SPDX-License-Identifier: Apache-2.0
#include "s3d/payload.h"

#include "base/text.h"
#include "s3d/request.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define UPLOAD_MAX (5 * GIB) // of one PUT

void payload_init(struct payload *p)
{
    memset(p, 0, sizeof(*p));
}

void payload_reset(struct payload *p)
{
    p->kind = PAYLOAD_DISCARD;
    buf_reset(&p->text);
    blob_unref(p->blob);
    p->blob = NULL;
    p->len = 0;
    checksum_free(p->checksum);
    p->checksum = NULL;
    p->checksum_kinds = 0;
    if (p->is_aws_chunked)
        aws_chunked_fini(&p->chunked);
    p->is_aws_chunked = false;
    p->error = S3_OK;
}

void payload_fini(struct payload *p)
{
    payload_reset(p);
    buf_free(&p->text);
}

static bool is_hex_sha256(const char *s)
{
    return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

// Which digests will have to fit.
static unsigned wanted_checksums(const struct request *r)
{
    const char *sha256 = request_header(r, "x-amz-content-sha256");
    const char *trailer = request_header(r, "x-amz-trailer");
    unsigned kinds = 0;
    int kind;

    if (request_header(r, "content-md5"))
        kinds |= 1u << CHECKSUM_MD5;
    if (sha256 && is_hex_sha256(sha256))
        kinds |= 1u << CHECKSUM_SHA256;
    for (size_t i = 0; i < r->head.n_headers; i++)
        if ((kind = checksum_kind_of_header(r->head.headers[i].name)) >= 0)
            kinds |= 1u << kind;
    if (trailer && (kind = checksum_kind_of_header(trailer)) >= 0)
        kinds |= 1u << kind;
    return kinds;
}

enum s3_error payload_begin(struct request *r, bool md5)
{
    struct payload *p = &r->payload;
    const char *sha256 = request_header(r, "x-amz-content-sha256");

    if (sha256 && text_starts_with(sha256, "STREAMING-")) {
        bool is_signed = text_starts_with(sha256, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");

        if (!is_signed && strcmp(sha256, "STREAMING-UNSIGNED-PAYLOAD-TRAILER") != 0)
            return S3_NotImplemented;
        is_signed = is_signed && r->signature.present;
        p->is_aws_chunked = true;
        aws_chunked_init(&p->chunked, is_signed ? &r->signature.key : NULL, r->signature.amz_date,
                         r->signature.hex);
    }
    if (r->head.content_length > (int64_t)UPLOAD_MAX)
        return S3_EntityTooLarge;
    p->checksum_kinds = wanted_checksums(r) | (md5 ? 1u << CHECKSUM_MD5 : 0);
    if (p->checksum_kinds) {
        p->checksum = checksum_new(p->checksum_kinds);
        if (!p->checksum)
            return S3_InternalError;
    }
    return S3_OK;
}

static void take(void *arg, const void *data, size_t len)
{
    struct payload *p = arg;
    int rc;

    if (p->error)
        return;
    p->len += len;
    if (p->len > UPLOAD_MAX || (p->kind == PAYLOAD_TEXT && p->len > PAYLOAD_TEXT_MAX)) {
        p->error = S3_EntityTooLarge;
        return;
    }
    if (p->checksum)
        checksum_add(p->checksum, data, len);
    if (p->kind == PAYLOAD_TEXT) {
        buf_add(&p->text, data, len);
    } else if (p->kind == PAYLOAD_BLOB) {
        rc = blob_append(p->blob, data, len);
        if (rc < 0)
            p->error = S3_InternalError;
    }
}

void payload_feed(struct request *r, const void *data, size_t len)
{
    struct payload *p = &r->payload;
    int rc;

    if (p->error)
        return;
    if (!p->is_aws_chunked) {
        take(p, data, len);
        return;
    }
    rc = aws_chunked_feed(&p->chunked, data, len, take, p);
    if (rc < 0 && !p->error)
        p->error = rc == -EACCES ? S3_SignatureDoesNotMatch : S3_IncompleteBody;
}

static enum s3_error check_base64(struct payload *p, enum checksum_kind kind, const char *claimed)
{
    uint8_t sum[CHECKSUM_MAX_BYTES];
    struct buf text = {0};
    bool same;

    text_base64(&text, sum, checksum_get(p->checksum, kind, sum));
    same = !strcmp(buf_str(&text), claimed);
    buf_free(&text);
    return same ? S3_OK : S3_BadDigest;
}

static enum s3_error check_trailers(struct payload *p)
{
    char *save, *text = xstrdup(buf_str(&p->chunked.trailers));
    enum s3_error error = S3_OK;

    for (char *line = strtok_r(text, "\n", &save); line && !error;
         line = strtok_r(NULL, "\n", &save)) {
        char *colon = strchr(line, ':');
        int kind;

        *colon++ = 0; // aws_chunked keeps no line without one
        kind = checksum_kind_of_header(line);
        if (kind >= 0 && !(p->checksum_kinds & 1u << kind))
            error = S3_InvalidRequest; // not announced by x-amz-trailer
        else if (kind >= 0)
            error = check_base64(p, kind, colon + strspn(colon, " "));
    }
    free(text);
    return error;
}

enum s3_error payload_end(struct request *r)
{
    struct payload *p = &r->payload;
    const char *md5 = request_header(r, "content-md5");
    const char *sha256 = request_header(r, "x-amz-content-sha256");
    const char *decoded = request_header(r, "x-amz-decoded-content-length");
    enum s3_error error = p->error;
    uint64_t decoded_len;

    if (!error && p->is_aws_chunked && !aws_chunked_is_done(&p->chunked))
        error = S3_IncompleteBody;
    if (!error && p->is_aws_chunked && decoded &&
        (text_parse_u64(decoded, &decoded_len) < 0 || decoded_len != p->len))
        error = S3_IncompleteBody;
    if (!error && sha256 && is_hex_sha256(sha256)) {
        uint8_t sum[CHECKSUM_MAX_BYTES];
        char hex[65];

        checksum_get(p->checksum, CHECKSUM_SHA256, sum);
        text_hex(sum, 32, hex);
        if (strcmp(hex, sha256) != 0)
            error = S3_XAmzContentSHA256Mismatch;
    }
    if (!error && md5)
        error = check_base64(p, CHECKSUM_MD5, md5);
    for (size_t i = 0; i < r->head.n_headers && !error; i++) {
        int kind = checksum_kind_of_header(r->head.headers[i].name);

        if (kind >= 0)
            error = check_base64(p, kind, r->head.headers[i].value);
    }
    if (!error && p->is_aws_chunked)
        error = check_trailers(p);
    return error;
}

void payload_md5_hex(struct payload *p, char out[static 33])
{
    uint8_t sum[CHECKSUM_MAX_BYTES] = {0};

    checksum_get(p->checksum, CHECKSUM_MD5, sum);
    text_hex(sum, 16, out);
}
