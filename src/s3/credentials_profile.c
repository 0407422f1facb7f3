// SPDX-License-Identifier: Apache-2.0
// Keys from a profile of the shared files: static keys, roles (by another profile's keys, by a
// source of credentials or by a web identity), SSO sign-ins, processes.
#include "s3/aws_config.h"
#include "s3/credentials_keys.h"
#include "s3/credentials_steps.h"
#include "s3/file.h"
#include "s3/process.h"
#include "s3/url.h"

#include "base/clock.h"
#include "base/text.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PROCESS_TIMEOUT_NS (50 * NS_PER_S) // whoever waits for the local half gives it a minute
#define MAX_CHAIN          8

static const char *value(const struct local *l, const char *profile, const char *key)
{
    const char *v = aws_config_get(l->credentials_file, AWS_PROFILE, profile, key);

    return v ? v : aws_config_get(l->config_file, AWS_PROFILE, profile, key);
}

// --- static keys ---

static int keys_in(struct local *l, const struct aws_config *file, const char *profile)
{
    const char *access = aws_config_get(file, AWS_PROFILE, profile, "aws_access_key_id");
    const char *secret = aws_config_get(file, AWS_PROFILE, profile, "aws_secret_access_key");
    const char *token = aws_config_get(file, AWS_PROFILE, profile, "aws_session_token");
    struct credentials *c;
    char *source;

    if (!access && !secret)
        return 0;
    if (!token)
        token = aws_config_get(file, AWS_PROFILE, profile, "aws_security_token");
    source = xasprintf("profile %s in %s", profile, aws_config_path(file));
    c = credentials_make(source, access, secret, token, 0, &l->error);
    free(source);
    if (!c)
        return -EINVAL;
    local_keys_add(l, c);
    return 1;
}

// --- credential_process ---

static int run_process(struct local *l, const char *profile)
{
    const char *command = value(l, profile, "credential_process");
    struct credentials *c = NULL;
    struct buf out = {0};
    char *source;
    int rc;

    if (!command)
        return 0;
    rc = process_run(command, PROCESS_TIMEOUT_NS, l->config->join_group, &out, &l->error);
    if (rc == 0) {
        source = xasprintf("credential_process of profile %s", profile);
        c = credentials_from_document(CREDENTIALS_PROCESS, source, buf_str(&out), out.len,
                                      &l->error);
        free(source);
        rc = c ? 1 : -EACCES;
    }
    if (c)
        local_keys_add(l, c);
    file_forget(&out);
    return rc;
}

// --- SSO ---

struct sso {
    const char *session; // NULL in the older form, without [sso-session …]
    const char *start_url, *region, *account_id, *role_name;
};

static int sso_of(struct local *l, const char *profile, struct sso *ret)
{
    struct sso s = {.session = value(l, profile, "sso_session"),
                    .start_url = value(l, profile, "sso_start_url"),
                    .region = value(l, profile, "sso_region"),
                    .account_id = value(l, profile, "sso_account_id"),
                    .role_name = value(l, profile, "sso_role_name")};

    if (!s.session && !s.start_url)
        return 0;
    if (s.session) {
        if (!aws_config_has(l->config_file, AWS_SSO_SESSION, s.session)) {
            l->error = xasprintf("profile %s names the SSO session %s, which %s does not have",
                                 profile, s.session, aws_config_path(l->config_file));
            return -EINVAL;
        }
        s.start_url = aws_config_get(l->config_file, AWS_SSO_SESSION, s.session, "sso_start_url");
        s.region = aws_config_get(l->config_file, AWS_SSO_SESSION, s.session, "sso_region");
    }
    if (!s.start_url || !s.region || !s.account_id || !s.role_name ||
        !aws_region_is_valid(s.region)) {
        l->error = xasprintf("the SSO settings of profile %s are not complete: it needs "
                             "sso_start_url, sso_region, sso_account_id and sso_role_name (run "
                             "aws configure sso --profile %s)",
                             profile, profile);
        return -EINVAL;
    }
    *ret = s;
    return 1;
}

// Where the AWS CLI keeps the token of a sign-in: named by the SHA-1 of what was signed in to.
static char *sso_cache_path(const struct local *l, const struct sso *s)
{
    const char *name = s->session ? s->session : s->start_url;
    unsigned char hash[20];
    char hex[41];

    EVP_Digest(name, strlen(name), hash, NULL, EVP_sha1(), NULL);
    text_hex(hash, sizeof(hash), hex);
    return xasprintf("%s/.aws/sso/cache/%s.json", l->home, hex);
}

static int parse_sso_token(struct local *l, const char *profile, const struct buf *text,
                           char **ret_token)
{
    json_t *root = json_loadb(buf_str(text), text->len, 0, NULL);
    const char *token = json_string_value(json_object_get(root, "accessToken"));
    const char *expires = json_string_value(json_object_get(root, "expiresAt"));
    int64_t expires_s;
    int rc = 0;

    if (!token || !expires || clock_parse_iso8601(expires, &expires_s) < 0)
        rc = -EBADMSG;
    else if (expires_s <= clock_wall_s())
        rc = -EACCES;
    else
        *ret_token = xstrdup(token);
    if (rc < 0)
        l->error = xasprintf("the SSO sign-in of profile %s %s: run aws sso login --profile %s",
                             profile, rc == -EACCES ? "has expired" : "cannot be read", profile);
    json_decref(root);
    return rc;
}

static int read_sso_token(struct local *l, const char *profile, const struct sso *s,
                          char **ret_token)
{
    char *path = sso_cache_path(l, s), *why = NULL;
    struct buf text = {0};
    int rc = file_read_small(path, 64 * KIB, &text, &why);

    if (rc == 0)
        rc = parse_sso_token(l, profile, &text, ret_token);
    else
        l->error = xasprintf("nobody is signed in to SSO for profile %s (%s): run aws sso login "
                             "--profile %s",
                             profile, why, profile);
    free(why);
    file_forget(&text);
    free(path);
    return rc < 0 ? -EACCES : 0;
}

static int sign_in(struct local *l, const char *profile)
{
    char *token = NULL, *url, *source;
    struct sso s;
    json_t *step;
    int rc = sso_of(l, profile, &s);

    if (rc <= 0)
        return rc;
    rc = read_sso_token(l, profile, &s, &token);
    if (rc < 0)
        return rc;
    url = local_endpoint(l, "SSO", "sso");
    if (!url)
        url = xasprintf("https://portal.sso.%s.%s", s.region, aws_domain(s.region));
    source = xasprintf("the SSO sign-in of profile %s", profile);
    step = local_step_add(l, "sso", source);
    local_step_set(l, step, "url", url);
    local_step_set(l, step, "account_id", s.account_id);
    local_step_set(l, step, "role_name", s.role_name);
    local_step_set(l, step, "token", token);
    local_step_set(l, step, "profile", profile);
    free(source);
    free(token);
    free(url);
    return 1;
}

// --- roles ---

static int profile_keys(struct local *l, const char *profile, unsigned depth, bool own_role);

static int keys_of_source(struct local *l, const char *profile, const char *source)
{
    int rc;

    if (strcasecmp(source, "Environment") == 0)
        rc = local_environment_keys(l);
    else if (strcasecmp(source, "EcsContainer") == 0)
        rc = local_container(l);
    else if (strcasecmp(source, "Ec2InstanceMetadata") == 0)
        rc = local_imds(l, false);
    else {
        l->error = xasprintf("credential_source %s of profile %s is not known: it must be "
                             "Environment, EcsContainer or Ec2InstanceMetadata",
                             source, profile);
        return -EINVAL;
    }
    if (rc == 0) {
        l->error = xasprintf("profile %s takes its keys from %s, which has none", profile, source);
        rc = -ENOENT;
    }
    return rc;
}

static int keys_for_role(struct local *l, const char *profile, unsigned depth)
{
    const char *from_profile = value(l, profile, "source_profile");
    const char *from_source = value(l, profile, "credential_source");
    bool itself = from_profile && strcmp(from_profile, profile) == 0;
    int rc;

    if (!from_profile == !from_source) {
        l->error = xasprintf("profile %s has a role_arn: it needs one of source_profile, "
                             "credential_source and web_identity_token_file",
                             profile);
        return -EINVAL;
    }
    if (from_source)
        return keys_of_source(l, profile, from_source);
    if (depth == MAX_CHAIN) {
        l->error = xasprintf("the chain of source_profile through profile %s is a loop, or longer "
                             "than %d",
                             profile, MAX_CHAIN);
        return -ELOOP;
    }
    rc = profile_keys(l, from_profile, depth + 1, !itself);
    if (rc == 0) {
        l->error = xasprintf("profile %s takes its keys from profile %s, which has none", profile,
                             from_profile);
        rc = -ENOENT;
    }
    return rc;
}

static int take_on_role(struct local *l, const char *profile, const char *role, unsigned depth)
{
    const char *session = value(l, profile, "role_session_name");
    const char *token_file = value(l, profile, "web_identity_token_file");
    const char *duration = value(l, profile, "duration_seconds");
    uint64_t duration_s;
    char *source;
    json_t *step;
    int rc;

    if (value(l, profile, "mfa_serial")) {
        l->error = xasprintf("profile %s wants a one-time code (mfa_serial), which a daemon cannot "
                             "ask for: use credential_process or keys that need none",
                             profile);
        return -ENOTSUP;
    }
    if (token_file)
        return local_web_identity(l, role, token_file, session);
    rc = keys_for_role(l, profile, depth);
    if (rc < 0)
        return rc;
    source = xasprintf("role %s of profile %s", role, profile);
    step = local_step_add(l, "assume_role", source);
    local_sts_set(l, step);
    local_step_set(l, step, "role_arn", role);
    local_step_set(l, step, "session_name", session ? session : "os2g");
    local_step_set(l, step, "external_id", value(l, profile, "external_id"));
    if (duration && text_parse_u64(duration, &duration_s) == 0)
        json_object_set_new(step, "duration_s", json_integer((json_int_t)duration_s));
    free(source);
    return 1;
}

static int profile_keys(struct local *l, const char *profile, unsigned depth, bool own_role)
{
    const char *role = value(l, profile, "role_arn");
    int rc;

    if (!aws_config_has(l->credentials_file, AWS_PROFILE, profile) &&
        !aws_config_has(l->config_file, AWS_PROFILE, profile)) {
        if (depth == 0 && !l->profile_named)
            return 0;
        l->error = xasprintf("there is no profile %s in %s or %s", profile,
                             aws_config_path(l->credentials_file), aws_config_path(l->config_file));
        return -ENOENT;
    }
    if (role && own_role)
        return take_on_role(l, profile, role, depth);
    if ((rc = sign_in(l, profile)) || (rc = keys_in(l, l->credentials_file, profile)) ||
        (rc = run_process(l, profile)))
        return rc;
    return keys_in(l, l->config_file, profile);
}

int local_profile(struct local *l)
{
    return profile_keys(l, l->profile, 0, true);
}
