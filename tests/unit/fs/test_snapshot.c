// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rand.h"
#include "fs/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// "a b/ c": adds these as one page.
static void add_page(struct snapshot *s, const char *names)
{
    while (*names) {
        size_t len = strcspn(names, " ");
        bool dir = names[len - 1] == '/';
        struct node_version v = {.size = len};

        assert_int_equal(snapshot_add(s, names, len - dir, dir ? NULL : &v), 0);
        names += len + (names[len] == ' ');
    }
    snapshot_page_end(s);
}

// What a reader would be given now: settled and not hidden.
static char *shown(const struct snapshot *s)
{
    struct buf b = {0};

    for (uint32_t i = 0; i < s->n && snapshot_settled(s, i); i++)
        if (!(s->entries[i].flags & SNAP_HIDDEN))
            buf_printf(&b, "%s%.*s%s", b.len ? " " : "", s->entries[i].name_len,
                       snapshot_name(s, i), s->entries[i].flags & SNAP_DIR ? "/" : "");
    return buf_steal(&b);
}

#define assert_shown(s, expected)                                                                  \
    do {                                                                                           \
        char *shown_ = shown(s);                                                                   \
        assert_string_equal(shown_, expected);                                                     \
        free(shown_);                                                                              \
    } while (0)

static void page_is_put_in_the_order_of_keys(void **state)
{
    struct snapshot *s = snapshot_new(0);

    add_page(s, "b a0 a-b a/");
    snapshot_complete(s);
    assert_shown(s, "a-b a/ a0 b");
    snapshot_free(s);
}

static void object_is_not_shown_until_its_directory_can_no_longer_come(void **state)
{
    struct snapshot *s = snapshot_new(0);

    add_page(s, "a x x-1");
    assert_shown(s, "a");
    add_page(s, "x-2 x.y");
    assert_shown(s, "a");
    add_page(s, "x/ x0");
    assert_shown(s, "a x-1 x-2 x.y x/");
    snapshot_complete(s);
    assert_shown(s, "a x-1 x-2 x.y x/ x0");
    assert_int_equal(s->hidden, 1);
    snapshot_free(s);
}

static void lookup_knows_what_the_listing_has_come_past(void **state)
{
    struct snapshot *s = snapshot_new(0);
    uint32_t i;

    add_page(s, "b d/ m");
    assert_int_equal(snapshot_lookup(s, "b", 1, &i), SNAP_THERE);
    assert_int_equal(snapshot_lookup(s, "a", 1, &i), SNAP_ABSENT);
    assert_int_equal(snapshot_lookup(s, "d", 1, &i), SNAP_THERE);
    assert_true(s->entries[i].flags & SNAP_DIR);
    assert_int_equal(snapshot_lookup(s, "m", 1, &i), SNAP_UNKNOWN); // "m/" may follow
    assert_int_equal(snapshot_lookup(s, "z", 1, &i), SNAP_UNKNOWN);
    snapshot_complete(s);
    assert_int_equal(snapshot_lookup(s, "m", 1, &i), SNAP_THERE);
    assert_int_equal(snapshot_lookup(s, "z", 1, &i), SNAP_ABSENT);
    snapshot_free(s);
}

static void pages_out_of_order_are_put_in_order_at_the_end(void **state)
{
    struct snapshot *s = snapshot_new(0);
    uint32_t i;

    add_page(s, "m n");
    add_page(s, "a m x");
    add_page(s, "m/ x");
    assert_shown(s, "");
    assert_int_equal(snapshot_lookup(s, "a", 1, &i), SNAP_UNKNOWN);
    snapshot_complete(s);
    assert_shown(s, "a m/ n x");
    snapshot_free(s);
}

static void directory_named_on_two_pages_is_there_once(void **state)
{
    struct snapshot *s = snapshot_new(0);

    add_page(s, "a d/");
    add_page(s, "d/ e");
    snapshot_complete(s);
    assert_shown(s, "a d/ e");
    snapshot_free(s);
}

static void cookie_finds_its_name_in_a_listing_made_later(void **state)
{
    struct snapshot *old = snapshot_new(0), *new = snapshot_new(0);
    uint32_t next;

    add_page(old, "a b c/ d e f");
    snapshot_complete(old);
    add_page(new, "a a1 a2 c/ d0 e f");
    snapshot_complete(new);
    assert_true(snapshot_seek(new, snapshot_cookie(old, 2, 0), 0, &next));
    assert_int_equal(next, 4);
    assert_true(snapshot_seek(new, snapshot_cookie(old, 4, 0), 0, &next));
    assert_int_equal(next, 6);
    assert_false(snapshot_seek(new, snapshot_cookie(old, 3, 0), 0, &next)); // d has gone
    assert_int_equal(snapshot_behind(new, "d", 1), 4);
    assert_int_equal(snapshot_behind(new, "c/", 2), 4);
    assert_int_equal(snapshot_behind(new, "zz", 2), 7);
    snapshot_free(old);
    snapshot_free(new);
}

static void places_stay_right_when_the_front_is_dropped(void **state)
{
    struct snapshot *s = snapshot_new(0);
    uint64_t cookie;
    uint32_t next;

    add_page(s, "a b c d");
    add_page(s, "e f");
    cookie = snapshot_cookie(s, 4, 0);
    snapshot_drop_front(s, 3);
    snapshot_complete(s);
    assert_shown(s, "d e f");
    assert_true(snapshot_seek(s, cookie, 3, &next));
    assert_int_equal(next, 2);
    assert_false(snapshot_seek(s, 3ull << 32, 3, &next));
    snapshot_free(s);
}

static void version_reads_back_as_it_was_added(void **state)
{
    static const char *const etags[] = {"\"0123456789abcdef0123456789abcdef-12\"", "odd one", ""};
    struct snapshot *s = snapshot_new(0);
    char name[2] = "a", text[ETAG_TEXT_MAX + 1];

    for (uint32_t i = 0; i < ARRAY_LEN(etags); i++, name[0]++) {
        struct node_version v = {.size = i, .mtime_s = i + 7, .archived = i == 1};

        etag_parse(etags[i], &v.etag);
        assert_int_equal(snapshot_add(s, name, 1, &v), 0);
    }
    snapshot_complete(s);
    for (uint32_t i = 0; i < ARRAY_LEN(etags); i++) {
        struct node_version v;

        snapshot_version(s, i, &v);
        etag_format(&v.etag, text);
        assert_string_equal(text, etags[i]);
        assert_int_equal(v.size, i);
        assert_int_equal(v.mtime_s, i + 7);
        assert_int_equal(v.archived, i == 1);
    }
    snapshot_free(s);
}

// Against a plain model: random names on random pages.
static void random_listings_are_like_a_sorted_list(void **state)
{
    struct rand r;

    rand_seed(&r, 3);
    for (int round = 0; round < 300; round++) {
        struct snapshot *s = snapshot_new(0);
        bool file[64] = {0}, dir[64] = {0};
        static const char letters[] = "-/0a"; // around '/', which orders directories

        // names are one or two of '-', '0', 'a': all keys in order, in pages
        for (int k = 0; k < 4 * 5; k++) {
            char name[3] = {letters[k / 5], k % 5 ? letters[k % 5 - 1] : 0, 0};
            bool is_dir = name[1] == '/';
            struct node_version v = {.size = 1};

            if (name[0] == '/' || rand_below(&r, 2))
                continue;
            assert_int_equal(snapshot_add(s, name, is_dir ? 1 : strlen(name), is_dir ? NULL : &v),
                             0);
            if (is_dir)
                dir[k / 5 * 5] = true;
            else
                file[k] = true;
            if (rand_below(&r, 3) == 0)
                snapshot_page_end(s);
        }
        snapshot_complete(s);
        for (int k = 0; k < 4 * 5; k++) {
            char name[3] = {letters[k / 5], k % 5 ? letters[k % 5 - 1] : 0, 0};
            enum snap_answer answer;
            uint32_t i;

            if (strchr(name, '/'))
                continue;
            answer = snapshot_lookup(s, name, strlen(name), &i);
            assert_int_equal(answer, file[k] || dir[k] ? SNAP_THERE : SNAP_ABSENT);
            if (answer == SNAP_THERE)
                assert_int_equal(s->entries[i].flags & SNAP_DIR, dir[k] ? SNAP_DIR : 0);
        }
        snapshot_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_is_put_in_the_order_of_keys),
        cmocka_unit_test(object_is_not_shown_until_its_directory_can_no_longer_come),
        cmocka_unit_test(lookup_knows_what_the_listing_has_come_past),
        cmocka_unit_test(pages_out_of_order_are_put_in_order_at_the_end),
        cmocka_unit_test(directory_named_on_two_pages_is_there_once),
        cmocka_unit_test(cookie_finds_its_name_in_a_listing_made_later),
        cmocka_unit_test(places_stay_right_when_the_front_is_dropped),
        cmocka_unit_test(version_reads_back_as_it_was_added),
        cmocka_unit_test(random_listings_are_like_a_sorted_list),
    };

    return cmocka_run_group_tests_name("fs/snapshot", tests, NULL, NULL);
}
