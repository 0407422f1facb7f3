// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

static void empty_buffer_is_an_empty_string(void **state)
{
    struct buf b = {0};
    char *s;

    assert_string_equal(buf_str(&b), "");
    s = buf_steal(&b);
    assert_string_equal(s, "");
    free(s);
    buf_free(&b);
}

static void what_is_added_is_joined_and_ends_with_a_zero(void **state)
{
    struct buf b = {0};

    buf_add(&b, "ab\0c", 4);
    assert_int_equal(b.len, 4);
    assert_memory_equal(b.data, "ab\0c", 5);
    buf_reset(&b);
    assert_string_equal(buf_str(&b), "");
    buf_add_str(&b, "x");
    buf_printf(&b, "-%d-%s", 42, "y");
    buf_add(&b, NULL, 0);
    assert_string_equal(buf_str(&b), "x-42-y");
    assert_int_equal(b.len, 6);
    buf_free(&b);
    assert_null(b.data);
}

static void buffer_grows_as_needed(void **state)
{
    struct buf b = {0};

    for (int i = 0; i < 10000; i++)
        buf_printf(&b, "%d,", i);
    assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4 + 9000 * 5);
    assert_string_equal(b.data + b.len - 5, "9999,");
    buf_free(&b);
}

static void long_text_is_formatted_whole(void **state)
{
    struct buf b = {0};
    char s[5000];

    memset(s, 'a', sizeof(s) - 1);
    s[sizeof(s) - 1] = 0;
    buf_printf(&b, "%s!", s);
    assert_int_equal(b.len, sizeof(s));
    assert_string_equal(b.data + sizeof(s) - 2, "a!");
    buf_free(&b);
}

static void reserved_room_can_be_written_to(void **state)
{
    struct buf b = {0};

    buf_reserve(&b, 100);
    memset(b.data, 'x', 100);
    b.len = 100;
    buf_add_str(&b, "y");
    assert_int_equal(b.len, 101);
    assert_string_equal(b.data + 99, "xy");
    buf_free(&b);
}

static void stolen_text_is_the_callers(void **state)
{
    struct buf b = {0};
    char *s;

    buf_add_str(&b, "mine");
    s = buf_steal(&b);
    assert_null(b.data);
    buf_add_str(&b, "other");
    assert_string_equal(s, "mine");
    free(s);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_buffer_is_an_empty_string),
        cmocka_unit_test(what_is_added_is_joined_and_ends_with_a_zero),
        cmocka_unit_test(buffer_grows_as_needed),
        cmocka_unit_test(long_text_is_formatted_whole),
        cmocka_unit_test(reserved_room_can_be_written_to),
        cmocka_unit_test(stolen_text_is_the_callers),
    };

    return cmocka_run_group_tests_name("base/buf", tests, NULL, NULL);
}
