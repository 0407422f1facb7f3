// SPDX-License-Identifier: Apache-2.0
#include "daemon/export_options.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static void set(struct export_options *o, const char *name, const char *value)
{
    char *error = NULL;
    int rc = export_options_set(o, name, value, &error);

    if (rc < 0)
        fail_msg("%s: %s", name, error);
}

// What is said when name = value is refused; the caller frees it.
static char *refused(struct export_options *o, const char *name, const char *value)
{
    char *error = NULL;

    assert_true(export_options_set(o, name, value, &error) < 0);
    assert_non_null(error);
    return error;
}

static void assert_refused(struct export_options *o, const char *name, const char *value,
                           const char *because)
{
    char *error = refused(o, name, value);

    if (!strstr(error, because))
        fail_msg("'%s' does not say '%s'", error, because);
    free(error);
}

static void underscores_are_as_good_as_dashes(void **state)
{
    struct export_options *o = *state;

    set(o, "endpoint_url", "http://127.0.0.1:9000");
    assert_string_equal(o->s3.endpoint_url, "http://127.0.0.1:9000");
}

static void an_unknown_name_is_answered_with_the_nearest(void **state)
{
    assert_refused(*state, "endpoint-ulr", "x", "did you mean 'endpoint-url'");
}

static void switches_take_yes_and_no(void **state)
{
    struct export_options *o = *state;

    set(o, "allow-other", NULL);
    assert_true(o->allow_other);
    set(o, "allow-other", "no");
    assert_false(o->allow_other);
    assert_refused(o, "allow-other", "perhaps", "switch");
}

static void time_to_live_has_two_words_of_its_own(void **state)
{
    struct export_options *o = *state;

    set(o, "metadata-ttl", "minimal");
    assert_true(o->metadata_ttl_ns == 0);
    set(o, "metadata-ttl", "indefinite");
    assert_true(o->metadata_ttl_ns == UINT64_MAX);
    set(o, "metadata-ttl", "90");
    assert_true(o->metadata_ttl_ns == 90 * NS_PER_S);
}

static void negative_answers_live_no_longer_than_others(void **state)
{
    struct export_options *o = *state;
    char *error = NULL;

    set(o, "metadata-ttl", "minimal");
    assert_int_equal(export_options_set_source(o, "s3://bucket", &error), 0);
    assert_int_equal(export_options_complete(o, &error), 0);
    assert_true(o->negative_ttl_ns == 0);
}

static void sizes_and_modes_are_read_with_their_units(void **state)
{
    struct export_options *o = *state;

    set(o, "memory", "2G");
    assert_true(o->memory == 2 * GIB);
    set(o, "file-mode", "0640");
    assert_int_equal(o->file_mode, 0640);
    set(o, "maximum-throughput-gbps", "8");
    assert_true(o->s3.max_bytes_per_s == 1000000000);
}

static void values_that_will_not_do_are_told_what_would(void **state)
{
    assert_refused(*state, "memory", "much", "256M");
    assert_refused(*state, "file-mode", "999", "octal");
    assert_refused(*state, "file-mode", "07777", "octal");
    assert_refused(*state, "threads", "0", "from 1 on");
    assert_refused(*state, "retry-timeout", "0", "30s");
    assert_refused(*state, "maximum-throughput-gbps", "-1", "gigabits");
    assert_refused(*state, "uid", "no-such-user-here", "nobody here is called");
    assert_refused(*state, "region", "", "needs a value");
    assert_refused(*state, "log-level", "loud", "warning");
}

static void files_must_be_there(void **state)
{
    assert_refused(*state, "ca-file", "/no/such/file", "No such file");
    assert_refused(*state, "ca-file", "/", "Is a directory");
    assert_refused(*state, "log-directory", "/dev/null", "cannot use /dev/null");
}

static void a_prefix_of_its_own_ends_with_a_slash(void **state)
{
    struct export_options *o = *state;
    char *error = NULL;

    set(o, "prefix", "/a/b");
    assert_string_equal(o->prefix, "a/b/");
    assert_int_equal(export_options_set_source(o, "s3://bucket", &error), 0);
    assert_string_equal(o->prefix, "a/b/");
    assert_string_equal(o->s3.bucket, "bucket");
}

static void a_source_is_shown_in_one_way_however_it_was_spelt(void **state)
{
    struct export_options *o = *state;
    char *error = NULL;

    assert_int_equal(export_options_set_source(o, "bucket:/a/b", &error), 0);
    assert_int_equal(export_options_complete(o, &error), 0);
    assert_string_equal(o->source, "s3://bucket/a/b/");
}

static void data_loops_need_memory(void **state)
{
    struct export_options *o = *state;
    char *error = NULL;

    set(o, "memory", "32M");
    set(o, "threads", "4");
    assert_int_equal(export_options_set_source(o, "s3://bucket", &error), 0);
    assert_int_equal(export_options_complete(o, &error), -EINVAL);
    assert_non_null(strstr(error, "at least 64M"));
    free(error);
}

static void little_memory_means_few_loops_unless_told(void **state)
{
    struct export_options *o = *state;
    char *error = NULL;

    set(o, "memory", "16M");
    assert_int_equal(export_options_set_source(o, "s3://bucket", &error), 0);
    assert_int_equal(export_options_complete(o, &error), 0);
    assert_int_equal(o->threads, 1);
}

static void a_worker_hears_what_was_given(void **state)
{
    struct export_options *o = *state, again;
    char *error = NULL;

    export_options_set_owner(o, 1000, 100);
    set(o, "memory", "64M");
    set(o, "ca-file", "/etc/passwd");
    set(o, "metadata-ttl", "7");
    assert_int_equal(export_options_set_source(o, "s3://bucket/a=b", &error), 0);
    export_options_set_directory(o, "/data");
    export_options_init(&again);
    assert_int_equal(export_options_replay(&again, o->given.data, o->given.len, &error), 0);
    assert_int_equal(again.uid, 1000);
    assert_int_equal(again.mounter, 1000);
    assert_int_equal(again.gid, 100);
    assert_true(again.memory == 64 * MIB);
    assert_true(again.metadata_ttl_ns == 7 * NS_PER_S);
    assert_string_equal(again.s3.ca_file, "/etc/passwd");
    assert_string_equal(again.s3.bucket, "bucket");
    assert_string_equal(again.prefix, "a=b/");
    assert_string_equal(again.directory, "/data");
    export_options_fini(&again);
}

static void a_worker_need_not_see_the_files_itself(void **state)
{
    static const char given[] = "ca-file=/no/longer/there";
    struct export_options *o = *state;
    char *error = NULL;

    assert_int_equal(export_options_replay(o, given, sizeof(given), &error), 0);
    assert_string_equal(o->s3.ca_file, "/no/longer/there");
}

static void a_list_cut_short_is_refused(void **state)
{
    static const char given[] = "memory=64M";
    char *error = NULL;

    assert_int_equal(export_options_replay(*state, given, sizeof(given) - 1, &error), -EINVAL);
    free(error);
}

static void a_socket_s_path_is_made_absolute(void **state)
{
    struct export_options *o = *state;

    assert_int_equal(chdir("/tmp"), 0);
    set(o, "socket", "here.sock");
    assert_string_equal(o->socket, "/tmp/here.sock");
    assert_true(export_options_offers_socket(o));
    set(o, "socket", "none");
    assert_false(export_options_offers_socket(o));
}

static void a_path_that_no_socket_has_room_for_is_refused(void **state)
{
    char path[200], *error = NULL;

    memset(path, 'x', sizeof(path));
    path[0] = '/';
    path[sizeof(path) - 1] = 0;
    assert_int_equal(export_options_set(*state, "socket", path, &error), -EINVAL);
    free(error);
}

static void a_mount_has_a_socket_unless_told_otherwise(void **state)
{
    struct export_options *o = *state;
    char *error = NULL;

    assert_int_equal(export_options_default_socket(o, NULL, &error), 0);
    assert_null(o->socket); // there is no mount
    export_options_set_directory(o, "/data");
    assert_int_equal(export_options_default_socket(o, NULL, &error), 0);
    assert_true(export_options_offers_socket(o));
    assert_int_equal(export_options_default_socket(o, "/other", &error), 0);
    assert_string_not_equal(o->socket, "/other"); // it was said already
    assert_string_equal(export_options_place(o), "/data");
}

static void the_environment_s_socket_stands_in_for_the_default(void **state)
{
    struct export_options *o = *state;
    char *error = NULL;

    export_options_set_directory(o, "/data");
    assert_int_equal(export_options_default_socket(o, "/other", &error), 0);
    assert_string_equal(o->socket, "/other");
}

static void who_may_connect_is_a_list_that_grows(void **state)
{
    struct export_options *o = *state;
    char *error = NULL;

    set(o, "socket-allow", "root,1000");
    set(o, "socket-allow", "7");
    assert_int_equal(o->n_socket_allow, 3);
    assert_int_equal(o->socket_allow[0], 0);
    assert_int_equal(o->socket_allow[1], 1000);
    assert_int_equal(o->socket_allow[2], 7);
    assert_int_equal(export_options_set(o, "socket-allow", "nobody-of-this-name", &error), -EINVAL);
    free(error);
}

static void a_worker_hears_of_gpu_memory_by_number(void **state)
{
    struct export_options *o = *state, again;
    struct stat st;
    char *error = NULL;

    assert_int_equal(stat("/etc/passwd", &st), 0);
    set(o, "gpu-memory", "/etc/passwd,/etc/group");
    set(o, "socket-allow", "5,6");
    assert_int_equal(o->n_gpu_memory, 2);
    assert_null(memmem(o->given.data, o->given.len, "passwd", 6));
    export_options_init(&again);
    assert_int_equal(export_options_replay(&again, o->given.data, o->given.len, &error), 0);
    assert_int_equal(again.n_gpu_memory, 2);
    assert_true(again.gpu_memory[0].dev == st.st_dev && again.gpu_memory[0].ino == st.st_ino);
    assert_int_equal(again.n_socket_allow, 2);
    export_options_fini(&again);
}

static void gpu_memory_is_a_file_that_is_there(void **state)
{
    char *error = NULL;

    assert_int_equal(export_options_set(*state, "gpu-memory", "/no/such/file", &error), -EINVAL);
    free(error);
    assert_int_equal(export_options_set(*state, "gpu-memory", "/tmp", &error), -EINVAL);
    free(error);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(underscores_are_as_good_as_dashes),
        TEST(an_unknown_name_is_answered_with_the_nearest),
        TEST(switches_take_yes_and_no),
        TEST(time_to_live_has_two_words_of_its_own),
        TEST(negative_answers_live_no_longer_than_others),
        TEST(sizes_and_modes_are_read_with_their_units),
        TEST(values_that_will_not_do_are_told_what_would),
        TEST(files_must_be_there),
        TEST(a_prefix_of_its_own_ends_with_a_slash),
        TEST(a_source_is_shown_in_one_way_however_it_was_spelt),
        TEST(data_loops_need_memory),
        TEST(little_memory_means_few_loops_unless_told),
        TEST(a_worker_hears_what_was_given),
        TEST(a_worker_need_not_see_the_files_itself),
        TEST(a_list_cut_short_is_refused),
        TEST(a_socket_s_path_is_made_absolute),
        TEST(a_path_that_no_socket_has_room_for_is_refused),
        TEST(a_mount_has_a_socket_unless_told_otherwise),
        TEST(the_environment_s_socket_stands_in_for_the_default),
        TEST(who_may_connect_is_a_list_that_grows),
        TEST(a_worker_hears_of_gpu_memory_by_number),
        TEST(gpu_memory_is_a_file_that_is_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
