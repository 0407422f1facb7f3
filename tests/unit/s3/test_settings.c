// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "environment.h"
#include "s3/settings.h"

#include <stdlib.h>
#include <string.h>

// --- URLs of buckets ---

static void assert_parsed(const char *url, const char *bucket, const char *prefix)
{
    char *b, *p, *error = NULL;

    assert_int_equal(s3_url_parse(url, &b, &p, &error), 0);
    assert_string_equal(b, bucket);
    assert_string_equal(p, prefix);
    free(b);
    free(p);
}

static void url_of_a_bucket_has_an_empty_prefix(void **state)
{
    assert_parsed("s3://train", "train", "");
    assert_parsed("s3://train/", "train", "");
    assert_parsed("train", "train", "");
}

static void prefix_gets_a_slash_at_its_end(void **state)
{
    assert_parsed("s3://train/a/b", "train", "a/b/");
    assert_parsed("s3://train/a/b/", "train", "a/b/");
    assert_parsed("train/a", "train", "a/");
}

static void prefix_may_hold_any_character(void **state)
{
    assert_parsed("s3://train//a:b c?#%41", "train", "/a:b c?#%41/");
}

static void spelling_of_s3fs_is_understood(void **state)
{
    assert_parsed("train:/a/b", "train", "a/b/");
    assert_parsed("train:/", "train", "");
    assert_parsed("train:", "train", "");
}

static void other_urls_and_names_are_refused_with_a_sentence(void **state)
{
    static const char *const urls[] = {
        "https://host/train", "gs://train", "s3://",       "",        "s3://ab",
        "s3://a..b",          "/data",      "s3://tra in", "train:a", "s3://train:/a"};

    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        char *b, *p, *error = NULL;

        assert_int_equal(s3_url_parse(urls[i], &b, &p, &error), -EINVAL);
        assert_non_null(strstr(error, "s3://BUCKET"));
        free(error);
    }
}

// --- completing ---

static struct s3_settings completed(struct s3_settings s, const char *json)
{
    char *error = NULL;

    s.bucket = xstrdup("train");
    assert_int_equal(s3_settings_complete(&s, json, &error), 0);
    return s;
}

static void options_win_over_environment_and_profile(void **state)
{
    struct s3_settings s = {.region = xstrdup("eu-west-1"),
                            .endpoint_url = xstrdup("http://option")};

    setenv("AWS_REGION", "us-west-2", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://environment", 1);
    s = completed(s, "{\"settings\":{\"region\":\"us-east-2\",\"endpoint_url\":\"http://p\"}}");
    assert_string_equal(s.region, "eu-west-1");
    assert_string_equal(s.endpoint_url, "http://option");
    s3_settings_fini(&s);
}

static void environment_wins_over_the_profile(void **state)
{
    struct s3_settings s = {0};

    setenv("AWS_DEFAULT_REGION", "us-west-2", 1);
    setenv("AWS_ENDPOINT_URL", "http://environment", 1);
    setenv("AWS_CA_BUNDLE", "/etc/ca.pem", 1);
    s = completed(s, "{\"settings\":{\"region\":\"us-east-2\",\"endpoint_url\":\"http://p\","
                     "\"ca_bundle\":\"/p.pem\"}}");
    assert_string_equal(s.region, "us-west-2");
    assert_string_equal(s.endpoint_url, "http://environment");
    assert_string_equal(s.ca_file, "/etc/ca.pem");
    s3_settings_fini(&s);
}

static void endpoint_of_the_service_wins_over_the_general_one(void **state)
{
    struct s3_settings s = {0};

    setenv("AWS_ENDPOINT_URL", "http://general", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://service", 1);
    s = completed(s, NULL);
    assert_string_equal(s.endpoint_url, "http://service");
    s3_settings_fini(&s);
}

static void aws_region_wins_over_aws_default_region(void **state)
{
    struct s3_settings s = {0};

    setenv("AWS_REGION", "us-west-2", 1);
    setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
    s = completed(s, NULL);
    assert_string_equal(s.region, "us-west-2");
    s3_settings_fini(&s);
}

static void profile_fills_what_is_left(void **state)
{
    struct s3_settings s = {0};

    s = completed(s, "{\"settings\":{\"region\":\"us-east-2\",\"endpoint_url\":\"http://p\","
                     "\"ca_bundle\":\"/p.pem\",\"addressing_style\":\"path\"}}");
    assert_string_equal(s.region, "us-east-2");
    assert_string_equal(s.endpoint_url, "http://p");
    assert_string_equal(s.ca_file, "/p.pem");
    assert_int_equal(s.addressing, S3_ADDRESSING_PATH);
    s3_settings_fini(&s);
}

static void configured_endpoints_are_ignored_when_asked(void **state)
{
    struct s3_settings s = {0};

    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://environment", 1);
    s = completed(s, "{\"settings\":{\"endpoint_url\":\"http://p\"}}");
    assert_null(s.endpoint_url);
    s3_settings_fini(&s);
}

static void defaults_are_filled_in(void **state)
{
    struct s3_settings s = {0};

    s = completed(s, NULL);
    assert_int_equal(s.retry_timeout_ns, 60 * NS_PER_S);
    assert_int_equal(s.max_connections, 64);
    assert_null(s.region);
    s3_settings_fini(&s);
}

static void assert_incomplete(struct s3_settings s, const char *word)
{
    char *error = NULL;

    assert_int_equal(s3_settings_complete(&s, NULL, &error), -EINVAL);
    assert_non_null(strstr(error, word));
    free(error);
}

static void contradictions_are_refused_with_a_sentence(void **state)
{
    struct s3_settings train = {.bucket = "train"}, s;

    assert_incomplete((struct s3_settings){0}, "bucket");
    s = train, s.access_key = "AK";
    assert_incomplete(s, "secret key");
    s = train, s.endpoint_url = "localhost:9000";
    assert_incomplete(s, "http://");
    s = train, s.endpoint_url = "http://x", s.accelerate = true;
    assert_incomplete(s, "endpoint URL");
    s = train, s.addressing = S3_ADDRESSING_PATH, s.accelerate = true;
    assert_incomplete(s, "virtual-host");
    s = train, s.region = "not a region";
    assert_incomplete(s, "region");
}

static void copy_shares_nothing_with_the_original(void **state)
{
    struct s3_settings s = {.bucket = xstrdup("train"),
                            .passwd_file = xstrdup("/etc/passwd-s3fs"),
                            .requester_pays = true};
    struct s3_settings *copy = s3_settings_dup(&s);

    s3_settings_fini(&s);
    assert_string_equal(copy->bucket, "train");
    assert_string_equal(copy->passwd_file, "/etc/passwd-s3fs");
    assert_null(copy->region);
    assert_true(copy->requester_pays);
    s3_settings_free(copy);
    s3_settings_free(NULL);
}

#define TEST(f) cmocka_unit_test_setup(f, without_aws_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(url_of_a_bucket_has_an_empty_prefix),
        TEST(prefix_gets_a_slash_at_its_end),
        TEST(prefix_may_hold_any_character),
        TEST(spelling_of_s3fs_is_understood),
        TEST(other_urls_and_names_are_refused_with_a_sentence),
        TEST(options_win_over_environment_and_profile),
        TEST(environment_wins_over_the_profile),
        TEST(endpoint_of_the_service_wins_over_the_general_one),
        TEST(aws_region_wins_over_aws_default_region),
        TEST(profile_fills_what_is_left),
        TEST(configured_endpoints_are_ignored_when_asked),
        TEST(defaults_are_filled_in),
        TEST(contradictions_are_refused_with_a_sentence),
        TEST(copy_shares_nothing_with_the_original),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
