// SPDX-License-Identifier: Apache-2.0
#include "cli/fstab.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

static int set_up(void **state)
{
    static struct export_options o;

    export_options_init(&o);
    *state = &o;
    return 0;
}

static int tear_down(void **state)
{
    export_options_fini(*state);
    return 0;
}

static void apply(struct export_options *o, const char *text)
{
    char *error = NULL;

    if (fstab_options_apply(o, text, false, &error) < 0)
        fail_msg("%s: %s", text, error);
}

static void assert_refused(struct export_options *o, const char *text, const char *because)
{
    char *error = NULL;

    assert_true(fstab_options_apply(o, text, false, &error) < 0);
    if (!strstr(error, because))
        fail_msg("'%s' does not say '%s'", error, because);
    free(error);
}

static void our_own_names_are_taken(void **state)
{
    struct export_options *o = *state;

    apply(o, "endpoint_url=http://10.0.0.5:9000,region=eu-west-1,memory=64M,allow-other");
    assert_string_equal(o->s3.endpoint_url, "http://10.0.0.5:9000");
    assert_string_equal(o->s3.region, "eu-west-1");
    assert_true(o->memory == 64 * MIB);
    assert_true(o->allow_other);
}

static void the_names_of_s3fs_are_taken(void **state)
{
    struct export_options *o = *state;

    apply(o, "url=http://s:1,endpoint=us-west-2,use_path_request_style,public_bucket=1,ro,sigv4,"
             "multireq_max=32,stat_cache_expire=900,passwd_file=/etc/passwd");
    assert_string_equal(o->s3.endpoint_url, "http://s:1");
    assert_string_equal(o->s3.region, "us-west-2");
    assert_int_equal(o->s3.addressing, S3_ADDRESSING_PATH);
    assert_true(o->s3.no_sign_request);
    assert_int_equal(o->s3.max_connections, 32);
    assert_true(o->metadata_ttl_ns == 900 * NS_PER_S);
    assert_string_equal(o->s3.passwd_file, "/etc/passwd");
}

static void what_mount_and_systemd_add_is_passed_over(void **state)
{
    apply(*state, "rw,_netdev,nofail,noauto,user,relatime,x-systemd.automount,"
                  "x-systemd.idle-timeout=5min,defaults,,comment=data");
}

static void what_s3fs_needs_and_we_do_not_is_passed_over(void **state)
{
    apply(*state, "use_cache=/tmp,parallel_count=16,multipart_size=16,enable_noobj_cache");
}

static void a_umask_makes_modes_of_files_and_directories(void **state)
{
    struct export_options *o = *state;

    apply(o, "umask=0027");
    assert_int_equal(o->file_mode, 0640);
    assert_int_equal(o->dir_mode, 0750);
    assert_refused(o, "mp_umask=9", "octal");
    assert_refused(o, "umask", "octal");
}

static void flags_for_the_kernel_are_kept_for_it(void **state)
{
    struct export_options *o = *state;

    apply(o, "noexec,ro,noatime");
    assert_string_equal(buf_str(&o->kernel_options), "noexec,noatime");
}

static void an_unknown_option_is_answered_with_the_nearest(void **state)
{
    assert_refused(*state, "use_path_reqest_style", "did you mean 'use_path_request_style'");
    assert_refused(*state, "endpoint_ur=x", "did you mean 'endpoint-url'");
    assert_refused(*state, "completely_different_thing", "no option 'completely_different_thing'");
}

static void a_sloppy_mount_passes_unknown_options_over(void **state)
{
    char *error = NULL;

    assert_int_equal(fstab_options_apply(*state, "frobnicate=7,ro", true, &error), 0);
}

static void a_known_option_with_a_bad_value_is_refused_even_then(void **state)
{
    char *error = NULL;

    assert_true(fstab_options_apply(*state, "memory=much", true, &error) < 0);
    free(error);
}

static void a_backslash_takes_a_comma_literally(void **state)
{
    struct export_options *o = *state;

    apply(o, "prefix=a\\,b,ro");
    assert_string_equal(o->prefix, "a,b/");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(our_own_names_are_taken),
        TEST(the_names_of_s3fs_are_taken),
        TEST(what_mount_and_systemd_add_is_passed_over),
        TEST(what_s3fs_needs_and_we_do_not_is_passed_over),
        TEST(a_umask_makes_modes_of_files_and_directories),
        TEST(flags_for_the_kernel_are_kept_for_it),
        TEST(an_unknown_option_is_answered_with_the_nearest),
        TEST(a_sloppy_mount_passes_unknown_options_over),
        TEST(a_known_option_with_a_bad_value_is_refused_even_then),
        TEST(a_backslash_takes_a_comma_literally),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
