// SPDX-License-Identifier: Apache-2.0
// Each test has a home directory of its own and no AWS_ variables but those it sets.
#include "test.h"

#include "environment.h"
#include "s3/credentials.h"

#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char home[64];

static int make_home(void **state)
{
    char path[96];

    without_aws_environment(state);
    strcpy(home, "/tmp/os2g-home-XXXXXX");
    if (!mkdtemp(home))
        return -1;
    snprintf(path, sizeof(path), "%s/.aws", home);
    if (mkdir(path, 0700) < 0)
        return -1;
    return setenv("HOME", home, 1);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static int remove_home(void **state)
{
    return nftw(home, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *write_file(const char *name, const char *text, mode_t mode)
{
    static char path[160];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", home, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, mode);
    return path;
}

static void config_is(const char *text)
{
    write_file(".aws/config", text, 0600);
}

static void credentials_are(const char *text)
{
    write_file(".aws/credentials", text, 0600);
}

// --- what came out ---

static json_t *resolved_with(const struct credentials_config *c)
{
    struct buf out = {0};
    char *error = NULL;
    json_t *root;

    if (credentials_local_resolve(c, &out, &error) < 0)
        fail_msg("%s", error);
    root = json_loads(buf_str(&out), 0, NULL);
    assert_non_null(root);
    buf_free(&out);
    return root;
}

static json_t *resolved(void)
{
    return resolved_with(&(struct credentials_config){0});
}

static void refused_with(const struct credentials_config *c, int expected, const char *word)
{
    struct buf out = {0};
    char *error = NULL;

    assert_int_equal(credentials_local_resolve(c, &out, &error), expected);
    if (!strstr(error, word))
        fail_msg("\"%s\" does not speak of %s", error, word);
    assert_int_equal(out.len, 0);
    free(error);
    buf_free(&out);
}

static void refused(int expected, const char *word)
{
    refused_with(&(struct credentials_config){0}, expected, word);
}

static const char *at(json_t *root, size_t step, const char *name)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(root, "steps"), step), name));
}

static const char *setting(json_t *root, const char *name)
{
    return json_string_value(json_object_get(json_object_get(root, "settings"), name));
}

static size_t steps(json_t *root)
{
    return json_array_size(json_object_get(root, "steps"));
}

static void assert_keys(json_t *root, const char *access, const char *source)
{
    assert_string_equal(at(root, 0, "kind"), "keys");
    assert_string_equal(at(root, 0, "access_key"), access);
    assert_non_null(strstr(at(root, 0, "source"), source));
    json_decref(root);
}

static void set_environment_keys(void)
{
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SECRET", 1);
}

// --- the order of sources ---

static void no_sign_request_is_anonymous_whatever_else_there_is(void **state)
{
    json_t *root;

    set_environment_keys();
    root = resolved_with(&(struct credentials_config){.no_sign_request = true});
    assert_string_equal(at(root, 0, "kind"), "anonymous");
    json_decref(root);
}

static void keys_of_the_configuration_win_over_the_environment(void **state)
{
    set_environment_keys();
    assert_keys(
        resolved_with(&(struct credentials_config){.access_key = "AKCONF", .secret_key = "S"}),
        "AKCONF", "configuration");
}

static void environment_wins_over_the_default_profile(void **state)
{
    set_environment_keys();
    credentials_are("[default]\naws_access_key_id=AKFILE\naws_secret_access_key=S\n");
    assert_keys(resolved(), "AKENV", "environment");
}

static void session_token_of_the_environment_is_taken(void **state)
{
    json_t *root;

    set_environment_keys();
    setenv("AWS_SESSION_TOKEN", "TOKEN", 1);
    root = resolved();
    assert_string_equal(at(root, 0, "session_token"), "TOKEN");
    json_decref(root);
}

static void the_expiration_of_the_environment_s_keys_is_taken(void **state)
{
    json_t *root;

    set_environment_keys();
    setenv("AWS_CREDENTIAL_EXPIRATION", "2026-11-29T18:29:03+02:00", 1);
    root = resolved();
    assert_int_equal(json_integer_value(json_object_get(
                         json_array_get(json_object_get(root, "steps"), 0), "expires_s")),
                     1795969743);
    assert_keys(root, "AKENV", "AWS_CREDENTIAL_EXPIRATION");
    setenv("AWS_CREDENTIAL_EXPIRATION", "tomorrow", 1);
    refused(-EINVAL, "AWS_CREDENTIAL_EXPIRATION \"tomorrow\"");
}

static void half_a_key_pair_in_the_environment_is_an_error(void **state)
{
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    refused(-EINVAL, "secret key is missing");
}

static void profile_by_option_wins_over_the_environment(void **state)
{
    set_environment_keys();
    credentials_are("[train]\naws_access_key_id=AKFILE\naws_secret_access_key=S\n");
    assert_keys(resolved_with(&(struct credentials_config){.profile = "train"}), "AKFILE",
                "profile train in");
}

static void aws_profile_names_the_profile(void **state)
{
    setenv("AWS_PROFILE", "train", 1);
    credentials_are("[default]\naws_access_key_id=AKDEF\naws_secret_access_key=S\n"
                    "[train]\naws_access_key_id=AKTRAIN\naws_secret_access_key=S\n");
    assert_keys(resolved(), "AKTRAIN", "profile train");
}

static void named_profile_that_is_missing_is_an_error(void **state)
{
    credentials_are("[default]\naws_access_key_id=AKDEF\naws_secret_access_key=S\n");
    refused_with(&(struct credentials_config){.profile = "typo"}, -ENOENT, "no profile typo");
    setenv("AWS_PROFILE", "typo", 1);
    refused(-ENOENT, "no profile typo");
}

static void files_can_be_elsewhere(void **state)
{
    setenv(
        "AWS_SHARED_CREDENTIALS_FILE",
        write_file("keys", "[default]\naws_access_key_id=AKELSE\naws_secret_access_key=S\n", 0600),
        1);
    assert_keys(resolved(), "AKELSE", "/keys");
}

static void tilde_in_a_files_place_is_the_home_directory(void **state)
{
    write_file("conf", "[default]\naws_access_key_id=AKT\naws_secret_access_key=S\n", 0600);
    setenv("AWS_CONFIG_FILE", "~/conf", 1);
    assert_keys(resolved(), "AKT", "/conf");
}

static void broken_file_is_an_error_with_its_line(void **state)
{
    credentials_are("[default\n");
    refused(-EBADMSG, "credentials, line 1");
}

static void credentials_file_wins_over_the_config_file(void **state)
{
    config_is("[default]\naws_access_key_id=AKCONF\naws_secret_access_key=S\n");
    credentials_are("[default]\naws_access_key_id=AKCRED\naws_secret_access_key=S\n");
    assert_keys(resolved(), "AKCRED", "/.aws/credentials");
}

static void container_comes_before_the_instance(void **state)
{
    json_t *root;

    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x?y=z", 1);
    root = resolved();
    assert_string_equal(at(root, 0, "kind"), "container");
    assert_string_equal(at(root, 0, "url"), "http://169.254.170.2/v2/x?y=z");
    json_decref(root);
}

static void instance_is_the_last_resort(void **state)
{
    json_t *root = resolved();

    assert_string_equal(at(root, 0, "kind"), "imds");
    assert_string_equal(at(root, 0, "url"), "http://169.254.169.254");
    json_decref(root);
}

static void metadata_service_can_be_elsewhere(void **state)
{
    json_t *root;

    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1338", 1);
    root = resolved();
    assert_string_equal(at(root, 0, "url"), "http://127.0.0.1:1338");
    json_decref(root);
}

static void without_any_source_the_sentence_tells_what_to_do(void **state)
{
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    refused(-ENOENT, "--no-sign-request");
}

static void variable_that_is_not_text_is_an_error(void **state)
{
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/", 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "\xff", 1);
    refused(-EINVAL, "UTF-8");
}

// --- settings of the profile ---

static void settings_of_the_profile_come_along(void **state)
{
    json_t *root;

    set_environment_keys();
    config_is("[default]\nregion = eu-west-1\nendpoint_url = http://store\nca_bundle = /ca.pem\n"
              "s3 =\n  addressing_style = virtual\n");
    root = resolved();
    assert_string_equal(setting(root, "region"), "eu-west-1");
    assert_string_equal(setting(root, "endpoint_url"), "http://store");
    assert_string_equal(setting(root, "ca_bundle"), "/ca.pem");
    assert_string_equal(setting(root, "addressing_style"), "virtual");
    json_decref(root);
}

static void endpoint_in_the_services_section_wins(void **state)
{
    json_t *root;

    set_environment_keys();
    config_is("[default]\nservices = lab\nendpoint_url = http://general\n"
              "[services lab]\ns3 =\n  endpoint_url = http://store\n");
    root = resolved();
    assert_string_equal(setting(root, "endpoint_url"), "http://store");
    json_decref(root);
}

// --- web identity ---

static void web_identity_of_the_environment_reads_the_token(void **state)
{
    json_t *root;

    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write_file("token", "header.body.sig\n", 0600), 1);
    setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r", 1);
    setenv("AWS_ROLE_SESSION_NAME", "me", 1);
    setenv("AWS_REGION", "cn-north-1", 1);
    root = resolved();
    assert_string_equal(at(root, 0, "kind"), "web_identity");
    assert_string_equal(at(root, 0, "token"), "header.body.sig");
    assert_string_equal(at(root, 0, "role_arn"), "arn:aws:iam::1:role/r");
    assert_string_equal(at(root, 0, "session_name"), "me");
    assert_string_equal(at(root, 0, "sts_url"), "https://sts.cn-north-1.amazonaws.com.cn");
    json_decref(root);
}

static void web_identity_without_a_role_is_an_error(void **state)
{
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write_file("token", "t", 0600), 1);
    refused(-EINVAL, "AWS_ROLE_ARN");
}

static void web_identity_without_its_token_file_is_an_error(void **state)
{
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent/token", 1);
    setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r", 1);
    refused(-ENOENT, "/nonexistent/token");
}

static void sts_is_asked_where_the_environment_says(void **state)
{
    json_t *root;

    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write_file("token", "t", 0600), 1);
    setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r", 1);
    setenv("AWS_ENDPOINT_URL", "http://general", 1);
    setenv("AWS_ENDPOINT_URL_STS", "http://sts.local", 1);
    root = resolved();
    assert_string_equal(at(root, 0, "sts_url"), "http://sts.local");
    json_decref(root);
}

static void role_of_a_profile_may_come_by_web_identity(void **state)
{
    char text[300];
    json_t *root;

    snprintf(text, sizeof(text),
             "[default]\nrole_arn = arn:aws:iam::1:role/r\nweb_identity_token_file = %s\n",
             write_file("token", "t", 0600));
    config_is(text);
    root = resolved();
    assert_string_equal(at(root, 0, "kind"), "web_identity");
    assert_string_equal(at(root, 0, "sts_url"), "https://sts.amazonaws.com");
    json_decref(root);
}

// --- roles ---

static void role_is_taken_on_with_the_keys_of_another_profile(void **state)
{
    json_t *root;

    config_is("[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n"
              "external_id = x1\nrole_session_name = s\nduration_seconds = 900\n"
              "region = eu-west-1\n");
    credentials_are("[base]\naws_access_key_id=AKBASE\naws_secret_access_key=S\n");
    root = resolved();
    assert_int_equal(steps(root), 2);
    assert_string_equal(at(root, 0, "access_key"), "AKBASE");
    assert_string_equal(at(root, 1, "kind"), "assume_role");
    assert_string_equal(at(root, 1, "role_arn"), "arn:aws:iam::1:role/r");
    assert_string_equal(at(root, 1, "external_id"), "x1");
    assert_string_equal(at(root, 1, "session_name"), "s");
    assert_string_equal(at(root, 1, "sts_url"), "https://sts.eu-west-1.amazonaws.com");
    assert_int_equal(json_integer_value(json_object_get(
                         json_array_get(json_object_get(root, "steps"), 1), "duration_s")),
                     900);
    json_decref(root);
}

static void roles_may_form_a_chain(void **state)
{
    json_t *root;

    config_is("[default]\nrole_arn = c\nsource_profile = b\n"
              "[profile b]\nrole_arn = b\nsource_profile = a\n"
              "[profile a]\naws_access_key_id=AKA\naws_secret_access_key=S\n");
    root = resolved();
    assert_int_equal(steps(root), 3);
    assert_string_equal(at(root, 1, "role_arn"), "b");
    assert_string_equal(at(root, 2, "role_arn"), "c");
    json_decref(root);
}

static void profile_may_take_on_a_role_with_its_own_keys(void **state)
{
    json_t *root;

    config_is("[default]\nrole_arn = r\nsource_profile = default\n");
    credentials_are("[default]\naws_access_key_id=AK\naws_secret_access_key=S\n");
    root = resolved();
    assert_int_equal(steps(root), 2);
    assert_string_equal(at(root, 0, "access_key"), "AK");
    json_decref(root);
}

static void loop_of_source_profiles_is_refused(void **state)
{
    config_is("[default]\nrole_arn = a\nsource_profile = b\n"
              "[profile b]\nrole_arn = b\nsource_profile = default\n");
    refused(-ELOOP, "loop");
}

static void role_takes_keys_from_a_named_source(void **state)
{
    json_t *root;

    // by option, for the environment's keys would be taken themselves otherwise
    config_is("[profile env]\nrole_arn = r\ncredential_source = Environment\n"
              "[profile ec2]\nrole_arn = r\ncredential_source = Ec2InstanceMetadata\n");
    set_environment_keys();
    root = resolved_with(&(struct credentials_config){.profile = "env"});
    assert_string_equal(at(root, 0, "access_key"), "AKENV");
    assert_string_equal(at(root, 1, "kind"), "assume_role");
    json_decref(root);
    root = resolved_with(&(struct credentials_config){.profile = "ec2"});
    assert_string_equal(at(root, 0, "kind"), "imds");
    json_decref(root);
}

static void role_with_broken_settings_is_refused_with_a_sentence(void **state)
{
    config_is("[profile none]\nrole_arn = r\n"
              "[profile both]\nrole_arn = r\nsource_profile = x\ncredential_source = y\n"
              "[profile odd]\nrole_arn = r\ncredential_source = Wishes\n"
              "[profile gone]\nrole_arn = r\nsource_profile = nobody\n"
              "[profile void]\nrole_arn = r\nsource_profile = empty\n[profile empty]\n"
              "[profile ecs]\nrole_arn = r\ncredential_source = EcsContainer\n"
              "[profile mfa]\nrole_arn = r\nsource_profile = x\nmfa_serial = arn\n");
    refused_with(&(struct credentials_config){.profile = "none"}, -EINVAL, "source_profile");
    refused_with(&(struct credentials_config){.profile = "both"}, -EINVAL, "one of");
    refused_with(&(struct credentials_config){.profile = "odd"}, -EINVAL, "Wishes");
    refused_with(&(struct credentials_config){.profile = "gone"}, -ENOENT, "profile nobody");
    refused_with(&(struct credentials_config){.profile = "void"}, -ENOENT, "profile empty");
    refused_with(&(struct credentials_config){.profile = "ecs"}, -ENOENT, "EcsContainer");
    refused_with(&(struct credentials_config){.profile = "mfa"}, -ENOTSUP, "mfa_serial");
}

// --- credential_process ---

static void credential_process_gives_keys(void **state)
{
    json_t *root;

    config_is("[default]\ncredential_process = printf '{\"Version\":1,\"AccessKeyId\":\"%s\","
              "\"SecretAccessKey\":\"S\",\"Expiration\":\"2026-11-29T18:29:03Z\"}' AKPROC\n");
    root = resolved();
    assert_int_equal(json_integer_value(json_object_get(
                         json_array_get(json_object_get(root, "steps"), 0), "expires_s")),
                     1795976943);
    assert_keys(root, "AKPROC", "credential_process of profile default");
}

static void credential_process_that_fails_says_why(void **state)
{
    config_is("[default]\ncredential_process = sh -c 'echo sign in first >&2; exit 1'\n");
    refused(-EACCES, "sign in first");
}

static void credential_process_that_gives_nonsense_is_an_error(void **state)
{
    config_is("[default]\ncredential_process = echo hello\n");
    refused(-EACCES, "JSON");
}

// --- SSO ---

#define SESSION_HASH "ee0bfd2552fbd840c02cc48b6e823320543c450f" // sha1("corp")
#define OLDER_HASH   "717f6b50ccf65f10839b090b78b6ff0786091a96" // sha1("https://corp/start")

static void write_sso_token(const char *hash, const char *expires)
{
    char path[96], text[200];

    snprintf(path, sizeof(path), "%s/.aws/sso", home);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/.aws/sso/cache", home);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), ".aws/sso/cache/%s.json", hash);
    snprintf(text, sizeof(text), "{\"accessToken\":\"TOKEN\",\"expiresAt\":\"%s\"}", expires);
    write_file(path, text, 0600);
}

static void sso_session_is_found_by_its_name(void **state)
{
    json_t *root;

    config_is("[default]\nsso_session = corp\nsso_account_id = 123\nsso_role_name = Reader\n"
              "[sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp/start\n");
    write_sso_token(SESSION_HASH, "2099-01-01T00:00:00Z");
    root = resolved();
    assert_string_equal(at(root, 0, "kind"), "sso");
    assert_string_equal(at(root, 0, "url"), "https://portal.sso.eu-west-1.amazonaws.com");
    assert_string_equal(at(root, 0, "account_id"), "123");
    assert_string_equal(at(root, 0, "role_name"), "Reader");
    assert_string_equal(at(root, 0, "token"), "TOKEN");
    json_decref(root);
}

static const char older_sso[] =
    "[profile old]\nsso_start_url = https://corp/start\nsso_region = eu-west-1\n"
    "sso_account_id = 123\nsso_role_name = Reader\n";

static void older_sso_settings_are_found_by_their_url(void **state)
{
    json_t *root;

    config_is(older_sso);
    write_sso_token(OLDER_HASH, "2099-01-01T00:00:00Z");
    root = resolved_with(&(struct credentials_config){.profile = "old"});
    assert_string_equal(at(root, 0, "kind"), "sso");
    json_decref(root);
}

static void expired_sso_sign_in_tells_to_sign_in(void **state)
{
    config_is(older_sso);
    write_sso_token(OLDER_HASH, "2001-01-01T00:00:00Z");
    refused_with(&(struct credentials_config){.profile = "old"}, -EACCES,
                 "has expired: run aws sso login --profile old");
}

static void missing_sso_sign_in_tells_to_sign_in(void **state)
{
    config_is(older_sso);
    refused_with(&(struct credentials_config){.profile = "old"}, -EACCES,
                 "run aws sso login --profile old");
}

static void incomplete_sso_settings_are_an_error(void **state)
{
    config_is("[profile a]\nsso_session = nowhere\n[profile b]\nsso_start_url = https://x\n");
    refused_with(&(struct credentials_config){.profile = "a"}, -EINVAL, "nowhere");
    refused_with(&(struct credentials_config){.profile = "b"}, -EINVAL, "sso_account_id");
}

// --- containers ---

static void container_sends_its_token_only_to_allowed_hosts(void **state)
{
    static const char *const good[] = {"http://127.0.0.5:80/x", "http://localhost/x",
                                       "http://[::1]/x",        "http://169.254.170.23/v1",
                                       "https://any.example/x", "http://[fd00:ec2::23]/v1"};
    static const char *const bad[] = {"http://any.example/x", "http://10.0.0.1/x",
                                      "http://127.example/x", "http://169.254.170.2.evil/x"};

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", good[i], 1);
        json_decref(resolved());
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", bad[i], 1);
        refused(-EACCES, "plain http");
    }
}

static void token_file_of_a_container_wins_over_its_variable(void **state)
{
    json_t *root;

    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1", 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "variable", 1);
    root = resolved();
    assert_string_equal(at(root, 0, "authorization"), "variable");
    json_decref(root);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write_file("token", "file\n", 0600), 1);
    root = resolved();
    assert_string_equal(at(root, 0, "authorization"), "file");
    json_decref(root);
}

// --- s3fs's password file ---

static void password_file_gives_the_key_of_the_bucket(void **state)
{
    const char *path =
        write_file("passwd", "# mine\nAKALL:SECRET\n\ntrain:AKTRAIN:SECRET:1\n", 0600);

    assert_keys(resolved_with(&(struct credentials_config){.passwd_file = path, .bucket = "train"}),
                "AKTRAIN", "passwd");
    assert_keys(resolved_with(&(struct credentials_config){.passwd_file = path, .bucket = "other"}),
                "AKALL", "passwd");
}

static void password_file_open_to_others_is_refused(void **state)
{
    const char *path = write_file("passwd", "AK:S\n", 0644);
    struct credentials_config c = {.passwd_file = path};

    refused_with(&c, -EACCES, "chmod 600");
    chmod(path, 0660);
    refused_with(&c, -EACCES, "mode 660");
    chmod(path, 0640);
    assert_keys(resolved_with(&c), "AK", "passwd");
}

static void password_file_without_a_fitting_line_is_an_error(void **state)
{
    struct credentials_config c = {.bucket = "train"};

    c.passwd_file = write_file("passwd", "other:AK:S\n", 0600);
    refused_with(&c, -EINVAL, "bucket train");
    c.passwd_file = "/nonexistent/passwd";
    refused_with(&c, -ENOENT, "/nonexistent/passwd");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_home, remove_home)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_sign_request_is_anonymous_whatever_else_there_is),
        TEST(keys_of_the_configuration_win_over_the_environment),
        TEST(environment_wins_over_the_default_profile),
        TEST(session_token_of_the_environment_is_taken),
        TEST(the_expiration_of_the_environment_s_keys_is_taken),
        TEST(half_a_key_pair_in_the_environment_is_an_error),
        TEST(profile_by_option_wins_over_the_environment),
        TEST(aws_profile_names_the_profile),
        TEST(named_profile_that_is_missing_is_an_error),
        TEST(files_can_be_elsewhere),
        TEST(tilde_in_a_files_place_is_the_home_directory),
        TEST(broken_file_is_an_error_with_its_line),
        TEST(credentials_file_wins_over_the_config_file),
        TEST(container_comes_before_the_instance),
        TEST(instance_is_the_last_resort),
        TEST(metadata_service_can_be_elsewhere),
        TEST(without_any_source_the_sentence_tells_what_to_do),
        TEST(variable_that_is_not_text_is_an_error),
        TEST(settings_of_the_profile_come_along),
        TEST(endpoint_in_the_services_section_wins),
        TEST(web_identity_of_the_environment_reads_the_token),
        TEST(web_identity_without_a_role_is_an_error),
        TEST(web_identity_without_its_token_file_is_an_error),
        TEST(sts_is_asked_where_the_environment_says),
        TEST(role_of_a_profile_may_come_by_web_identity),
        TEST(role_is_taken_on_with_the_keys_of_another_profile),
        TEST(roles_may_form_a_chain),
        TEST(profile_may_take_on_a_role_with_its_own_keys),
        TEST(loop_of_source_profiles_is_refused),
        TEST(role_takes_keys_from_a_named_source),
        TEST(role_with_broken_settings_is_refused_with_a_sentence),
        TEST(credential_process_gives_keys),
        TEST(credential_process_that_fails_says_why),
        TEST(credential_process_that_gives_nonsense_is_an_error),
        TEST(sso_session_is_found_by_its_name),
        TEST(older_sso_settings_are_found_by_their_url),
        TEST(expired_sso_sign_in_tells_to_sign_in),
        TEST(missing_sso_sign_in_tells_to_sign_in),
        TEST(incomplete_sso_settings_are_an_error),
        TEST(container_sends_its_token_only_to_allowed_hosts),
        TEST(token_file_of_a_container_wins_over_its_variable),
        TEST(password_file_gives_the_key_of_the_bucket),
        TEST(password_file_open_to_others_is_refused),
        TEST(password_file_without_a_fitting_line_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
