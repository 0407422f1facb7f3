// SPDX-License-Identifier: Apache-2.0
#include "s3/credentials.h"

#include "base/text.h"
#include "s3/aws_config.h"
#include "s3/credentials_keys.h"
#include "s3/credentials_steps.h"
#include "s3/file.h"
#include "s3/url.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define IMDS_DEFAULT_URL "http://169.254.169.254"

// --- environment ---

static const char *env(const char *name)
{
    const char *v = getenv(name);

    return v && *v ? v : NULL;
}

static bool env_is_true(const char *name)
{
    const char *v = env(name);

    return v && strcasecmp(v, "true") == 0;
}

static char *home_directory(void)
{
    struct passwd pw, *found = NULL;
    char text[4096];

    if (env("HOME"))
        return xstrdup(env("HOME"));
    if (getpwuid_r(geteuid(), &pw, text, sizeof(text), &found) == 0 && found)
        return xstrdup(pw.pw_dir);
    return xstrdup("/");
}

// --- JSON ---

json_t *local_step_add(struct local *l, const char *kind, const char *source)
{
    json_t *step = json_object();

    json_array_append_new(l->steps, step);
    local_step_set(l, step, "kind", kind);
    local_step_set(l, step, "source", source);
    return step;
}

void local_step_set(struct local *l, json_t *step, const char *name, const char *value)
{
    if (value && json_object_set_new(step, name, json_string(value)) < 0)
        l->not_text = true;
}

void local_keys_add(struct local *l, struct credentials *c)
{
    json_t *step = local_step_add(l, "keys", c->source);

    local_step_set(l, step, "access_key", c->access_key);
    local_step_set(l, step, "secret_key", c->secret_key);
    local_step_set(l, step, "session_token", c->session_token);
    if (c->expires_s)
        json_object_set_new(step, "expires_s", json_integer(c->expires_s));
    credentials_unref(c);
}

// --- regions and endpoints ---

static const char *profile_value(const struct local *l, const char *key)
{
    const char *v = aws_config_get(l->config_file, AWS_PROFILE, l->profile, key);

    return v ? v : aws_config_get(l->credentials_file, AWS_PROFILE, l->profile, key);
}

static const char *local_region(const struct local *l)
{
    if (l->config->region)
        return l->config->region;
    if (env("AWS_REGION"))
        return env("AWS_REGION");
    if (env("AWS_DEFAULT_REGION"))
        return env("AWS_DEFAULT_REGION");
    return profile_value(l, "region");
}

static const char *profile_endpoint(const struct local *l, const char *service)
{
    const char *services = profile_value(l, "services"), *url = NULL;
    char *key = xasprintf("%s.endpoint_url", service);

    if (services)
        url = aws_config_get(l->config_file, AWS_SERVICES, services, key);
    free(key);
    return url ? url : profile_value(l, "endpoint_url");
}

char *local_endpoint(const struct local *l, const char *env_suffix, const char *service)
{
    char *name = xasprintf("AWS_ENDPOINT_URL_%s", env_suffix);
    const char *url = NULL;

    if (!env_is_true("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")) {
        url = env(name);
        if (!url)
            url = env("AWS_ENDPOINT_URL");
        if (!url)
            url = profile_endpoint(l, service);
    }
    free(name);
    return url ? xstrdup(url) : NULL;
}

// Without a region, the one global end point, which is in us-east-1.
void local_sts_set(struct local *l, json_t *step)
{
    const char *region = local_region(l);
    char *url = local_endpoint(l, "STS", "sts");

    if (!url && region)
        url = xasprintf("https://sts.%s.%s", region, aws_domain(region));
    local_step_set(l, step, "sts_url", url ? url : "https://sts.amazonaws.com");
    local_step_set(l, step, "sts_region", region ? region : "us-east-1");
    free(url);
}

static json_t *settings_of(struct local *l)
{
    json_t *settings = json_object();

    local_step_set(l, settings, "region", profile_value(l, "region"));
    local_step_set(l, settings, "endpoint_url", profile_endpoint(l, "s3"));
    local_step_set(l, settings, "ca_bundle", profile_value(l, "ca_bundle"));
    local_step_set(l, settings, "addressing_style", profile_value(l, "s3.addressing_style"));
    return settings;
}

// --- sources ---

static int add_keys(struct local *l, const char *source, const char *access_key,
                    const char *secret_key, const char *token, int64_t expires_s)
{
    struct credentials *c =
        credentials_make(source, access_key, secret_key, token, expires_s, &l->error);

    if (!c)
        return -EINVAL;
    local_keys_add(l, c);
    return 1;
}

int local_environment_keys(struct local *l)
{
    const char *token = env("AWS_SESSION_TOKEN"), *expires = env("AWS_CREDENTIAL_EXPIRATION");
    const char *source = expires ? "the environment (AWS_ACCESS_KEY_ID, AWS_CREDENTIAL_EXPIRATION)"
                                 : "the environment (AWS_ACCESS_KEY_ID)";
    int64_t expires_s = 0;

    if (!env("AWS_ACCESS_KEY_ID") && !env("AWS_SECRET_ACCESS_KEY"))
        return 0;
    if (expires && credentials_parse_expiration(expires, &expires_s) < 0) {
        l->error =
            xasprintf("AWS_CREDENTIAL_EXPIRATION \"%.64s\" is not a time (ISO 8601)", expires);
        return -EINVAL;
    }
    return add_keys(l, source, env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"),
                    token ? token : env("AWS_SECURITY_TOKEN"), expires_s);
}

static int environment_web_identity(struct local *l)
{
    const char *file = env("AWS_WEB_IDENTITY_TOKEN_FILE"), *role = env("AWS_ROLE_ARN");

    if (!file)
        return 0;
    if (!role) {
        l->error = xstrdup("AWS_WEB_IDENTITY_TOKEN_FILE is set but AWS_ROLE_ARN is not: set the "
                           "role to take on");
        return -EINVAL;
    }
    return local_web_identity(l, role, file, env("AWS_ROLE_SESSION_NAME"));
}

int local_web_identity(struct local *l, const char *role, const char *file, const char *session)
{
    struct buf token = {0};
    int rc = file_read_small(file, 64 * KIB, &token, &l->error);
    char *source;
    json_t *step;

    if (rc < 0)
        return rc;
    while (token.len && strchr("\r\n ", token.data[token.len - 1]))
        token.data[--token.len] = 0;
    source = xasprintf("role %s with the web identity token %s", role, file);
    step = local_step_add(l, "web_identity", source);
    local_sts_set(l, step);
    local_step_set(l, step, "role_arn", role);
    local_step_set(l, step, "session_name", session ? session : "os2g");
    local_step_set(l, step, "token", buf_str(&token));
    free(source);
    file_forget(&token);
    return 1;
}

// Over plain http, only to this machine or to the addresses where ECS and EKS serve keys, so that
// a variable set by mistake or malice does not send the authorization token abroad.
static bool container_host_is_allowed(const struct url *u)
{
    static const char *const allowed[] = {"localhost", "::1", "169.254.170.2", "169.254.170.23",
                                          "fd00:ec2::23"};

    if (u->tls || (u->host_is_address && text_starts_with(u->host, "127.")))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
        if (strcasecmp(u->host, allowed[i]) == 0)
            return true;
    return false;
}

static int container_authorization(struct local *l, json_t *step)
{
    const char *file = env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    struct buf token = {0};
    int rc;

    if (!file) {
        local_step_set(l, step, "authorization", env("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
        return 1;
    }
    rc = file_read_small(file, 64 * KIB, &token, &l->error);
    if (rc == 0) {
        while (token.len && strchr("\r\n ", token.data[token.len - 1]))
            token.data[--token.len] = 0;
        local_step_set(l, step, "authorization", buf_str(&token));
    }
    file_forget(&token);
    return rc < 0 ? rc : 1;
}

int local_container(struct local *l)
{
    const char *relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    char *text, *source;
    struct url u;
    json_t *step;
    int rc;

    if (!relative && !full)
        return 0;
    text = relative ? xasprintf("http://169.254.170.2%s%s", *relative == '/' ? "" : "/", relative)
                    : xstrdup(full);
    rc = url_parse(text, &u, &l->error);
    if (rc == 0 && !container_host_is_allowed(&u)) {
        l->error = xasprintf("AWS_CONTAINER_CREDENTIALS_FULL_URI %s: keys are fetched over plain "
                             "http from this machine and the container service only; use https",
                             text);
        rc = -EACCES;
    }
    if (rc == 0) {
        source = xasprintf("the container's credentials at %s", text);
        step = local_step_add(l, "container", source);
        local_step_set(l, step, "url", text);
        free(source);
        rc = container_authorization(l, step);
    }
    free(text);
    return rc;
}

int local_imds(struct local *l, bool last_resort)
{
    const char *url = env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    json_t *step;

    if (env_is_true("AWS_EC2_METADATA_DISABLED"))
        return 0;
    if (!url && mode && strcasecmp(mode, "IPv6") == 0)
        url = "http://[fd00:ec2::254]";
    step = local_step_add(l, "imds", "the instance's metadata service");
    local_step_set(l, step, "url", url ? url : IMDS_DEFAULT_URL);
    if (last_resort)
        json_object_set_new(step, "last_resort", json_true());
    return 1;
}

// --- the order of sources ---

static int find_source(struct local *l)
{
    const struct credentials_config *c = l->config;
    int rc;

    if (c->no_sign_request) {
        local_step_add(l, "anonymous", "no signing (anonymous access)");
        return 1;
    }
    if (c->access_key || c->secret_key)
        return add_keys(l, "the configuration's keys", c->access_key, c->secret_key,
                        c->session_token, 0);
    if (c->passwd_file)
        return local_passwd_file(l);
    // a profile that was asked for by option goes before the environment, as with the AWS CLI
    if (!c->profile && ((rc = local_environment_keys(l)) || (rc = environment_web_identity(l))))
        return rc;
    if ((rc = local_profile(l)) || (rc = local_container(l)))
        return rc;
    return local_imds(l, true);
}

static char *file_path(const struct local *l, const char *variable, const char *name)
{
    const char *v = env(variable);

    if (!v)
        return xasprintf("%s/.aws/%s", l->home, name);
    if (text_starts_with(v, "~/"))
        return xasprintf("%s%s", l->home, v + 1);
    return xstrdup(v);
}

static int load_files(struct local *l)
{
    char *credentials = file_path(l, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
    char *config = file_path(l, "AWS_CONFIG_FILE", "config");
    int rc = aws_config_load(&l->credentials_file, AWS_CREDENTIALS_FILE, credentials, &l->error);

    if (rc == 0)
        rc = aws_config_load(&l->config_file, AWS_CONFIG_FILE, config, &l->error);
    free(credentials);
    free(config);
    return rc;
}

static void choose_profile(struct local *l)
{
    const char *name = l->config->profile;

    if (!name)
        name = env("AWS_PROFILE");
    if (!name)
        name = env("AWS_DEFAULT_PROFILE");
    l->profile = name ? name : "default";
    l->profile_named = name != NULL;
}

static int write_out(struct local *l, struct buf *out)
{
    json_t *root = json_pack("{s:o, s:O}", "settings", settings_of(l), "steps", l->steps);
    char *text = json_dumps(root, JSON_COMPACT);
    int rc = 0;

    if (l->not_text || !text) {
        l->error = xstrdup("a key, name or path of the credentials is not text in UTF-8");
        rc = -EINVAL;
    } else {
        buf_add_str(out, text);
    }
    free(text);
    json_decref(root);
    return rc;
}

int credentials_local_resolve(const struct credentials_config *c, struct buf *out, char **ret_error)
{
    struct local l = {.config = c, .home = home_directory(), .steps = json_array()};
    int rc;

    choose_profile(&l);
    rc = load_files(&l);
    if (rc == 0)
        rc = find_source(&l);
    if (rc == 0) {
        l.error = xstrdup("no credentials were found: set AWS_ACCESS_KEY_ID and "
                          "AWS_SECRET_ACCESS_KEY, name a profile of ~/.aws/credentials with "
                          "--profile, or ask for anonymous access with --no-sign-request");
        rc = -ENOENT;
    }
    if (rc > 0)
        rc = write_out(&l, out);
    if (rc < 0)
        *ret_error = l.error;
    aws_config_free(l.credentials_file);
    aws_config_free(l.config_file);
    json_decref(l.steps);
    free(l.home);
    return rc;
}
