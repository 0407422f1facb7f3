// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3/settings.h"
#include "s3/url.h"

#include <stdlib.h>
#include <string.h>

static struct s3_endpoint built(struct s3_settings s, const char *region)
{
    struct s3_endpoint e;
    char *error = NULL;

    assert_int_equal(s3_endpoint_build(&s, region, &e, &error), 0);
    assert_null(error);
    return e;
}

static void refused(struct s3_settings s, const char *region, const char *word)
{
    struct s3_endpoint e;
    char *error = NULL;

    assert_int_equal(s3_endpoint_build(&s, region, &e, &error), -EINVAL);
    assert_non_null(strstr(error, word));
    free(error);
}

static void amazon_is_asked_in_virtual_host_style(void **state)
{
    struct s3_endpoint e = built((struct s3_settings){.bucket = "train"}, NULL);

    assert_true(e.tls);
    assert_int_equal(e.port, 443);
    assert_string_equal(e.host, "train.s3.us-east-1.amazonaws.com");
    assert_string_equal(e.host_header, "train.s3.us-east-1.amazonaws.com");
    assert_string_equal(e.base_path, "");
    assert_false(e.path_style);
}

static void given_region_wins_over_the_settings(void **state)
{
    struct s3_settings s = {.bucket = "train", .region = "eu-west-1"};

    assert_string_equal(built(s, NULL).host, "train.s3.eu-west-1.amazonaws.com");
    assert_string_equal(built(s, "ap-south-1").host, "train.s3.ap-south-1.amazonaws.com");
}

static void china_has_a_domain_of_its_own(void **state)
{
    struct s3_settings s = {.bucket = "train", .region = "cn-north-1"};

    assert_string_equal(built(s, NULL).host, "train.s3.cn-north-1.amazonaws.com.cn");
}

static void amazons_variants_choose_the_host(void **state)
{
    struct s3_settings s = {.bucket = "train", .dualstack = true};

    assert_string_equal(built(s, NULL).host, "train.s3.dualstack.us-east-1.amazonaws.com");
    s.fips = true;
    assert_string_equal(built(s, NULL).host, "train.s3-fips.dualstack.us-east-1.amazonaws.com");
    s = (struct s3_settings){.bucket = "train", .accelerate = true};
    assert_string_equal(built(s, NULL).host, "train.s3-accelerate.amazonaws.com");
}

static void bucket_with_dots_is_asked_in_path_style(void **state)
{
    struct s3_endpoint e = built((struct s3_settings){.bucket = "a.b.c"}, NULL);

    assert_true(e.path_style);
    assert_string_equal(e.host, "s3.us-east-1.amazonaws.com");
    assert_string_equal(e.base_path, "/a.b.c");
}

static void bucket_with_capitals_is_asked_in_path_style(void **state)
{
    assert_true(built((struct s3_settings){.bucket = "Train"}, NULL).path_style);
}

static void endpoint_url_means_path_style(void **state)
{
    struct s3_settings s = {.bucket = "train", .endpoint_url = "http://127.0.0.1:9000"};
    struct s3_endpoint e = built(s, NULL);

    assert_false(e.tls);
    assert_int_equal(e.port, 9000);
    assert_string_equal(e.host, "127.0.0.1");
    assert_string_equal(e.host_header, "127.0.0.1:9000");
    assert_string_equal(e.base_path, "/train");
}

static void virtual_style_puts_the_bucket_before_the_endpoints_host(void **state)
{
    struct s3_settings s = {.bucket = "train",
                            .endpoint_url = "http://s3.localhost:7480/",
                            .addressing = S3_ADDRESSING_VIRTUAL};
    struct s3_endpoint e = built(s, NULL);

    assert_string_equal(e.host, "train.s3.localhost");
    assert_string_equal(e.host_header, "train.s3.localhost:7480");
    assert_string_equal(e.base_path, "");
}

static void path_of_the_endpoint_url_comes_before_the_bucket(void **state)
{
    struct s3_settings s = {.bucket = "train", .endpoint_url = "https://store.example/s3//"};

    assert_string_equal(built(s, NULL).base_path, "/s3/train");
    s.addressing = S3_ADDRESSING_VIRTUAL;
    assert_string_equal(built(s, NULL).base_path, "/s3");
}

static void port_of_the_scheme_is_left_out_of_the_host_header(void **state)
{
    struct s3_settings s = {.bucket = "train", .endpoint_url = "https://store.example:443"};

    assert_string_equal(built(s, NULL).host_header, "store.example");
}

static void ipv6_address_has_brackets_only_in_the_host_header(void **state)
{
    struct s3_settings s = {.bucket = "train", .endpoint_url = "http://[::1]:9000"};
    struct s3_endpoint e = built(s, NULL);

    assert_string_equal(e.host, "::1");
    assert_string_equal(e.host_header, "[::1]:9000");
}

static void virtual_style_with_an_address_is_refused(void **state)
{
    refused((struct s3_settings){.bucket = "train",
                                 .endpoint_url = "http://127.0.0.1:9000",
                                 .addressing = S3_ADDRESSING_VIRTUAL},
            NULL, "path style");
}

static void region_from_outside_that_is_not_a_name_is_refused(void **state)
{
    refused((struct s3_settings){.bucket = "train"}, "evil.example/", "region");
}

static void broken_endpoint_urls_are_refused(void **state)
{
    static const char *const urls[] = {
        "127.0.0.1:9000",       "ftp://x",           "http://",           "http://a b",
        "http://user@host",     "http://host:0",     "http://host:65536", "http://host:9x",
        "http://[::1",          "http://[::1]x",     "http://[zz]",       "http://host/a b",
        "http://host/?query=1", "http://host/#frag", "http://host:",      "http://ho\nst",
    };

    for (size_t i = 0; i < ARRAY_LEN(urls); i++)
        refused((struct s3_settings){.bucket = "train", .endpoint_url = (char *)urls[i]}, NULL,
                urls[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amazon_is_asked_in_virtual_host_style),
        cmocka_unit_test(given_region_wins_over_the_settings),
        cmocka_unit_test(china_has_a_domain_of_its_own),
        cmocka_unit_test(amazons_variants_choose_the_host),
        cmocka_unit_test(bucket_with_dots_is_asked_in_path_style),
        cmocka_unit_test(bucket_with_capitals_is_asked_in_path_style),
        cmocka_unit_test(endpoint_url_means_path_style),
        cmocka_unit_test(virtual_style_puts_the_bucket_before_the_endpoints_host),
        cmocka_unit_test(path_of_the_endpoint_url_comes_before_the_bucket),
        cmocka_unit_test(port_of_the_scheme_is_left_out_of_the_host_header),
        cmocka_unit_test(ipv6_address_has_brackets_only_in_the_host_header),
        cmocka_unit_test(virtual_style_with_an_address_is_refused),
        cmocka_unit_test(region_from_outside_that_is_not_a_name_is_refused),
        cmocka_unit_test(broken_endpoint_urls_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
