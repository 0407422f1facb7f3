// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"
#include "prefetch/stream.h"

#include <string.h>

#define BLOCKS (4 * GIB / (64 * KIB))

// Carries actions out on a map of 64 KiB blocks: bytes asked for, and whether a read finds its own.
struct world {
    struct stream s;
    uint64_t size, fetched;
    uint64_t own; // bytes of reads nobody had asked for before
    uint64_t unwanted;
    uint64_t now_ns;
    struct stream_action last;
    uint8_t asked[BLOCKS];
};

static struct world w;

static void begin(uint64_t size, uint64_t window_max)
{
    memset(&w, 0, sizeof(w));
    w.size = size;
    stream_init(&w.s, size, window_max);
}

static void mark(uint64_t offset, uint64_t len)
{
    for (uint64_t b = offset / (64 * KIB); b * 64 * KIB < offset + len; b++) {
        w.fetched += !w.asked[b] * 64 * KIB;
        w.asked[b] = 1;
    }
}

static uint64_t widest(void)
{
    uint64_t bytes = WINDOW_MIN;

    for (int i = 0; i < STREAM_TRACKS; i++)
        bytes = MAX(bytes, w.s.tracks[i].window.bytes);
    return bytes;
}

static void read_at(uint64_t offset, uint64_t len, unsigned pressure)
{
    // time passes as if the store's latency held the reader up: a window every 10 ms
    w.now_ns += len * 10000000 / widest();
    stream_read(&w.s, offset, len, w.now_ns, pressure, &w.last);
    w.unwanted += w.last.unwant.len;
    assert_true(w.last.n_fetch <= 2);
    for (int i = 0; i < w.last.n_fetch; i++) {
        struct prefetch_range r = w.last.fetch[i];

        assert_true(r.len > 0 && r.offset + r.len <= w.size);
        mark(r.offset, r.len);
    }
    if (!w.asked[offset / (64 * KIB)])
        w.own += len;
}

static void the_first_read_at_the_beginning_asks_for_a_mebibyte(void **state)
{
    begin(1 * GIB, 0);
    read_at(0, 128 * KIB, 0);
    assert_int_equal(w.last.n_fetch, 1);
    assert_int_equal(w.last.fetch[0].offset, 0);
    assert_int_equal(w.last.fetch[0].len, 1 * MIB);
}

static void a_first_read_of_a_mebibyte_is_left_alone_and_the_rest_asked_beside_it(void **state)
{
    begin(1 * GIB, 0);
    read_at(0, 1 * MIB, 0);
    assert_int_equal(w.last.n_fetch, 1);
    assert_int_equal(w.last.fetch[0].offset, 1 * MIB);
    assert_true(w.last.fetch[0].len >= 1 * MIB);
}

static void a_sequential_reader_finds_everything_asked_for(void **state)
{
    begin(256 * MIB, 0);
    for (uint64_t at = 0; at < w.size; at += 128 * KIB)
        read_at(at, 128 * KIB, 0);
    assert_int_equal(w.own, 0);
    assert_int_equal(w.fetched, w.size);
    assert_int_equal(w.unwanted, 0);
}

static void the_window_doubles_to_its_limit_and_no_further(void **state)
{
    begin(1 * GIB, 32 * MIB);
    for (uint64_t at = 0; at < 256 * MIB; at += 1 * MIB) {
        uint64_t ahead = w.fetched > at ? w.fetched - at : 0;

        assert_true(ahead <= 32 * MIB + 1 * MIB);
        read_at(at, 1 * MIB, 0);
        // never more than twice of what was read, and a little
        assert_true(w.fetched <= 5 * at + 4 * MIB);
    }
    assert_true(w.fetched >= 256 * MIB + 16 * MIB);
}

static void a_full_window_is_asked_for_in_whole_extents(void **state)
{
    begin(1 * GIB, 0);
    for (uint64_t at = 0; at < 512 * MIB; at += 1 * MIB) {
        read_at(at, 1 * MIB, 0);
        if (at < 128 * MIB)
            continue;
        for (int i = 0; i < w.last.n_fetch; i++) {
            assert_int_equal(w.last.fetch[i].offset % (8 * MIB), 0);
            assert_int_equal(w.last.fetch[i].len % (8 * MIB), 0);
        }
    }
}

static void pressure_shrinks_the_window(void **state)
{
    begin(1 * GIB, 0);
    for (uint64_t at = 0; at < 512 * MIB; at += 1 * MIB) {
        read_at(at, 1 * MIB, at < 256 * MIB ? 0 : 90);
        if (at >= 400 * MIB)
            assert_true(w.fetched <= at + 1 * MIB + 16 * MIB);
    }
}

static void a_full_pool_stops_pre_reading(void **state)
{
    begin(1 * GIB, 0);
    for (uint64_t at = 0; at < 16 * MIB; at += 1 * MIB) {
        read_at(at, 1 * MIB, 100);
        assert_int_equal(w.last.n_fetch, 0);
    }
}

static void reads_out_of_order_are_still_a_stream(void **state)
{
    static const int order[] = {2, 0, 3, 1, 6, 5, 4, 7};
    uint64_t late = 0;

    begin(512 * MIB, 0);
    for (uint64_t at = 0; at < w.size; at += 8 * MIB) {
        for (int i = 0; i < 8; i++)
            read_at(at + (uint64_t)order[i] * MIB, 1 * MIB, 0);
        if (at == 8 * MIB)
            late = w.own;
    }
    assert_int_equal(w.own, late);
    assert_true(w.fetched >= w.size - 16 * MIB);
}

static void threads_reading_a_part_each_are_a_stream_each(void **state)
{
    begin(1 * GIB, 16 * MIB);
    for (uint64_t at = 0; at < 128 * MIB; at += 256 * KIB)
        for (uint64_t t = 0; t < 8; t++)
            read_at(t * 128 * MIB + at, 256 * KIB, 0);
    // all but what it took to see it
    assert_true(w.own <= 8 * 2 * MIB);
}

static void random_reads_fetch_nothing_more(void **state)
{
    struct rand r;
    uint64_t bytes = 0;

    begin(4 * GIB, 0);
    rand_seed(&r, 1);
    for (int i = 0; i < 20000; i++) {
        uint64_t len = 4 * KIB + rand_below(&r, 252 * KIB);

        read_at(rand_below(&r, w.size - len), len, 0);
        bytes += len;
    }
    assert_true(w.fetched < bytes / 100);
}

static void random_blocks_sent_in_pieces_fetch_little_more(void **state)
{
    struct rand r;
    uint64_t bytes = 0;

    begin(4 * GIB, 0);
    rand_seed(&r, 2);
    for (int i = 0; i < 2000; i++) {
        uint64_t at = rand_below(&r, w.size / MIB - 1) * MIB;

        for (uint64_t piece = 0; piece < MIB; piece += 128 * KIB)
            read_at(at + piece, 128 * KIB, 0);
        bytes += MIB;
    }
    assert_true(w.fetched - w.unwanted < bytes / 20);
}

static void a_seek_forward_of_16_mib_keeps_the_window(void **state)
{
    uint64_t at;

    begin(1 * GIB, 0);
    for (at = 0; at < 128 * MIB; at += 1 * MIB)
        read_at(at, 1 * MIB, 0);
    w.fetched = w.own = 0;
    at += 16 * MIB;
    for (uint64_t end = at + 16 * MIB; at < end; at += 1 * MIB)
        read_at(at, 1 * MIB, 0);
    assert_true(w.fetched >= 24 * MIB);
    assert_int_equal(w.own, 0);
}

static void strided_reads_are_not_run_ahead_of_for_long(void **state)
{
    begin(4 * GIB, 0);
    for (uint64_t at = 0; at < w.size; at += 8 * MIB)
        read_at(at, 4 * KIB, 0);
    assert_true(w.fetched < 64 * MIB);
}

static void a_backward_reader_fetches_nothing_more(void **state)
{
    begin(256 * MIB, 0);
    for (uint64_t at = w.size - 1 * MIB; at > 0; at -= 1 * MIB)
        read_at(at, 1 * MIB, 0);
    assert_int_equal(w.fetched, 0);
}

static void closing_gives_up_what_was_not_read(void **state)
{
    struct prefetch_range r;
    uint64_t given_up = 0;

    begin(1 * GIB, 0);
    for (uint64_t at = 0; at < 100 * MIB; at += 1 * MIB)
        read_at(at, 1 * MIB, 0);
    for (stream_close(&w.s, &r); r.len; stream_close(&w.s, &r))
        given_up = r.offset + r.len - 100 * MIB;
    assert_int_equal(given_up, w.fetched + 1 * MIB - 100 * MIB);
}

static void the_last_byte_is_asked_for_and_nothing_behind_it(void **state)
{
    begin(9 * MIB + 1, 0);
    for (uint64_t at = 0; at < w.size; at += 128 * KIB)
        read_at(at, MIN(128 * KIB, w.size - at), 0);
    assert_true(w.asked[9 * MIB / (64 * KIB)]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_read_at_the_beginning_asks_for_a_mebibyte),
        cmocka_unit_test(a_first_read_of_a_mebibyte_is_left_alone_and_the_rest_asked_beside_it),
        cmocka_unit_test(a_sequential_reader_finds_everything_asked_for),
        cmocka_unit_test(the_window_doubles_to_its_limit_and_no_further),
        cmocka_unit_test(a_full_window_is_asked_for_in_whole_extents),
        cmocka_unit_test(pressure_shrinks_the_window),
        cmocka_unit_test(a_full_pool_stops_pre_reading),
        cmocka_unit_test(reads_out_of_order_are_still_a_stream),
        cmocka_unit_test(threads_reading_a_part_each_are_a_stream_each),
        cmocka_unit_test(random_reads_fetch_nothing_more),
        cmocka_unit_test(random_blocks_sent_in_pieces_fetch_little_more),
        cmocka_unit_test(a_seek_forward_of_16_mib_keeps_the_window),
        cmocka_unit_test(strided_reads_are_not_run_ahead_of_for_long),
        cmocka_unit_test(a_backward_reader_fetches_nothing_more),
        cmocka_unit_test(closing_gives_up_what_was_not_read),
        cmocka_unit_test(the_last_byte_is_asked_for_and_nothing_behind_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
