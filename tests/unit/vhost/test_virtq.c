// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "driver.h"
#include "front/vhost/virtq.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SIZE   8u
#define PIECES (VHOST_RING_MAX + 8)
#define WRITE  VRING_DESC_F_WRITE
#define NEXT   VRING_DESC_F_NEXT

struct fixture {
    struct driver driver;
    struct region_map *map;
    struct virtq_log log;
    struct virtq q;
    int call_fd, kick_fd; // the driver's
    struct region_piece pieces[PIECES];
    struct virtq_chain chain;
    const char *why;
};

static void share(struct fixture *f, uint64_t addr, uint64_t offset, uint64_t size)
{
    struct region_info info = {.addr = addr,
                               .user_addr = DRIVER_USER_ADDR + (addr - DRIVER_ADDR),
                               .size = size,
                               .fd_offset = offset};
    uint64_t id;

    assert_int_equal(region_add(f->map, &info, dup(f->driver.fd), &id), 0);
}

static struct fixture *fixture_new(uint64_t features)
{
    struct fixture *f = test_calloc(1, sizeof(*f));
    struct vhost_command start;

    driver_init(&f->driver, SIZE, features, true);
    f->map = region_map_new(NULL, 0);
    // in two parts that lie side by side
    share(f, DRIVER_ADDR, 0, 2 * MIB);
    share(f, DRIVER_ADDR + 2 * MIB, 2 * MIB, DRIVER_MEMORY - 2 * MIB);
    f->call_fd = eventfd(0, EFD_NONBLOCK);
    f->kick_fd = eventfd(0, 0);
    start = driver_start(&f->driver, 0);
    assert_int_equal(virtq_start(&f->q, f->map, &f->log, &start, dup(f->kick_fd)), 0);
    f->chain = (struct virtq_chain){.max = PIECES, .pieces = f->pieces};
    return f;
}

static int setup_plain(void **state)
{
    *state = fixture_new(DRIVER_INDIRECT);
    return 0;
}

static int setup_event_idx(void **state)
{
    *state = fixture_new(DRIVER_INDIRECT | DRIVER_EVENT_IDX);
    return 0;
}

static int setup_bare(void **state)
{
    *state = fixture_new(0);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    virtq_stop(&f->q);
    region_map_free(f->map);
    driver_fini(&f->driver);
    close(f->call_fd);
    close(f->kick_fd);
    test_free(f);
    return 0;
}

static int pop(struct fixture *f)
{
    f->why = NULL;
    return virtq_pop(&f->q, &f->chain, &f->why);
}

static void assert_bad(struct fixture *f, const char *why)
{
    assert_int_equal(pop(f), -EBADMSG);
    assert_string_equal(f->why, why);
}

static bool called(struct fixture *f)
{
    eventfd_t n;

    return eventfd_read(f->call_fd, &n) == 0;
}

static uint64_t heap(uint64_t offset)
{
    return DRIVER_ADDR + DRIVER_HEAP + offset;
}

// One chain: a readable descriptor and a writable one.
static void offer_pair(struct fixture *f, uint16_t head)
{
    driver_describe(&f->driver, head, heap(0), 100, NEXT, (uint16_t)(head + 1));
    driver_describe(&f->driver, (uint16_t)(head + 1), heap(4096), 2000, WRITE, 0);
    driver_offer(&f->driver, head);
}

// --- chains ---

static void a_chain_is_popped_as_pieces_of_regions(void **state)
{
    struct fixture *f = *state;

    strcpy(f->driver.memory + DRIVER_HEAP, "request");
    offer_pair(f, 2);
    assert_int_equal(pop(f), 1);
    assert_int_equal(f->chain.head, 2);
    assert_false(f->chain.replayed);
    assert_int_equal(f->chain.n_in, 1);
    assert_int_equal(f->chain.n_out, 1);
    assert_int_equal(f->chain.in_len, 100);
    assert_int_equal(f->chain.out_len, 2000);
    assert_string_equal(f->pieces[0].base, "request");
    assert_int_equal(f->pieces[1].offset, DRIVER_HEAP + 4096);
    assert_true(f->pieces[1].sealed);
    assert_int_equal(pop(f), 0);
}

static void an_answer_is_in_the_used_ring(void **state)
{
    struct fixture *f = *state;
    uint32_t head, len;

    offer_pair(f, 4);
    assert_int_equal(pop(f), 1);
    assert_int_equal(f->q.in_progress, 1);
    assert_false(driver_take(&f->driver, &head, &len));
    assert_int_equal(virtq_push(&f->q, 4, 123), 0);
    assert_int_equal(f->q.in_progress, 0);
    assert_true(driver_take(&f->driver, &head, &len));
    assert_int_equal(head, 4);
    assert_int_equal(len, 123);
}

static void chains_come_in_order_and_are_answered_in_any(void **state)
{
    struct fixture *f = *state;
    uint32_t head, len;

    for (uint16_t i = 0; i < SIZE; i += 2)
        offer_pair(f, i);
    for (uint16_t i = 0; i < SIZE; i += 2) {
        assert_int_equal(pop(f), 1);
        assert_int_equal(f->chain.head, i);
    }
    assert_int_equal(pop(f), 0);
    for (int i = SIZE - 2; i >= 0; i -= 2)
        assert_int_equal(virtq_push(&f->q, (uint16_t)i, (uint32_t)i), 0);
    for (int i = SIZE - 2; i >= 0; i -= 2) {
        assert_true(driver_take(&f->driver, &head, &len));
        assert_int_equal(head, i);
    }
}

static void indices_wrap_around(void **state)
{
    struct fixture *f = *state;
    uint32_t head, len;

    for (unsigned i = 0; i < 70000; i++) {
        uint16_t h = (uint16_t)(i % SIZE & ~1u);

        offer_pair(f, h);
        assert_int_equal(pop(f), 1);
        assert_int_equal(virtq_push(&f->q, h, i), 0);
        assert_true(driver_take(&f->driver, &head, &len));
        assert_int_equal(len, i);
    }
}

static void a_descriptor_across_two_regions_becomes_two_pieces(void **state)
{
    struct fixture *f = *state;

    driver_describe(&f->driver, 0, DRIVER_ADDR + 2 * MIB - 10, 30, WRITE, 0);
    driver_offer(&f->driver, 0);
    assert_int_equal(pop(f), 1);
    assert_int_equal(f->chain.n_out, 2);
    assert_int_equal(f->chain.out_len, 30);
    assert_int_equal(f->pieces[0].len, 10);
    assert_int_equal(f->pieces[1].len, 20);
    assert_int_equal(f->pieces[1].offset, 0);
    assert_int_not_equal(f->pieces[0].id, f->pieces[1].id);
}

static void fill_table(struct fixture *f, uint64_t offset, unsigned n)
{
    struct vring_desc *t = driver_table(&f->driver, offset);

    for (unsigned i = 0; i < n; i++)
        t[i] = (struct vring_desc){.addr = heap(i * 16),
                                   .len = 16,
                                   .flags = WRITE | (i + 1 < n ? NEXT : 0),
                                   .next = (uint16_t)(i + 1)};
}

static void offer_table(struct fixture *f, uint64_t offset, uint32_t len)
{
    driver_describe(&f->driver, 0, DRIVER_ADDR + offset, len, VRING_DESC_F_INDIRECT, 0);
    driver_offer(&f->driver, 0);
}

static void an_indirect_table_is_walked(void **state)
{
    struct fixture *f = *state;

    fill_table(f, 1 * MIB, VHOST_RING_MAX);
    offer_table(f, 1 * MIB, VHOST_RING_MAX * 16);
    assert_int_equal(pop(f), 1);
    assert_int_equal(f->chain.n_out, VHOST_RING_MAX);
    assert_int_equal(f->chain.out_len, VHOST_RING_MAX * 16);
}

static void an_indirect_table_may_lie_across_regions(void **state)
{
    struct fixture *f = *state;

    fill_table(f, 2 * MIB - 24, 4);
    offer_table(f, 2 * MIB - 24, 4 * 16);
    assert_int_equal(pop(f), 1);
    assert_int_equal(f->chain.n_out, 4);
}

static void direct_descriptors_may_end_in_an_indirect_table(void **state)
{
    struct fixture *f = *state;

    fill_table(f, 1 * MIB, 3);
    driver_describe(&f->driver, 5, heap(0), 40, NEXT, 1);
    driver_describe(&f->driver, 1, DRIVER_ADDR + 1 * MIB, 48, VRING_DESC_F_INDIRECT, 0);
    driver_offer(&f->driver, 5);
    assert_int_equal(pop(f), 1);
    assert_int_equal(f->chain.n_in, 1);
    assert_int_equal(f->chain.n_out, 3);
}

// --- bad rings ---

static void a_head_outside_the_ring_is_bad(void **state)
{
    struct fixture *f = *state;

    driver_offer(&f->driver, SIZE);
    assert_bad(f, "a head outside the ring");
}

static void a_head_that_is_in_progress_is_bad(void **state)
{
    struct fixture *f = *state;

    offer_pair(f, 0);
    driver_offer(&f->driver, 0);
    assert_int_equal(pop(f), 1);
    assert_bad(f, "a head that is in progress");
}

static void more_available_than_the_ring_has_is_bad(void **state)
{
    struct fixture *f = *state;

    f->driver.ring.avail->idx = SIZE + 1;
    assert_bad(f, "more available than the ring is large");
}

static void a_next_outside_the_ring_is_bad(void **state)
{
    struct fixture *f = *state;

    driver_describe(&f->driver, 0, heap(0), 10, NEXT, SIZE);
    driver_offer(&f->driver, 0);
    assert_bad(f, "a next descriptor outside the ring");
}

static void a_loop_is_bad(void **state)
{
    struct fixture *f = *state;

    driver_describe(&f->driver, 0, heap(0), 10, NEXT, 1);
    driver_describe(&f->driver, 1, heap(0), 10, NEXT, 0);
    driver_offer(&f->driver, 0);
    assert_bad(f, "a loop of descriptors");
}

static void a_readable_descriptor_after_a_writable_one_is_bad(void **state)
{
    struct fixture *f = *state;

    driver_describe(&f->driver, 0, heap(0), 10, NEXT | WRITE, 1);
    driver_describe(&f->driver, 1, heap(0), 10, 0, 0);
    driver_offer(&f->driver, 0);
    assert_bad(f, "a readable descriptor after a writable one");
}

static void an_empty_descriptor_is_bad(void **state)
{
    struct fixture *f = *state;

    driver_describe(&f->driver, 0, heap(0), 0, 0, 0);
    driver_offer(&f->driver, 0);
    assert_bad(f, "a descriptor without bytes");
}

static void memory_that_is_not_shared_is_bad(void **state)
{
    struct fixture *f = *state;

    driver_describe(&f->driver, 0, DRIVER_ADDR + DRIVER_MEMORY - 1, 2, 0, 0);
    driver_offer(&f->driver, 0);
    assert_bad(f, "a descriptor outside the shared memory");
}

static void memory_to_write_to_that_is_not_shared_is_told(void **state)
{
    struct fixture *f = *state;

    driver_describe(&f->driver, 0, DRIVER_ADDR + DRIVER_MEMORY - 1, 3, WRITE, 0);
    driver_offer(&f->driver, 0);
    assert_int_equal(pop(f), 1);
    assert_true(f->chain.nowhere);
    assert_int_equal(f->chain.n_out, 2);
    assert_int_equal(f->chain.out_len, 3);
    assert_non_null(f->chain.pieces[0].base);
    assert_null(f->chain.pieces[1].base);
    assert_int_equal(f->chain.pieces[1].id, 0);
    driver_describe(&f->driver, 1, DRIVER_ADDR, 2, WRITE, 0);
    driver_offer(&f->driver, 1);
    assert_int_equal(pop(f), 1);
    assert_false(f->chain.nowhere);
}

static void an_address_that_wraps_around_is_bad(void **state)
{
    struct fixture *f = *state;

    driver_describe(&f->driver, 0, UINT64_MAX - 1, 8, WRITE, 0);
    driver_offer(&f->driver, 0);
    assert_bad(f, "a descriptor beyond the last address");
}

static void a_chain_in_more_pieces_than_there_is_room_for_is_bad(void **state)
{
    struct fixture *f = *state;

    f->chain.max = 1;
    offer_pair(f, 0);
    assert_bad(f, "a chain in too many pieces");
}

static void an_indirect_table_of_a_bad_length_is_bad(void **state)
{
    struct fixture *f = *state;
    static const uint32_t lengths[] = {0, 15, 17, (VHOST_RING_MAX + 1) * 16, UINT32_MAX - 15};

    driver_offer(&f->driver, 0);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        driver_describe(&f->driver, 0, heap(0), lengths[i], VRING_DESC_F_INDIRECT, 0);
        assert_bad(f, "an indirect table of a bad length");
    }
}

static void an_indirect_table_in_another_is_bad(void **state)
{
    struct fixture *f = *state;

    fill_table(f, 1 * MIB, 2);
    driver_table(&f->driver, 1 * MIB)[1].flags = VRING_DESC_F_INDIRECT;
    offer_table(f, 1 * MIB, 32);
    assert_bad(f, "an indirect table in another");
}

static void an_indirect_table_with_a_next_descriptor_is_bad(void **state)
{
    struct fixture *f = *state;

    fill_table(f, 1 * MIB, 2);
    driver_describe(&f->driver, 0, DRIVER_ADDR + 1 * MIB, 32, VRING_DESC_F_INDIRECT | NEXT, 1);
    driver_offer(&f->driver, 0);
    assert_bad(f, "an indirect table with a next descriptor");
}

static void a_loop_in_an_indirect_table_is_bad(void **state)
{
    struct fixture *f = *state;
    struct vring_desc *t = driver_table(&f->driver, 1 * MIB);

    fill_table(f, 1 * MIB, 2);
    t[1].flags |= NEXT;
    t[1].next = 0;
    offer_table(f, 1 * MIB, 32);
    assert_bad(f, "a loop in an indirect table");
    t[1].next = 2;
    assert_bad(f, "a next descriptor outside its table");
}

static void an_indirect_table_outside_the_memory_is_bad(void **state)
{
    struct fixture *f = *state;

    offer_table(f, DRIVER_MEMORY - 16, 32);
    assert_bad(f, "an indirect table outside the shared memory");
    driver_describe(&f->driver, 0, UINT64_MAX - 15, 32, VRING_DESC_F_INDIRECT, 0);
    assert_bad(f, "an indirect table beyond the last address");
}

static void an_indirect_table_that_was_not_agreed_on_is_bad(void **state)
{
    struct fixture *f = *state;

    fill_table(f, 1 * MIB, 2);
    offer_table(f, 1 * MIB, 32);
    assert_bad(f, "an indirect table that was not agreed on");
}

static void a_direct_chain_and_its_table_count_together(void **state)
{
    struct fixture *f = *state;

    fill_table(f, 1 * MIB, VHOST_RING_MAX);
    driver_describe(&f->driver, 5, heap(0), 40, NEXT, 1);
    driver_describe(&f->driver, 1, DRIVER_ADDR + 1 * MIB, VHOST_RING_MAX * 16,
                    VRING_DESC_F_INDIRECT, 0);
    driver_offer(&f->driver, 5);
    assert_bad(f, "a chain of too many descriptors");
}

// --- memory that goes ---

static void a_ring_that_is_cut_off_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct driver d;
    struct region_map *map = region_map_new(NULL, 0);
    struct vhost_command region, start;
    struct virtq q;
    uint64_t id;

    driver_init(&d, SIZE, 0, false);
    region = driver_region(&d);
    assert_int_equal(region_add(map,
                                &(struct region_info){region.region.addr, region.region.user_addr,
                                                      region.region.size, 0},
                                dup(d.fd), &id),
                     0);
    start = driver_start(&d, 0);
    memset(&f->log, 0, sizeof(f->log));
    assert_int_equal(virtq_start(&q, map, &f->log, &start, -1), 0);
    region_guard_install(); // over cmocka's handler
    assert_return_code(ftruncate(d.fd, 0), errno);
    assert_int_equal(virtq_pop(&q, &f->chain, &f->why), -EFAULT);
    assert_string_equal(f->why, "the ring is not there any more");
    assert_int_equal(virtq_push(&q, 0, 0), -EFAULT);
    virtq_stop(&q);
    region_map_free(map);
    driver_fini(&d);
}

static void the_regions_of_the_ring_are_known(void **state)
{
    struct fixture *f = *state;
    struct region_info first = {
        .addr = DRIVER_ADDR, .user_addr = DRIVER_USER_ADDR, .size = 2 * MIB};
    uint64_t id = region_find(f->map, &first);

    assert_int_not_equal(id, 0);
    assert_true(virtq_touches(&f->q, id));
    assert_false(virtq_touches(&f->q, id + 1));
}

static void a_ring_that_is_not_shared_or_not_aligned_does_not_start(void **state)
{
    struct fixture *f = *state;
    struct vhost_command start = driver_start(&f->driver, 0), bad;
    struct virtq q;

    bad = start;
    bad.ring.desc += 8;
    assert_int_equal(virtq_start(&q, f->map, &f->log, &bad, -1), -EINVAL);
    bad = start;
    bad.ring.used = DRIVER_USER_ADDR + 2 * MIB - 8; // across two regions
    assert_int_equal(virtq_start(&q, f->map, &f->log, &bad, -1), -EINVAL);
    bad = start;
    bad.ring.avail = 0;
    assert_int_equal(virtq_start(&q, f->map, &f->log, &bad, -1), -EINVAL);
    static const uint32_t sizes[] = {0, 3, 2 * VHOST_RING_MAX, 1u << 31};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        bad = start;
        bad.ring.size = sizes[i];
        assert_int_equal(virtq_start(&q, f->map, &f->log, &bad, -1), -EINVAL);
    }
}

// --- telling each other ---

static void setting_the_call_descriptor_signals_once(void **state)
{
    struct fixture *f = *state;

    virtq_set_call(&f->q, dup(f->call_fd));
    assert_true(called(f));
    assert_false(called(f));
    virtq_set_call(&f->q, -1);
}

static void answer_one(struct fixture *f, uint16_t head)
{
    offer_pair(f, head);
    assert_int_equal(pop(f), 1);
    assert_int_equal(virtq_push(&f->q, head, 0), 0);
}

static void every_answer_signals_unless_the_driver_says_no(void **state)
{
    struct fixture *f = *state;

    virtq_set_call(&f->q, dup(f->call_fd));
    called(f);
    answer_one(f, 0);
    assert_true(called(f));
    f->driver.ring.avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
    answer_one(f, 0);
    assert_false(called(f));
    f->driver.ring.avail->flags = 0;
    answer_one(f, 0);
    assert_true(called(f));
}

static void with_event_idx_an_answer_signals_where_it_was_asked_for(void **state)
{
    struct fixture *f = *state;

    virtq_set_call(&f->q, dup(f->call_fd));
    called(f);
    answer_one(f, 0);
    assert_true(called(f)); // the first: what was signalled before is not known
    vring_used_event(&f->driver.ring) = 3;
    answer_one(f, 0);
    answer_one(f, 0);
    assert_false(called(f));
    answer_one(f, 0);
    assert_true(called(f));
    answer_one(f, 0);
    assert_false(called(f));
}

static void an_idle_queue_asks_for_kicks_and_a_busy_one_does_not(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(pop(f), 0);
    assert_int_equal(f->driver.ring.used->flags, 0);
    offer_pair(f, 0);
    assert_int_equal(pop(f), 1);
    assert_int_equal(f->driver.ring.used->flags, VRING_USED_F_NO_NOTIFY);
    assert_int_equal(pop(f), 0);
    assert_int_equal(f->driver.ring.used->flags, 0);
}

static void with_event_idx_an_idle_queue_asks_for_the_next_kick(void **state)
{
    struct fixture *f = *state;

    offer_pair(f, 0);
    offer_pair(f, 2);
    assert_int_equal(pop(f), 1);
    assert_int_equal(pop(f), 1);
    assert_int_equal(vring_avail_event(&f->driver.ring), 0);
    assert_int_equal(pop(f), 0);
    assert_int_equal(vring_avail_event(&f->driver.ring), 2);
}

static void a_kick_is_taken_and_a_missing_one_does_not_block(void **state)
{
    struct fixture *f = *state;
    eventfd_t n;

    eventfd_write(f->kick_fd, 3);
    assert_true(virtq_kicked(&f->q));
    assert_true(virtq_kicked(&f->q));
    eventfd_write(f->kick_fd, 1);
    assert_return_code(eventfd_read(f->kick_fd, &n), errno);
    assert_int_equal(n, 1);
}

int main(void)
{
#define TEST(setup, fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(setup_plain, a_chain_is_popped_as_pieces_of_regions),
        TEST(setup_plain, an_answer_is_in_the_used_ring),
        TEST(setup_event_idx, chains_come_in_order_and_are_answered_in_any),
        TEST(setup_event_idx, indices_wrap_around),
        TEST(setup_plain, a_descriptor_across_two_regions_becomes_two_pieces),
        TEST(setup_plain, an_indirect_table_is_walked),
        TEST(setup_plain, an_indirect_table_may_lie_across_regions),
        TEST(setup_plain, direct_descriptors_may_end_in_an_indirect_table),
        TEST(setup_plain, a_head_outside_the_ring_is_bad),
        TEST(setup_plain, a_head_that_is_in_progress_is_bad),
        TEST(setup_plain, more_available_than_the_ring_has_is_bad),
        TEST(setup_plain, a_next_outside_the_ring_is_bad),
        TEST(setup_plain, a_loop_is_bad),
        TEST(setup_plain, a_readable_descriptor_after_a_writable_one_is_bad),
        TEST(setup_plain, an_empty_descriptor_is_bad),
        TEST(setup_plain, memory_that_is_not_shared_is_bad),
        TEST(setup_plain, memory_to_write_to_that_is_not_shared_is_told),
        TEST(setup_plain, an_address_that_wraps_around_is_bad),
        TEST(setup_plain, a_chain_in_more_pieces_than_there_is_room_for_is_bad),
        TEST(setup_plain, an_indirect_table_of_a_bad_length_is_bad),
        TEST(setup_plain, an_indirect_table_in_another_is_bad),
        TEST(setup_plain, an_indirect_table_with_a_next_descriptor_is_bad),
        TEST(setup_plain, a_loop_in_an_indirect_table_is_bad),
        TEST(setup_plain, an_indirect_table_outside_the_memory_is_bad),
        TEST(setup_bare, an_indirect_table_that_was_not_agreed_on_is_bad),
        TEST(setup_plain, a_direct_chain_and_its_table_count_together),
        TEST(setup_plain, a_ring_that_is_cut_off_is_an_error),
        TEST(setup_plain, the_regions_of_the_ring_are_known),
        TEST(setup_plain, a_ring_that_is_not_shared_or_not_aligned_does_not_start),
        TEST(setup_plain, setting_the_call_descriptor_signals_once),
        TEST(setup_plain, every_answer_signals_unless_the_driver_says_no),
        TEST(setup_event_idx, with_event_idx_an_answer_signals_where_it_was_asked_for),
        TEST(setup_plain, an_idle_queue_asks_for_kicks_and_a_busy_one_does_not),
        TEST(setup_event_idx, with_event_idx_an_idle_queue_asks_for_the_next_kick),
        TEST(setup_plain, a_kick_is_taken_and_a_missing_one_does_not_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
