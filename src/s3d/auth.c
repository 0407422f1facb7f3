// SPDX-License-Identifier: Apache-2.0
#include "s3d/auth.h"

#include "base/clock.h"
#include "base/text.h"
#include "s3d/options.h"
#include "s3d/response.h"
#include "s3d/server.h"
#include "s3d/xml.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_SKEW_S      900
#define MAX_EXPIRES_S   604800
#define MAX_SIGNED      64
#define AUTH_ALGORITHM  "AWS4-HMAC-SHA256"
#define CREDENTIAL_TEXT 256

// What a signed request claims, from either place.
struct claim {
    char credential[CREDENTIAL_TEXT]; // ACCESS/DATE/REGION/SERVICE/aws4_request, cut by parse_scope
    const char *access, *date, *region, *service;
    char signed_headers[2048];
    char signature[65];
    const char *amz_date;
    int64_t time_s;
    bool presigned;
    int64_t expires_s; // presigned: how long it is good
    const char *token;
};

static bool refuse(struct request *r, enum s3_error e, const char *message)
{
    response_error_with(r, e, message, NULL);
    return false;
}

// --- reading the claim ---

static int parse_amz_date(const char *s, int64_t *ret_s)
{
    char iso[21];

    if (strlen(s) != 16 || s[8] != 'T' || s[15] != 'Z')
        return -EINVAL;
    snprintf(iso, sizeof(iso), "%.4s-%.2s-%.2sT%.2s:%.2s:%.2sZ", s, s + 4, s + 6, s + 9, s + 11,
             s + 13);
    return clock_parse_iso8601(iso, ret_s);
}

static int parse_scope(struct claim *c)
{
    char *parts[5], *rest = c->credential;
    int n = 5;

    // from the right: an access key may contain slashes
    while (n > 1) {
        char *slash = strrchr(rest, '/');

        if (!slash)
            return -EINVAL;
        *slash = 0;
        parts[--n] = slash + 1;
    }
    c->access = rest;
    c->date = parts[1];
    c->region = parts[2];
    c->service = parts[3];
    return *rest && strlen(c->date) == 8 && !strcmp(parts[4], "aws4_request") ? 0 : -EINVAL;
}

// Copies the value of NAME=value in a comma-separated list.
static bool take_field(const char *list, const char *name, char *out, size_t size)
{
    size_t name_len = strlen(name), len;

    for (; *list; list += strcspn(list, ","), list += *list == ',') {
        list += strspn(list, " \t");
        if (strncmp(list, name, name_len) != 0 || list[name_len] != '=')
            continue;
        list += name_len + 1;
        len = strcspn(list, ", \t");
        if (len >= size)
            return false;
        memcpy(out, list, len);
        out[len] = 0;
        return true;
    }
    return false;
}

static bool read_header_claim(struct request *r, const char *authorization, struct claim *c)
{
    const char *date = request_header(r, "x-amz-date");

    if (!text_starts_with(authorization, AUTH_ALGORITHM " "))
        return refuse(r, S3_InvalidRequest,
                      "The authorization mechanism you have provided is not supported. Please use "
                      "AWS4-HMAC-SHA256.");
    authorization += strlen(AUTH_ALGORITHM " ");
    if (!take_field(authorization, "Credential", c->credential, sizeof(c->credential)) ||
        !take_field(authorization, "SignedHeaders", c->signed_headers, sizeof(c->signed_headers)) ||
        !take_field(authorization, "Signature", c->signature, sizeof(c->signature)) ||
        parse_scope(c) < 0)
        return refuse(r, S3_AuthorizationHeaderMalformed, NULL);
    if (!date || parse_amz_date(date, &c->time_s) < 0)
        return refuse(r, S3_AccessDenied,
                      "AWS authentication requires a valid Date or x-amz-date header");
    c->amz_date = date;
    c->token = request_header(r, "x-amz-security-token");
    return true;
}

static bool read_query_claim(struct request *r, struct claim *c)
{
    const char *credential = request_query(r, "X-Amz-Credential");
    const char *headers = request_query(r, "X-Amz-SignedHeaders");
    const char *signature = request_query(r, "X-Amz-Signature");
    const char *expires = request_query(r, "X-Amz-Expires");
    uint64_t seconds;

    c->presigned = true;
    c->amz_date = request_query(r, "X-Amz-Date");
    c->token = request_query(r, "X-Amz-Security-Token");
    if (!credential || !headers || !signature || !c->amz_date || !expires ||
        strcmp(request_query(r, "X-Amz-Algorithm"), AUTH_ALGORITHM) != 0 ||
        strlen(credential) >= sizeof(c->credential) ||
        strlen(headers) >= sizeof(c->signed_headers) || strlen(signature) != 64 ||
        parse_amz_date(c->amz_date, &c->time_s) < 0 || text_parse_u64(expires, &seconds) < 0 ||
        seconds > MAX_EXPIRES_S)
        return refuse(r, S3_AuthorizationQueryParametersError, NULL);
    snprintf(c->credential, sizeof(c->credential), "%s", credential);
    snprintf(c->signed_headers, sizeof(c->signed_headers), "%s", headers);
    snprintf(c->signature, sizeof(c->signature), "%s", signature);
    c->expires_s = (int64_t)seconds;
    if (parse_scope(c) < 0)
        return refuse(r, S3_AuthorizationQueryParametersError, NULL);
    return true;
}

// --- checking it ---

static bool check_time(struct request *r, const struct claim *c)
{
    int64_t now = worker_wall_s(r->worker);
    char text[25];
    struct buf extra = {0};
    bool expired = c->presigned && now > c->time_s + c->expires_s;

    if (!expired && now - c->time_s >= -MAX_SKEW_S &&
        (c->presigned || now - c->time_s <= MAX_SKEW_S))
        return true;
    if (expired) {
        clock_format_iso8601(c->time_s + c->expires_s, text);
        xml_add_element(&extra, "Expires", text);
    } else {
        xml_add_element(&extra, "RequestTime", c->amz_date);
        buf_printf(&extra, "<MaxAllowedSkewMilliseconds>%d</MaxAllowedSkewMilliseconds>",
                   MAX_SKEW_S * 1000);
    }
    clock_format_iso8601(now, text);
    xml_add_element(&extra, "ServerTime", text);
    response_error_with(r, expired ? S3_AccessDenied : S3_RequestTimeTooSkewed,
                        expired ? "Request has expired" : NULL, buf_str(&extra));
    buf_free(&extra);
    return false;
}

static bool refuse_region(struct request *r, const char *claimed)
{
    const char *region = r->worker->server->options->region;
    struct buf extra = {0}, message = {0};

    buf_printf(&message,
               "The authorization header is malformed; the region '%s' is wrong; expecting '%s'",
               claimed, region);
    xml_add_element(&extra, "Region", region);
    response_error_with(r, S3_AuthorizationHeaderMalformed, buf_str(&message), buf_str(&extra));
    // the answer to a HEAD has no body to say it in
    response_header(r, "x-amz-bucket-region", region);
    buf_free(&extra);
    buf_free(&message);
    return false;
}

static bool check_credential(struct request *r, const struct claim *c)
{
    const struct server *s = r->worker->server;

    r->who = credential_table_find(&r->worker->server->credentials, c->access);
    if (!r->who) {
        struct buf extra = {0};

        xml_add_element(&extra, "AWSAccessKeyId", c->access);
        response_error_with(r, S3_InvalidAccessKeyId, NULL, buf_str(&extra));
        buf_free(&extra);
        return false;
    }
    if (r->who->token && (!c->token || strcmp(c->token, r->who->token) != 0))
        return refuse(r, S3_InvalidToken, NULL);
    if (!r->who->token && c->token)
        return refuse(r, S3_InvalidToken, NULL);
    if (worker_wall_s(r->worker) >= r->who->expires_s)
        return refuse(r, S3_ExpiredToken, NULL);
    if (strcmp(c->region, s->options->region) != 0)
        return refuse_region(r, c->region);
    if (strcmp(c->service, "s3") != 0 || strncmp(c->date, c->amz_date, 8) != 0)
        return refuse(r, S3_AuthorizationHeaderMalformed, NULL);
    return true;
}

static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (; *list; list += strcspn(list, ";"), list += *list == ';')
        if (!strncasecmp(list, name, n) && (list[n] == ';' || !list[n]))
            return true;
    return false;
}

// Cuts list at its semicolons and finds the headers; false when host or an x-amz-* header that was
// sent is not among them, or one of them was not sent.
static bool find_signed_headers(struct request *r, char *list, struct sigv4_header *headers,
                                size_t *ret_n)
{
    size_t n = 0;
    char *save;

    if (!is_listed(list, "host"))
        return false;
    for (size_t i = 0; i < r->head.n_headers; i++)
        if (!strncasecmp(r->head.headers[i].name, "x-amz-", 6) &&
            !is_listed(list, r->head.headers[i].name))
            return false;
    for (char *name = strtok_r(list, ";", &save); name; name = strtok_r(NULL, ";", &save)) {
        const char *value = request_header(r, name);

        if (!value || n == MAX_SIGNED)
            return false;
        headers[n++] = (struct sigv4_header){name, value};
    }
    *ret_n = n;
    return true;
}

static const struct sigv4_key *signing_key(struct request *r, const struct claim *c)
{
    struct worker *w = r->worker;
    struct worker_key *k;

    for (size_t i = 0; i < ARRAY_LEN(w->keys); i++) {
        k = &w->keys[i];
        if (k->who == r->who && !strcmp(k->key.date, c->date) && !strcmp(k->key.region, c->region))
            return &k->key;
    }
    k = &w->keys[w->next_key++ % ARRAY_LEN(w->keys)];
    k->who = r->who;
    sigv4_key_derive(&k->key, r->who->secret, c->date, c->region, c->service);
    return &k->key;
}

// The raw query without the signature, as SigV4 wants it.
static int canonical_query(struct request *r, struct buf *out)
{
    const char *q = r->raw_query;
    struct buf kept = {0};
    int rc;

    for (; *q; q += strcspn(q, "&"), q += *q == '&') {
        size_t len = strcspn(q, "&");

        if (!len || text_starts_with(q, "X-Amz-Signature="))
            continue;
        if (kept.len)
            buf_add(&kept, "&", 1);
        buf_add(&kept, q, len);
    }
    rc = sigv4_canonical_query(buf_str(&kept), out);
    buf_free(&kept);
    return rc;
}

static bool check_signature(struct request *r, struct claim *c)
{
    const char *hash = request_header(r, "x-amz-content-sha256");
    struct sigv4_header headers[MAX_SIGNED];
    struct sigv4_request signed_request = {.method = r->head.method,
                                           .headers = headers,
                                           .payload_hash = hash ? hash : SIGV4_UNSIGNED,
                                           .amz_date = c->amz_date};
    const struct sigv4_key *key = signing_key(r, c);
    struct buf path = {0}, query = {0};
    char signature[65] = "";
    bool same;

    if (!hash && !c->presigned)
        return refuse(r, S3_InvalidRequest,
                      "Missing required header for this request: x-amz-content-sha256");
    if (!find_signed_headers(r, c->signed_headers, headers, &signed_request.n_headers))
        return refuse(r, S3_AccessDenied,
                      "There were headers present in the request which were not signed");
    text_percent_encode(&path, buf_str(&r->path), r->path.len, true);
    signed_request.path = buf_str(&path);
    if (canonical_query(r, &query) == 0) {
        signed_request.query = buf_str(&query);
        sigv4_signature(key, &signed_request, signature);
    }
    buf_free(&path);
    buf_free(&query);
    same = strlen(c->signature) == 64 && !CRYPTO_memcmp(signature, c->signature, 64);
    if (!same)
        return refuse(r, S3_SignatureDoesNotMatch, NULL);
    r->signature.present = true;
    r->signature.key = *key;
    memcpy(r->signature.amz_date, c->amz_date, sizeof(r->signature.amz_date));
    memcpy(r->signature.hex, signature, sizeof(signature));
    return true;
}

// --- rights ---

bool auth_may(const struct request *r, unsigned right, const char *bucket, const char *key)
{
    const char *prefix = r->who ? r->who->prefix : "";
    unsigned rights = RIGHT_GET | RIGHT_LIST; // of the anonymous, where they are let in
    size_t n = strlen(bucket);

    if (r->who)
        rights = r->who->rights;
    if ((rights & right) != right)
        return false;
    if (!*prefix || !*bucket)
        return true;
    if (strncmp(prefix, bucket, n) != 0)
        return false;
    prefix += n;
    if (!*prefix)
        return true;
    return *prefix == '/' && text_starts_with(key, prefix + 1);
}

static bool check_rights(struct request *r)
{
    const char *key = r->key;

    // listing below the prefix that a key pair is limited to is allowed
    if (r->op == OP_LIST_V1 || r->op == OP_LIST_V2) {
        key = request_query(r, "prefix");
        key = key ? key : "";
    }
    if (auth_may(r, op_right(r->op), r->bucket_name, key))
        return true;
    return refuse(r, S3_AccessDenied, NULL);
}

bool auth_check(struct request *r)
{
    const char *authorization = request_header(r, "authorization");
    struct claim c = {0};

    if (!op_is_s3(r->op))
        return true;
    if (authorization) {
        if (!read_header_claim(r, authorization, &c))
            return false;
    } else if (request_query(r, "X-Amz-Algorithm")) {
        if (!read_query_claim(r, &c))
            return false;
    } else {
        if (!r->worker->server->options->anonymous)
            return refuse(r, S3_AccessDenied, NULL);
        return check_rights(r);
    }
    return check_time(r, &c) && check_credential(r, &c) && check_signature(r, &c) &&
           check_rights(r);
}
