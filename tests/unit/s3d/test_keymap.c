// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3d/keymap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct keymap map;
static int values[3000];

static int init(void **state)
{
    keymap_init(&map);
    return 0;
}

static int fini(void **state)
{
    keymap_fini(&map);
    return 0;
}

static const char *key_of(unsigned i)
{
    static char key[16];

    // scattered, so that the order of putting is not that of the keys
    snprintf(key, sizeof(key), "%08x", i * 2654435761u);
    return key;
}

static void put_all(void)
{
    for (unsigned i = 0; i < ARRAY_LEN(values); i++)
        assert_null(keymap_put(&map, key_of(i), &values[i]));
}

static void what_was_put_is_found(void **state)
{
    put_all();
    assert_int_equal(map.len, ARRAY_LEN(values));
    for (unsigned i = 0; i < ARRAY_LEN(values); i++)
        assert_ptr_equal(keymap_get(&map, key_of(i)), &values[i]);
    assert_null(keymap_get(&map, "nothing"));
}

static void keys_are_walked_in_their_order(void **state)
{
    unsigned n = 0;

    put_all();
    for (struct keymap_node *k = keymap_first(&map); k; k = k->next[0], n++)
        if (k->next[0])
            assert_true(strcmp(k->key, k->next[0]->key) < 0);
    assert_int_equal(n, ARRAY_LEN(values));
}

static void a_second_value_replaces_the_first(void **state)
{
    keymap_put(&map, "k", &values[0]);
    assert_ptr_equal(keymap_put(&map, "k", &values[1]), &values[0]);
    assert_ptr_equal(keymap_get(&map, "k"), &values[1]);
    assert_int_equal(map.len, 1);
}

static void what_was_removed_is_gone(void **state)
{
    put_all();
    for (unsigned i = 0; i < ARRAY_LEN(values); i += 2)
        assert_ptr_equal(keymap_remove(&map, key_of(i)), &values[i]);
    for (unsigned i = 0; i < ARRAY_LEN(values); i++)
        assert_ptr_equal(keymap_get(&map, key_of(i)), i % 2 ? &values[i] : NULL);
    assert_null(keymap_remove(&map, key_of(0)));
}

static void a_seek_finds_the_next_key(void **state)
{
    keymap_put(&map, "b", &values[0]);
    keymap_put(&map, "d", &values[1]);
    assert_string_equal(keymap_seek(&map, "a", false)->key, "b");
    assert_string_equal(keymap_seek(&map, "b", false)->key, "b");
    assert_string_equal(keymap_seek(&map, "b", true)->key, "d");
    assert_string_equal(keymap_seek(&map, "c", true)->key, "d");
    assert_null(keymap_seek(&map, "d", true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_put_is_found, init, fini),
        cmocka_unit_test_setup_teardown(keys_are_walked_in_their_order, init, fini),
        cmocka_unit_test_setup_teardown(a_second_value_replaces_the_first, init, fini),
        cmocka_unit_test_setup_teardown(what_was_removed_is_gone, init, fini),
        cmocka_unit_test_setup_teardown(a_seek_finds_the_next_key, init, fini),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
