// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/text.h"

#include <string.h>

static struct buf out;

static int free_out(void **state)
{
    buf_free(&out);
    return 0;
}

static void hexadecimal_is_lower_case_and_read_in_any(void **state)
{
    uint8_t bytes[3];
    char hex[7];

    text_hex("\x00\xab\xff", 3, hex);
    assert_string_equal(hex, "00abff");
    assert_int_equal(text_unhex("00AbFf", bytes, 3), 0);
    assert_memory_equal(bytes, "\x00\xab\xff", 3);
}

static void broken_hexadecimal_is_refused(void **state)
{
    uint8_t bytes[2];

    assert_int_equal(text_unhex("0g", bytes, 1), -EINVAL);
    assert_int_equal(text_unhex(" 1", bytes, 1), -EINVAL);
    assert_int_equal(text_unhex("0", bytes, 1), -EINVAL);
    assert_int_equal(text_unhex("00", bytes, 2), -EINVAL); // too short
}

static void all_but_unreserved_characters_are_percent_encoded(void **state)
{
    static const char s[] = "aZ0-._~ /+%?\xc3\xa4\n";

    text_percent_encode(&out, s, sizeof(s) - 1, false);
    assert_string_equal(out.data, "aZ0-._~%20%2F%2B%25%3F%C3%A4%0A");
    buf_reset(&out);
    text_percent_encode(&out, "a/b", 3, true);
    assert_string_equal(out.data, "a/b");
    buf_reset(&out);
    text_percent_encode(&out, "\0", 1, true);
    assert_string_equal(out.data, "%00");
}

static void every_byte_survives_percent_encoding(void **state)
{
    struct buf back = {0};
    char all[256];

    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    text_percent_encode(&out, all, sizeof(all), false);
    assert_int_equal(text_percent_decode(&back, out.data, out.len), 0);
    assert_int_equal(back.len, sizeof(all));
    assert_memory_equal(back.data, all, sizeof(all));
    buf_free(&back);
}

static void plus_stays_and_broken_escapes_are_refused(void **state)
{
    static const char *const bad[] = {"%", "%4", "a%", "%4g", "%%41", "% 1"};

    assert_int_equal(text_percent_decode(&out, "a+b%41", 6), 0);
    assert_string_equal(out.data, "a+bA");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(text_percent_decode(&out, bad[i], strlen(bad[i])), -EINVAL);
    // an escape ends where the text ends, not where the memory does
    assert_int_equal(text_percent_decode(&out, "%411", 2), -EINVAL);
}

static void base64_has_the_vectors_of_rfc_4648(void **state)
{
    static const struct {
        const char *plain, *coded;
    } cases[] = {{"", ""},
                 {"f", "Zg=="},
                 {"fo", "Zm8="},
                 {"foo", "Zm9v"},
                 {"foob", "Zm9vYg=="},
                 {"fooba", "Zm9vYmE="},
                 {"foobar", "Zm9vYmFy"}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        buf_reset(&out);
        text_base64(&out, cases[i].plain, strlen(cases[i].plain));
        assert_string_equal(buf_str(&out), cases[i].coded);
        buf_reset(&out);
        assert_int_equal(text_unbase64(&out, cases[i].coded, strlen(cases[i].coded)), 0);
        assert_int_equal(out.len, strlen(cases[i].plain));
        assert_string_equal(buf_str(&out), cases[i].plain);
    }
}

static void broken_base64_is_refused(void **state)
{
    static const char *const bad[] = {"Z",    "Zg",   "Zg=",   "Zg=a", "Z===",     "====", "Zm9v\n",
                                      " Zg=", "Zm9 ", "Zm\n=", "Z-9v", "Zg==Zg==", "    "};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (text_unbase64(&out, bad[i], strlen(bad[i])) != -EINVAL)
            fail_msg("accepted: %s", bad[i]);
}

static void numbers_must_be_whole_and_fit(void **state)
{
    uint64_t v = 7;

    assert_int_equal(text_parse_u64("0", &v), 0);
    assert_int_equal(v, 0);
    assert_int_equal(text_parse_u64("18446744073709551615", &v), 0);
    assert_true(v == UINT64_MAX);
    assert_int_equal(text_parse_u64("18446744073709551616", &v), -ERANGE);
    assert_int_equal(text_parse_u64("", &v), -EINVAL);
    assert_int_equal(text_parse_u64("-1", &v), -EINVAL);
    assert_int_equal(text_parse_u64("+1", &v), -EINVAL);
    assert_int_equal(text_parse_u64(" 1", &v), -EINVAL);
    assert_int_equal(text_parse_u64("1 ", &v), -EINVAL);
    assert_int_equal(text_parse_u64("0x1", &v), -EINVAL);
    assert_true(v == UINT64_MAX); // untouched by failures
}

static void sizes_have_units_of_powers_of_1024(void **state)
{
    static const struct {
        const char *s;
        uint64_t bytes;
    } cases[] = {{"4096", 4096},    {"64K", 64 * KIB}, {"256M", 256 * MIB}, {"1G", GIB},
                 {"2GiB", 2 * GIB}, {"1KB", KIB},      {"5B", 5},           {"3t", 3 * 1024 * GIB},
                 {"0", 0},          {"1MiB", MIB}};
    uint64_t v;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(text_parse_size(cases[i].s, &v), 0);
        assert_true(v == cases[i].bytes);
    }
    assert_int_equal(text_parse_size("", &v), -EINVAL);
    assert_int_equal(text_parse_size("M", &v), -EINVAL);
    assert_int_equal(text_parse_size("-1M", &v), -EINVAL);
    assert_int_equal(text_parse_size("1X", &v), -EINVAL);
    assert_int_equal(text_parse_size("1MM", &v), -EINVAL);
    assert_int_equal(text_parse_size("1 M", &v), -EINVAL);
    assert_int_equal(text_parse_size("1.5G", &v), -EINVAL);
    assert_int_equal(text_parse_size("17179869184G", &v), -ERANGE);
    assert_int_equal(text_parse_size("99999999999999999999", &v), -ERANGE);
}

static void durations_have_units_and_are_seconds_without(void **state)
{
    static const struct {
        const char *s;
        uint64_t ns;
    } cases[] = {
        {"10ms", 10000000}, {"1.5s", 1500000000}, {"2m", 120000000000}, {"1h", 3600000000000},
        {"3", 3000000000},  {"250us", 250000},    {".5", 500000000},    {"0", 0}};
    static const char *const bad[] = {"",      "s",  "-1s", "1x",    "1 s", "1e3s",
                                      "0x10s", "in", "nan", "1.2.3", ".",   "10mss"};
    uint64_t v;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(text_parse_duration(cases[i].s, &v), 0);
        assert_true(v == cases[i].ns);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (text_parse_duration(bad[i], &v) != -EINVAL)
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(text_parse_duration("99999999999h", &v), -ERANGE);
}

static void beginnings_and_ends_are_found(void **state)
{
    assert_true(text_starts_with("https://x", "https://"));
    assert_true(text_starts_with("x", ""));
    assert_false(text_starts_with("http", "https"));
    assert_true(text_ends_with("a/b/", "/"));
    assert_true(text_ends_with("x", ""));
    assert_false(text_ends_with("b", "ab"));
}

static void utf8_is_told_from_what_only_looks_like_it(void **state)
{
    static const char *const good[] = {"",
                                       "abc",
                                       "\xc3\xa4",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80"};
    static const char *const bad[] = {
        "\x80",             // goes on with nothing
        "\xc3",             // cut off
        "\xe2\x82",         //
        "\xf0\x9f\x98",     //
        "\xc3(",            // not gone on with
        "\xc0\xaf",         // overlong
        "\xe0\x80\xaf",     //
        "\xf0\x80\x80\xaf", //
        "\xed\xa0\x80",     // a surrogate
        "\xf4\x90\x80\x80", // above U+10FFFF
        "\xf8\x88\x80\x80\x80",
        "\xff",
    };

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(text_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (text_is_utf8(bad[i], strlen(bad[i])))
            fail_msg("accepted: case %zu", i);
    assert_true(text_is_utf8("a\0b", 3));
}

static void nearest_word_is_proposed_only_if_it_is_near(void **state)
{
    static const char *const words[] = {"endpoint-url", "region", "profile", "memory", NULL};

    assert_string_equal(text_nearest("regoin", words), "region");
    assert_string_equal(text_nearest("endpoint_url", words), "endpoint-url");
    assert_string_equal(text_nearest("memory", words), "memory");
    assert_null(text_nearest("xyzzy", words));
    assert_null(
        text_nearest("a123456789b123456789c123456789d123456789e123456789f123456789g1234", words));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hexadecimal_is_lower_case_and_read_in_any),
        cmocka_unit_test(broken_hexadecimal_is_refused),
        cmocka_unit_test_teardown(all_but_unreserved_characters_are_percent_encoded, free_out),
        cmocka_unit_test_teardown(every_byte_survives_percent_encoding, free_out),
        cmocka_unit_test_teardown(plus_stays_and_broken_escapes_are_refused, free_out),
        cmocka_unit_test_teardown(base64_has_the_vectors_of_rfc_4648, free_out),
        cmocka_unit_test_teardown(broken_base64_is_refused, free_out),
        cmocka_unit_test(numbers_must_be_whole_and_fit),
        cmocka_unit_test(sizes_have_units_of_powers_of_1024),
        cmocka_unit_test(durations_have_units_and_are_seconds_without),
        cmocka_unit_test(beginnings_and_ends_are_found),
        cmocka_unit_test(utf8_is_told_from_what_only_looks_like_it),
        cmocka_unit_test(nearest_word_is_proposed_only_if_it_is_near),
    };

    return cmocka_run_group_tests_name("base/text", tests, NULL, NULL);
}
