// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/buf.h"
#include "net/http_head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct http_head head;
static char *text; // what head points into

static ssize_t parse_bytes(enum http_kind kind, const char *s, size_t len)
{
    free(text);
    text = malloc(len + !len); // no zero behind it: a read too far is seen by the sanitizer
    assert_non_null(text);
    memcpy(text, s, len);
    return http_head_parse(&head, kind, text, len);
}

static ssize_t parse(enum http_kind kind, const char *s)
{
    return parse_bytes(kind, s, strlen(s));
}

static void assert_bad(enum http_kind kind, const char *s)
{
    ssize_t n = parse(kind, s);

    if (n != -EBADMSG)
        fail_msg("%zd instead of -EBADMSG for: %s", n, s);
}

static int free_text(void **state)
{
    free(text);
    text = NULL;
    return 0;
}

static void response_is_taken_apart(void **state)
{
    static const char s[] = "HTTP/1.1 206 Partial Content\r\n"
                            "Content-Length: 5\r\n"
                            "ETag:\t \"abc\"  \r\n"
                            "X-Empty:\r\n"
                            "\r\n";
    char more[sizeof(s) + 5];

    snprintf(more, sizeof(more), "%shello", s);
    assert_int_equal(parse(HTTP_RESPONSE, more), sizeof(s) - 1);
    assert_int_equal(head.status, 206);
    assert_int_equal(head.minor_version, 1);
    assert_true(head.keep_alive);
    assert_false(head.chunked);
    assert_int_equal(head.content_length, 5);
    assert_int_equal(head.n_headers, 3);
    assert_string_equal(http_head_find(&head, "etag"), "\"abc\"");
    assert_string_equal(http_head_find(&head, "x-empty"), "");
    assert_null(http_head_find(&head, "x"));
}

static void request_is_taken_apart(void **state)
{
    assert_true(parse(HTTP_REQUEST, "GET /a%20b?x=/ HTTP/1.1\r\nHost: h\r\n\r\n") > 0);
    assert_string_equal(head.method, "GET");
    assert_string_equal(head.target, "/a%20b?x=/");
    assert_string_equal(http_head_find(&head, "Host"), "h");
    assert_int_equal(head.content_length, -1);
}

static void incomplete_head_stays_untouched(void **state)
{
    static const char s[] = "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 1\r\n\r\n";

    for (size_t n = 0; n < sizeof(s) - 1; n++) {
        assert_int_equal(parse_bytes(HTTP_RESPONSE, s, n), 0);
        assert_memory_equal(text, s, n);
    }
    assert_int_equal(parse(HTTP_RESPONSE, s), sizeof(s) - 1);
}

static void lone_line_feeds_end_lines(void **state)
{
    assert_int_equal(parse(HTTP_RESPONSE, "HTTP/1.1 200 OK\nA: b\n\nrest"), 22);
    assert_string_equal(http_head_find(&head, "a"), "b");
}

static void reason_may_be_missing(void **state)
{
    assert_true(parse(HTTP_RESPONSE, "HTTP/1.1 200\r\n\r\n") > 0);
    assert_true(parse(HTTP_RESPONSE, "HTTP/1.1 200 \r\n\r\n") > 0);
    assert_int_equal(head.n_headers, 0);
}

static void one_empty_line_before_a_request_is_passed_over(void **state)
{
    assert_int_equal(parse(HTTP_REQUEST, "\r\nGET / HTTP/1.1\r\n\r\n"), 20);
    assert_string_equal(head.method, "GET");
    assert_bad(HTTP_REQUEST, "\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    assert_bad(HTTP_RESPONSE, "\r\nHTTP/1.1 200 OK\r\n\r\n");
}

static void malformed_status_lines_are_refused(void **state)
{
    static const char *const bad[] = {"HTTP/2 200 OK\r\n\r\n",    "HTTP/1.x 200 OK\r\n\r\n",
                                      "HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n",
                                      "HTTP/1.1 2000\r\n\r\n",    "HTTP/1.1 099 OK\r\n\r\n",
                                      "HTTP/1.1 600 OK\r\n\r\n",  "HTTP/1.1 -20 OK\r\n\r\n",
                                      "ICY 200 OK\r\n\r\n",       "HTTP/1.1 200 O\x01K\r\n\r\n"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_bad(HTTP_RESPONSE, bad[i]);
}

static void what_cannot_become_a_response_is_refused_at_once(void **state)
{
    assert_bad(HTTP_RESPONSE, "x");
    assert_bad(HTTP_RESPONSE, "HTTP/2");
    assert_bad(HTTP_RESPONSE, "SSH-2.0-OpenSSH_9.2");
}

static void malformed_request_lines_are_refused(void **state)
{
    static const char *const bad[] = {"GET /\r\n\r\n",
                                      "GET  / HTTP/1.1\r\n\r\n",
                                      " GET / HTTP/1.1\r\n\r\n",
                                      "G(T / HTTP/1.1\r\n\r\n",
                                      "GET / HTTP/1.1 \r\n\r\n",
                                      "GET / HTTP/2.0\r\n\r\n",
                                      "GET /\t HTTP/1.1\r\n\r\n",
                                      "GET / x HTTP/1.1\r\n\r\n"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_bad(HTTP_REQUEST, bad[i]);
}

static void malformed_headers_are_refused(void **state)
{
    static const char *const bad[] = {"A : b",      "A",       ": b",     "A b: c",     " A: b",
                                      "A: b\rC: d", "A: \x01", "A: \x7f", "\xc3\xa4: b"};
    char s[128];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(s, sizeof(s), "HTTP/1.1 200 OK\r\n%s\r\n\r\n", bad[i]);
        assert_bad(HTTP_RESPONSE, s);
    }
}

static void zero_byte_in_a_head_is_refused(void **state)
{
    static const char s[] = "HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n";

    assert_int_equal(parse_bytes(HTTP_RESPONSE, s, sizeof(s) - 1), -EBADMSG);
}

static void folded_value_is_joined_in_a_response_and_refused_in_a_request(void **state)
{
    assert_true(parse(HTTP_RESPONSE, "HTTP/1.1 200 OK\r\nA: b\r\n\tc\r\n d\r\nE: f\r\n\r\n") > 0);
    assert_int_equal(head.n_headers, 2);
    assert_string_equal(http_head_find(&head, "A"), "b  \tc   d");
    assert_string_equal(http_head_find(&head, "E"), "f");
    assert_bad(HTTP_REQUEST, "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n");
    assert_bad(HTTP_RESPONSE, "HTTP/1.1 200 OK\r\n A: b\r\n\r\n");
}

static void keep_alive_follows_version_and_connection(void **state)
{
    static const struct {
        const char *s;
        bool keep_alive;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\n\r\n", true},
        {"HTTP/1.0 200 OK\r\n\r\n", false},
        {"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n", true},
        {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", false},
        {"HTTP/1.1 200 OK\r\nConnection: te, CLOSE\r\n\r\n", false},
        {"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", false},
        {"HTTP/1.1 200 OK\r\nConnection: closed\r\n\r\n", true},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_true(parse(HTTP_RESPONSE, cases[i].s) > 0);
        assert_int_equal(head.keep_alive, cases[i].keep_alive);
    }
}

static void contradictory_framing_is_refused(void **state)
{
    static const char *const bad[] = {
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Content-Length: 1, 1",
        "Content-Length: -1",
        "Content-Length: +1",
        "Content-Length: 0x1",
        "Content-Length:",
        "Content-Length: 9223372036854775808",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity",
    };
    char s[128];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(s, sizeof(s), "HTTP/1.1 200 OK\r\n%s\r\n\r\n", bad[i]);
        assert_bad(HTTP_RESPONSE, s);
    }
    assert_bad(HTTP_RESPONSE, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
}

static void same_length_twice_and_the_largest_length_are_fine(void **state)
{
    assert_true(parse(HTTP_RESPONSE, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"
                                     "content-length: 3\r\n\r\n") > 0);
    assert_int_equal(head.content_length, 3);
    assert_true(
        parse(HTTP_RESPONSE, "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n") > 0);
    assert_true(head.content_length == INT64_MAX);
}

static void too_many_headers_are_refused(void **state)
{
    struct buf b = {0};

    buf_add_str(&b, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < HTTP_MAX_HEADERS; i++)
        buf_printf(&b, "A%d: b\r\n", i);
    buf_add_str(&b, "\r\n");
    assert_true(parse(HTTP_RESPONSE, b.data) > 0);
    assert_int_equal(head.n_headers, HTTP_MAX_HEADERS);
    b.len -= 2;
    buf_add_str(&b, "One: more\r\n\r\n");
    assert_bad(HTTP_RESPONSE, b.data);
    buf_free(&b);
}

static void too_long_head_is_refused(void **state)
{
    static char s[HTTP_MAX_HEAD_BYTES + 32] = "HTTP/1.1 200 OK\r\nA: ";

    memset(s + strlen(s), 'a', sizeof(s) - strlen(s));
    assert_int_equal(parse_bytes(HTTP_RESPONSE, s, HTTP_MAX_HEAD_BYTES - 1), 0);
    assert_int_equal(parse_bytes(HTTP_RESPONSE, s, HTTP_MAX_HEAD_BYTES), -EBADMSG);
    memcpy(s + HTTP_MAX_HEAD_BYTES - 4, "\r\n\r\n", 4);
    assert_int_equal(parse_bytes(HTTP_RESPONSE, s, sizeof(s)), HTTP_MAX_HEAD_BYTES);
}

// --- chunked ---

// Decodes in pieces of step bytes; returns the bytes taken or -EBADMSG.
static ssize_t decode(const char *s, size_t len, size_t step, char *out, size_t *ret_out_len)
{
    struct http_chunked c = {0};
    size_t pos = 0, out_len = 0;

    while (pos < len && !c.done) {
        size_t n = MIN(step, len - pos);

        if (c.data_left) {
            n = (size_t)MIN(c.data_left, (uint64_t)n);
            memcpy(out + out_len, s + pos, n);
            out_len += n;
            http_chunked_took(&c, n);
        } else {
            ssize_t took = http_chunked_feed(&c, s + pos, n);

            if (took < 0)
                return took;
            n = (size_t)took;
        }
        pos += n;
    }
    *ret_out_len = out_len;
    return c.done ? (ssize_t)pos : 0;
}

static void chunks_are_joined_however_they_arrive(void **state)
{
    static const char s[] = "5\r\nhello\r\n"
                            "00A ; name=\"value\"\r\n, world...\r\n"
                            "0;last\r\nTrailer: x\r\nAnother: y\r\n\r\nGARBAGE";
    char out[64];
    size_t out_len;

    for (size_t step = 1; step < sizeof(s); step++) {
        assert_int_equal(decode(s, sizeof(s) - 1, step, out, &out_len), sizeof(s) - 1 - 7);
        assert_int_equal(out_len, 15);
        assert_memory_equal(out, "hello, world...", 15);
    }
}

static void broken_chunks_are_refused(void **state)
{
    static const char *const bad[] = {"\r\n",
                                      "x\r\n",
                                      ";\r\n",
                                      "-5\r\n",
                                      "0x5\r\n",
                                      "5 6\r\n",
                                      "5\nhello",
                                      "5\r\nhello5\r\n",
                                      "5\r\nhello\n",
                                      "5\rx",
                                      "10000000000000000\r\n",
                                      "8000000000000000\r\n",
                                      "0\r\n\n",
                                      "0\r\nA: b\n\r\n",
                                      "0\r\n\rx",
                                      "5;a\nhello"};
    char out[64];
    size_t out_len;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (decode(bad[i], strlen(bad[i]), 64, out, &out_len) != -EBADMSG)
            fail_msg("accepted: %s", bad[i]);
}

static void endless_extensions_and_trailers_are_refused(void **state)
{
    struct http_chunked c = {0};
    char junk[1024];
    ssize_t rc = 0;

    memset(junk, 'a', sizeof(junk));
    assert_int_equal(http_chunked_feed(&c, "5;", 2), 2);
    for (int i = 0; i < 64 && rc >= 0; i++)
        rc = http_chunked_feed(&c, junk, sizeof(junk));
    assert_int_equal(rc, -EBADMSG);

    c = (struct http_chunked){0};
    assert_int_equal(http_chunked_feed(&c, "0\r\n", 3), 3);
    rc = 0;
    for (int i = 0; i < 64 * 1024 && rc >= 0; i++)
        rc = http_chunked_feed(&c, "A: b\r\n", 6);
    assert_int_equal(rc, -EBADMSG);
}

static void largest_chunk_is_announced_whole(void **state)
{
    struct http_chunked c = {0};

    assert_int_equal(http_chunked_feed(&c, "7fffffffffffffff\r\nrest", 22), 18);
    assert_true(c.data_left == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(response_is_taken_apart),
        cmocka_unit_test(request_is_taken_apart),
        cmocka_unit_test(incomplete_head_stays_untouched),
        cmocka_unit_test(lone_line_feeds_end_lines),
        cmocka_unit_test(reason_may_be_missing),
        cmocka_unit_test(one_empty_line_before_a_request_is_passed_over),
        cmocka_unit_test(malformed_status_lines_are_refused),
        cmocka_unit_test(what_cannot_become_a_response_is_refused_at_once),
        cmocka_unit_test(malformed_request_lines_are_refused),
        cmocka_unit_test(malformed_headers_are_refused),
        cmocka_unit_test(zero_byte_in_a_head_is_refused),
        cmocka_unit_test(folded_value_is_joined_in_a_response_and_refused_in_a_request),
        cmocka_unit_test(keep_alive_follows_version_and_connection),
        cmocka_unit_test(contradictory_framing_is_refused),
        cmocka_unit_test(same_length_twice_and_the_largest_length_are_fine),
        cmocka_unit_test(too_many_headers_are_refused),
        cmocka_unit_test(too_long_head_is_refused),
        cmocka_unit_test(chunks_are_joined_however_they_arrive),
        cmocka_unit_test(broken_chunks_are_refused),
        cmocka_unit_test(endless_extensions_and_trailers_are_refused),
        cmocka_unit_test(largest_chunk_is_announced_whole),
    };

    return cmocka_run_group_tests_name("net/http_head", tests, NULL, free_text);
}
