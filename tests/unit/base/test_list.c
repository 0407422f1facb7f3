// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/list.h"

struct item {
    int value;
    struct list link;
};

static struct item items[4];
static struct list list;

static int fill(void **state)
{
    list_init(&list);
    for (int i = 0; i < 4; i++) {
        items[i].value = i;
        list_push_back(&list, &items[i].link);
    }
    return 0;
}

// The values in order as one decimal number.
static int digits_of(struct list *l)
{
    int n = 0;

    list_for_each (it, l)
        n = 10 * n + list_entry(it, struct item, link)->value + 1;
    return n;
}

static void items_stay_in_order(void **state)
{
    struct item extra = {.value = 4};

    assert_int_equal(digits_of(&list), 1234);
    list_push_front(&list, &extra.link);
    assert_int_equal(digits_of(&list), 51234);
    assert_ptr_equal(list_first(&list, struct item, link), &extra);
}

static void empty_list_has_no_first(void **state)
{
    struct list empty = LIST_INIT(empty);

    assert_true(list_empty(&empty));
    assert_null(list_first(&empty, struct item, link));
}

static void item_may_be_removed_twice(void **state)
{
    list_remove(&items[1].link);
    list_remove(&items[1].link);
    assert_int_equal(digits_of(&list), 134);
}

static void items_may_be_removed_while_walking(void **state)
{
    list_for_each_safe (it, &list) {
        struct item *item = list_entry(it, struct item, link);

        if (item->value % 2 == 0)
            list_remove(it);
    }
    assert_int_equal(digits_of(&list), 24);
}

static void splicing_moves_all_to_the_end(void **state)
{
    struct list other = LIST_INIT(other);

    list_splice_back(&list, &other);
    assert_int_equal(digits_of(&list), 1234);
    list_remove(&items[0].link);
    list_push_back(&other, &items[0].link);
    list_splice_back(&other, &list);
    assert_int_equal(digits_of(&other), 1234);
    assert_true(list_empty(&list));
    list_splice_back(&list, &other);
    assert_int_equal(digits_of(&list), 1234);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(items_stay_in_order, fill),
        cmocka_unit_test(empty_list_has_no_first),
        cmocka_unit_test_setup(item_may_be_removed_twice, fill),
        cmocka_unit_test_setup(items_may_be_removed_while_walking, fill),
        cmocka_unit_test_setup(splicing_moves_all_to_the_end, fill),
    };

    return cmocka_run_group_tests_name("base/list", tests, NULL, NULL);
}
