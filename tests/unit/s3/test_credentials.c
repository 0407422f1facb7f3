// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3/credentials_keys.h"
#include "s3/refresh.h"
#include "s3/sts_answer.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

// --- keys ---

static void keys_that_a_header_cannot_carry_are_refused(void **state)
{
    static const struct {
        const char *access, *secret, *token;
    } bad[] = {{"", "S", NULL},    {"A", "", NULL},    {NULL, "S", NULL},        {"A", NULL, NULL},
               {"A B", "S", NULL}, {"A/B", "S", NULL}, {"A", "S\r\nX: y", NULL}, {"A", "S", "t\n"}};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char *error = NULL;

        assert_null(
            credentials_make("profile x", bad[i].access, bad[i].secret, bad[i].token, 0, &error));
        assert_non_null(strstr(error, "profile x"));
        free(error);
    }
}

static void empty_session_token_is_none(void **state)
{
    char *error = NULL;
    struct credentials *c = credentials_make("x", "A", "S", "", 0, &error);

    assert_null(c->session_token);
    credentials_unref(c);
}

static void last_reference_frees_the_keys(void **state)
{
    char *error = NULL;
    struct credentials *c = credentials_make("x", "A", "S", "T", 5, &error);

    assert_ptr_equal(credentials_ref(c), c);
    credentials_unref(c);
    assert_string_equal(c->secret_key, "S");
    credentials_unref(c);
    credentials_unref(NULL);
}

// --- documents ---

static struct credentials *read_document(enum credentials_document kind, const char *text)
{
    char *error = NULL;
    struct credentials *c = credentials_from_document(kind, "source", text, strlen(text), &error);

    assert_null(error);
    assert_non_null(c);
    return c;
}

static void assert_unreadable(enum credentials_document kind, const char *text, const char *word)
{
    char *error = NULL;

    assert_null(credentials_from_document(kind, "the source", text, strlen(text), &error));
    assert_non_null(strstr(error, "the source"));
    assert_non_null(strstr(error, word));
    free(error);
}

static void document_of_a_process_is_read(void **state)
{
    struct credentials *c = read_document(
        CREDENTIALS_PROCESS, "{\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\","
                             "\"SessionToken\": \"T\", \"Expiration\": \"2026-11-29T18:29:03Z\"}");

    assert_string_equal(c->access_key, "A");
    assert_string_equal(c->secret_key, "S");
    assert_string_equal(c->session_token, "T");
    assert_int_equal(c->expires_s, 1795976943);
    credentials_unref(c);
}

static void expiration_may_have_an_offset_and_fractions(void **state)
{
    struct credentials *c = read_document(
        CREDENTIALS_PROCESS, "{\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\","
                             "\"Expiration\": \"2026-11-29T20:29:03.5+02:00\"}");

    assert_int_equal(c->expires_s, 1795976943);
    credentials_unref(c);
}

static void keys_without_expiration_never_expire(void **state)
{
    struct credentials *c = read_document(
        CREDENTIALS_PROCESS, "{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\"}");

    assert_int_equal(c->expires_s, 0);
    assert_null(c->session_token);
    credentials_unref(c);
}

static void document_of_a_metadata_service_is_read(void **state)
{
    struct credentials *c = read_document(
        CREDENTIALS_METADATA, "{\"Code\":\"Success\",\"AccessKeyId\":\"A\",\"SecretAccessKey\":"
                              "\"S\",\"Token\":\"T\",\"Expiration\":\"2026-11-29T18:29:03Z\"}");

    assert_string_equal(c->session_token, "T");
    assert_int_equal(c->expires_s, 1795976943);
    credentials_unref(c);
}

static void document_of_sso_counts_in_milliseconds(void **state)
{
    struct credentials *c = read_document(
        CREDENTIALS_SSO, "{\"roleCredentials\":{\"accessKeyId\":\"A\",\"secretAccessKey\":\"S\","
                         "\"sessionToken\":\"T\",\"expiration\":1795976943000}}");

    assert_string_equal(c->access_key, "A");
    assert_int_equal(c->expires_s, 1795976943);
    credentials_unref(c);
}

static void unusable_documents_are_refused_with_a_sentence(void **state)
{
    assert_unreadable(CREDENTIALS_PROCESS, "", "JSON");
    assert_unreadable(CREDENTIALS_PROCESS, "[1]", "JSON");
    assert_unreadable(CREDENTIALS_PROCESS, "{\"Version\":2}", "Version");
    assert_unreadable(CREDENTIALS_PROCESS, "{\"Version\":1}", "access key");
    assert_unreadable(CREDENTIALS_PROCESS, "{\"Version\":1,\"AccessKeyId\":7}", "access key");
    assert_unreadable(CREDENTIALS_PROCESS, "{\"Version\":1,\"Expiration\":\"soon\"}", "soon");
    assert_unreadable(CREDENTIALS_METADATA, "{\"Code\":\"Failed\",\"Message\":\"no role\"}",
                      "Failed: no role");
    assert_unreadable(CREDENTIALS_SSO, "{}", "roleCredentials");
}

// --- STS's answers ---

static void keys_of_sts_are_read(void **state)
{
    const char *xml =
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
        "<AssumeRoleResult><AssumedRoleUser><Arn>a</Arn></AssumedRoleUser><Credentials>"
        "<AccessKeyId>A</AccessKeyId><SecretAccessKey>S&amp;S</SecretAccessKey>"
        "<SessionToken>T</SessionToken><Expiration>2026-11-29T18:29:03Z</Expiration>"
        "</Credentials></AssumeRoleResult></AssumeRoleResponse>";
    struct sts_answer a;

    assert_int_equal(sts_answer_parse(&a, xml, strlen(xml)), 0);
    assert_string_equal(buf_str(&a.fields[STS_ACCESS_KEY]), "A");
    assert_string_equal(buf_str(&a.fields[STS_SECRET_KEY]), "S&S");
    assert_string_equal(buf_str(&a.fields[STS_TOKEN]), "T");
    assert_string_equal(buf_str(&a.fields[STS_EXPIRATION]), "2026-11-29T18:29:03Z");
    assert_string_equal(buf_str(&a.fields[STS_CODE]), "");
    sts_answer_fini(&a);
}

static void error_of_sts_is_read(void **state)
{
    const char *xml = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
                      "<Message>not you</Message></Error></ErrorResponse>";
    struct sts_answer a;

    assert_int_equal(sts_answer_parse(&a, xml, strlen(xml)), 0);
    assert_string_equal(buf_str(&a.fields[STS_CODE]), "AccessDenied");
    assert_string_equal(buf_str(&a.fields[STS_MESSAGE]), "not you");
    sts_answer_fini(&a);
}

static void answers_that_are_broken_or_have_a_dtd_are_refused(void **state)
{
    static const char *const bad[] = {"", "text", "<a>",
                                      "<!DOCTYPE a [<!ENTITY x \"y\">]><a><Code>&x;</Code></a>"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct sts_answer a;

        assert_int_equal(sts_answer_parse(&a, bad[i], strlen(bad[i])), -EBADMSG);
        sts_answer_fini(&a);
    }
}

// --- times of refreshing ---

static void keys_of_an_hour_are_used_to_the_last_minute(void **state)
{
    assert_int_equal(refresh_usable_until_s(1000, 1000 + 3600), 1000 + 3540);
}

static void keys_of_20_seconds_are_used_for_16(void **state)
{
    assert_int_equal(refresh_usable_until_s(1000, 1020), 1016);
}

static void refresh_begins_while_the_old_keys_are_handed_out(void **state)
{
    static const int64_t lives[] = {5, 20, 60, 300, 900, 3600, 43200};

    for (size_t i = 0; i < ARRAY_LEN(lives); i++) {
        int64_t usable = refresh_usable_until_s(0, lives[i]);

        // even the latest, though second 0 may be nearly over, leaves time for the fetch
        assert_true(refresh_delay_ns(0, lives[i], 0.999) < (uint64_t)(usable - 1) * NS_PER_S);
        assert_true(refresh_delay_ns(0, lives[i], 0) > 0);
    }
}

static void refresh_is_at_most_five_minutes_ahead(void **state)
{
    assert_true(refresh_delay_ns(0, 43200, 0) >= (43200 - 301) * NS_PER_S);
    assert_true(refresh_delay_ns(0, 43200, 0.999) <= (43200 - 225) * NS_PER_S);
}

static void pauses_after_failures_grow_to_a_minute(void **state)
{
    assert_int_equal(refresh_retry_ns(1, 0), 250 * NS_PER_MS);
    assert_true(refresh_retry_ns(1, 0.999) < 500 * NS_PER_MS);
    assert_true(refresh_retry_ns(4, 0) > refresh_retry_ns(3, 0));
    assert_int_equal(refresh_retry_ns(50, 0), 30 * NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_a_header_cannot_carry_are_refused),
        cmocka_unit_test(empty_session_token_is_none),
        cmocka_unit_test(last_reference_frees_the_keys),
        cmocka_unit_test(document_of_a_process_is_read),
        cmocka_unit_test(expiration_may_have_an_offset_and_fractions),
        cmocka_unit_test(keys_without_expiration_never_expire),
        cmocka_unit_test(document_of_a_metadata_service_is_read),
        cmocka_unit_test(document_of_sso_counts_in_milliseconds),
        cmocka_unit_test(unusable_documents_are_refused_with_a_sentence),
        cmocka_unit_test(keys_of_sts_are_read),
        cmocka_unit_test(error_of_sts_is_read),
        cmocka_unit_test(answers_that_are_broken_or_have_a_dtd_are_refused),
        cmocka_unit_test(keys_of_an_hour_are_used_to_the_last_minute),
        cmocka_unit_test(keys_of_20_seconds_are_used_for_16),
        cmocka_unit_test(refresh_begins_while_the_old_keys_are_handed_out),
        cmocka_unit_test(refresh_is_at_most_five_minutes_ahead),
        cmocka_unit_test(pauses_after_failures_grow_to_a_minute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
