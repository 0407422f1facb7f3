// SPDX-License-Identifier: Apache-2.0
// Keys of a role that an SSO sign-in (IAM Identity Center) gives.
// Source: "IAM Identity Center Portal API Reference", "GetRoleCredentials".
#include "s3/fetcher.h"

#include "base/clock.h"
#include "base/text.h"
#include "s3/credentials_keys.h"

#include <string.h>

static void add_parameter(struct buf *target, const char *name, const char *value)
{
    buf_add_str(target, name);
    text_percent_encode(target, value, strlen(value), false);
}

static void sso_start(struct fetcher *f)
{
    const char *role = fetcher_text(f, "role_name"), *account = fetcher_text(f, "account_id");
    const char *token = fetcher_text(f, "token");
    struct buf target = {0};

    if (!role || !account || !token) {
        fetcher_step_failed(f, -EINVAL, "%s: account, role or token is missing", fetcher_source(f));
        return;
    }
    add_parameter(&target, "/federation/credentials?role_name=", role);
    add_parameter(&target, "&account_id=", account);
    if (fetcher_begin(f, "GET", "url", buf_str(&target)) &&
        fetcher_header(f, "x-amz-sso_bearer_token", token))
        fetcher_send(f);
    buf_free(&target);
}

static void sso_answered(struct fetcher *f)
{
    const struct buf *answer = &f->request.answer;
    const char *profile = fetcher_text(f, "profile");
    struct credentials *c;
    char *error = NULL;

    if (f->request.status == 401) {
        fetcher_step_failed(f, -EACCES, "%s is no longer accepted: run aws sso login --profile %s",
                            fetcher_source(f), profile ? profile : "PROFILE");
        return;
    }
    if (f->request.status != 200) {
        fetcher_step_refused(f);
        return;
    }
    c = credentials_from_document(CREDENTIALS_SSO, fetcher_source(f), buf_str(answer), answer->len,
                                  &error);
    fetcher_step_done(f, c, error);
}

const struct fetcher_kind fetcher_sso = {
    .name = "sso",
    .first = true,
    .timeout_ns = 10 * NS_PER_S,
    .tries = 3,
    .start = sso_start,
    .answered = sso_answered,
};
