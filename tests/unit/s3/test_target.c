// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3/bucket.h"

#include <stdlib.h>
#include <string.h>

static struct s3_target *target(bool tls, const char *base_path)
{
    struct s3_target *t = xcalloc(1, sizeof(*t));

    atomic_init(&t->refs, 1);
    t->endpoint.tls = tls;
    strcpy(t->endpoint.host, "first");
    strcpy(t->endpoint.base_path, base_path);
    strcpy(t->region, "eu-west-1");
    return t;
}

static void leads_to(struct s3_target *from, struct s3_target *t, const char *host_header,
                     const char *base_path)
{
    assert_non_null(t);
    assert_string_equal(t->endpoint.host_header, host_header);
    assert_string_equal(t->endpoint.base_path, base_path);
    assert_string_equal(t->region, "eu-west-1");
    s3_target_unref(t);
    s3_target_unref(from);
}

static void leads_nowhere(struct s3_target *from, struct s3_target *t)
{
    assert_null(t);
    s3_target_unref(from);
}

static void a_location_in_path_style_keeps_the_bucket(void **state)
{
    struct s3_target *f = target(false, "/bucket");

    leads_to(f, s3_target_from_location(f, "http://other:8080/bucket/a%20b?x=1", "/a%20b"),
             "other:8080", "/bucket");
}

static void a_location_in_virtual_host_style_has_no_base_path(void **state)
{
    struct s3_target *f = target(true, "/bucket");

    leads_to(f, s3_target_from_location(f, "https://bucket.s3.eu.example/a/b", "/a/b"),
             "bucket.s3.eu.example", "");
}

static void a_location_of_a_listing_keeps_the_base_path(void **state)
{
    struct s3_target *f = target(false, "/bucket");

    leads_to(f, s3_target_from_location(f, "http://other/bucket/?list-type=2", ""), "other",
             "/bucket");
}

static void a_redirect_does_not_leave_tls(void **state)
{
    struct s3_target *f = target(true, "/bucket");

    leads_nowhere(f, s3_target_from_location(f, "http://other/bucket/a", "/a"));
}

static void a_location_that_is_none_leads_nowhere(void **state)
{
    static const char *const bad[] = {"",
                                      "/bucket/a",
                                      "ftp://x/bucket/a",
                                      "http:///bucket/a",
                                      "http://other/elsewhere",
                                      "http://user@other/bucket/a"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct s3_target *f = target(false, "/bucket");

        leads_nowhere(f, s3_target_from_location(f, bad[i], "/a"));
    }
}

static void an_endpoint_with_the_bucket_in_front_is_virtual_host_style(void **state)
{
    struct s3_target *f = target(true, "/bucket");

    leads_to(f, s3_target_from_endpoint(f, "bucket.s3.example", "bucket"), "bucket.s3.example", "");
}

static void an_endpoint_without_it_is_path_style(void **state)
{
    struct s3_target *f = target(true, "");

    leads_to(f, s3_target_from_endpoint(f, "s3.example:9000", "bucket"), "s3.example:9000",
             "/bucket");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_location_in_path_style_keeps_the_bucket),
        cmocka_unit_test(a_location_in_virtual_host_style_has_no_base_path),
        cmocka_unit_test(a_location_of_a_listing_keeps_the_base_path),
        cmocka_unit_test(a_redirect_does_not_leave_tls),
        cmocka_unit_test(a_location_that_is_none_leads_nowhere),
        cmocka_unit_test(an_endpoint_with_the_bucket_in_front_is_virtual_host_style),
        cmocka_unit_test(an_endpoint_without_it_is_path_style),
    };

    return cmocka_run_group_tests_name("s3 target", tests, NULL, NULL);
}
