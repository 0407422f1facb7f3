// SPDX-License-Identifier: Apache-2.0
// What is asked for by an s3:// name, and what a daemon says that it serves.
#include "world.h"

#include "host/source.h"
#include "wire/ops.h"

#include <stdlib.h>
#include <string.h>

#define SOURCE(text) text, sizeof(text)

static const char *const variables[] = {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
                                        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "OS2G_SOCKET"};

static int clear(void **state)
{
    for (unsigned i = 0; i < ARRAY_LEN(variables); i++)
        unsetenv(variables[i]);
    return 0;
}

static int clear_world(void **state)
{
    clear(state);
    return world_teardown(state);
}

// --- asked for ---

static void asks(const char *where, const char *const *options, const char *url,
                 const char *endpoint)
{
    struct source s;

    source_ask(&s, where, options);
    assert_string_equal(s.url, url);
    if (endpoint)
        assert_string_equal(s.endpoint, endpoint);
    else
        assert_null(s.endpoint);
    source_fini(&s);
}

static void a_prefix_ends_with_a_slash(void **state)
{
    asks("s3://bucket", NULL, "s3://bucket/", NULL);
    asks("s3://bucket/", NULL, "s3://bucket/", NULL);
    asks("s3://bucket/a/b", NULL, "s3://bucket/a/b/", NULL);
    asks("s3://bucket/a/b/", NULL, "s3://bucket/a/b/", NULL);
}

static void options_say_more_than_the_environment(void **state)
{
    const char *const options[] = {"memory=1G", "endpoint_url=http://a", "prefix=x", NULL};

    setenv("AWS_ENDPOINT_URL", "http://b", 1);
    asks("s3://bucket", NULL, "s3://bucket/", "http://b");
    setenv("AWS_ENDPOINT_URL_S3", "http://c", 1);
    asks("s3://bucket", NULL, "s3://bucket/", "http://c");
    asks("s3://bucket", options, "s3://bucket/x/", "http://a");
    asks("s3://bucket/y", options, "s3://bucket/y/", "http://a");
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
    asks("s3://bucket", NULL, "s3://bucket/", NULL);
}

// --- told ---

static void what_is_told_is_two_strings_or_nothing(void **state)
{
    static const char longest[OS2G_SOURCE_MAX + 1] = "s3://";
    struct source s = {0};

    assert_int_equal(source_read(&s, SOURCE("s3://bucket/a/\0http://server")), 0);
    assert_string_equal(s.url, "s3://bucket/a/");
    assert_string_equal(s.endpoint, "http://server");
    source_fini(&s);
    assert_int_equal(source_read(&s, NULL, 0), 0);
    assert_null(s.url);
    assert_int_equal(source_read(&s, "s3://bucket/", 12), -EBADMSG);
    assert_int_equal(source_read(&s, "s3://bucket/\0http", 17), -EBADMSG);
    assert_int_equal(source_read(&s, SOURCE("s3://bucket/")), -EBADMSG);
    assert_int_equal(source_read(&s, SOURCE("s3://bucket/\0\0")), -EBADMSG);
    assert_int_equal(source_read(&s, SOURCE("s3://bucket\0")), -EBADMSG);
    assert_int_equal(source_read(&s, SOURCE("bucket/\0")), -EBADMSG);
    assert_int_equal(source_read(&s, longest, sizeof(longest)), -EBADMSG);
    assert_null(s.url);
}

// --- compared ---

static const char *below(const char *asked, const char *told)
{
    return source_below(&(struct source){(char *)asked, NULL},
                        &(struct source){(char *)told, (char *)"http://server"});
}

static void what_lies_below_is_served(void **state)
{
    assert_string_equal(below("s3://bucket/", "s3://bucket/"), "");
    assert_string_equal(below("s3://bucket/a/", "s3://bucket/a/"), "");
    assert_string_equal(below("s3://bucket/a/b/", "s3://bucket/"), "a/b/");
    assert_string_equal(below("s3://bucket/a/b/", "s3://bucket/a/"), "b/");
}

static void what_lies_elsewhere_is_not(void **state)
{
    assert_null(below("s3://bucket/", "s3://other/"));
    assert_null(below("s3://bucket/", "s3://bucket2/"));
    assert_null(below("s3://bucket/", "s3://bucket/a/"));
    assert_null(below("s3://bucket/ab/", "s3://bucket/a/"));
}

static void no_prefix_is_longer_than_a_key(void **state)
{
    char asked[sizeof("s3://bucket/") + OS2G_KEY_MAX] = "s3://bucket/";
    size_t at = strlen(asked), end = at + OS2G_KEY_MAX - 2;

    while (at < end) {
        asked[at++] = 'a';
        asked[at++] = '/';
    }
    assert_non_null(below(asked, "s3://bucket/"));
    strcpy(asked + at, "b/");
    assert_null(below(asked, "s3://bucket/"));
}

static void what_no_path_leads_to_is_not_below(void **state)
{
    assert_null(below("s3://bucket/a//b/", "s3://bucket/"));
    assert_null(below("s3://bucket//", "s3://bucket/"));
    assert_null(below("s3://bucket/a/../b/", "s3://bucket/"));
    assert_null(below("s3://bucket/./", "s3://bucket/"));
    assert_string_equal(below("s3://bucket/a//b/", "s3://bucket/a//b/"), "");
}

static bool same_server(const char *asked, const char *told)
{
    return source_below(&(struct source){(char *)"s3://b/", (char *)asked},
                        &(struct source){(char *)"s3://b/", (char *)told}) != NULL;
}

static void a_server_is_the_same_however_it_is_spelt(void **state)
{
    assert_true(same_server(NULL, "http://a:9000"));
    assert_true(same_server("http://a:9000", "http://a:9000"));
    assert_true(same_server("http://Server:80/", "HTTP://server"));
    assert_true(same_server("https://server/path", "https://server:443/path/"));
    assert_true(same_server("http://[::1]:80", "http://[::1]"));
    assert_false(same_server("http://a:9000", ""));
    assert_false(same_server("http://a", "http://b"));
    assert_false(same_server("http://a", "https://a"));
    assert_false(same_server("http://a:443", "http://a"));
    assert_false(same_server("http://a:80", "https://a:443"));
    assert_false(same_server("http://a/x", "http://a/X"));
    assert_false(same_server("a", "a"));
}

// --- connecting ---

static int connect_as(struct world *w, const char *where, struct os2g **ret)
{
    struct os2g_options o = {.size = sizeof(o), .timeout_ms = 30000};

    setenv("OS2G_SOCKET", w->socket, 1);
    return os2g_connect(ret, where, &o);
}

static void refused(struct world *w, const char *where, const char *told)
{
    struct os2g *c;

    assert_int_equal(connect_as(w, where, &c), -EINVAL);
    assert_non_null(strstr(os2g_last_error(), where));
    assert_non_null(strstr(os2g_last_error(), told));
}

static void a_daemon_that_serves_something_else_is_refused(void **state)
{
    struct world *w = *state;

    fake_device_serve(w->device, SOURCE("s3://bucket/a/\0http://server"));
    refused(w, "s3://other/a/", "s3://bucket/a/");
    refused(w, "s3://bucket/b/", "s3://bucket/a/");
    refused(w, "s3://bucket/", "s3://bucket/a/");
    setenv("AWS_ENDPOINT_URL", "http://elsewhere", 1);
    refused(w, "s3://bucket/a/", "http://server");
}

static void a_daemon_that_does_not_say_is_believed(void **state)
{
    struct world *w = *state;
    struct os2g *c;
    uint64_t size;

    assert_int_equal(connect_as(w, "s3://any/thing", &c), 0);
    assert_int_equal(os2g_fetch(c, "a.bin", w->memory, MIB, 0, &size), 0);
    os2g_close(c);
}

static void a_socket_s_path_is_enough(void **state)
{
    struct world *w = *state;

    fake_device_serve(w->device, SOURCE("s3://bucket/a/\0http://server"));
    setenv("AWS_ENDPOINT_URL", "http://elsewhere", 1);
    os2g_close(world_connect(w, 1, 30000));
}

static void a_daemon_whose_words_make_no_sense_is_refused(void **state)
{
    struct world *w = *state;
    struct os2g *c;

    fake_device_serve(w->device, SOURCE("s3://bucket/"));
    assert_int_equal(connect_as(w, "s3://bucket/", &c), -EPROTO);
}

static int count_name(void *arg, const char *name, const struct os2g_stat *st)
{
    (*(unsigned *)arg)++;
    return 0;
}

static void keys_are_below_what_was_asked_for(void **state)
{
    struct world *w = *state;
    struct os2g_stat st;
    struct os2g_file *f;
    unsigned names = 0;
    struct os2g *c;
    uint64_t size;

    fake_device_serve(w->device, SOURCE("s3://bucket/\0http://server"));
    assert_int_equal(connect_as(w, "s3://bucket/dir", &c), 0);
    assert_int_equal(os2g_fetch(c, "deep/z", w->memory, MIB, 0, &size), 0);
    assert_int_equal(size, 30);
    assert_int_equal(os2g_fetch(c, "a.bin", w->memory, MIB, 0, &size), -ENOENT);
    assert_int_equal(os2g_stat(c, "x", &st), 0);
    assert_int_equal(os2g_stat(c, "", &st), 0);
    assert_true(st.directory);
    assert_int_equal(os2g_list(c, "", count_name, &names), 0);
    assert_int_equal(names, 3);
    assert_int_equal(os2g_open(c, "deep/z", &f), 0);
    fake_device_disconnect(w->device); // and the next session's, too
    assert_int_equal(os2g_read(f, w->memory, 30, 0, 0), 30);
    world_check(w, "z", 0, w->memory, 30);
    os2g_file_close(f);
    os2g_close(c);
}

static void a_daemon_that_comes_back_as_another_is_refused(void **state)
{
    struct os2g_options o = {.size = sizeof(o), .timeout_ms = 300};
    struct world *w = *state;
    struct os2g *c;
    uint64_t size;

    fake_device_serve(w->device, SOURCE("s3://bucket/\0http://server"));
    setenv("OS2G_SOCKET", w->socket, 1);
    assert_int_equal(os2g_connect(&c, "s3://bucket/dir", &o), 0);
    fake_device_serve(w->device, SOURCE("s3://bucket/dir/\0http://server"));
    fake_device_disconnect(w->device);
    assert_int_equal(os2g_fetch(c, "x", w->memory, MIB, 0, &size), -ENOTCONN);
    fake_device_serve(w->device, SOURCE("s3://bucket/\0http://server"));
    assert_int_equal(os2g_fetch(c, "x", w->memory, MIB, 0, &size), 0);
    os2g_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_prefix_ends_with_a_slash, clear),
        cmocka_unit_test_teardown(options_say_more_than_the_environment, clear),
        cmocka_unit_test(what_is_told_is_two_strings_or_nothing),
        cmocka_unit_test(what_lies_below_is_served),
        cmocka_unit_test(what_lies_elsewhere_is_not),
        cmocka_unit_test(no_prefix_is_longer_than_a_key),
        cmocka_unit_test(what_no_path_leads_to_is_not_below),
        cmocka_unit_test(a_server_is_the_same_however_it_is_spelt),
        cmocka_unit_test_setup_teardown(a_daemon_that_serves_something_else_is_refused, world_setup,
                                        clear_world),
        cmocka_unit_test_setup_teardown(a_daemon_that_does_not_say_is_believed, world_setup,
                                        clear_world),
        cmocka_unit_test_setup_teardown(a_socket_s_path_is_enough, world_setup, clear_world),
        cmocka_unit_test_setup_teardown(a_daemon_whose_words_make_no_sense_is_refused, world_setup,
                                        clear_world),
        cmocka_unit_test_setup_teardown(keys_are_below_what_was_asked_for, world_setup,
                                        clear_world),
        cmocka_unit_test_setup_teardown(a_daemon_that_comes_back_as_another_is_refused, world_setup,
                                        clear_world),
    };

    clear(NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
