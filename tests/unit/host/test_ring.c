// SPDX-License-Identifier: Apache-2.0
// The driver's side of a ring and of its slots, against what a device may write there.
#include "test.h"

#include "host/vhost_ring.h"
#include "host/vhost_slots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 8

struct world {
    void *memory;
    struct ring r;
    struct slots slots;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    w->memory = aligned_alloc(4096, 4096);
    memset(w->memory, 0, 4096);
    ring_init(&w->r, w->memory, SIZE);
    w->slots = (struct slots){calloc(1, slots_bytes(2, 1)), 1 << 20, 2, 1};
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    free(w->memory);
    free(w->slots.memory);
    free(w);
    return 0;
}

static void use(struct ring *r, uint32_t id, uint32_t len)
{
    r->v.used->ring[r->v.used->idx % SIZE] = (struct vring_used_elem){id, len};
    r->v.used->idx++;
}

static void what_is_added_is_taken_once(void **state)
{
    struct world *w = *state;
    uint32_t id, len;

    // round and round, beyond where the counters overflow
    for (unsigned i = 0; i < 70000; i++) {
        ring_add(&w->r, (uint16_t)(i % SIZE));
        assert_int_equal(w->r.v.avail->ring[i % SIZE], i % SIZE);
        use(&w->r, i % SIZE, i);
        assert_int_equal(ring_take(&w->r, &id, &len), 1);
        assert_int_equal(id, i % SIZE);
        assert_int_equal(len, i);
        assert_int_equal(ring_take(&w->r, &id, &len), 0);
    }
}

static void a_device_that_counts_too_far_is_found_out(void **state)
{
    struct world *w = *state;
    uint32_t id, len;

    ring_add(&w->r, 3);
    w->r.v.used->idx = 2;
    assert_int_equal(ring_take(&w->r, &id, &len), -EBADMSG);
    w->r.v.used->idx = 0xffff;
    assert_int_equal(ring_take(&w->r, &id, &len), -EBADMSG);
}

static void a_device_that_is_awake_is_not_kicked(void **state)
{
    struct world *w = *state;

    assert_false(ring_kick_needed(&w->r));
    ring_add(&w->r, 0);
    assert_true(ring_kick_needed(&w->r));
    assert_false(ring_kick_needed(&w->r)); // told once
    ring_add(&w->r, 1);
    assert_false(ring_kick_needed(&w->r)); // it has not asked for this one
    ring_add(&w->r, 2);
    *(uint16_t *)&vring_avail_event(&w->r.v) = 2;
    assert_true(ring_kick_needed(&w->r));
}

static void arming_tells_what_came_meanwhile(void **state)
{
    struct world *w = *state;

    ring_add(&w->r, 0);
    assert_true(ring_arm(&w->r, 1));
    assert_int_equal(vring_used_event(&w->r.v), 0);
    assert_true(ring_arm(&w->r, 3)); // at the third
    assert_int_equal(vring_used_event(&w->r.v), 2);
    use(&w->r, 0, 0);
    assert_false(ring_arm(&w->r, 1));
}

static void fill(struct world *w, unsigned i, size_t in_len, size_t out_len, uint64_t data_len)
{
    uint8_t *bytes = calloc(1, in_len + 1);
    struct iovec in = {bytes, in_len};
    struct slot_message m = {
        .head = {.opcode = 1, .unique = 42},
        .in = &in,
        .n_in = 1,
        .out_len = out_len,
        .data_address = (uint64_t)1 << 41,
        .data_len = data_len,
    };

    slots_fill(&w->slots, i, &w->r, &m);
    free(bytes);
}

static const struct vring_desc *table_of(struct world *w, unsigned i)
{
    return (void *)(w->slots.memory + (w->r.v.desc[i].addr - w->slots.address));
}

static void a_message_is_described_by_an_indirect_table(void **state)
{
    struct world *w = *state;
    const struct vring_desc *t;

    fill(w, 1, 100, 8, 5 * GIB / 2);
    assert_int_equal(w->r.v.desc[1].flags, VRING_DESC_F_INDIRECT);
    assert_int_equal(w->r.v.desc[1].len, 5 * sizeof(*t));
    t = table_of(w, 1);
    assert_int_equal(t[0].flags, VRING_DESC_F_NEXT);
    assert_int_equal(t[0].len, sizeof(struct fuse_in_header) + 100);
    assert_int_equal(t[1].flags, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT);
    assert_int_equal(t[1].len, sizeof(struct fuse_out_header) + 8);
    assert_int_equal(t[2].len + (uint64_t)t[3].len + t[4].len, 5 * GIB / 2);
    assert_int_equal(t[3].addr, ((uint64_t)1 << 41) + t[2].len);
    assert_int_equal(t[4].flags, VRING_DESC_F_WRITE);
}

static void answer(struct world *w, unsigned i, struct fuse_out_header h)
{
    const struct vring_desc *t = table_of(w, i);

    memcpy(w->slots.memory + (t[1].addr - w->slots.address), &h, sizeof(h));
}

static void an_answer_is_split_into_what_precedes_data_and_data(void **state)
{
    struct world *w = *state;
    struct slot_answer a;

    fill(w, 0, 10, 8, 1000);
    answer(w, 0, (struct fuse_out_header){16 + 8 + 700, 0, 42});
    assert_int_equal(slots_answer(&w->slots, 0, 42, 8, 1000, &a), 0);
    assert_int_equal(a.error, 0);
    assert_int_equal(a.out_got, 8);
    assert_int_equal(a.data_got, 700);
}

static void an_answer_that_was_not_written_is_none(void **state)
{
    struct world *w = *state;
    struct slot_answer a;

    fill(w, 0, 10, 8, 1000);
    answer(w, 0, (struct fuse_out_header){16 + 8, 0, 42});
    fill(w, 0, 10, 8, 1000);
    assert_int_equal(slots_answer(&w->slots, 0, 42, 8, 1000, &a), -EBADMSG);
}

static void answers_that_cannot_be_are_refused(void **state)
{
    struct world *w = *state;
    const struct fuse_out_header bad[] = {
        {16 + 8 + 1001, 0, 42}, // longer than its room
        {15, 0, 42},            // shorter than a header
        {16, 0, 43},            // of another request
        {16, 5, 42},            // no errno
        {16, -5000, 42},
        {0xffffffff, 0, 42},
    };
    struct slot_answer a;

    fill(w, 0, 10, 8, 1000);
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        answer(w, 0, bad[i]);
        assert_int_equal(slots_answer(&w->slots, 0, 42, 8, 1000, &a), -EBADMSG);
    }
}

static void large_messages_have_slots_of_their_own(void **state)
{
    struct world *w = *state;
    struct slot_answer a;

    assert_false(slots_is_large(1536, 384));
    assert_true(slots_is_large(1537, 0));
    assert_true(slots_is_large(0, 385));
    fill(w, 2, 20 * 1024, 64 * 1024, 0);
    answer(w, 2, (struct fuse_out_header){16 + 64 * 1024, 0, 42});
    assert_int_equal(slots_answer(&w->slots, 2, 42, 64 * 1024, 0, &a), 0);
    assert_true((const uint8_t *)a.out + a.out_got <= w->slots.memory + slots_bytes(2, 1));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_is_added_is_taken_once),
        T(a_device_that_counts_too_far_is_found_out),
        T(a_device_that_is_awake_is_not_kicked),
        T(arming_tells_what_came_meanwhile),
        T(a_message_is_described_by_an_indirect_table),
        T(an_answer_is_split_into_what_precedes_data_and_data),
        T(an_answer_that_was_not_written_is_none),
        T(answers_that_cannot_be_are_refused),
        T(large_messages_have_slots_of_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
