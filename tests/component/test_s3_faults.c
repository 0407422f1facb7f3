// SPDX-License-Identifier: Apache-2.0
// GET against a store that misbehaves: every byte is right, or there is an error; and no more is
// asked for than needed.
#include "test.h"

#include "base/clock.h"
#include "s3_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL    (100 * KIB)
#define RETRY_NS (4 * NS_PER_S) // stalls are noticed after a quarter of it

static struct s3_fixture fixture;

static int start(void **state)
{
    s3_fixture_start(&fixture, (struct s3_settings){.retry_timeout_ns = RETRY_NS}, NULL);
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

static void faults(const char *rules)
{
    s3d_process_set_faults(&fixture.server, rules);
    s3d_process_reset_counters(&fixture.server);
}

// One GET under these rules comes out right, with so many requests.
static void recovers(const char *rules, uint64_t n_requests)
{
    struct s3_fixture_get *g = s3_fixture_get_new("small/001", 100, 90 * KIB);

    faults(rules);
    s3_fixture_get_run(&fixture, g);
    assert_string_equal(g->get.error_text, "");
    assert_true(s3_fixture_get_is_right(&fixture, g, SMALL));
    assert_int_equal(requests(), n_requests);
    s3_fixture_get_free(g);
}

// One GET under these rules ends with an error that names word.
static void fails(const char *rules, int error, const char *word, uint64_t n_requests)
{
    struct s3_fixture_get *g = s3_fixture_get_new("small/001", 100, 90 * KIB);

    faults(rules);
    assert_int_equal(s3_fixture_get_run(&fixture, g), error);
    assert_int_equal(g->dones, 1);
    if (!strstr(g->get.error_text, word))
        fail_msg("\"%s\" says nothing of %s", g->get.error_text, word);
    assert_int_equal(requests(), n_requests);
    s3_fixture_get_free(g);
}

// --- failures that pass ---

static void server_errors_are_tried_again(void **state)
{
    recovers("GET * nth=1 status 500", 2);
    recovers("GET * nth=1 status 502", 2);
    recovers("GET * nth=1 status 504", 2);
    recovers("GET * nth=1,3 status 500 InternalError", 4);
}

static void throttling_is_tried_again(void **state)
{
    recovers("GET * nth=1 status 503 SlowDown", 2);
    recovers("GET * nth=1 status 429 TooManyRequests", 2);
    recovers("GET * nth=1 status 400 RequestTimeout", 2);
}

static void a_store_that_says_when_is_not_asked_earlier(void **state)
{
    uint64_t begun = clock_monotonic_ns();

    recovers("GET * nth=1 status 503 SlowDown retry-after=1", 2);
    assert_true(clock_monotonic_ns() - begun >= NS_PER_S);
    begun = clock_monotonic_ns();
    recovers("GET * nth=1 status 429 retry-after=1", 2);
    assert_true(clock_monotonic_ns() - begun >= NS_PER_S);
    begun = clock_monotonic_ns();
    recovers("GET * nth=1 status 500 retry-after=1", 2); // of a 500 that means nothing
    assert_true(clock_monotonic_ns() - begun < NS_PER_S * TEST_SLOWED_DOWN);
}

static void a_store_that_asks_for_too_long_a_wait_is_asked_when_the_time_is_up(void **state)
{
    uint64_t begun = clock_monotonic_ns();

    fails("GET * always status 503 SlowDown retry-after=3600", -EIO, "SlowDown", 2);
    assert_in_range(clock_monotonic_ns() - begun, RETRY_NS,
                    RETRY_NS + 2 * NS_PER_S * TEST_SLOWED_DOWN);
}

static void a_reset_before_the_answer_is_tried_again(void **state)
{
    recovers("GET * nth=1 reset head", 2);
    recovers("GET * nth=1 close head", 2);
}

static void a_body_that_breaks_off_goes_on_where_it_was(void **state)
{
    uint64_t resumed = s3_fixture_stat(&fixture, resumed_bodies);

    recovers("GET * nth=1 close 50%", 2);
    assert_in_range(s3d_process_counter(&fixture.server, "object_bytes_out"), 90 * KIB, 91 * KIB);
    recovers("GET * nth=1,2 close 20%", 3);
    assert_in_range(s3d_process_counter(&fixture.server, "object_bytes_out"), 90 * KIB, 91 * KIB);
    recovers("GET * nth=1 reset 50%", 2);
    assert_in_range(s3_fixture_stat(&fixture, resumed_bodies), resumed + 3, resumed + 4);
}

static void a_body_that_breaks_off_before_its_first_byte_is_asked_for_again(void **state)
{
    recovers("GET * nth=1 close 0%", 2);
}

static void a_stalled_answer_is_given_up(void **state)
{
    recovers("GET * nth=1 stall head", 2);
    recovers("GET * nth=1 stall 40%", 2);
}

static void a_late_answer_is_waited_for(void **state)
{
    recovers("GET * nth=1 delay 300ms", 1);
}

static void a_slow_body_is_waited_for(void **state)
{
    recovers("GET * nth=1 rate 100K", 1);
}

// --- answers that are not what was asked for ---

static void lengths_that_do_not_fit_are_not_believed(void **state)
{
    recovers("GET * nth=1 short 1", 2);
    recovers("GET * nth=1 long 1", 2);
}

static void bytes_behind_the_end_belong_to_no_answer(void **state)
{
    recovers("GET * nth=1 garbage 100", 1);
    recovers("", 1);
}

static void another_range_is_not_believed(void **state)
{
    recovers("GET * nth=1 content-range 1", 2);
    recovers("GET * nth=1 content-range 0", 2);
}

static void xml_where_data_was_due_is_not_believed(void **state)
{
    struct s3_fixture_get *g = s3_fixture_get_new("small/001", 0, UINT64_MAX);

    recovers("GET * nth=1 xml200", 2);
    faults("GET * nth=1 xml200");
    s3_fixture_get_run(&fixture, g);
    assert_true(s3_fixture_get_is_right(&fixture, g, SMALL));
    assert_int_equal(requests(), 2);
    s3_fixture_get_free(g);
}

static void a_connection_closed_behind_an_answer_costs_nothing(void **state)
{
    uint64_t retries = s3_fixture_stat(&fixture, retries);

    faults("GET * always hangup");
    for (int i = 0; i < 5; i++) {
        struct s3_fixture_get *g = s3_fixture_get_new("tiny/001", 0, KIB);

        assert_int_equal(s3_fixture_get_run(&fixture, g), 0);
        s3_fixture_get_free(g);
    }
    assert_int_equal(requests(), 5);
    assert_int_equal(s3_fixture_stat(&fixture, retries), retries);
}

// --- versions ---

static void another_etag_in_the_answer_is_estale(void **state)
{
    struct s3_fixture_get *g = s3_fixture_get_new("small/001", 0, 10), *again;

    faults("");
    assert_int_equal(s3_fixture_get_run(&fixture, g), 0);
    again = s3_fixture_get_new("small/001", 0, 10);
    again->get.if_match = g->etag;
    faults("GET * always etag wrong");
    assert_int_equal(s3_fixture_get_run(&fixture, again), -ESTALE);
    assert_int_equal(again->get.landed, 0);
    s3_fixture_get_free(again);
    s3_fixture_get_free(g);
}

static void a_body_is_not_gone_on_with_from_another_version(void **state)
{
    fails("GET * nth=1 close 50%\nGET * always etag wrong\n", -ESTALE, "changed", 2);
}

static void an_object_rewritten_within_a_body_is_estale(void **state)
{
    fails("GET * nth=1 close 50%\nGET * nth=2 status 412 PreconditionFailed\n", -ESTALE, "412", 2);
}

// --- failures that last ---

static void refusals_are_not_tried_again(void **state)
{
    fails("GET * always status 403 AccessDenied", -EACCES, "AccessDenied", 1);
    fails("GET * always status 404 NoSuchKey", -ENOENT, "NoSuchKey", 1);
    fails("GET * always status 403 InvalidObjectState", -EIO, "archived", 1);
    fails("GET * always status 404 NoSuchBucket", -ENODEV, "NoSuchBucket", 1);
}

static void note_end(struct s3_fixture_get *g)
{
    g->ended_ns = clock_monotonic_ns();
}

// Each of these is met by a GET of its own, at the same time.
static void last(const char *const *actions, size_t n)
{
    struct s3_fixture_get *g[8];
    struct buf rules = {0};
    uint64_t begun;

    assert_true(n <= ARRAY_LEN(g));
    for (size_t i = 0; i < n; i++) {
        char key[32];

        snprintf(key, sizeof(key), "tiny/%03zu", i);
        buf_printf(&rules, "GET %s always %s\n", key, actions[i]);
        g[i] = s3_fixture_get_new(key, 0, 10);
        g[i]->ended = note_end;
    }
    faults(rules.data);
    begun = clock_monotonic_ns();
    s3_fixture_get_all(&fixture, g, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(g[i]->error, -EIO);
        assert_in_range((g[i]->ended_ns - begun) / NS_PER_MS, 3900, 6500);
        assert_non_null(strstr(g[i]->get.error_text, "given up after 4 s"));
        assert_int_equal(g[i]->get.landed, 0);
        s3_fixture_get_free(g[i]);
    }
    buf_free(&rules);
}

static void what_lasts_is_eio_after_the_retry_time_out(void **state)
{
    static const char *const actions[] = {"status 500", "reset head", "short 1",
                                          "xml200",     "long 1",     "content-range 0",
                                          "stall head", "close 0%"};

    last(actions, ARRAY_LEN(actions));
}

static void throttling_that_lasts_is_eio_and_never_enoent(void **state)
{
    last((const char *const[]){"status 503 SlowDown"}, 1);
}

static void progress_is_worth_more_patience(void **state)
{
    struct s3_fixture_get *g = s3_fixture_get_new("small/001", 0, SMALL);
    uint64_t begun = clock_monotonic_ns();

    // each attempt brings a tenth of what is left, then nothing for a second
    faults("GET * nth=1,5 stall 10%");
    assert_int_equal(s3_fixture_get_run(&fixture, g), 0);
    assert_true(clock_monotonic_ns() - begun > 4500 * NS_PER_MS);
    assert_true(s3_fixture_get_is_right(&fixture, g, SMALL));
    s3_fixture_get_free(g);
}

// --- elsewhere ---

// Another name for the same server.
static char *other_url(void)
{
    return xasprintf("http://localhost:%u", fixture.server.port);
}

static void a_temporary_redirect_is_followed_this_time(void **state)
{
    char *url = other_url(), *rules = xasprintf("GET * nth=1 redirect 307 %s\n", url);
    uint64_t redirects = s3_fixture_stat(&fixture, redirects);

    recovers(rules, 2);
    recovers(rules, 2);
    assert_int_equal(s3_fixture_stat(&fixture, redirects), redirects + 2);
    free(rules);
    free(url);
}

static void a_redirect_to_itself_ends_in_an_error(void **state)
{
    char *rules = xasprintf("GET * always redirect 307 %s\n", fixture.server.url);

    fails(rules, -EIO, "307", 1);
    free(rules);
    rules = xasprintf("GET * always redirect 307\n");
    fails(rules, -EIO, "307", 1);
    free(rules);
}

static void redirects_in_a_circle_end_in_an_error(void **state)
{
    char *url = other_url();
    struct buf rules = {0};

    for (int i = 1; i <= 8; i++)
        buf_printf(&rules, "GET * nth=%d redirect 307 %s\n", i, i % 2 ? url : fixture.server.url);
    fails(rules.data, -EIO, "307", 6);
    buf_free(&rules);
    free(url);
}

static void a_permanent_redirect_is_kept(void **state)
{
    char *url = other_url(), *rules = xasprintf("GET * nth=1 redirect 301 %s\n", url);

    recovers(rules, 2);
    recovers("", 1);
    s3_fixture_reconnect(&fixture, (struct s3_settings){.retry_timeout_ns = RETRY_NS});
    free(rules);
    free(url);
}

static void a_wrong_region_is_put_right_again(void **state)
{
    recovers("GET * nth=1 region eu-west-9", 3);
    recovers("", 1);
}

static void the_store_asks_for_other_credentials(void **state)
{
    recovers("GET * nth=1 status 400 ExpiredToken", 2);
}

// --- all together ---

#define MANY 3000

static void all_faults_at_once_and_every_byte_is_right(void **state)
{
    static const char rules[] = "seed 42\n"
                                "GET * 2% status 500\nGET * 2% status 503 SlowDown\n"
                                "GET * 2% reset head\nGET * 2% reset 50%\nGET * 2% close 30%\n"
                                "GET * 0.5% stall 20%\nGET * 2% delay 20ms\nGET * 2% short 3\n"
                                "GET * 2% long 3\nGET * 2% garbage 10\nGET * 2% xml200\n"
                                "GET * 2% content-range 1\nGET * 2% hangup\n";
    struct s3_fixture_get **g = xcalloc(MANY, sizeof(*g));
    uint64_t before;

    s3_fixture_reconnect(
        &fixture, (struct s3_settings){.retry_timeout_ns = 8 * NS_PER_S, .max_connections = 32});
    faults(rules);
    before = s3_fixture_stat(&fixture, requests[S3_GET]);
    for (int i = 0; i < MANY; i++) {
        char key[32];

        snprintf(key, sizeof(key), i % 4 ? "tiny/%03d" : "small/%03d", i % 500);
        g[i] = s3_fixture_get_new(key, (uint64_t)i % 700, i % 3 ? 100 * KIB : 300);
        g[i]->get.hedge = i % 2;
    }
    s3_fixture_get_all(&fixture, g, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_string_equal(g[i]->get.error_text, "");
        assert_true(s3_fixture_get_is_right(&fixture, g[i], i % 4 ? KIB : SMALL));
        s3_fixture_get_free(g[i]);
    }
    assert_in_range(s3_fixture_stat(&fixture, requests[S3_GET]) - before, MANY, MANY * 3 / 2);
    assert_in_range(requests(), MANY, MANY * 3 / 2);
    free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_errors_are_tried_again),
        cmocka_unit_test(throttling_is_tried_again),
        cmocka_unit_test(a_store_that_says_when_is_not_asked_earlier),
        cmocka_unit_test(a_store_that_asks_for_too_long_a_wait_is_asked_when_the_time_is_up),
        cmocka_unit_test(a_reset_before_the_answer_is_tried_again),
        cmocka_unit_test(a_body_that_breaks_off_goes_on_where_it_was),
        cmocka_unit_test(a_body_that_breaks_off_before_its_first_byte_is_asked_for_again),
        cmocka_unit_test(a_stalled_answer_is_given_up),
        cmocka_unit_test(a_late_answer_is_waited_for),
        cmocka_unit_test(a_slow_body_is_waited_for),
        cmocka_unit_test(lengths_that_do_not_fit_are_not_believed),
        cmocka_unit_test(bytes_behind_the_end_belong_to_no_answer),
        cmocka_unit_test(another_range_is_not_believed),
        cmocka_unit_test(xml_where_data_was_due_is_not_believed),
        cmocka_unit_test(a_connection_closed_behind_an_answer_costs_nothing),
        cmocka_unit_test(another_etag_in_the_answer_is_estale),
        cmocka_unit_test(a_body_is_not_gone_on_with_from_another_version),
        cmocka_unit_test(an_object_rewritten_within_a_body_is_estale),
        cmocka_unit_test(refusals_are_not_tried_again),
        cmocka_unit_test(what_lasts_is_eio_after_the_retry_time_out),
        cmocka_unit_test(throttling_that_lasts_is_eio_and_never_enoent),
        cmocka_unit_test(progress_is_worth_more_patience),
        cmocka_unit_test(a_temporary_redirect_is_followed_this_time),
        cmocka_unit_test(a_redirect_to_itself_ends_in_an_error),
        cmocka_unit_test(redirects_in_a_circle_end_in_an_error),
        cmocka_unit_test(a_permanent_redirect_is_kept),
        cmocka_unit_test(a_wrong_region_is_put_right_again),
        cmocka_unit_test(the_store_asks_for_other_credentials),
        cmocka_unit_test(all_faults_at_once_and_every_byte_is_right),
    };

    return cmocka_run_group_tests_name("s3 faults", tests, start, stop);
}
