// SPDX-License-Identifier: Apache-2.0
// The examples are those of the Amazon S3 API Reference, "Signature Calculations for the
// Authorization Header" and "Authenticating Requests: Using Query Parameters".
#include "test.h"

#include "s3/sigv4.h"

#include <string.h>

#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define HOST                                                                                       \
    {                                                                                              \
        "host", "examplebucket.s3.amazonaws.com"                                                   \
    }
#define EMPTY_BODY                                                                                 \
    {                                                                                              \
        "x-amz-content-sha256", SIGV4_EMPTY_SHA256                                                 \
    }
#define DATE                                                                                       \
    {                                                                                              \
        "x-amz-date", "20130524T000000Z"                                                           \
    }

static struct sigv4_key example_key(void)
{
    struct sigv4_key k;

    sigv4_key_derive(&k, SECRET, "20130524", "us-east-1", "s3");
    return k;
}

static void assert_signature(const struct sigv4_request *r, const char *expected)
{
    struct sigv4_key k = example_key();
    char hex[65];

    sigv4_signature(&k, r, hex);
    assert_string_equal(hex, expected);
}

static void get_of_a_range_matches_the_published_example(void **state)
{
    const struct sigv4_header headers[] = {HOST, {"range", "bytes=0-9"}, EMPTY_BODY, DATE};
    const struct sigv4_request r = {
        "GET", "/test.txt", "", headers, 4, SIGV4_EMPTY_SHA256, "20130524T000000Z"};

    assert_signature(&r, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

static void put_matches_the_published_example(void **state)
{
    const char *hash = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    const struct sigv4_header headers[] = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                           HOST,
                                           {"x-amz-content-sha256", hash},
                                           DATE,
                                           {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    const struct sigv4_request r = {"PUT", "/test%24file.text", "", headers, 5,
                                    hash,  "20130524T000000Z"};

    assert_signature(&r, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

static void get_of_lifecycle_matches_the_published_example(void **state)
{
    const struct sigv4_header headers[] = {HOST, EMPTY_BODY, DATE};
    const struct sigv4_request r = {
        "GET", "/", "lifecycle=", headers, 3, SIGV4_EMPTY_SHA256, "20130524T000000Z"};

    assert_signature(&r, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

static void list_matches_the_published_example(void **state)
{
    const struct sigv4_header headers[] = {HOST, EMPTY_BODY, DATE};
    const struct sigv4_request r = {
        "GET", "/", "max-keys=2&prefix=J", headers, 3, SIGV4_EMPTY_SHA256, "20130524T000000Z"};

    assert_signature(&r, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void presigned_get_matches_the_published_example(void **state)
{
    const struct sigv4_header headers[] = {HOST};
    struct buf query = {0};
    struct sigv4_request r = {"GET",          "/test.txt",       NULL, headers, 1,
                              SIGV4_UNSIGNED, "20130524T000000Z"};

    assert_int_equal(
        sigv4_canonical_query("X-Amz-Algorithm=AWS4-HMAC-SHA256"
                              "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
                              "aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400"
                              "&X-Amz-SignedHeaders=host",
                              &query),
        0);
    r.query = buf_str(&query);
    assert_signature(&r, "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
    buf_free(&query);
}

static void authorization_names_key_scope_and_signed_headers(void **state)
{
    const struct sigv4_header headers[] = {HOST, {"range", "bytes=0-9"}, EMPTY_BODY, DATE};
    const struct sigv4_request r = {
        "GET", "/test.txt", "", headers, 4, SIGV4_EMPTY_SHA256, "20130524T000000Z"};
    struct sigv4_key k = example_key();
    struct buf out = {0};

    sigv4_authorization(&k, "AKIAIOSFODNN7EXAMPLE", &r, &out);
    assert_string_equal(
        buf_str(&out),
        "AWS4-HMAC-SHA256 "
        "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    buf_free(&out);
}

static void white_space_in_a_header_counts_once(void **state)
{
    const struct sigv4_header spaced[] = {HOST, {"x-amz-meta-a", "  two \t words  "}};
    const struct sigv4_header tidy[] = {HOST, {"x-amz-meta-a", "two words"}};
    struct sigv4_request r = {"GET", "/", "", spaced, 2, SIGV4_UNSIGNED, "20130524T000000Z"};
    struct sigv4_key k = example_key();
    char a[65], b[65];

    sigv4_signature(&k, &r, a);
    r.headers = tidy;
    sigv4_signature(&k, &r, b);
    assert_string_equal(a, b);
}

static void assert_canonical(const char *query, const char *expected)
{
    struct buf out = {0};

    assert_int_equal(sigv4_canonical_query(query, &out), 0);
    assert_string_equal(buf_str(&out), expected);
    buf_free(&out);
}

static void query_is_sorted_by_name_and_encoded_anew(void **state)
{
    assert_canonical("prefix=a/b&list-type=2&delimiter=%2f",
                     "delimiter=%2F&list-type=2&prefix=a%2Fb");
}

static void query_sorts_a_name_before_its_longer_sister(void **state)
{
    // '-' sorts before '=', so comparing whole pairs would be wrong
    assert_canonical("a-b=1&a=2", "a=2&a-b=1");
}

static void query_sorts_equal_names_by_value(void **state)
{
    assert_canonical("a=2&a=1", "a=1&a=2");
}

static void query_parameter_without_value_gets_an_empty_one(void **state)
{
    assert_canonical("uploads&&x", "uploads=&x=");
}

static void query_keeps_plus_as_a_plus(void **state)
{
    assert_canonical("k=a+b", "k=a%2Bb");
}

static void query_with_a_broken_escape_is_refused(void **state)
{
    struct buf out = {0};

    assert_int_equal(sigv4_canonical_query("a=%2", &out), -EINVAL);
    assert_int_equal(sigv4_canonical_query("a=1&b=%zz", &out), -EINVAL);
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get_of_a_range_matches_the_published_example),
        cmocka_unit_test(put_matches_the_published_example),
        cmocka_unit_test(get_of_lifecycle_matches_the_published_example),
        cmocka_unit_test(list_matches_the_published_example),
        cmocka_unit_test(presigned_get_matches_the_published_example),
        cmocka_unit_test(authorization_names_key_scope_and_signed_headers),
        cmocka_unit_test(white_space_in_a_header_counts_once),
        cmocka_unit_test(query_is_sorted_by_name_and_encoded_anew),
        cmocka_unit_test(query_sorts_a_name_before_its_longer_sister),
        cmocka_unit_test(query_sorts_equal_names_by_value),
        cmocka_unit_test(query_parameter_without_value_gets_an_empty_one),
        cmocka_unit_test(query_keeps_plus_as_a_plus),
        cmocka_unit_test(query_with_a_broken_escape_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
