// SPDX-License-Identifier: Apache-2.0
// Keys of a role from the Security Token Service: for a web identity's token, or for other keys.
// Source: "AWS Security Token Service API Reference", AssumeRole, AssumeRoleWithWebIdentity.
#include "s3/fetcher.h"

#include "base/clock.h"
#include "base/text.h"
#include "s3/credentials_keys.h"
#include "s3/sigv4.h"
#include "s3/sts_answer.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define FORM_TYPE "application/x-www-form-urlencoded"

// --- requests ---

static void add_field(struct buf *body, const char *name, const char *value)
{
    if (!value)
        return;
    buf_printf(body, "%s%s=", body->len ? "&" : "", name);
    text_percent_encode(body, value, strlen(value), false);
}

static bool begin(struct fetcher *f, const char *action)
{
    struct buf *body = &f->request.body;

    if (!fetcher_begin(f, "POST", "sts_url", NULL))
        return false;
    add_field(body, "Action", action);
    add_field(body, "Version", "2011-06-15");
    add_field(body, "RoleArn", fetcher_text(f, "role_arn"));
    add_field(body, "RoleSessionName", fetcher_text(f, "session_name"));
    return fetcher_header(f, "Content-Type", FORM_TYPE);
}

static void web_identity_start(struct fetcher *f)
{
    if (!begin(f, "AssumeRoleWithWebIdentity"))
        return;
    add_field(&f->request.body, "WebIdentityToken", fetcher_text(f, "token"));
    fetcher_send(f);
}

static void sign(struct fetcher *f, const struct credentials *by, const char *region)
{
    struct small_request *r = &f->request;
    struct buf host = {0}, authorization = {0};
    char date[17], day[9], hash_hex[65];
    struct sigv4_header headers[4];
    struct sigv4_key key;
    uint8_t hash[32];
    size_t n = 0;

    clock_format_amz_date(clock_wall_s(), date);
    memcpy(day, date, 8);
    day[8] = 0;
    EVP_Digest(r->body.data, r->body.len, hash, NULL, EVP_sha256(), NULL);
    text_hex(hash, sizeof(hash), hash_hex);
    url_host_header(&r->url, &host);

    headers[n++] = (struct sigv4_header){"content-type", FORM_TYPE};
    headers[n++] = (struct sigv4_header){"host", buf_str(&host)};
    headers[n++] = (struct sigv4_header){"x-amz-date", date};
    buf_printf(&r->headers, "X-Amz-Date: %s\r\n", date);
    if (by->session_token) {
        headers[n++] = (struct sigv4_header){"x-amz-security-token", by->session_token};
        buf_printf(&r->headers, "X-Amz-Security-Token: %s\r\n", by->session_token);
    }
    sigv4_key_derive(&key, by->secret_key, day, region, "sts");
    sigv4_authorization(&key, by->access_key,
                        &(struct sigv4_request){.method = "POST",
                                                .path = r->url.target,
                                                .query = "",
                                                .headers = headers,
                                                .n_headers = n,
                                                .payload_hash = hash_hex,
                                                .amz_date = date},
                        &authorization);
    buf_printf(&r->headers, "Authorization: %s\r\n", buf_str(&authorization));
    buf_free(&authorization);
    buf_free(&host);
}

static void assume_role_start(struct fetcher *f)
{
    const char *region = fetcher_text(f, "sts_region");
    json_int_t duration = json_integer_value(json_object_get(f->step, "duration_s"));
    char seconds[24];

    if (!region || !aws_region_is_valid(region) || f->keys->anonymous) {
        fetcher_step_failed(f, -EINVAL, "%s: its region or the keys to sign with are missing",
                            fetcher_source(f));
        return;
    }
    if (!begin(f, "AssumeRole"))
        return;
    add_field(&f->request.body, "ExternalId", fetcher_text(f, "external_id"));
    if (duration > 0) {
        snprintf(seconds, sizeof(seconds), "%lld", (long long)duration);
        add_field(&f->request.body, "DurationSeconds", seconds);
    }
    sign(f, f->keys, region);
    fetcher_send(f);
}

// --- answers ---

// Errors of the service that pass, though some come with status 400.
static bool passes(const struct fetcher *f, const char *code)
{
    static const char *const codes[] = {"Throttling",           "ThrottlingException",
                                        "RequestLimitExceeded", "IDPCommunicationError",
                                        "ServiceUnavailable",   "InternalFailure"};

    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (strcmp(code, codes[i]) == 0)
            return true;
    return f->request.status == 429 || f->request.status >= 500;
}

static void take_keys(struct fetcher *f, const struct sts_answer *a)
{
    char *error = NULL;
    struct credentials *c = NULL;
    int64_t expires_s;

    if (clock_parse_iso8601(buf_str(&a->fields[STS_EXPIRATION]), &expires_s) < 0)
        error = xasprintf("%s: STS gave no time at which its keys expire", fetcher_source(f));
    else
        c = credentials_make(fetcher_source(f), buf_str(&a->fields[STS_ACCESS_KEY]),
                             buf_str(&a->fields[STS_SECRET_KEY]), buf_str(&a->fields[STS_TOKEN]),
                             expires_s, &error);
    fetcher_step_done(f, c, error);
}

static void sts_answered(struct fetcher *f)
{
    const struct buf *answer = &f->request.answer;
    struct sts_answer a;
    int rc = sts_answer_parse(&a, buf_str(answer), answer->len);
    const char *code = buf_str(&a.fields[STS_CODE]);

    if (rc == 0 && f->request.status == 200)
        take_keys(f, &a);
    else if (rc == 0 && *code)
        fetcher_step_failed(f, passes(f, code) ? -ETIMEDOUT : -EACCES,
                            "%s: STS answered %.64s: %.300s", fetcher_source(f), code,
                            buf_str(&a.fields[STS_MESSAGE]));
    else if (f->request.status == 200)
        fetcher_step_failed(f, -EACCES, "%s: %s answered with something that is not STS's XML",
                            fetcher_source(f), f->request.url.host);
    else
        fetcher_step_refused(f);
    sts_answer_fini(&a);
}

const struct fetcher_kind fetcher_web_identity = {
    .name = "web_identity",
    .first = true,
    .timeout_ns = 10 * NS_PER_S,
    .tries = 3,
    .start = web_identity_start,
    .answered = sts_answered,
};

const struct fetcher_kind fetcher_assume_role = {
    .name = "assume_role",
    .timeout_ns = 10 * NS_PER_S,
    .tries = 3,
    .start = assume_role_start,
    .answered = sts_answered,
};
