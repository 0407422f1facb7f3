// SPDX-License-Identifier: Apache-2.0
// How much is asked at a time, hedges, and cancelling in every state.
#include "test.h"

#include "base/clock.h"
#include "s3_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void begin(struct s3_settings s, const char *faults, const char *latency)
{
    s3_fixture_reconnect(&fixture, s);
    s3d_process_set_faults(&fixture.server, faults);
    s3d_process_set_latency(&fixture.server, latency);
    s3d_process_reset_counters(&fixture.server);
}

static struct s3_fixture_get **tiny_gets(size_t n, bool hedge)
{
    struct s3_fixture_get **g = xcalloc(n, sizeof(*g));

    for (size_t i = 0; i < n; i++) {
        char key[32];

        snprintf(key, sizeof(key), "tiny/%03zu", i % 500);
        g[i] = s3_fixture_get_new(key, 0, KIB);
        g[i]->get.hedge = hedge;
    }
    return g;
}

static void are_right(struct s3_fixture_get **g, size_t n, uint64_t size)
{
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(g[i]->get.error_text, "");
        assert_true(s3_fixture_get_is_right(&fixture, g[i], size));
        s3_fixture_get_free(g[i]);
    }
    free(g);
}

// --- limits ---

static void no_more_than_max_connections_are_in_flight(void **state)
{
    struct s3_fixture_get **g = tiny_gets(200, false);

    begin((struct s3_settings){.max_connections = 5}, "", "2ms");
    s3_fixture_get_all(&fixture, g, 200);
    are_right(g, 200, KIB);
    assert_in_range(s3d_process_counter(&fixture.server, "peak_in_flight"), 4, 5);
    assert_int_equal(requests(), 200);
}

// A second loop with a client of the same bucket.
struct other_loop {
    struct loop *loop;
    struct s3_client *client;
    struct s3_fixture_get **gets;
    size_t n;
};

static void other_loop_start(void *arg)
{
    struct other_loop *o = arg;

    assert_int_equal(s3_client_new(&o->client, o->loop, fixture.bucket), 0);
}

static void other_loop_stop(void *arg)
{
    struct other_loop *o = arg;

    s3_client_free(o->client);
}

static void *other_loop_run(void *arg)
{
    struct other_loop *o = arg;
    struct s3_fixture f = fixture;

    f.loop = o->loop;
    f.client = o->client;
    s3_fixture_get_all(&f, o->gets, o->n);
    return NULL;
}

static void loops_share_the_limit_and_none_is_forgotten(void **state)
{
    struct other_loop o[4];
    pthread_t threads[4];

    begin((struct s3_settings){.max_connections = 3}, "GET * 5% status 503 SlowDown", "1ms");
    for (int i = 0; i < 4; i++) {
        o[i] = (struct other_loop){.gets = tiny_gets(150, true), .n = 150};
        assert_int_equal(loop_start(&o[i].loop, "other"), 0);
        loop_call(o[i].loop, other_loop_start, &o[i]);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, other_loop_run, &o[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    // an answered request counts until the server's thread comes back to it: each loop may have
    // sent its next one by then (without a limit it would be 600)
    assert_in_range(s3d_process_counter(&fixture.server, "peak_in_flight"), 1, 3 + 4);
    for (int i = 0; i < 4; i++) {
        are_right(o[i].gets, 150, KIB);
        loop_call(o[i].loop, other_loop_stop, &o[i]);
        loop_stop(o[i].loop);
    }
}

static void requests_per_second_are_limited(void **state)
{
    struct s3_fixture_get **g = tiny_gets(150, false);
    uint64_t begun;

    begin((struct s3_settings){.max_requests_per_s = 100}, "", "0");
    begun = clock_monotonic_ns();
    s3_fixture_get_all(&fixture, g, 150);
    assert_in_range((clock_monotonic_ns() - begun) / NS_PER_MS, 1300, 2500);
    are_right(g, 150, KIB);
}

static void bytes_per_second_are_limited_within_a_body(void **state)
{
    struct s3_fixture_get **g = xcalloc(1, sizeof(*g));
    uint64_t begun;

    begin((struct s3_settings){.max_bytes_per_s = 4 * MIB}, "", "0");
    g[0] = s3_fixture_get_new("big", 0, 5 * MIB);
    begun = clock_monotonic_ns();
    s3_fixture_get_all(&fixture, g, 1);
    assert_in_range((clock_monotonic_ns() - begun) / NS_PER_MS, 900, 2000);
    are_right(g, 1, 64 * MIB);
}

static void note_end(struct s3_fixture_get *g)
{
    g->ended_ns = clock_monotonic_ns();
}

// How many of the first n ended before all of the others had.
static unsigned ended_before(struct s3_fixture_get **g, size_t n, size_t all)
{
    uint64_t last = 0;
    unsigned count = 0;

    for (size_t i = n; i < all; i++)
        last = MAX(last, g[i]->ended_ns);
    for (size_t i = 0; i < n; i++)
        count += g[i]->ended_ns < last;
    return count;
}

static void demand_goes_before_background(void **state)
{
    struct s3_fixture_get **g = tiny_gets(200, false);

    begin((struct s3_settings){.max_connections = 4}, "", "5ms");
    for (int i = 0; i < 200; i++) {
        g[i]->get.priority = i < 190 ? HTTP_BACKGROUND : HTTP_DEMAND;
        g[i]->ended = note_end;
    }
    s3_fixture_get_all(&fixture, g, 200);
    // what demand found in flight, no more
    assert_in_range(ended_before(g, 190, 200), 0, 6);
    are_right(g, 200, KIB);
}

static struct s3_fixture_get **to_raise;

static void raise_the_last_ten(struct s3_fixture_get *g)
{
    note_end(g);
    for (int i = 190; i < 200; i++)
        s3_get_raise(&to_raise[i]->get);
}

static void what_is_raised_goes_before_background(void **state)
{
    struct s3_fixture_get **g = tiny_gets(200, false);

    begin((struct s3_settings){.max_connections = 4}, "", "5ms");
    for (int i = 0; i < 200; i++) {
        g[i]->get.priority = HTTP_BACKGROUND;
        g[i]->ended = i ? note_end : raise_the_last_ten;
    }
    to_raise = g;
    s3_fixture_get_all(&fixture, g, 200);
    assert_in_range(ended_before(g, 190, 200), 1, 12);
    are_right(g, 200, KIB);
}

static void a_throttling_store_is_asked_for_less(void **state)
{
    struct s3_fixture_get **g = tiny_gets(400, false);

    // more than 8 at a time are refused, in effect: 20 % of what comes
    begin((struct s3_settings){.max_connections = 64}, "GET * 20% status 503 SlowDown", "2ms");
    s3_fixture_get_all(&fixture, g, 400);
    are_right(g, 400, KIB);
    assert_in_range(s3_fixture_stat(&fixture, throttled), 50, 200);
    // with the limit at 64 all the time a third of a second would do
    s3d_process_set_faults(&fixture.server, "");
    s3d_process_reset_counters(&fixture.server);
    g = tiny_gets(64, false);
    s3_fixture_get_all(&fixture, g, 64);
    are_right(g, 64, KIB);
    assert_in_range(s3d_process_counter(&fixture.server, "peak_in_flight"), 1, 40);
}

// --- hedges ---

static void late_small_gets_are_sent_twice_but_few(void **state)
{
    struct s3_fixture_get **g = tiny_gets(3000, true);
    uint64_t begun, hedges;

    begin((struct s3_settings){.max_connections = 16}, "", "1ms,p99=300ms");
    begun = clock_monotonic_ns();
    s3_fixture_get_all(&fixture, g, 3000);
    hedges = s3_fixture_stat(&fixture, hedges);
    assert_in_range(hedges, 5, 3000 * 2 / 100);
    assert_in_range(s3_fixture_stat(&fixture, hedges_won), 1, hedges);
    // the first answer may come while the hedge waits for a connection
    assert_in_range(requests(), 3000 + s3_fixture_stat(&fixture, hedges_won), 3000 + hedges);
    assert_true(clock_monotonic_ns() - begun < TEST_SLOWED_DOWN * 10 * NS_PER_S);
    are_right(g, 3000, KIB);
}

// The winner's body breaks off before the loser's cancellation has been reported.
static void a_winner_that_breaks_off_is_gone_on_with(void **state)
{
    struct s3_fixture_get **g = tiny_gets(1000, true);
    uint64_t hedges, resumed;

    begin((struct s3_settings){.max_connections = 16}, "", "0");
    s3_fixture_get_all(&fixture, g, 1000);
    are_right(g, 1000, KIB);
    hedges = s3_fixture_stat(&fixture, hedges);
    resumed = s3_fixture_stat(&fixture, resumed_bodies);
    s3d_process_set_latency(&fixture.server, "400ms");
    s3d_process_set_faults(&fixture.server, "GET * nth=1,2 close 50%");
    g = tiny_gets(1, true);
    s3_fixture_get_all(&fixture, g, 1);
    are_right(g, 1, KIB);
    assert_int_equal(s3_fixture_stat(&fixture, hedges), hedges + 1);
    assert_int_equal(s3_fixture_stat(&fixture, resumed_bodies), resumed + 1);
}

static void without_leave_nothing_is_hedged(void **state)
{
    struct s3_fixture_get **g = tiny_gets(500, true);

    begin((struct s3_settings){.max_connections = 16, .no_hedging = true}, "", "1ms,p99=100ms");
    s3_fixture_get_all(&fixture, g, 500);
    are_right(g, 500, KIB);
    assert_int_equal(s3_fixture_stat(&fixture, hedges), 0);
    assert_int_equal(requests(), 500);
}

// --- cancelling ---

static struct loop_timer cancel_timer;
static struct s3_fixture_get **to_cancel;
static size_t n_to_cancel;

static void cancel_now(struct loop_timer *t)
{
    for (size_t i = 0; i < n_to_cancel; i++) {
        unsigned dones = to_cancel[i]->dones;

        s3_get_cancel(&to_cancel[i]->get);
        assert_int_equal(to_cancel[i]->dones, dones); // never from within
        s3_get_cancel(&to_cancel[i]->get);
    }
}

static void plan_cancel(void *arg)
{
    loop_timer_init(&cancel_timer, fixture.loop, cancel_now);
    loop_timer_start_ns(&cancel_timer, *(uint64_t *)arg);
}

// n GETs, all cancelled after a time: each ends once.
static void cancel_after(size_t n, bool hedge, uint64_t delay_ns, unsigned least_cancelled)
{
    struct s3_fixture_get **g = tiny_gets(n, hedge);
    unsigned cancelled = 0;

    to_cancel = g;
    n_to_cancel = n;
    s3_fixture_call(&fixture, plan_cancel, &delay_ns);
    s3_fixture_get_all(&fixture, g, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(g[i]->dones, 1);
        assert_true(g[i]->error == 0 || g[i]->error == -ECANCELED);
        cancelled += g[i]->error == -ECANCELED;
        s3_fixture_get_free(g[i]);
    }
    free(g);
    assert_true(cancelled >= least_cancelled);
}

static void waiting_and_sent_requests_can_be_cancelled(void **state)
{
    begin((struct s3_settings){.max_connections = 8}, "", "200ms");
    cancel_after(100, false, 20 * NS_PER_MS, 92);
}

static void a_stalled_body_can_be_cancelled(void **state)
{
    begin((struct s3_settings){.max_connections = 8}, "GET * always stall 50%", "0");
    cancel_after(20, false, 100 * NS_PER_MS, 20);
}

static void a_pause_before_the_next_attempt_can_be_cancelled(void **state)
{
    begin((struct s3_settings){.max_connections = 64}, "GET * always status 500", "0");
    cancel_after(64, false, 300 * NS_PER_MS, 64);
}

static void both_requests_of_a_hedge_can_be_cancelled(void **state)
{
    struct s3_fixture_get **g = tiny_gets(1000, true);

    begin((struct s3_settings){.max_connections = 16}, "", "0");
    s3_fixture_get_all(&fixture, g, 1000);
    are_right(g, 1000, KIB);
    s3d_process_set_latency(&fixture.server, "1s");
    cancel_after(8, true, 400 * NS_PER_MS, 8);
    assert_in_range(s3_fixture_stat(&fixture, hedges), 1, 28);
}

static void a_pause_for_the_rate_can_be_cancelled(void **state)
{
    struct s3_fixture_get *g = s3_fixture_get_new("big", 0, 60 * MIB);
    uint64_t delay = 300 * NS_PER_MS;

    begin((struct s3_settings){.max_bytes_per_s = 1 * MIB}, "", "0");
    to_cancel = &g;
    n_to_cancel = 1;
    s3_fixture_call(&fixture, plan_cancel, &delay);
    assert_int_equal(s3_fixture_get_run(&fixture, g), -ECANCELED);
    assert_int_equal(g->dones, 1);
    assert_in_range(g->get.landed, 1, 3 * MIB);
    s3_fixture_get_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_more_than_max_connections_are_in_flight),
        cmocka_unit_test(loops_share_the_limit_and_none_is_forgotten),
        cmocka_unit_test(requests_per_second_are_limited),
        cmocka_unit_test(bytes_per_second_are_limited_within_a_body),
        cmocka_unit_test(demand_goes_before_background),
        cmocka_unit_test(what_is_raised_goes_before_background),
        cmocka_unit_test(a_throttling_store_is_asked_for_less),
        cmocka_unit_test(late_small_gets_are_sent_twice_but_few),
        cmocka_unit_test(a_winner_that_breaks_off_is_gone_on_with),
        cmocka_unit_test(without_leave_nothing_is_hedged),
        cmocka_unit_test(waiting_and_sent_requests_can_be_cancelled),
        cmocka_unit_test(a_stalled_body_can_be_cancelled),
        cmocka_unit_test(a_pause_before_the_next_attempt_can_be_cancelled),
        cmocka_unit_test(both_requests_of_a_hedge_can_be_cancelled),
        cmocka_unit_test(a_pause_for_the_rate_can_be_cancelled),
    };

    return cmocka_run_group_tests_name("s3 load", tests, start, stop);
}
