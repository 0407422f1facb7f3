// SPDX-License-Identifier: Apache-2.0
// The sources of credentials that are asked over the network, against a server that follows a
// script: what each is asked, and what becomes of its answers.
#include "test.h"

#include "unit/net/server.h"
#include "unit/s3/waiting.h"

#include "base/clock.h"
#include "base/text.h"
#include "s3/credentials.h"
#include "s3/sigv4.h"

#include <openssl/evp.h>
#include <stdio.h>

static struct server server;
static struct loop *loop;
static struct credentials_provider *provider;
static uint64_t timeout_ns;

// --- the local half ---

static char steps[1200]; // %u stands for the server's port

static void resolve(struct credentials_resolver *r, struct loop *l,
                    void (*done)(void *arg, const char *json, const char *error_text), void *arg);

static struct credentials_resolver resolver = {.resolve = resolve};

static struct {
    struct loop_msg msg;
    void (*done)(void *arg, const char *json, const char *error_text);
    void *arg;
} resolution;

static void answer(struct loop_msg *msg)
{
    char json[1400], *port = strstr(steps, "PORT");

    if (port)
        snprintf(json, sizeof(json), "{\"steps\":[%.*s%u%s]}", (int)(port - steps), steps,
                 server.port, port + 4);
    else
        snprintf(json, sizeof(json), "{\"steps\":[%s]}", steps);
    resolution.done(resolution.arg, json, NULL);
}

static void resolve(struct credentials_resolver *r, struct loop *l,
                    void (*done)(void *arg, const char *json, const char *error_text), void *arg)
{
    resolution.done = done;
    resolution.arg = arg;
    loop_post(l, &resolution.msg, answer);
}

// --- frame ---

static int set_up(void **state)
{
    timeout_ns = 0;
    return loop_start(&loop, "provider");
}

static void free_on_loop(void *arg)
{
    credentials_provider_free(provider);
}

static int tear_down(void **state)
{
    if (provider)
        loop_call(loop, free_on_loop, NULL);
    provider = NULL;
    loop_stop(loop);
    return 0;
}

static struct waiting outcome(const char *json_steps, void (*script)(struct server *s))
{
    const struct credentials_config c = {.timeout_ns = timeout_ns};
    struct waiting w;

    snprintf(steps, sizeof(steps), "%s", json_steps);
    if (script)
        server_start(&server, script, NULL);
    assert_int_equal(credentials_provider_new(&provider, loop, &c, &resolver), 0);
    waiting_start(&w, loop, provider);
    if (!waiting_end(&w))
        fail_msg("nothing came");
    if (script)
        server_stop(&server);
    return w;
}

static void assert_keys(const char *json_steps, void (*script)(struct server *s),
                        const char *access, const char *token)
{
    struct waiting w = outcome(json_steps, script);

    if (w.error)
        fail_msg("%s", w.text);
    assert_string_equal(w.got->access_key, access);
    assert_string_equal(w.got->session_token, token);
    assert_int_equal(w.got->expires_s, 4102444800);
    waiting_free(&w);
}

static void assert_error(const char *json_steps, void (*script)(struct server *s), int error,
                         const char *word)
{
    struct waiting w = outcome(json_steps, script);

    assert_null(w.got);
    assert_int_equal(w.error, error);
    if (!strstr(w.text, word))
        fail_msg("\"%s\" does not speak of %s", w.text, word);
    waiting_free(&w);
}

// --- what the server says and looks for ---

static void say(struct peer *p, const char *status, const char *body)
{
    char head[160];

    snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", status,
             strlen(body));
    peer_send(p, head);
    peer_send(p, body);
}

static void expect_head(struct peer *p, const char *part)
{
    char what[160];

    snprintf(what, sizeof(what), "a request without %s", part);
    server_expect(p->server, strstr(buf_str(&p->head), part) != NULL, what);
}

static void expect_body(struct peer *p, const char *part)
{
    char what[160];

    snprintf(what, sizeof(what), "a body without %s", part);
    server_expect(p->server, strstr(buf_str(&p->body), part) != NULL, what);
}

#define STS_KEYS(access)                                                                           \
    "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>" access "</AccessKeyId>"     \
    "<SecretAccessKey>S</SecretAccessKey><SessionToken>T</SessionToken>"                           \
    "<Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>"               \
    "</AssumeRoleResponse>"
#define METADATA_KEYS                                                                              \
    "{\"Code\":\"Success\",\"AccessKeyId\":\"AKM\",\"SecretAccessKey\":\"S\",\"Token\":\"T\","     \
    "\"Expiration\":\"2100-01-01T00:00:00Z\"}"

// --- web identity ---

#define WEB_IDENTITY                                                                               \
    "{\"kind\":\"web_identity\",\"source\":\"role r\",\"sts_url\":\"http://127.0.0.1:PORT/\","     \
    "\"sts_region\":\"us-east-1\",\"role_arn\":\"arn:aws:iam::1:role/r\","                         \
    "\"session_name\":\"me\",\"token\":\"a.b+c\"}"

static void sts_for_web_identity(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    expect_head(p, "POST / HTTP/1.1\r\n");
    expect_head(p, "Content-Type: application/x-www-form-urlencoded\r\n");
    expect_body(p, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&"
                   "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=me&"
                   "WebIdentityToken=a.b%2Bc");
    server_expect(s, !strstr(buf_str(&p->head), "Authorization"), "a signature");
    say(p, "200 OK", STS_KEYS("AKWEB"));
    peer_close(p);
}

static void web_identity_is_exchanged_at_sts_unsigned(void **state)
{
    assert_keys(WEB_IDENTITY, sts_for_web_identity, "AKWEB", "T");
}

static void sts_refuses(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    say(p, "400 Bad Request",
        "<ErrorResponse><Error><Code>ExpiredTokenException</Code>"
        "<Message>the token is old</Message></Error></ErrorResponse>");
    peer_close(p);
}

static void refusal_of_sts_is_told_in_its_words(void **state)
{
    assert_error(WEB_IDENTITY, sts_refuses, -EACCES,
                 "role r: STS answered ExpiredTokenException: the token is old");
}

static void sts_is_busy_then_well(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    say(p, "503 Service Unavailable", "busy");
    peer_read_request(p);
    say(p, "200 OK", STS_KEYS("AKSECOND"));
    peer_close(p);
}

static void servers_fault_is_tried_again(void **state)
{
    assert_keys(WEB_IDENTITY, sts_is_busy_then_well, "AKSECOND", "T");
}

static void sts_wants_a_second(struct server *s)
{
    struct peer *p = server_accept(s);
    uint64_t told_ns;

    peer_read_request(p);
    told_ns = clock_monotonic_ns(); // whoever hears it may do so before say() returns
    say(p, "503 Service Unavailable\r\nRetry-After: 1", "busy");
    peer_read_request(p);
    assert_true(clock_monotonic_ns() - told_ns >= NS_PER_S);
    say(p, "200 OK", STS_KEYS("AKSECOND"));
    peer_close(p);
}

static void server_is_left_alone_for_as_long_as_it_asks(void **state)
{
    assert_keys(WEB_IDENTITY, sts_wants_a_second, "AKSECOND", "T");
}

static void sts_stays_broken(struct server *s)
{
    struct peer *p = server_accept(s);

    for (int i = 0; i < 3; i++) {
        peer_read_request(p);
        say(p, "500 Oh", "broken\x01 and more");
    }
    peer_close(p);
}

static void server_that_stays_at_fault_is_a_passing_error(void **state)
{
    assert_error(WEB_IDENTITY, sts_stays_broken, -ETIMEDOUT,
                 "role r answered with status 500: broken");
}

static void sts_babbles(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    say(p, "200 OK", "<html>a proxy's page</html>");
    peer_close(p);
}

static void something_that_is_not_sts_is_an_error(void **state)
{
    assert_error(WEB_IDENTITY, sts_babbles, -EACCES, "role r");
}

static void sts_is_silent(struct server *s)
{
    for (int i = 0; i < 3; i++) {
        struct peer *p = server_accept(s);

        peer_read_request(p);
        peer_expect_end(p);
        peer_close(p);
    }
}

static void silence_ends_with_a_time_out(void **state)
{
    timeout_ns = 100 * NS_PER_MS;
    assert_error(WEB_IDENTITY, sts_is_silent, -ETIMEDOUT, "127.0.0.1");
}

static void sts_pours(struct server *s)
{
    static char body[(1 << 20) + 20000];
    struct peer *p = server_accept(s);

    peer_read_request(p);
    memset(body, 'x', sizeof(body) - 1);
    say(p, "200 OK", body);
    peer_close(p);
}

static void answer_without_end_is_cut_off(void **state)
{
    assert_error(WEB_IDENTITY, sts_pours, -EACCES, "role r");
}

// --- roles by other keys ---

#define BASE_KEYS                                                                                  \
    "{\"kind\":\"keys\",\"source\":\"base\",\"access_key\":\"AKBASE\",\"secret_key\":\"SECRET\","  \
    "\"session_token\":\"BT\"}"
#define ASSUME_ROLE                                                                                \
    "{\"kind\":\"assume_role\",\"source\":\"role r\",\"sts_url\":\"http://127.0.0.1:PORT\","       \
    "\"sts_region\":\"eu-west-1\",\"role_arn\":\"r\",\"session_name\":\"me\","                     \
    "\"external_id\":\"x\",\"duration_s\":900}"

// The signature, computed anew from what arrived.
static void expect_signed(struct peer *p)
{
    char hash_hex[65], host[40], date[17] = "", day[9] = "";
    const char *sent_date = strstr(buf_str(&p->head), "X-Amz-Date: ");
    struct buf expected = {0};
    struct sigv4_key key;
    uint8_t hash[32];

    EVP_Digest(p->body.data, p->body.len, hash, NULL, EVP_sha256(), NULL);
    text_hex(hash, sizeof(hash), hash_hex);
    snprintf(host, sizeof(host), "127.0.0.1:%u", server.port);
    if (sent_date)
        memcpy(date, sent_date + 12, 16);
    memcpy(day, date, 8);
    sigv4_key_derive(&key, "SECRET", day, "eu-west-1", "sts");
    sigv4_authorization(
        &key, "AKBASE",
        &(struct sigv4_request){
            .method = "POST",
            .path = "/",
            .query = "",
            .headers =
                (struct sigv4_header[]){{"content-type", "application/x-www-form-urlencoded"},
                                        {"host", host},
                                        {"x-amz-date", date},
                                        {"x-amz-security-token", "BT"}},
            .n_headers = 4,
            .payload_hash = hash_hex,
            .amz_date = date},
        &expected);
    expect_head(p, "X-Amz-Security-Token: BT\r\n");
    expect_head(p, buf_str(&expected));
    buf_free(&expected);
}

static void sts_for_a_role(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    expect_body(p, "Action=AssumeRole&Version=2011-06-15&RoleArn=r&RoleSessionName=me&"
                   "ExternalId=x&DurationSeconds=900");
    expect_signed(p);
    say(p, "200 OK", STS_KEYS("AKROLE"));
    peer_close(p);
}

static void role_is_taken_on_with_a_signed_request(void **state)
{
    assert_keys(BASE_KEYS "," ASSUME_ROLE, sts_for_a_role, "AKROLE", "T");
}

// --- instance metadata ---

#define IMDS "{\"kind\":\"imds\",\"source\":\"the instance\",\"url\":\"http://127.0.0.1:PORT\"}"

static void imds_asks_for_token(struct peer *p)
{
    peer_read_request(p);
    expect_head(p, "PUT /latest/api/token HTTP/1.1\r\n");
    expect_head(p, "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n");
    expect_head(p, "Content-Length: 0\r\n");
    say(p, "200 OK", "TOKEN==");
}

static void imds(struct server *s)
{
    struct peer *p = server_accept(s);

    imds_asks_for_token(p);
    peer_read_request(p);
    expect_head(p, "GET /latest/meta-data/iam/security-credentials/ HTTP/1.1\r\n");
    expect_head(p, "X-aws-ec2-metadata-token: TOKEN==\r\n");
    say(p, "200 OK", "my role\n");
    peer_read_request(p);
    expect_head(p, "GET /latest/meta-data/iam/security-credentials/my%20role HTTP/1.1\r\n");
    expect_head(p, "X-aws-ec2-metadata-token: TOKEN==\r\n");
    server_expect(s, !strstr(buf_str(&p->head), "Content-Length"), "a length of a GET");
    say(p, "200 OK", METADATA_KEYS);
    peer_close(p);
}

static void instance_metadata_is_asked_for_token_role_and_keys(void **state)
{
    assert_keys(IMDS, imds, "AKM", "T");
}

static void imds_without_role(struct server *s)
{
    struct peer *p = server_accept(s);

    imds_asks_for_token(p);
    peer_read_request(p);
    say(p, "404 Not Found", "");
    peer_close(p);
}

static void instance_without_a_role_is_told_so(void **state)
{
    assert_error(IMDS, imds_without_role, -ENOENT, "no IAM role");
}

static void imds_refuses_the_token(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    say(p, "403 Forbidden", "disabled");
    peer_close(p);
}

static void disabled_metadata_service_is_told_so(void **state)
{
    assert_error(IMDS, imds_refuses_the_token, -EACCES, "status 403: disabled");
}

static void last_resort_that_does_not_answer_means_no_source(void **state)
{
    assert_error("{\"kind\":\"imds\",\"source\":\"the instance\",\"url\":\"http://127.0.0.1:1\","
                 "\"last_resort\":true}",
                 NULL, -ENOENT, "no credentials were found");
}

static void last_resort_that_refuses_means_no_source(void **state)
{
    assert_error("{\"kind\":\"imds\",\"source\":\"the instance\",\"last_resort\":true,"
                 "\"url\":\"http://127.0.0.1:PORT\"}",
                 imds_refuses_the_token, -ENOENT, "the instance answered with status 403");
}

static void named_source_that_does_not_answer_may_come_back(void **state)
{
    assert_error("{\"kind\":\"imds\",\"source\":\"the instance\",\"url\":\"http://127.0.0.1:1\"}",
                 NULL, -ETIMEDOUT, "the instance: Failed to connect to 127.0.0.1");
}

// --- containers ---

#define CONTAINER                                                                                  \
    "{\"kind\":\"container\",\"source\":\"the container\","                                        \
    "\"url\":\"http://127.0.0.1:PORT/creds?id=1\",\"authorization\":\"Basic abc\"}"

static void container(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    expect_head(p, "GET /creds?id=1 HTTP/1.1\r\n");
    expect_head(p, "Authorization: Basic abc\r\n");
    say(p, "200 OK", METADATA_KEYS);
    peer_close(p);
}

static void container_is_asked_with_its_authorization(void **state)
{
    assert_keys(CONTAINER, container, "AKM", "T");
}

static void container_gives_expired_role(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    say(p, "200 OK", "{\"Code\":\"AssumeRoleUnauthorizedAccess\",\"Message\":\"not trusted\"}");
    peer_close(p);
}

static void refusal_inside_an_answer_is_told(void **state)
{
    assert_error(CONTAINER, container_gives_expired_role, -EACCES,
                 "AssumeRoleUnauthorizedAccess: not trusted");
}

static void token_with_a_line_break_is_never_sent(void **state)
{
    assert_error("{\"kind\":\"container\",\"source\":\"the container\","
                 "\"url\":\"http://127.0.0.1:1/\",\"authorization\":\"a\\r\\nX: y\"}",
                 NULL, -EINVAL, "line break");
}

static void proxy_of_the_environment_is_not_used_for_metadata(void **state)
{
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    assert_keys(CONTAINER, container, "AKM", "T");
    unsetenv("http_proxy");
}

// --- SSO ---

#define SSO                                                                                        \
    "{\"kind\":\"sso\",\"source\":\"the SSO sign-in of profile x\","                               \
    "\"url\":\"http://127.0.0.1:PORT\",\"account_id\":\"123\",\"role_name\":\"Read Only\","        \
    "\"token\":\"SSOTOKEN\",\"profile\":\"x\"}"

static void sso(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    expect_head(p, "GET /federation/credentials?role_name=Read%20Only&account_id=123 HTTP/1.1\r\n");
    expect_head(p, "x-amz-sso_bearer_token: SSOTOKEN\r\n");
    say(p, "200 OK",
        "{\"roleCredentials\":{\"accessKeyId\":\"AKSSO\",\"secretAccessKey\":\"S\","
        "\"sessionToken\":\"T\",\"expiration\":4102444800000}}");
    peer_close(p);
}

static void sso_sign_in_is_exchanged_for_keys(void **state)
{
    assert_keys(SSO, sso, "AKSSO", "T");
}

static void sso_refuses(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    say(p, "401 Unauthorized", "{}");
    peer_close(p);
}

static void refused_sso_sign_in_tells_to_sign_in(void **state)
{
    assert_error(SSO, sso_refuses, -EACCES, "run aws sso login --profile x");
}

// --- the end ---

static sem_t request_came;

static void sts_waits_for_the_end(struct server *s)
{
    struct peer *p = server_accept(s);

    peer_read_request(p);
    sem_post(&request_came);
    peer_expect_end(p);
    peer_close(p);
}

static void provider_may_be_freed_while_it_waits_for_an_answer(void **state)
{
    struct waiting w;

    sem_init(&request_came, 0, 0);
    snprintf(steps, sizeof(steps), "%s", WEB_IDENTITY);
    server_start(&server, sts_waits_for_the_end, NULL);
    assert_int_equal(
        credentials_provider_new(&provider, loop, &(struct credentials_config){0}, &resolver), 0);
    waiting_start(&w, loop, provider);
    sem_wait(&request_came);
    loop_call(loop, free_on_loop, NULL);
    provider = NULL;
    assert_true(waiting_end(&w));
    assert_int_equal(w.error, -ECANCELED);
    waiting_free(&w);
    server_stop(&server);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(web_identity_is_exchanged_at_sts_unsigned),
        TEST(refusal_of_sts_is_told_in_its_words),
        TEST(servers_fault_is_tried_again),
        TEST(server_is_left_alone_for_as_long_as_it_asks),
        TEST(server_that_stays_at_fault_is_a_passing_error),
        TEST(something_that_is_not_sts_is_an_error),
        TEST(silence_ends_with_a_time_out),
        TEST(answer_without_end_is_cut_off),
        TEST(role_is_taken_on_with_a_signed_request),
        TEST(instance_metadata_is_asked_for_token_role_and_keys),
        TEST(instance_without_a_role_is_told_so),
        TEST(disabled_metadata_service_is_told_so),
        TEST(last_resort_that_does_not_answer_means_no_source),
        TEST(last_resort_that_refuses_means_no_source),
        TEST(named_source_that_does_not_answer_may_come_back),
        TEST(container_is_asked_with_its_authorization),
        TEST(refusal_inside_an_answer_is_told),
        TEST(token_with_a_line_break_is_never_sent),
        TEST(proxy_of_the_environment_is_not_used_for_metadata),
        TEST(sso_sign_in_is_exchanged_for_keys),
        TEST(refused_sso_sign_in_tells_to_sign_in),
        TEST(provider_may_be_freed_while_it_waits_for_an_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
