// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "fs/etag.h"
#include "fs/names.h"

#include <string.h>

static enum name_rule check(const char *name, bool at_root)
{
    return name_check(name, strlen(name), at_root);
}

static void empty_component_has_no_name(void **state)
{
    assert_int_equal(check("", false), NAME_EMPTY);
}

static void dots_are_no_names_but_three_are(void **state)
{
    assert_int_equal(check(".", false), NAME_DOTS);
    assert_int_equal(check("..", false), NAME_DOTS);
    assert_int_equal(check("...", false), NAME_OK);
    assert_int_equal(check(".a", false), NAME_OK);
    assert_int_equal(check("..a", false), NAME_OK);
}

static void names_may_have_255_bytes_and_no_more(void **state)
{
    char name[257];

    memset(name, 'n', sizeof(name));
    assert_int_equal(name_check(name, 255, false), NAME_OK);
    assert_int_equal(name_check(name, 256, false), NAME_TOO_LONG);
}

static void what_is_not_utf8_has_no_name(void **state)
{
    assert_int_equal(check("\xff", false), NAME_NOT_UTF8);
    assert_int_equal(check("a\xc3", false), NAME_NOT_UTF8);
    assert_int_equal(check("\xed\xa0\x80", false), NAME_NOT_UTF8); // a surrogate
    assert_int_equal(check("\xc3\xa4", false), NAME_OK);
}

static void control_directory_takes_its_name_at_the_root_only(void **state)
{
    assert_int_equal(check(".os2g", true), NAME_CONTROL);
    assert_int_equal(check(".os2g", false), NAME_OK);
    assert_int_equal(check(".os2g2", true), NAME_OK);
}

static void odd_characters_are_names(void **state)
{
    static const char *const names[] = {"?", "#", "%", "+", " ", "\n", "a b", "\\", "\x01", "*"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_int_equal(check(names[i], true), NAME_OK);
}

static void every_rule_says_why(void **state)
{
    for (int i = 0; i < NAME_RULES; i++)
        assert_non_null(name_rule_text((enum name_rule)i));
}

// --- ETags ---

static void etags_read_back_as_the_store_wrote_them(void **state)
{
    static const struct {
        const char *text;
        enum etag_kind kind;
    } cases[] = {
        {"\"0123456789abcdef0123456789abcdef\"", ETAG_MD5},
        {"\"0123456789abcdef0123456789abcdef-1\"", ETAG_MD5},
        {"\"0123456789abcdef0123456789abcdef-65535\"", ETAG_MD5},
        {"\"0123456789abcdef0123456789abcdef-65536\"", ETAG_TEXT},
        {"\"0123456789abcdef0123456789abcdef-01\"", ETAG_TEXT},
        {"\"0123456789abcdef0123456789abcdef-\"", ETAG_TEXT},
        {"\"0123456789abcdef0123456789abcdef-0\"", ETAG_TEXT},
        {"\"0123456789ABCDEF0123456789abcdef\"", ETAG_TEXT},
        {"\"0123456789abcdef0123456789abcdef\"x", ETAG_TEXT},
        {"0123456789abcdef0123456789abcdef", ETAG_TEXT},
        {"\"0123456789abcdef0123456789abcde\"", ETAG_TEXT},
        {"\"0123456789abcdef0123456789abcdeg\"", ETAG_TEXT},
        {"W/\"weak\"", ETAG_TEXT},
        {"\"", ETAG_TEXT},
        {"", ETAG_NONE},
    };
    char text[ETAG_TEXT_MAX + 1];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct etag e;

        etag_parse(cases[i].text, &e);
        assert_int_equal(e.kind, cases[i].kind);
        etag_format(&e, text);
        assert_string_equal(text, cases[i].text);
        for (size_t j = 0; j < ARRAY_LEN(cases); j++) {
            struct etag other;

            etag_parse(cases[j].text, &other);
            assert_int_equal(etag_equal(&e, &other), i == j);
        }
    }
}

static void etag_too_long_to_keep_is_none(void **state)
{
    char text[ETAG_TEXT_MAX + 2];
    struct etag e;

    memset(text, 'e', sizeof(text));
    text[ETAG_TEXT_MAX + 1] = 0;
    etag_parse(text, &e);
    assert_int_equal(e.kind, ETAG_NONE);
    text[ETAG_TEXT_MAX] = 0;
    etag_parse(text, &e);
    assert_int_equal(e.kind, ETAG_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_component_has_no_name),
        cmocka_unit_test(dots_are_no_names_but_three_are),
        cmocka_unit_test(names_may_have_255_bytes_and_no_more),
        cmocka_unit_test(what_is_not_utf8_has_no_name),
        cmocka_unit_test(control_directory_takes_its_name_at_the_root_only),
        cmocka_unit_test(odd_characters_are_names),
        cmocka_unit_test(every_rule_says_why),
        cmocka_unit_test(etags_read_back_as_the_store_wrote_them),
        cmocka_unit_test(etag_too_long_to_keep_is_none),
    };

    return cmocka_run_group_tests_name("fs/names", tests, NULL, NULL);
}
