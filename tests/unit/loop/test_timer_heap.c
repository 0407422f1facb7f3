// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"
#include "loop/timer_heap.h"

#define TIMERS 1000

static struct timer_heap heap;
static struct loop_timer timers[TIMERS];

static int empty(void **state)
{
    for (size_t i = 0; i < TIMERS; i++)
        timers[i] = (struct loop_timer){0};
    timer_heap_fini(&heap);
    return 0;
}

static void assert_comes_out_in_order(size_t expected)
{
    uint64_t last = 0;
    struct loop_timer *t;
    size_t n = 0;

    for (; (t = timer_heap_first(&heap)); n++) {
        assert_true(t->due_ns >= last);
        last = t->due_ns;
        timer_heap_remove(&heap, t);
        assert_int_equal(t->slot, 0);
    }
    assert_int_equal(n, expected);
}

static void timers_come_out_in_order(void **state)
{
    struct rand r;

    rand_seed(&r, 1);
    for (size_t i = 0; i < TIMERS; i++) {
        timers[i].due_ns = rand_below(&r, 500); // many alike
        timer_heap_add(&heap, &timers[i]);
    }
    assert_comes_out_in_order(TIMERS);
}

static void any_timer_may_leave(void **state)
{
    struct rand r;
    size_t left = TIMERS;

    rand_seed(&r, 2);
    for (size_t i = 0; i < TIMERS; i++) {
        timers[i].due_ns = rand_u64(&r);
        timer_heap_add(&heap, &timers[i]);
    }
    for (size_t i = 0; i < TIMERS; i++) {
        if (rand_below(&r, 3) == 0)
            continue;
        timer_heap_remove(&heap, &timers[i]);
        assert_int_equal(timers[i].slot, 0);
        left--;
    }
    for (size_t i = 0; i < heap.len; i++)
        assert_int_equal(heap.items[i]->slot, i + 1);
    assert_comes_out_in_order(left);
}

static void empty_heap_has_no_first(void **state)
{
    assert_null(timer_heap_first(&heap));
    timer_heap_add(&heap, &timers[0]);
    timer_heap_remove(&heap, &timers[0]);
    assert_null(timer_heap_first(&heap));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(timers_come_out_in_order, empty, empty),
        cmocka_unit_test_setup_teardown(any_timer_may_leave, empty, empty),
        cmocka_unit_test_setup_teardown(empty_heap_has_no_first, empty, empty),
    };

    return cmocka_run_group_tests_name("loop/timer_heap", tests, NULL, NULL);
}
