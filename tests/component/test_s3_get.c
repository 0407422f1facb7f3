// SPDX-License-Identifier: Apache-2.0
// GET and HEAD against a store that behaves.
#include "test.h"

#include "base/clock.h"
#include "s3_fixture.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIG   (64 * MIB)
#define SMALL (100 * KIB)

static struct s3_fixture fixture;

static int start(void **state)
{
    s3_fixture_start(&fixture, (struct s3_settings){0}, NULL);
    return 0;
}

static int stop(void **state)
{
    s3_fixture_stop(&fixture);
    return 0;
}

static uint64_t requests(void)
{
    return s3d_process_counter(&fixture.server, "requests_total");
}

static int reset(void **state)
{
    s3d_process_reset_counters(&fixture.server);
    return 0;
}

static void is_right(const char *key, uint64_t offset, uint64_t len, uint64_t size)
{
    struct s3_fixture_get *g = s3_fixture_get_new(key, offset, len);

    s3_fixture_get_run(&fixture, g);
    assert_string_equal(g->get.error_text, "");
    assert_true(s3_fixture_get_is_right(&fixture, g, size));
    s3_fixture_get_free(g);
}

static void fails(struct s3_fixture_get *g, int error, const char *word)
{
    assert_int_equal(s3_fixture_get_run(&fixture, g), error);
    assert_int_equal(g->get.landed, 0);
    assert_int_equal(g->heads, 0);
    if (!strstr(g->get.error_text, word))
        fail_msg("\"%s\" says nothing of %s", g->get.error_text, word);
    s3_fixture_get_free(g);
}

static void a_range_has_the_right_bytes(void **state)
{
    is_right("big", 0, 1, BIG);
    is_right("big", 12345, 4 * MIB + 7, BIG);
    is_right("big", BIG - 1, 1, BIG);
    assert_int_equal(requests(), 3);
}

static void a_range_over_the_end_is_cut(void **state)
{
    is_right("small/007", 100 * KIB - 10, 1 * MIB, SMALL);
    assert_int_equal(requests(), 1);
}

static void a_whole_object_needs_no_range(void **state)
{
    is_right("small/001", 0, UINT64_MAX, SMALL);
    assert_int_equal(s3d_process_counter(&fixture.server, "statuses.200"), 1);
}

static void to_the_end_means_to_the_end(void **state)
{
    is_right("small/001", 1000, UINT64_MAX, SMALL);
    assert_int_equal(s3d_process_counter(&fixture.server, "statuses.206"), 1);
}

static void an_empty_object_is_empty(void **state)
{
    is_right("empty", 0, UINT64_MAX, 0);
    assert_int_equal(requests(), 1);
}

static void an_empty_object_whose_size_nobody_knew_is_empty_too(void **state)
{
    is_right("empty", 0, 8 * MIB, 0);
    assert_int_equal(requests(), 2);
}

static void behind_the_end_there_is_nothing(void **state)
{
    fails(s3_fixture_get_new("small/001", SMALL, 10), -ERANGE, "416");
}

static void a_missing_object_is_enoent_after_one_request(void **state)
{
    fails(s3_fixture_get_new("nothing", 0, 10), -ENOENT, "NoSuchKey");
    assert_int_equal(requests(), 1);
}

static void another_etag_is_estale(void **state)
{
    struct s3_fixture_get *g = s3_fixture_get_new("small/001", 0, 10);

    g->get.if_match = "\"0123456789abcdef0123456789abcdef\"";
    fails(g, -ESTALE, "412");
}

static void the_right_etag_is_served(void **state)
{
    struct s3_fixture_get *g = s3_fixture_get_new("small/001", 0, 10), *again;

    assert_int_equal(s3_fixture_get_run(&fixture, g), 0);
    again = s3_fixture_get_new("small/001", 0, 10);
    again->get.if_match = g->etag;
    assert_int_equal(s3_fixture_get_run(&fixture, again), 0);
    s3_fixture_get_free(again);
    s3_fixture_get_free(g);
}

static void many_at_once_use_few_connections(void **state)
{
    struct s3_fixture_get *g[500];
    uint64_t before = s3d_process_counter(&fixture.server, "connections");

    for (int i = 0; i < 500; i++) {
        char key[32];

        snprintf(key, sizeof(key), "small/%03d", i);
        g[i] = s3_fixture_get_new(key, 0, 1 * MIB);
    }
    s3_fixture_get_all(&fixture, g, 500);
    for (int i = 0; i < 500; i++) {
        assert_true(s3_fixture_get_is_right(&fixture, g[i], SMALL));
        s3_fixture_get_free(g[i]);
    }
    assert_int_equal(requests(), 500);
    assert_in_range(s3d_process_counter(&fixture.server, "connections") - before, 1, 70);
}

// --- HEAD ---

struct head {
    struct s3_head head;
    struct s3_object_info info;
    char etag[64];
    int error;
    sem_t *done;
};

static void on_head_done(struct s3_head *head, int error, const struct s3_object_info *info)
{
    struct head *h = container_of(head, struct head, head);

    h->error = error;
    if (info) {
        h->info = *info;
        snprintf(h->etag, sizeof(h->etag), "%s", info->etag);
    }
    sem_post(h->done);
}

static void start_head(void *arg)
{
    s3_head_start(fixture.client, arg);
}

static struct head run_head(const char *key)
{
    sem_t done;
    struct head h = {.head = {.key = key, .key_len = strlen(key), .done = on_head_done},
                     .done = &done};

    sem_init(&done, 0, 0);
    s3_fixture_call(&fixture, start_head, &h.head);
    while (sem_wait(&done) < 0)
        ;
    sem_destroy(&done);
    return h;
}

static void head_tells_what_get_tells(void **state)
{
    struct s3_fixture_get *g = s3_fixture_get_new("small/001", 0, 10);
    struct head h = run_head("small/001");

    assert_int_equal(s3_fixture_get_run(&fixture, g), 0);
    assert_int_equal(h.error, 0);
    assert_int_equal(h.info.size, SMALL);
    assert_string_equal(h.etag, g->etag);
    assert_int_equal(h.info.mtime_s, g->info.mtime_s);
    s3_fixture_get_free(g);
}

static void head_of_a_missing_object_is_enoent(void **state)
{
    assert_int_equal(run_head("nothing").error, -ENOENT);
    assert_int_equal(requests(), 1);
}

static void head_asks_get_for_the_reason_of_a_refusal(void **state)
{
    struct head h;

    s3d_process_set_faults(&fixture.server, "HEAD * nth=1 status 400\n"
                                            "GET * nth=1 status 400 ExpiredToken\n");
    assert_int_equal(run_head("small/001").error, 0);
    assert_int_equal(requests(), 3);

    s3d_process_set_faults(&fixture.server, "HEAD * always status 403\n"
                                            "GET * always status 403 InvalidObjectState\n");
    h = run_head("small/001");
    assert_int_equal(h.error, -EIO);
    assert_non_null(strstr(h.head.error_text, "archived"));
    s3d_process_set_faults(&fixture.server, "");
}

static void head_is_tried_again(void **state)
{
    s3d_process_set_faults(&fixture.server, "HEAD * nth=1 status 503\nHEAD * nth=2 reset head\n");
    assert_int_equal(run_head("small/001").error, 0);
    assert_int_equal(requests(), 3);
    s3d_process_set_faults(&fixture.server, "");
}

// --- odd names ---

static const char *const odd_names[] = {"a b",      "a+b",      "a%20b",  "a?b#c",
                                        "\xc3\xa9", "a&b=c;d",  "\"'<>`", "~._-",
                                        "a\nb",     "\xff\xfe", "dir/ x", "@:,!*()"};

static void keys_of_odd_characters_are_found(void **state)
{
    char dir[] = "/tmp/os2g-test-XXXXXX", path[256];
    struct s3_fixture f;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "mkdir -p %s/odd/dir", dir);
    assert_int_equal(system(path), 0);
    for (size_t i = 0; i < ARRAY_LEN(odd_names); i++) {
        FILE *file;

        snprintf(path, sizeof(path), "%s/odd/%s", dir, odd_names[i]);
        file = fopen(path, "w");
        assert_non_null(file);
        fputs(odd_names[i], file);
        assert_int_equal(fclose(file), 0);
    }
    s3_fixture_start(&f, (struct s3_settings){.bucket = "odd"},
                     (const char *[]){"--data", dir, NULL});
    for (size_t i = 0; i < ARRAY_LEN(odd_names); i++) {
        struct s3_fixture_get *g = s3_fixture_get_new(odd_names[i], 0, UINT64_MAX);

        assert_int_equal(s3_fixture_get_run(&f, g), 0);
        assert_int_equal(g->get.landed, strlen(odd_names[i]));
        assert_memory_equal(g->data, odd_names[i], strlen(odd_names[i]));
        s3_fixture_get_free(g);
    }
    s3_fixture_stop(&f);
    snprintf(path, sizeof(path), "rm -r %s", dir);
    assert_int_equal(system(path), 0);
}

// --- credentials, region, clock ---

static int error_with(struct s3_settings s, const char *const *args, char text[S3_ERROR_TEXT])
{
    struct s3_fixture_get *g = s3_fixture_get_new("small/001", 0, 10);
    struct s3_fixture f;
    int error;

    s3_fixture_start(&f, s, args);
    error = s3_fixture_get_run(&f, g);
    memcpy(text, g->get.error_text, S3_ERROR_TEXT);
    s3_fixture_get_free(g);
    s3_fixture_stop(&f);
    return error;
}

static void a_wrong_secret_is_eacces(void **state)
{
    char text[S3_ERROR_TEXT];

    assert_int_equal(error_with((struct s3_settings){.secret_key = "wrong"}, NULL, text), -EACCES);
    assert_non_null(strstr(text, "SignatureDoesNotMatch"));
}

static void an_unknown_access_key_is_eacces(void **state)
{
    char text[S3_ERROR_TEXT];

    assert_int_equal(error_with((struct s3_settings){.access_key = "unknown"}, NULL, text),
                     -EACCES);
    assert_non_null(strstr(text, "InvalidAccessKeyId"));
}

static void unsigned_requests_are_served_where_allowed(void **state)
{
    char text[S3_ERROR_TEXT];

    assert_int_equal(error_with((struct s3_settings){.no_sign_request = true},
                                (const char *[]){"--anonymous", NULL}, text),
                     0);
    assert_int_equal(error_with((struct s3_settings){.no_sign_request = true}, NULL, text),
                     -EACCES);
}

static void the_region_is_learned(void **state)
{
    char text[S3_ERROR_TEXT];

    assert_int_equal(
        error_with((struct s3_settings){0}, (const char *[]){"--region", "eu-west-3", NULL}, text),
        0);
}

static void a_clock_that_is_hours_off_is_learned(void **state)
{
    char text[S3_ERROR_TEXT];

    assert_int_equal(error_with((struct s3_settings){0},
                                (const char *[]){"--clock-offset", "-7200", NULL}, text),
                     0);
    assert_int_equal(error_with((struct s3_settings){0},
                                (const char *[]){"--clock-offset", "90000", NULL}, text),
                     0);
}

static void what_the_first_learns_helps_those_under_way(void **state)
{
    struct s3_fixture_get *g[100];
    struct s3_fixture f;

    s3_fixture_start(&f, (struct s3_settings){0},
                     (const char *[]){"--region", "eu-west-3", "--clock-offset", "7200", NULL});
    s3d_process_set_faults(&f.server, "GET * nth=150,8 status 400 ExpiredToken\n");
    for (int i = 0; i < 100; i++)
        g[i] = s3_fixture_get_new("small/001", (uint64_t)i, 100);
    s3_fixture_get_all(&f, g, 100);
    for (int i = 0; i < 100; i++) {
        assert_string_equal(g[i]->get.error_text, "");
        assert_true(s3_fixture_get_is_right(&f, g[i], SMALL));
        s3_fixture_get_free(g[i]);
    }
    s3_fixture_stop(&f);
}

static void head_learns_region_and_clock_as_well(void **state)
{
    struct s3_fixture other = fixture;

    s3_fixture_start(&fixture, (struct s3_settings){0},
                     (const char *[]){"--region", "eu-west-3", "--clock-offset", "7200", NULL});
    assert_int_equal(run_head("small/001").error, 0);
    s3_fixture_stop(&fixture);
    fixture = other;
}

static void requester_pays_is_said_when_asked_to(void **state)
{
    char text[S3_ERROR_TEXT];
    const char *args[] = {"--requester-pays", FIXTURE_BUCKET, NULL};

    assert_int_equal(error_with((struct s3_settings){.requester_pays = true}, args, text), 0);
    assert_int_equal(error_with((struct s3_settings){0}, args, text), -EACCES);
}

static void a_bucket_in_the_host_name_is_found(void **state)
{
    struct s3_fixture_get *g = s3_fixture_get_new("small/001", 0, 10);
    struct s3_fixture f;
    char *url;

    s3_fixture_start(&f, (struct s3_settings){0}, (const char *[]){"--domain", "localhost", NULL});
    url = xasprintf("http://localhost:%u", f.server.port);
    s3_fixture_reconnect(
        &f, (struct s3_settings){.endpoint_url = url, .addressing = S3_ADDRESSING_VIRTUAL});
    assert_int_equal(s3_fixture_get_run(&f, g), 0);
    assert_true(s3_fixture_get_is_right(&f, g, SMALL));
    s3_fixture_get_free(g);
    s3_fixture_stop(&f);
    free(url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_range_has_the_right_bytes, reset),
        cmocka_unit_test_setup(a_range_over_the_end_is_cut, reset),
        cmocka_unit_test_setup(a_whole_object_needs_no_range, reset),
        cmocka_unit_test_setup(to_the_end_means_to_the_end, reset),
        cmocka_unit_test_setup(an_empty_object_is_empty, reset),
        cmocka_unit_test_setup(an_empty_object_whose_size_nobody_knew_is_empty_too, reset),
        cmocka_unit_test_setup(behind_the_end_there_is_nothing, reset),
        cmocka_unit_test_setup(a_missing_object_is_enoent_after_one_request, reset),
        cmocka_unit_test_setup(another_etag_is_estale, reset),
        cmocka_unit_test_setup(the_right_etag_is_served, reset),
        cmocka_unit_test_setup(many_at_once_use_few_connections, reset),
        cmocka_unit_test_setup(head_tells_what_get_tells, reset),
        cmocka_unit_test_setup(head_of_a_missing_object_is_enoent, reset),
        cmocka_unit_test_setup(head_asks_get_for_the_reason_of_a_refusal, reset),
        cmocka_unit_test_setup(head_is_tried_again, reset),
        cmocka_unit_test(keys_of_odd_characters_are_found),
        cmocka_unit_test(a_wrong_secret_is_eacces),
        cmocka_unit_test(an_unknown_access_key_is_eacces),
        cmocka_unit_test(unsigned_requests_are_served_where_allowed),
        cmocka_unit_test(the_region_is_learned),
        cmocka_unit_test(a_clock_that_is_hours_off_is_learned),
        cmocka_unit_test(what_the_first_learns_helps_those_under_way),
        cmocka_unit_test(head_learns_region_and_clock_as_well),
        cmocka_unit_test(requester_pays_is_said_when_asked_to),
        cmocka_unit_test(a_bucket_in_the_host_name_is_found),
    };

    return cmocka_run_group_tests_name("s3 get", tests, start, stop);
}
