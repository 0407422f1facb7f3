// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"
#include "prefetch/window.h"

#undef MAX
#define MAX (64 * MIB)

// A reader of 1 MiB at a time whose rate, in bytes a nanosecond, depends on the window.
static uint64_t read_on(struct window *w, uint64_t *now, uint64_t bytes, double (*rate)(uint64_t))
{
    for (uint64_t at = 0; at < bytes; at += MIB) {
        *now += (uint64_t)((double)MIB / rate(w->bytes));
        window_read(w, MIB, *now, MAX);
    }
    return w->bytes;
}

// The store's latency holds the reader up: a window every 10 ms, at most 3 GiB/s.
static double latency_bound(uint64_t window)
{
    double rate = (double)window / 10e6;

    return rate < 3.2 ? rate : 3.2;
}

static double reader_bound(uint64_t window)
{
    return 1.5;
}

// A little slower when the bytes leave the caches.
static double cache_bound(uint64_t window)
{
    return window <= 32 * MIB ? 1.5 : 1.3;
}

static void it_doubles_to_the_easy_size_as_bytes_are_read(void **state)
{
    struct window w;

    window_init(&w);
    assert_int_equal(w.bytes, WINDOW_MIN);
    assert_int_equal(window_read(&w, 1 * MIB, 1, MAX), 4 * MIB);
    assert_int_equal(window_read(&w, 1 * MIB, 2, MAX), 8 * MIB);
    assert_int_equal(window_read(&w, 6 * MIB, 3, MAX), WINDOW_EASY);
}

static void it_grows_where_latency_holds_the_reader_up(void **state)
{
    struct window w;
    uint64_t now = 1;

    window_init(&w);
    assert_true(read_on(&w, &now, 1 * GIB, latency_bound) >= 32 * MIB);
}

static void it_stays_small_where_a_larger_one_pays_nothing(void **state)
{
    struct window w;
    uint64_t now = 1, larger = 0;

    window_init(&w);
    for (int i = 0; i < 4096; i++)
        larger += read_on(&w, &now, MIB, reader_bound) > WINDOW_EASY;
    assert_true(larger < 4096 / 10);
}

static void it_shrinks_again_when_it_no_longer_pays(void **state)
{
    struct window w;
    uint64_t now = 1;

    window_init(&w);
    read_on(&w, &now, 1 * GIB, latency_bound);
    read_on(&w, &now, 20 * GIB, cache_bound);
    assert_true(w.bytes <= 32 * MIB);
}

static void it_keeps_within_a_limit_that_sinks(void **state)
{
    struct window w;
    uint64_t now = 1;

    window_init(&w);
    read_on(&w, &now, 1 * GIB, latency_bound);
    assert_int_equal(window_read(&w, MIB, now + 1, 4 * MIB), 4 * MIB);
    assert_int_equal(window_read(&w, MIB, now + 2, 1), WINDOW_MIN);
}

static void it_is_never_outside_its_limits_whatever_the_times(void **state)
{
    struct window w;
    struct rand r;
    uint64_t now = 0;

    rand_seed(&r, 1);
    window_init(&w);
    for (int i = 0; i < 100000; i++) {
        uint64_t bytes;

        now += rand_below(&r, 3) ? rand_below(&r, 10000000) : 0;
        bytes = window_read(&w, 1 + rand_below(&r, 4 * MIB), now, MAX);
        assert_in_range(bytes, WINDOW_MIN, MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_doubles_to_the_easy_size_as_bytes_are_read),
        cmocka_unit_test(it_grows_where_latency_holds_the_reader_up),
        cmocka_unit_test(it_stays_small_where_a_larger_one_pays_nothing),
        cmocka_unit_test(it_shrinks_again_when_it_no_longer_pays),
        cmocka_unit_test(it_keeps_within_a_limit_that_sinks),
        cmocka_unit_test(it_is_never_outside_its_limits_whatever_the_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
