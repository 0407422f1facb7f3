// SPDX-License-Identifier: Apache-2.0
// Where programs get temporary key pairs from, for tests of the four ways: STS with a web identity
// token, the instance's and the container's metadata, and (through the admin's endpoint) a
// credential process.
#include "base/clock.h"
#include "base/text.h"
#include "s3d/issue.h"
#include "s3d/options.h"
#include "s3d/response.h"
#include "s3d/server.h"
#include "s3d/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct credential *issue_credential(struct request *r, char expiration[static 25])
{
    struct server *s = r->worker->server;
    int64_t expires_s = worker_wall_s(r->worker) + (int64_t)s->options->session_lifetime_s;
    const struct credential *c = credential_table_issue(&s->credentials, expires_s);

    if (!c)
        response_error(r, S3_ServiceUnavailable);
    else
        clock_format_iso8601(expires_s, expiration);
    return c;
}

// --- STS: AssumeRoleWithWebIdentity (AWS Security Token Service API Reference) ---

static void sts_error(struct request *r, int status, const char *code, const char *message)
{
    struct buf *b = &r->response.text;

    buf_add_str(b, "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>"
                   "<Type>Sender</Type>");
    xml_add_element(b, "Code", code);
    xml_add_element(b, "Message", message);
    buf_printf(b, "</Error><RequestId>%016llX</RequestId></ErrorResponse>",
               (unsigned long long)r->id);
    response_xml(r, status);
}

static void sts_answer(struct request *r)
{
    const char *action = request_query(r, "Action"), *token = request_query(r, "WebIdentityToken");
    const char *role = request_query(r, "RoleArn");
    struct buf *b = &r->response.text;
    const struct credential *c;
    char expiration[25];

    if (!action || strcmp(action, "AssumeRoleWithWebIdentity") != 0) {
        sts_error(r, 400, "InvalidAction", "Only AssumeRoleWithWebIdentity is known here");
        return;
    }
    if (!role || !*role || !request_query(r, "RoleSessionName")) {
        sts_error(r, 400, "ValidationError", "RoleArn and RoleSessionName are needed");
        return;
    }
    if (!token || strcmp(token, r->worker->server->options->web_identity_token) != 0) {
        sts_error(r, 400, "InvalidIdentityToken", "The web identity token is not the one expected");
        return;
    }
    c = issue_credential(r, expiration);
    if (!c)
        return;
    buf_add_str(b, "<AssumeRoleWithWebIdentityResponse "
                   "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
                   "<AssumeRoleWithWebIdentityResult><Credentials>");
    xml_add_element(b, "AccessKeyId", c->access);
    xml_add_element(b, "SecretAccessKey", c->secret);
    xml_add_element(b, "SessionToken", c->token);
    xml_add_element(b, "Expiration", expiration);
    buf_add_str(b, "</Credentials><AssumedRoleUser>");
    xml_add_element(b, "Arn", role);
    buf_add_str(b, "<AssumedRoleId>AROAS3D:session</AssumedRoleId></AssumedRoleUser>"
                   "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>");
    response_xml(r, 200);
}

void op_sts_start(struct request *r)
{
    if (strcmp(r->head.method, "POST") != 0)
        sts_answer(r);
    else
        r->payload.kind = PAYLOAD_TEXT;
}

void op_sts_finish(struct request *r)
{
    if (query_parse(&r->query, buf_str(&r->payload.text), true) < 0)
        sts_error(r, 400, "MalformedQueryString", "The form could not be decoded");
    else
        sts_answer(r);
}

// --- metadata of instances (IMDSv2) and of containers ---

static void json_credential(struct request *r, const struct credential *c, const char *expiration)
{
    struct buf *b = &r->response.text;

    // all of them are of our own making: nothing to escape
    buf_printf(b,
               "{\n  \"Code\": \"Success\",\n  \"Type\": \"AWS-HMAC\",\n"
               "  \"AccessKeyId\": \"%s\",\n  \"SecretAccessKey\": \"%s\",\n"
               "  \"Token\": \"%s\",\n  \"Expiration\": \"%s\"\n}\n",
               c->access, c->secret, c->token, expiration);
    response_json(r, 200);
}

static void answer_text(struct request *r, const char *text)
{
    buf_add_str(&r->response.text, text);
    response_header(r, "Content-Type", "text/plain");
    response_empty(r, 200);
}

// "s3d-UNTIL-CHECK": until when it is good, and a number that goes with that.
static void imds_write_token(int64_t until_s, char token[static 64])
{
    snprintf(token, 64, "s3d-%lld-%016llx", (long long)until_s,
             (unsigned long long)until_s * 0x9e3779b97f4a7c15);
}

static void imds_new_token(struct request *r)
{
    const char *ttl = request_header(r, "x-aws-ec2-metadata-token-ttl-seconds");
    uint64_t seconds;
    char token[64];

    if (!ttl || text_parse_u64(ttl, &seconds) < 0 || seconds < 1 || seconds > 21600) {
        response_empty(r, 400);
        return;
    }
    imds_write_token(worker_wall_s(r->worker) + (int64_t)seconds, token);
    response_header(r, "x-aws-ec2-metadata-token-ttl-seconds", ttl);
    answer_text(r, token);
}

static bool imds_token_is_good(const struct request *r)
{
    const char *token = request_header(r, "x-aws-ec2-metadata-token");
    char expected[64];
    int64_t until_s;

    if (!token || !text_starts_with(token, "s3d-"))
        return false;
    until_s = strtoll(token + 4, NULL, 10);
    imds_write_token(until_s, expected);
    return !strcmp(token, expected) && until_s > worker_wall_s(r->worker);
}

void op_imds_start(struct request *r)
{
    static const char list[] = "/latest/meta-data/iam/security-credentials";
    const char *role = r->worker->server->options->imds_role, *path = buf_str(&r->path);
    const struct credential *c;
    char expiration[25];

    if (!strcmp(path, "/latest/api/token")) {
        if (strcmp(r->head.method, "PUT") != 0)
            response_empty(r, 405);
        else
            imds_new_token(r);
        return;
    }
    if (!imds_token_is_good(r)) {
        response_empty(r, 401);
        return;
    }
    if (!text_starts_with(path, list)) {
        response_empty(r, 404);
        return;
    }
    path += strlen(list);
    path += *path == '/';
    if (!*path) {
        answer_text(r, role);
    } else if (strcmp(path, role) != 0) {
        response_empty(r, 404);
    } else {
        c = issue_credential(r, expiration);
        if (c)
            json_credential(r, c, expiration);
    }
}

void op_container_start(struct request *r)
{
    const char *authorization = request_header(r, "authorization");
    const struct credential *c;
    char expiration[25];

    if (!authorization || strcmp(authorization, r->worker->server->options->container_token) != 0) {
        response_empty(r, 401);
        return;
    }
    c = issue_credential(r, expiration);
    if (c)
        json_credential(r, c, expiration);
}
