// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"
#include "prefetch/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (100 * KIB)

static struct plan *p;
static unsigned fetches[20000]; // of each key, by its number
static unsigned n_fetches, n_drops, furthest;
static enum plan_lead lead; // of the latest open_key

static void begin(uint64_t window, unsigned in_flight, bool warm)
{
    p = plan_new(
        &(struct plan_config){.window_bytes = window, .in_flight_max = in_flight, .warm = warm});
    memset(fetches, 0, sizeof(fetches));
    n_fetches = n_drops = furthest = 0;
}

static size_t key_of(unsigned number, char out[static 64])
{
    return (size_t)snprintf(out, 64, "train/n%02u/img_%06u.jpg", number % 37, number);
}

static void add(unsigned number)
{
    char key[64];

    assert_int_equal(plan_add(p, key, key_of(number, key)), 0);
}

static uint32_t open_key(unsigned number)
{
    char key[64];

    return plan_open(p, key, key_of(number, key), &lead);
}

static unsigned number_of(const struct plan_action *a)
{
    assert_int_equal(strlen(a->key), a->key_len);
    return (unsigned)strtoul(strrchr(a->key, '_') + 1, NULL, 10);
}

static struct plan_stats stats(void)
{
    struct plan_stats s;

    plan_stats_read(p, &s);
    return s;
}

// Carries out what the plan says; every fetch lands at once.
static void run(void)
{
    struct plan_action a;

    for (plan_step(p, 0, 0, &a); a.what != PLAN_NOTHING; plan_step(p, 0, 0, &a)) {
        if (a.what == PLAN_DROP) {
            n_drops++;
            continue;
        }
        fetches[number_of(&a)]++;
        furthest = MAX(furthest, number_of(&a));
        n_fetches++;
        assert_int_equal(plan_sized(p, a.entry, SIZE), SIZE);
        plan_fetched(p, a.entry, 0);
    }
}

static void read_key(unsigned number)
{
    plan_consume(p, open_key(number));
    run();
}

static void nothing_is_asked_for_before_the_commit(void **state)
{
    struct plan_action a;

    begin(10 * SIZE, 0, false);
    add(0);
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_NOTHING);
    plan_commit(p);
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_FETCH);
    assert_string_equal(a.key, "train/n00/img_000000.jpg");
    plan_free(p);
}

static void the_window_bounds_what_is_fetched_ahead(void **state)
{
    begin(50 * SIZE, 0, false);
    for (unsigned i = 0; i < 1000; i++)
        add(i);
    plan_commit(p);
    run();
    // entries whose size is not known yet are guessed
    assert_in_range(n_fetches, 49, 50);
    for (unsigned i = 0; i < 1000; i++) {
        assert_true(i >= 950 || fetches[i] == 1);
        read_key(i);
        assert_true(furthest <= i + 50);
    }
    assert_int_equal(n_fetches, 1000);
    assert_int_equal(stats().used, 1000);
    assert_int_equal(stats().window_used, 0);
    assert_true(plan_done(p));
    plan_free(p);
}

// Of what plan_step asks for, nothing lands.
static unsigned run_without_landing(unsigned others)
{
    struct plan_action a;
    unsigned n = 0;

    for (plan_step(p, 0, others, &a); a.what == PLAN_FETCH; plan_step(p, 0, others, &a), n++)
        plan_sized(p, a.entry, SIZE);
    return n;
}

static void begin_growing(void)
{
    p = plan_new(&(struct plan_config){.window_bytes = 100 * SIZE, .window_first = 10 * SIZE});
    for (unsigned i = 0; i < 1000; i++)
        add(i);
    plan_commit(p);
}

static void few_are_asked_for_before_a_size_is_known(void **state)
{
    struct plan_action a;
    uint32_t first;

    begin(100 * MIB, 128, false);
    for (unsigned i = 0; i < 200; i++)
        add(i);
    plan_commit(p);
    plan_step(p, 0, 0, &a);
    first = a.entry;
    for (unsigned i = 1; i < 16; i++) {
        assert_int_equal(a.what, PLAN_FETCH);
        plan_step(p, 0, 0, &a);
    }
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_NOTHING);
    assert_int_equal(plan_sized(p, first, 20 * MIB), 20 * MIB);
    plan_step(p, 0, 0, &a); // what the others are like is known by now
    assert_int_equal(a.what, PLAN_FETCH);
    assert_true(stats().window_used < 50 * MIB);
    plan_free(p);
}

static void the_window_stays_small_for_readers_who_find_what_they_want(void **state)
{
    n_fetches = 0;
    begin_growing();
    run();
    for (unsigned i = 0; i < 500; i++)
        read_key(i);
    assert_in_range(stats().window_used, 9 * SIZE, 10 * SIZE);
    plan_free(p);
}

static void the_window_grows_for_readers_who_came_too_early(void **state)
{
    begin_growing();
    run();
    read_key(0);
    read_key(30); // far from being asked for
    assert_in_range(stats().window_used, 18 * SIZE, 20 * SIZE);
    read_key(31); // too soon to say what that was good for
    assert_in_range(stats().window_used, 18 * SIZE, 20 * SIZE);
    for (unsigned round = 0; round < 10; round++) {
        uint32_t next;

        for (unsigned i = 0; i < 50; i++)
            plan_consume(p, open_key(1 + round * 80 + i));
        next = open_key(80 + round * 80);
        plan_consume(p, next);
        run();
    }
    assert_in_range(stats().window_used, 99 * SIZE, 100 * SIZE); // and no further
    assert_int_equal(stats().window, 100 * SIZE);
    plan_free(p);
}

static void what_has_not_landed_though_it_was_asked_for_at_once_grows_no_window(void **state)
{
    begin_growing();
    assert_in_range(run_without_landing(0), 9, 10);
    open_key(0);
    assert_int_equal(run_without_landing(0), 0);
    plan_free(p);
}

static void what_others_are_fetching_takes_the_place_of_the_plans(void **state)
{
    begin(1000 * SIZE, 50, false);
    for (unsigned i = 0; i < 1000; i++)
        add(i);
    plan_commit(p);
    assert_int_equal(run_without_landing(60), 0);
    open_key(0);
    assert_int_equal(lead, PLAN_IN_TIME); // the store is at its work
    assert_int_equal(run_without_landing(30), 20);
    assert_int_equal(run_without_landing(0), 30);
    plan_free(p);
}

static void pressure_shrinks_the_window(void **state)
{
    struct plan_action a;
    unsigned n = 0;

    begin(400 * KIB * 10, 0, false);
    for (unsigned i = 0; i < 100; i++)
        add(i);
    plan_commit(p);
    for (plan_step(p, 80, 0, &a); a.what == PLAN_FETCH; plan_step(p, 80, 0, &a)) {
        plan_sized(p, a.entry, SIZE);
        n++;
    }
    assert_in_range(n, 19, 20);
    plan_free(p);
}

static void only_so_many_are_in_flight(void **state)
{
    struct plan_action a;
    uint32_t first = 0;

    begin(1000 * SIZE, 16, false);
    for (unsigned i = 0; i < 100; i++)
        add(i);
    plan_commit(p);
    for (int i = 0; i < 16; i++) {
        plan_step(p, 0, 0, &a);
        assert_int_equal(a.what, PLAN_FETCH);
        plan_sized(p, a.entry, SIZE);
        if (i == 0)
            first = a.entry;
    }
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_NOTHING);
    plan_fetched(p, first, 0);
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_FETCH);
    plan_free(p);
}

static void eight_threads_taking_turns_fetch_each_entry_once(void **state)
{
    struct rand r;
    unsigned order[2000], pending[8], n_pending = 0;

    begin(64 * SIZE, 0, false);
    rand_seed(&r, 7);
    for (unsigned i = 0; i < 2000; i++)
        order[i] = i;
    for (unsigned i = 1999; i > 0; i--) {
        unsigned j = (unsigned)rand_below(&r, i + 1), x = order[i];

        order[i] = order[j];
        order[j] = x;
    }
    for (unsigned i = 0; i < 2000; i++)
        add(order[i]);
    plan_commit(p);
    run();
    for (unsigned i = 0; i < 2000 || n_pending;) {
        if (n_pending < 8 && i < 2000) {
            pending[n_pending++] = order[i++];
        } else {
            unsigned k = (unsigned)rand_below(&r, n_pending);

            read_key(pending[k]);
            pending[k] = pending[--n_pending];
        }
    }
    for (unsigned i = 0; i < 2000; i++)
        assert_int_equal(fetches[i], 1);
    assert_int_equal(stats().used, 2000);
    assert_int_equal(stats().dropped, 0);
    plan_free(p);
}

// Workers of a data loader: worker k reads batches k, k + 8, k + 16 ... at the same time.
static void workers_at_different_batches_share_the_window(void **state)
{
    enum { BATCH = 64, N = 64 * 8 * 10 };

    begin(256 * SIZE, 0, false);
    for (unsigned i = 0; i < N; i++)
        add(i);
    plan_commit(p);
    run();
    for (unsigned round = 0; round < 10; round++)
        for (unsigned i = 0; i < BATCH; i++)
            for (unsigned k = 0; k < 8; k++)
                read_key((round * 8 + k) * BATCH + i);
    assert_int_equal(stats().used, N);
    assert_int_equal(stats().dropped, 0);
    for (unsigned i = 0; i < N; i++)
        assert_true(fetches[i] <= 1);
    plan_free(p);
}

static void several_processes_reading_all_of_it_fetch_it_once(void **state)
{
    begin(100 * SIZE, 0, false);
    for (unsigned i = 0; i < 500; i++)
        add(i);
    plan_commit(p);
    run();
    for (unsigned i = 0; i < 500; i++) {
        uint32_t a = open_key(i), b = open_key(i);

        assert_int_equal(a, b);
        assert_true(plan_consume(p, a));
        assert_false(plan_consume(p, b));
        run();
        if (i >= 5)
            assert_int_equal(open_key(i - 5), PLAN_NO_ENTRY);
    }
    assert_int_equal(n_fetches, 500);
    plan_free(p);
}

static void an_open_that_does_not_read_leaves_the_entry_to_the_next(void **state)
{
    uint32_t a;

    begin(100 * SIZE, 0, false);
    add(1);
    add(1);
    plan_commit(p);
    run();
    a = open_key(1);
    assert_int_not_equal(open_key(1), a);
    plan_unopen(p, a);
    assert_int_equal(open_key(1), a);
    assert_true(plan_consume(p, a));
    plan_unopen(p, a);
    assert_int_equal(stats().used, 1);
    plan_free(p);
}

static void a_dead_workers_entries_are_dropped_and_counted(void **state)
{
    begin(32 * SIZE, 0, false);
    for (unsigned i = 0; i < 1000; i++)
        add(i);
    plan_commit(p);
    run();
    for (unsigned i = 0; i < 1000; i++)
        if (i % 8 != 3 || i < 100)
            read_key(i);
    assert_true(stats().dropped >= 90);
    assert_int_equal(stats().dropped, n_drops);
    // the others were run ahead of to the end
    assert_int_equal(fetches[999], 1);
    plan_free(p);
}

static void a_key_may_come_again_and_each_time_counts(void **state)
{
    begin(8 * SIZE, 0, false);
    for (unsigned epoch = 0; epoch < 3; epoch++)
        for (unsigned i = 0; i < 100; i++)
            add(epoch == 1 ? 99 - i : i);
    plan_commit(p);
    run();
    for (unsigned epoch = 0; epoch < 3; epoch++)
        for (unsigned i = 0; i < 100; i++)
            read_key(epoch == 1 ? 99 - i : i);
    assert_int_equal(stats().used, 300);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(fetches[i], 3);
    assert_true(plan_done(p));
    plan_free(p);
}

static void a_late_second_process_does_not_move_the_plan_into_the_next_epoch(void **state)
{
    begin(8 * SIZE, 0, false);
    for (unsigned epoch = 0; epoch < 2; epoch++)
        for (unsigned i = 0; i < 5000; i++)
            add(i);
    plan_commit(p);
    run();
    for (unsigned i = 0; i < 1000; i++)
        read_key(i);
    for (unsigned i = 0; i < 900; i++)
        assert_int_equal(open_key(i), PLAN_NO_ENTRY);
    run();
    assert_int_equal(stats().dropped, 0);
    assert_true(furthest < 1010);
    plan_free(p);
}

static void readers_that_went_elsewhere_are_followed(void **state)
{
    begin(8 * SIZE, 0, false);
    for (unsigned i = 0; i < 20000; i++)
        add(i);
    plan_commit(p);
    run();
    for (unsigned i = 10000; i < 10200; i++)
        read_key(i);
    assert_true(furthest >= 10200);
    assert_int_equal(fetches[10199], 1);
    assert_true(stats().dropped >= 9000);
    plan_free(p);
}

static void a_window_full_of_a_dead_workers_entries_opens_again(void **state)
{
    begin(8 * SIZE, 0, false);
    for (unsigned i = 0; i < 1000; i++)
        add(i);
    plan_commit(p);
    run();
    for (unsigned i = 10; i < 200; i++)
        read_key(i);
    assert_true(n_drops >= 8);
    assert_int_equal(fetches[199], 1);
    plan_free(p);
}

static void an_entry_opened_before_its_turn_is_not_fetched(void **state)
{
    begin(4 * SIZE, 0, false);
    for (unsigned i = 0; i < 100; i++)
        add(i);
    plan_commit(p);
    run();
    assert_int_not_equal(open_key(50), PLAN_NO_ENTRY);
    for (unsigned i = 0; i < 100; i++)
        if (i != 50)
            read_key(i);
    assert_int_equal(fetches[50], 0);
    assert_int_equal(stats().used, 100);
    plan_free(p);
}

static void missing_objects_are_counted_and_passed_over(void **state)
{
    struct plan_action a;

    begin(4 * SIZE, 0, false);
    for (unsigned i = 0; i < 10; i++)
        add(i);
    plan_commit(p);
    for (plan_step(p, 0, 0, &a); a.what == PLAN_FETCH; plan_step(p, 0, 0, &a))
        plan_missing(p, a.entry);
    assert_int_equal(stats().missing, 10);
    assert_int_equal(stats().window_used, 0);
    assert_true(plan_done(p));
    plan_free(p);
}

static void without_memory_it_waits_for_a_reader(void **state)
{
    struct plan_action a;
    uint32_t first;

    begin(100 * SIZE, 0, false);
    for (unsigned i = 0; i < 10; i++)
        add(i);
    plan_commit(p);
    plan_step(p, 0, 0, &a);
    first = a.entry;
    plan_sized(p, first, SIZE);
    plan_fetched(p, first, -EAGAIN);
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_NOTHING);
    plan_consume(p, open_key(0));
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_FETCH);
    plan_free(p);
}

static void of_a_large_object_only_the_beginning_is_fetched(void **state)
{
    struct plan_action a;

    begin(64 * MIB, 0, false);
    add(0);
    plan_commit(p);
    plan_step(p, 0, 0, &a);
    assert_int_equal(plan_sized(p, a.entry, 10 * GIB), 16 * MIB);
    assert_int_equal(stats().window_used, 16 * MIB);
    plan_free(p);
}

static void warming_fetches_once_as_far_as_memory_goes(void **state)
{
    begin(100 * SIZE, 0, true);
    for (unsigned i = 0; i < 1000; i++)
        add(i);
    plan_commit(p);
    run();
    assert_in_range(n_fetches, 99, 100);
    assert_true(plan_done(p));
    assert_int_equal(stats().dropped, 1000 - n_fetches);
    plan_free(p);
}

// Leaves to the host what the plan asks for; how many that were.
static unsigned run_kept(void)
{
    struct plan_action a;
    unsigned n = 0;

    for (plan_step(p, 0, 0, &a); a.what == PLAN_FETCH; plan_step(p, 0, 0, &a), n++) {
        assert_int_equal(plan_sized(p, a.entry, SIZE), SIZE);
        plan_kept(p, a.entry);
    }
    return n;
}

static void what_the_host_has_takes_its_place_in_the_window(void **state)
{
    begin(50 * SIZE, 0, false);
    for (unsigned i = 0; i < 1000; i++)
        add(i);
    plan_commit(p);
    assert_in_range(run_kept(), 49, 50);
    assert_int_equal(stats().fetched, 0);
    for (unsigned i = 0; i < 1000; i++) {
        assert_true(plan_consume(p, open_key(i)));
        assert_true(run_kept() <= 2);
    }
    assert_int_equal(stats().used, 1000);
    assert_int_equal(stats().window_used, 0);
    assert_true(plan_done(p));
    plan_free(p);
}

static void what_was_left_to_a_host_in_vain_is_fetched_in_order(void **state)
{
    uint32_t opened;

    begin(50 * SIZE, 0, false);
    for (unsigned i = 0; i < 100; i++)
        add(i);
    plan_commit(p);
    run_kept();
    opened = open_key(0);
    plan_doubt(p);
    run();
    assert_int_equal(fetches[0], 0);
    for (unsigned i = 1; i < 49; i++)
        assert_int_equal(fetches[i], 1);
    assert_true(furthest < 50);
    plan_consume(p, opened);
    for (unsigned i = 1; i < 100; i++)
        read_key(i);
    for (unsigned i = 1; i < 100; i++)
        assert_int_equal(fetches[i], 1);
    assert_true(plan_done(p));
    plan_free(p);
}

static void doubt_asks_for_no_more_at_a_time_than_may_be(void **state)
{
    struct plan_action a;

    begin(500 * SIZE, 0, false);
    for (unsigned i = 0; i < 400; i++)
        add(i);
    plan_commit(p);
    assert_int_equal(run_kept(), 400);
    plan_doubt(p);
    assert_int_equal(run_without_landing(0), 128);
    plan_fetched(p, 0, 0);
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_FETCH);
    assert_int_equal(number_of(&a), 128);
    plan_free(p);
}

static void doubt_waits_for_memory(void **state)
{
    struct plan_action a;

    begin(100 * SIZE, 0, false);
    for (unsigned i = 0; i < 200; i++)
        add(i);
    plan_commit(p);
    run_kept();
    assert_true(plan_doubt(p));
    plan_step(p, 75, 0, &a); // the window is half as large now
    assert_int_equal(a.what, PLAN_NOTHING);
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_FETCH);
    assert_int_equal(number_of(&a), 0);
    plan_sized(p, a.entry, SIZE);
    plan_fetched(p, a.entry, -EAGAIN);
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_NOTHING);
    plan_consume(p, open_key(0));
    plan_step(p, 0, 0, &a);
    assert_int_equal(a.what, PLAN_FETCH);
    assert_int_equal(number_of(&a), 1);
    plan_free(p);
}

static void what_was_opened_or_is_over_is_not_doubted(void **state)
{
    begin(50 * SIZE, 0, false);
    for (unsigned i = 0; i < 10; i++)
        add(i);
    plan_commit(p);
    assert_int_equal(run_kept(), 10);
    for (unsigned i = 0; i < 9; i++)
        plan_consume(p, open_key(i));
    open_key(9);
    assert_false(plan_doubt(p));
    run();
    assert_int_equal(n_fetches, 0);
    plan_free(p);
}

static void warming_ends_where_the_host_has_all_or_there_is_nothing(void **state)
{
    struct plan_action a;

    begin(100 * SIZE, 0, true);
    for (unsigned i = 0; i < 10; i++)
        add(i);
    plan_commit(p);
    plan_step(p, 0, 0, &a);
    assert_int_equal(plan_sized(p, a.entry, 0), 0);
    assert_int_equal(run_kept(), 9);
    assert_true(plan_done(p));
    plan_free(p);
}

static void a_consumed_entry_is_not_fetched_any_more(void **state)
{
    struct plan_action a;

    begin(100 * SIZE, 0, false);
    add(0);
    plan_commit(p);
    plan_step(p, 0, 0, &a);
    assert_true(plan_consume(p, open_key(0)));
    assert_int_equal(plan_sized(p, a.entry, SIZE), 0);
    assert_true(plan_done(p) || (plan_step(p, 0, 0, &a), plan_done(p)));
    plan_free(p);
}

static void memory_is_bounded_and_small(void **state)
{
    int rc = 0;
    unsigned i;

    p = plan_new(&(struct plan_config){.window_bytes = MIB, .memory_max = 4 * MIB});
    for (i = 0; rc == 0 && i < 1000000; i++) {
        char key[64];

        rc = plan_add(p, key, key_of(i, key));
    }
    assert_int_equal(rc, -ENOMEM);
    assert_true(stats().memory <= 6 * MIB);
    // name and all, with arrays that may be half empty
    assert_true(stats().memory / i < 2 * (26 + 16));
    plan_free(p);
}

// --- what the plan has done for its reader ---

static void what_is_asked_for_at_once_is_in_time(void **state)
{
    begin(10 * SIZE, 0, false);
    for (unsigned i = 0; i < 5; i++)
        add(i);
    plan_commit(p);
    run();
    open_key(4);
    assert_int_equal(lead, PLAN_IN_TIME);
    open_key(5);
    assert_int_equal(lead, PLAN_UNPLANNED);
    plan_free(p);
}

static void what_a_full_window_kept_back_is_told(void **state)
{
    begin(4 * SIZE, 0, false);
    for (unsigned i = 0; i < 20; i++)
        add(i);
    plan_commit(p);
    run();
    open_key(10); // not asked for yet
    assert_int_equal(lead, PLAN_WINDOW_FULL);
    read_key(0);
    assert_int_equal(lead, PLAN_IN_TIME);
    read_key(1);
    open_key(5); // asked for when there was room
    assert_int_equal(lead, PLAN_WINDOW_FULL);
    plan_free(p);
}

static void what_the_pools_pressure_kept_back_is_told(void **state)
{
    struct plan_action a;

    begin(16 * SIZE, 0, false);
    for (unsigned i = 0; i < 20; i++)
        add(i);
    plan_commit(p);
    do
        plan_step(p, 99, 0, &a);
    while (a.what != PLAN_NOTHING);
    open_key(10);
    assert_int_equal(lead, PLAN_POOL_FULL);
    plan_free(p);
}

static void what_as_many_fetches_as_may_be_kept_back_is_the_stores_fault(void **state)
{
    struct plan_action a;

    begin(100 * SIZE, 2, false);
    for (unsigned i = 0; i < 20; i++)
        add(i);
    plan_commit(p);
    do
        plan_step(p, 0, 0, &a);
    while (a.what != PLAN_NOTHING);
    open_key(10);
    assert_int_equal(lead, PLAN_IN_TIME);
    plan_free(p);
}

static void what_was_left_behind_counts_as_kept_back_and_what_was_read_as_not_planned(void **state)
{
    begin(4 * SIZE, 0, false);
    for (unsigned i = 0; i < 30; i++)
        add(i);
    plan_commit(p);
    run();
    for (unsigned i = 1; i < 20; i++)
        read_key(i);
    assert_int_equal(n_drops, 1);
    assert_int_equal(open_key(0), PLAN_NO_ENTRY);
    assert_int_equal(lead, PLAN_WINDOW_FULL);
    assert_int_equal(open_key(1), PLAN_NO_ENTRY);
    assert_int_equal(lead, PLAN_UNPLANNED);
    plan_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_asked_for_before_the_commit),
        cmocka_unit_test(the_window_bounds_what_is_fetched_ahead),
        cmocka_unit_test(few_are_asked_for_before_a_size_is_known),
        cmocka_unit_test(the_window_stays_small_for_readers_who_find_what_they_want),
        cmocka_unit_test(the_window_grows_for_readers_who_came_too_early),
        cmocka_unit_test(what_has_not_landed_though_it_was_asked_for_at_once_grows_no_window),
        cmocka_unit_test(what_others_are_fetching_takes_the_place_of_the_plans),
        cmocka_unit_test(pressure_shrinks_the_window),
        cmocka_unit_test(only_so_many_are_in_flight),
        cmocka_unit_test(eight_threads_taking_turns_fetch_each_entry_once),
        cmocka_unit_test(workers_at_different_batches_share_the_window),
        cmocka_unit_test(several_processes_reading_all_of_it_fetch_it_once),
        cmocka_unit_test(an_open_that_does_not_read_leaves_the_entry_to_the_next),
        cmocka_unit_test(a_dead_workers_entries_are_dropped_and_counted),
        cmocka_unit_test(a_key_may_come_again_and_each_time_counts),
        cmocka_unit_test(a_late_second_process_does_not_move_the_plan_into_the_next_epoch),
        cmocka_unit_test(readers_that_went_elsewhere_are_followed),
        cmocka_unit_test(a_window_full_of_a_dead_workers_entries_opens_again),
        cmocka_unit_test(an_entry_opened_before_its_turn_is_not_fetched),
        cmocka_unit_test(missing_objects_are_counted_and_passed_over),
        cmocka_unit_test(without_memory_it_waits_for_a_reader),
        cmocka_unit_test(of_a_large_object_only_the_beginning_is_fetched),
        cmocka_unit_test(warming_fetches_once_as_far_as_memory_goes),
        cmocka_unit_test(what_the_host_has_takes_its_place_in_the_window),
        cmocka_unit_test(what_was_left_to_a_host_in_vain_is_fetched_in_order),
        cmocka_unit_test(doubt_asks_for_no_more_at_a_time_than_may_be),
        cmocka_unit_test(doubt_waits_for_memory),
        cmocka_unit_test(what_was_opened_or_is_over_is_not_doubted),
        cmocka_unit_test(warming_ends_where_the_host_has_all_or_there_is_nothing),
        cmocka_unit_test(a_consumed_entry_is_not_fetched_any_more),
        cmocka_unit_test(memory_is_bounded_and_small),
        cmocka_unit_test(what_is_asked_for_at_once_is_in_time),
        cmocka_unit_test(what_a_full_window_kept_back_is_told),
        cmocka_unit_test(what_the_pools_pressure_kept_back_is_told),
        cmocka_unit_test(what_as_many_fetches_as_may_be_kept_back_is_the_stores_fault),
        cmocka_unit_test(what_was_left_behind_counts_as_kept_back_and_what_was_read_as_not_planned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
