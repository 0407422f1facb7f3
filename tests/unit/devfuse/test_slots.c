// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "front/devfuse/devfuse.h"
#include "front/devfuse/slots.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int new_memory(void)
{
    int fd = memfd_create("slots", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)devfuse_slots_size()), 0);
    return fd;
}

// As the kernel writes a request into a slot.
static void fill(struct slot *slot, uint64_t unique, uint32_t len)
{
    struct fuse_in_header h = {.len = len, .opcode = FUSE_STATFS, .unique = unique};

    memcpy(slot->shared->message, &h, sizeof(h));
    slot->request.unique = unique;
}

struct left {
    unsigned n;
    uint64_t unique[4];
    size_t len[4];
};

static void note_left(void *arg, struct slot *slot, size_t len)
{
    struct left *left = arg;
    const struct fuse_in_header *h = (const void *)slot->shared->message;

    assert_true(left->n < ARRAY_LEN(left->unique));
    assert_int_equal(slot->shared->state, SLOT_BUSY);
    left->unique[left->n] = h->unique;
    left->len[left->n++] = len;
}

static struct left recover(struct slots *s)
{
    struct left left = {0};

    slots_recover(s, note_left, &left);
    return left;
}

static void new_memory_holds_no_requests(void **state)
{
    int fd = new_memory();
    struct slots s;

    assert_int_equal(slots_init(&s, fd, NULL), 0);
    assert_int_equal(recover(&s).n, 0);
    assert_int_equal(slots_negotiated(&s)->minor, 0);
    slots_fini(&s);
    close(fd);
}

static void a_busy_request_is_left_to_the_next_worker(void **state)
{
    int fd = new_memory();
    struct slots s, next;
    struct left left;
    struct slot *slot;

    slots_init(&s, fd, NULL);
    slot = slots_take(&s);
    fill(slot, 7, 48);
    slots_busy(slot);
    slots_negotiated(&s)->minor = 31;

    assert_int_equal(slots_init(&next, fd, NULL), 0);
    left = recover(&next);
    assert_int_equal(left.n, 1);
    assert_int_equal(left.unique[0], 7);
    assert_int_equal(left.len[0], 48);
    assert_int_equal(slots_negotiated(&next)->minor, 31);
    slots_fini(&next);
    slots_fini(&s);
    close(fd);
}

static void a_request_that_was_read_but_not_noted_is_left_too(void **state)
{
    int fd = new_memory();
    struct slots s, next;

    slots_init(&s, fd, NULL);
    fill(slots_take(&s), 9, 40);
    slots_init(&next, fd, NULL);
    assert_int_equal(recover(&next).n, 1);
    slots_fini(&next);
    slots_fini(&s);
    close(fd);
}

static void a_slot_that_waited_for_a_request_is_free_again(void **state)
{
    int fd = new_memory();
    struct slots s, next;

    slots_init(&s, fd, NULL);
    slots_take(&s);
    slots_init(&next, fd, NULL);
    assert_int_equal(recover(&next).n, 0);
    assert_int_equal(slots_in_use(&next), 0);
    for (unsigned i = 0; i < SLOTS; i++)
        assert_non_null(slots_take(&next));
    slots_fini(&next);
    slots_fini(&s);
    close(fd);
}

static void an_answered_request_is_not_left(void **state)
{
    int fd = new_memory();
    struct slots s, next;
    struct slot *slot;

    slots_init(&s, fd, NULL);
    slot = slots_take(&s);
    fill(slot, 7, 48);
    slots_busy(slot);
    slots_give_back(&s, slot);
    slots_init(&next, fd, NULL);
    assert_int_equal(recover(&next).n, 0);
    slots_fini(&next);
    slots_fini(&s);
    close(fd);
}

static void requests_are_left_in_the_order_they_came(void **state)
{
    int fd = new_memory();
    struct slots s, next;
    struct left left;

    slots_init(&s, fd, NULL);
    for (uint64_t unique = 30; unique >= 10; unique -= 10) {
        struct slot *slot = slots_take(&s);

        fill(slot, unique, 40);
        slots_busy(slot);
    }
    slots_init(&next, fd, NULL);
    left = recover(&next);
    assert_int_equal(left.n, 3);
    assert_int_equal(left.unique[0], 10);
    assert_int_equal(left.unique[2], 30);
    slots_fini(&next);
    slots_fini(&s);
    close(fd);
}

static void a_slot_with_an_impossible_length_is_ignored(void **state)
{
    int fd = new_memory();
    struct slots s, next;
    struct slot *slot;

    slots_init(&s, fd, NULL);
    slot = slots_take(&s);
    fill(slot, 7, SLOT_MESSAGE + 1);
    slots_busy(slot);
    slots_init(&next, fd, NULL);
    assert_int_equal(recover(&next).n, 0);
    slots_fini(&next);
    slots_fini(&s);
    close(fd);
}

static void memory_that_holds_something_else_is_refused(void **state)
{
    int fd = new_memory();
    struct slots s;

    assert_int_equal(pwrite(fd, "something", 9, 0), 9);
    assert_int_equal(slots_init(&s, fd, NULL), -EINVAL);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(slots_init(&s, fd, NULL), -EINVAL);
    close(fd);
}

static void slots_run_out_and_come_back(void **state)
{
    struct slots s;
    struct slot *last = NULL;

    slots_init(&s, -1, NULL);
    for (unsigned i = 0; i < SLOTS; i++) {
        last = slots_take(&s);
        assert_non_null(last);
        slots_busy(last);
    }
    assert_null(slots_take(&s));
    assert_int_equal(slots_in_use(&s), SLOTS);
    slots_give_back(&s, last);
    assert_ptr_equal(slots_take(&s), last);
    slots_fini(&s);
}

static void only_busy_requests_are_found(void **state)
{
    struct slots s;
    struct slot *slot;

    slots_init(&s, -1, NULL);
    slot = slots_take(&s);
    fill(slot, 5, 40);
    assert_null(slots_find(&s, 5));
    slots_busy(slot);
    assert_ptr_equal(slots_find(&s, 5), slot);
    assert_null(slots_find(&s, 6));
    slots_give_back(&s, slot);
    assert_null(slots_find(&s, 5));
    slots_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_memory_holds_no_requests),
        cmocka_unit_test(a_busy_request_is_left_to_the_next_worker),
        cmocka_unit_test(a_request_that_was_read_but_not_noted_is_left_too),
        cmocka_unit_test(a_slot_that_waited_for_a_request_is_free_again),
        cmocka_unit_test(an_answered_request_is_not_left),
        cmocka_unit_test(requests_are_left_in_the_order_they_came),
        cmocka_unit_test(a_slot_with_an_impossible_length_is_ignored),
        cmocka_unit_test(memory_that_holds_something_else_is_refused),
        cmocka_unit_test(slots_run_out_and_come_back),
        cmocka_unit_test(only_busy_requests_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
