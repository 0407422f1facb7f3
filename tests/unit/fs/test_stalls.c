// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "fs/stalls.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static struct stalls s;
static struct stall_tally tally;

static int begin(void **state)
{
    stalls_init(&s, 1000, 1700000000);
    tally = (struct stall_tally){0};
    return 0;
}

static int end(void **state)
{
    stalls_fini(&s);
    return 0;
}

// A wait for body bytes of a request that its reader sent itself.
static struct cache_waited late(uint64_t from, uint64_t to)
{
    struct cache_asked a = {.sent_ns = from, .first_byte_ns = from, .on_demand = true};
    struct cache_waited w = {0};

    cache_waited_bytes(&w, &a, from, to);
    return w;
}

static struct cache_waited in_time(uint64_t from, uint64_t to)
{
    struct cache_asked a = {.sent_ns = 1, .first_byte_ns = 2};
    struct cache_waited w = {0};

    cache_waited_bytes(&w, &a, from, to);
    return w;
}

static void wait_for_bytes(const char *key, size_t len, struct cache_waited w, enum plan_lead lead)
{
    struct stall_tally t = {0};

    stalls_wait(&s, STALL_READ, lead, &w, key, len, &t);
}

static void wait_for(const char *key, struct cache_waited w, enum plan_lead lead)
{
    wait_for_bytes(key, strlen(key), w, lead);
}

static const struct stall_interval *latest(void)
{
    return stalls_interval(&s, s.n - 1);
}

// --- whose fault it is ---

static void assert_cause(struct cache_waited w, enum plan_lead lead, enum stall_cause cause)
{
    struct cache_waited shares;
    uint64_t ns[STALL_CAUSES];

    stall_causes(&w, lead, &shares, ns);
    for (int i = 0; i < STALL_CAUSES; i++)
        assert_int_equal(ns[i], (int)cause == i ? w.ended_ns - w.begun_ns : 0);
}

static void what_nothing_foresaw_was_not_planned(void **state)
{
    assert_cause(late(100, 200), PLAN_UNPLANNED, STALL_NOT_PLANNED);
    assert_cause(in_time(1000, 1100), PLAN_UNPLANNED, STALL_THROUGHPUT);
}

static void what_a_full_window_kept_back_is_the_plans_fault(void **state)
{
    assert_cause(late(100, 200), PLAN_WINDOW_FULL, STALL_PLAN_SHORT);
    // sent long before: a larger window would have been of little use
    assert_cause(in_time(1000, 1100), PLAN_WINDOW_FULL, STALL_THROUGHPUT);
}

static void what_the_pool_kept_back_is_the_pools_fault(void **state)
{
    struct cache_waited w = {0};

    cache_waited_memory(&w, 100, 200);
    assert_cause(w, PLAN_UNPLANNED, STALL_POOL);
    assert_cause(w, PLAN_IN_TIME, STALL_POOL);
    assert_cause(late(100, 200), PLAN_POOL_FULL, STALL_POOL);
}

static void what_was_asked_for_as_soon_as_it_could_be_is_the_stores_fault(void **state)
{
    struct cache_asked queued = {.on_demand = true}, silent = {.sent_ns = 100, .on_demand = true};
    struct cache_waited w = {0}, v = {0};

    assert_cause(late(100, 200), PLAN_IN_TIME, STALL_THROUGHPUT);
    cache_waited_bytes(&w, &queued, 100, 200);
    assert_cause(w, PLAN_IN_TIME, STALL_CONNECTIONS);
    cache_waited_bytes(&v, &silent, 100, 200);
    assert_cause(v, PLAN_IN_TIME, STALL_LATENCY);
}

static void parts_that_wait_at_the_same_time_share_what_passed(void **state)
{
    struct cache_asked a = {.sent_ns = 1, .first_byte_ns = 1100};
    struct cache_waited w = {0}, same = in_time(1000, 1200), shares;
    uint64_t ns[STALL_CAUSES];

    cache_waited_bytes(&w, &a, 1000, 1200); // half of it for the first byte
    cache_waited_merge(&w, &same);
    stall_causes(&w, PLAN_UNPLANNED, &shares, ns);
    assert_int_equal(ns[STALL_LATENCY], 50);
    assert_int_equal(ns[STALL_THROUGHPUT], 150);
    assert_int_equal(stall_sum(ns), 200);
}

// --- time ---

static void time_in_which_somebody_waited_counts_once(void **state)
{
    struct stall_spans spans = {0};

    stall_spans_add(&spans, 100, 200);
    stall_spans_add(&spans, 150, 250);
    stall_spans_add(&spans, 300, 400);
    assert_int_equal(stall_spans_sum(&spans), 250);
    stall_spans_add(&spans, 260, 270); // it is told of late
    assert_int_equal(stall_spans_sum(&spans), 260);
    stall_spans_add(&spans, 50, 500);
    assert_int_equal(stall_spans_sum(&spans), 450);
    stall_spans_add(&spans, 500, 500);
    stall_spans_add(&spans, 500, 510);
    assert_int_equal(spans.n, 1);
    assert_int_equal(stall_spans_sum(&spans), 460);
}

static void a_million_waits_take_the_memory_of_a_few(void **state)
{
    struct stall_spans spans = {0};

    for (uint64_t i = 0; i < 1000000; i++)
        stall_spans_add(&spans, 10 * i, 10 * i + 3);
    assert_int_equal(stall_spans_sum(&spans), 3000000);
    assert_in_range(spans.n, 1, STALL_SPANS);
    // what began long ago covers the gaps that are still known
    stall_spans_add(&spans, 1, 10000000);
    assert_in_range(stall_spans_sum(&spans), 3000000, 10000000);
    assert_true(stall_spans_sum(&spans) > 3000000);
}

static void the_reader_itself_takes_what_nobody_waited(void **state)
{
    wait_for("a", late(2000, 3000), PLAN_UNPLANNED);
    wait_for("b", late(2500, 3500), PLAN_UNPLANNED);
    assert_int_equal(stall_seconds_ns(latest(), 11000), 10000);
    assert_int_equal(stalls_waited_ns(&s, latest(), STALL_READ, 11000), 1500);
    assert_int_equal(stalls_waited_ns(&s, latest(), STALL_FETCH, 11000), 0);
    assert_int_equal(stalls_waited_ns(&s, latest(), STALL_WAYS, 11000), 1500);
    assert_int_equal(latest()->sums[STALL_READ].cause_ns[STALL_NOT_PLANNED], 2000);
}

static void reads_and_fetches_are_told_apart(void **state)
{
    struct cache_waited w = late(2000, 3000), v = late(2900, 3100);

    stalls_wait(&s, STALL_FETCH, PLAN_IN_TIME, &w, "a", 1, &tally);
    stalls_wait(&s, STALL_READ, PLAN_IN_TIME, &v, "b", 1, &tally);
    assert_int_equal(latest()->sums[STALL_FETCH].waits, 1);
    assert_int_equal(latest()->sums[STALL_READ].waits, 1);
    assert_int_equal(stalls_waited_ns(&s, latest(), STALL_FETCH, 4000), 1000);
    assert_int_equal(stalls_waited_ns(&s, latest(), STALL_READ, 4000), 200);
    assert_int_equal(stalls_waited_ns(&s, latest(), STALL_WAYS, 4000), 1100);
}

// --- epochs ---

static void a_plan_begins_an_epoch_and_its_end_ends_it(void **state)
{
    wait_for("a", late(1100, 1200), PLAN_UNPLANNED);
    stalls_plan_begun(&s, 7, 2000);
    wait_for("b", late(2100, 2300), PLAN_IN_TIME);
    stalls_plan_ended(&s, 7, 3000);
    wait_for("c", late(4000, 4400), PLAN_UNPLANNED);
    assert_int_equal(s.n, 3);
    assert_int_equal(stalls_interval(&s, 0)->epoch, 0);
    assert_int_equal(stalls_interval(&s, 1)->epoch, 1);
    assert_int_equal(stalls_interval(&s, 2)->epoch, 0);
    assert_int_equal(stall_seconds_ns(stalls_interval(&s, 1), 9000), 1000);
    assert_int_equal(stalls_waited_ns(&s, stalls_interval(&s, 0), STALL_READ, 9000), 100);
    assert_int_equal(stalls_waited_ns(&s, stalls_interval(&s, 1), STALL_READ, 9000), 200);
    assert_int_equal(stalls_waited_ns(&s, stalls_interval(&s, 2), STALL_READ, 9000), 400);
}

static void moments_between_epochs_are_not_kept(void **state)
{
    for (uint64_t i = 1; i <= 3; i++) {
        stalls_plan_begun(&s, 7, 1000 * i);
        stalls_plan_ended(&s, 7, 1000 * i + 999);
    }
    assert_int_equal(s.n, 4); // and the present
    assert_int_equal(stalls_interval(&s, 2)->epoch, 3);
}

static void ranks_that_declare_their_shares_are_in_one_epoch(void **state)
{
    for (uint64_t rank = 0; rank < 4; rank++)
        stalls_plan_begun(&s, rank, 1000 + rank);
    assert_int_equal(latest()->epoch, 1);
    assert_int_equal(latest()->plans, 4);
}

static void the_first_rank_to_begin_again_begins_the_next_epoch_for_all(void **state)
{
    stalls_plan_begun(&s, 1, 1000);
    stalls_plan_begun(&s, 2, 1001);
    stalls_plan_ended(&s, 1, 2000);
    stalls_plan_begun(&s, 1, 2001);
    assert_int_equal(latest()->epoch, 2);
    // the other one is a little behind
    stalls_plan_ended(&s, 2, 2100);
    stalls_plan_begun(&s, 2, 2101);
    assert_int_equal(latest()->epoch, 2);
    assert_int_equal(latest()->plans, 2);
    stalls_plan_ended(&s, 2, 3000);
    stalls_plan_ended(&s, 1, 3001);
    assert_int_equal(latest()->epoch, 0);
}

static void a_plan_that_goes_on_with_one_that_is_there_begins_no_epoch(void **state)
{
    stalls_plan_begun(&s, 1, 1000);
    stalls_plan_begun(&s, 1, 1500);
    assert_int_equal(latest()->epoch, 1);
    stalls_plan_ended(&s, 1, 1600);
    assert_int_equal(latest()->epoch, 1);
    stalls_plan_ended(&s, 1, 1700);
    assert_int_equal(latest()->epoch, 0);
}

static void more_owners_than_there_is_room_for_are_let_in(void **state)
{
    for (uint64_t i = 0; i < 2 * STALL_OWNERS; i++)
        stalls_plan_begun(&s, i, 1000 + i);
    assert_int_equal(latest()->epoch, 1);
    for (uint64_t i = 0; i < 2 * STALL_OWNERS; i++)
        stalls_plan_ended(&s, i, 2000 + i);
    assert_int_equal(latest()->epoch, 0);
}

static void the_last_epochs_are_kept(void **state)
{
    for (uint64_t i = 1; i <= 100; i++) {
        stalls_plan_begun(&s, 7, 10000 * i);
        wait_for("a", late(10000 * i + 1, 10000 * i + 101), PLAN_IN_TIME);
        stalls_plan_ended(&s, 7, 10000 * i + 9000);
    }
    assert_int_equal(s.n, STALL_INTERVALS);
    assert_int_equal(stalls_interval(&s, s.n - 2)->epoch, 100);
    assert_int_equal(stalls_interval(&s, 0)->epoch, 100 - STALL_INTERVALS + 2);
    assert_int_equal(s.totals[STALL_READ].waits, 100);
}

static void a_wait_from_before_the_epoch_does_not_exceed_it(void **state)
{
    stalls_plan_begun(&s, 7, 5000);
    wait_for("a", late(2000, 5100), PLAN_IN_TIME);
    assert_int_equal(stalls_waited_ns(&s, latest(), STALL_READ, 5200), 200);
}

// --- objects ---

static void the_slow_ones_of_many_are_found(void **state)
{
    char key[32];

    for (uint64_t i = 0; i < 100000; i++) {
        snprintf(key, sizeof(key), "img/%06lu", (unsigned long)i);
        wait_for(key,
                 late(2000 + 10000 * i, 2000 + 10000 * i + (i % 10000 == 77 ? 9000 : 10 + i % 7)),
                 PLAN_IN_TIME);
    }
    assert_int_equal(latest()->objects.n, STALL_OBJECTS);
    for (unsigned i = 0; i < STALL_OBJECTS; i++)
        assert_int_equal(stall_sum(latest()->objects.object[i].ns), 9000);
}

static void many_short_waits_for_one_object_are_found_among_longer_ones(void **state)
{
    uint64_t at = 2000;
    char key[32];

    for (unsigned i = 0; i < 1000; i++) {
        struct cache_waited w = late(at, at + 10);

        stalls_wait(&s, STALL_READ, PLAN_UNPLANNED, &w, "big", 3, &tally);
        at += 20;
        snprintf(key, sizeof(key), "small/%u", i);
        wait_for(key, late(at, at + 50), PLAN_UNPLANNED);
        at += 100;
    }
    for (unsigned i = 0; i < STALL_OBJECTS; i++) {
        const struct stall_object *o = &latest()->objects.object[i];

        if (o->key_len != 3)
            continue;
        assert_int_equal(stall_sum(o->ns), 10000);
        assert_int_equal(o->waits, 1000);
        return;
    }
    fail_msg("it is not among them");
}

static void reads_of_an_object_at_the_same_time_count_once_for_it(void **state)
{
    struct cache_waited w = late(2000, 3000), v = late(2500, 3500), x = late(2600, 3400);

    stalls_wait(&s, STALL_READ, PLAN_UNPLANNED, &w, "big", 3, &tally);
    stalls_wait(&s, STALL_READ, PLAN_UNPLANNED, &v, "big", 3, &tally);
    stalls_wait(&s, STALL_READ, PLAN_UNPLANNED, &x, "big", 3, &tally);
    assert_int_equal(latest()->objects.object[0].waits, 3);
    assert_int_equal(stall_sum(latest()->objects.object[0].ns), 1500);
    assert_int_equal(latest()->sums[STALL_READ].cause_ns[STALL_NOT_PLANNED], 2800);
}

// --- JSON ---

static json_t *json(uint64_t now_ns)
{
    struct buf text = {0};
    json_error_t error;
    json_t *o;

    stalls_json(&s, 3, now_ns, &text);
    o = json_loadb(text.data, text.len, 0, &error);
    if (!o)
        fail_msg("%s: %s", error.text, text.data);
    buf_free(&text);
    return o;
}

static json_t *at(const json_t *o, const char *epochs, size_t i, const char *name)
{
    json_t *one = json_array_get(json_object_get(o, epochs), i);

    return json_object_get(one, name);
}

static void the_report_says_it_all(void **state)
{
    json_t *o;

    stalls_plan_begun(&s, 7, 2 * NS_PER_S + 1000);
    wait_for("train/x.jpg", late(3 * NS_PER_S, 4 * NS_PER_S), PLAN_WINDOW_FULL);
    wait_for("train/y.jpg", late(5 * NS_PER_S, 5 * NS_PER_S + 500 * NS_PER_MS), PLAN_IN_TIME);
    o = json(12 * NS_PER_S + 1000);
    assert_int_equal(json_integer_value(json_object_get(o, "under_way")), 3);
    assert_int_equal(json_array_size(json_object_get(o, "epochs")), 1);
    assert_int_equal(json_integer_value(at(o, "epochs", 0, "epoch")), 1);
    assert_int_equal(json_integer_value(at(o, "epochs", 0, "begun")), 1700000002);
    assert_true(json_is_true(at(o, "epochs", 0, "under_way")));
    assert_true(json_number_value(at(o, "epochs", 0, "seconds")) == 10.0);
    assert_true(json_number_value(at(o, "epochs", 0, "waited")) == 1.5);
    assert_true(json_number_value(at(o, "epochs", 0, "reader_itself")) == 8.5);
    assert_string_equal(json_string_value(at(o, "epochs", 0, "leading")), "plan too short");
    assert_non_null(strstr(json_string_value(at(o, "epochs", 0, "advice")), "larger window"));
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(at(o, "epochs", 0, "objects"), 0), "key")),
        "train/x.jpg");
    json_decref(o);
}

static void nothing_to_report_is_a_report(void **state)
{
    json_t *o = json(2000);

    assert_true(json_is_null(at(o, "epochs", 0, "epoch")));
    assert_true(json_is_null(at(o, "epochs", 0, "leading")));
    json_decref(o);
}

static void keys_of_any_bytes_are_shown_as_json(void **state)
{
    static const struct {
        const char *key, *shown;
    } keys[] = {
        {"a\"b\\c\n\x01\x7f", "a\"b\\c\n\x01\x7f"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82"},
        {"\xff|\xc3|\xc0\x80|\xed\xa0\x80|\xf5\x80\x80\x80|\xe2\x82",
         "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|"
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd"},
    };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        json_t *o;

        stalls_fini(&s);
        begin(NULL);
        wait_for(keys[i].key, late(2000, 3000), PLAN_UNPLANNED);
        o = json(4000);
        assert_string_equal(json_string_value(json_object_get(
                                json_array_get(at(o, "epochs", 0, "objects"), 0), "key")),
                            keys[i].shown);
        json_decref(o);
    }
}

static void a_zero_in_a_key_spoils_no_report(void **state)
{
    json_t *o;

    wait_for_bytes("a\0b", 3, late(2000, 3000), PLAN_UNPLANNED);
    o = json(4000);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(at(o, "epochs", 0, "objects"), 0), "key")),
        "a\xef\xbf\xbd"
        "b");
    json_decref(o);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    static const struct CMUnitTest tests[] = {
        TEST(what_nothing_foresaw_was_not_planned),
        TEST(what_a_full_window_kept_back_is_the_plans_fault),
        TEST(what_the_pool_kept_back_is_the_pools_fault),
        TEST(what_was_asked_for_as_soon_as_it_could_be_is_the_stores_fault),
        TEST(parts_that_wait_at_the_same_time_share_what_passed),
        TEST(time_in_which_somebody_waited_counts_once),
        TEST(a_million_waits_take_the_memory_of_a_few),
        TEST(the_reader_itself_takes_what_nobody_waited),
        TEST(reads_and_fetches_are_told_apart),
        TEST(a_plan_begins_an_epoch_and_its_end_ends_it),
        TEST(moments_between_epochs_are_not_kept),
        TEST(ranks_that_declare_their_shares_are_in_one_epoch),
        TEST(the_first_rank_to_begin_again_begins_the_next_epoch_for_all),
        TEST(a_plan_that_goes_on_with_one_that_is_there_begins_no_epoch),
        TEST(more_owners_than_there_is_room_for_are_let_in),
        TEST(the_last_epochs_are_kept),
        TEST(a_wait_from_before_the_epoch_does_not_exceed_it),
        TEST(the_slow_ones_of_many_are_found),
        TEST(many_short_waits_for_one_object_are_found_among_longer_ones),
        TEST(reads_of_an_object_at_the_same_time_count_once_for_it),
        TEST(the_report_says_it_all),
        TEST(nothing_to_report_is_a_report),
        TEST(keys_of_any_bytes_are_shown_as_json),
        TEST(a_zero_in_a_key_spoils_no_report),
    };

    return cmocka_run_group_tests_name("fs/stalls", tests, NULL, NULL);
}
