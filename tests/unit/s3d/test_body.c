// SPDX-License-Identifier: Apache-2.0
// What bodies of requests go through: aws-chunked, checksums, XML, queries.
#include "test.h"

#include "base/text.h"
#include "s3d/aws_chunked.h"
#include "s3d/checksum.h"
#include "s3d/query.h"
#include "s3d/xml.h"

#include <stdlib.h>
#include <string.h>

static struct buf out;

static int release(void **state)
{
    buf_free(&out);
    return 0;
}

static void collect(void *arg, const void *data, size_t len)
{
    buf_add(&out, data, len);
}

// --- aws-chunked ---

// Feeds it in steps; what came of it.
static int feed(const char *text, size_t step, bool *ret_done)
{
    struct aws_chunked c;
    size_t len = strlen(text);
    int rc = 0;

    buf_reset(&out);
    aws_chunked_init(&c, NULL, NULL, NULL);
    for (size_t i = 0; i < len && rc == 0; i += step)
        rc = aws_chunked_feed(&c, text + i, MIN(step, len - i), collect, NULL);
    *ret_done = aws_chunked_is_done(&c);
    aws_chunked_fini(&c);
    return rc;
}

static void chunks_are_put_together_wherever_they_are_cut(void **state)
{
    static const char text[] = "5;chunk-signature=x\r\nhello\r\n7\r\n, world\r\n0\r\n"
                               "x-amz-checksum-crc32:AAAAAA==\r\n\r\n";
    bool done;

    for (size_t step = 1; step < sizeof(text); step++) {
        assert_int_equal(feed(text, step, &done), 0);
        assert_true(done);
        assert_string_equal(buf_str(&out), "hello, world");
    }
}

static void what_ends_early_is_not_done(void **state)
{
    static const char text[] = "5\r\nhello\r\n0\r\n\r\n";
    bool done;

    for (size_t len = 0; len < sizeof(text) - 1; len++) {
        char *cut = strndup(text, len);

        assert_int_equal(feed(cut, 3, &done), 0);
        assert_false(done);
        free(cut);
    }
}

static void broken_chunks_are_refused(void **state)
{
    static const char *const broken[] = {"\r\n",
                                         "x\r\n",
                                         "5\r\nhelloX\r\n",
                                         "5 \r\nhello\r\n",
                                         "ffffffffffffffff1\r\n",
                                         "-1\r\n",
                                         "0\r\nno colon\r\n",
                                         "0\r\n\r\nmore",
                                         "8000000000000000\r\n"};
    bool done;

    for (size_t i = 0; i < ARRAY_LEN(broken); i++)
        assert_int_equal(feed(broken[i], 100, &done), -EBADMSG);
}

static void an_endless_line_is_refused(void **state)
{
    char *line = xmalloc(5001);
    bool done;

    memset(line, '1', 5000);
    line[5000] = 0;
    assert_int_equal(feed(line, 100, &done), -EBADMSG);
    free(line);
}

// --- checksums ---

static void assert_checksum(enum checksum_kind kind, const char *hex)
{
    struct checksum *c = checksum_new(1u << kind);
    uint8_t sum[CHECKSUM_MAX_BYTES];
    char text[2 * CHECKSUM_MAX_BYTES + 1];

    // in pieces, which must not matter
    checksum_add(c, "1234", 4);
    checksum_add(c, "", 0);
    checksum_add(c, "56789", 5);
    text_hex(sum, checksum_get(c, kind, sum), text);
    assert_string_equal(text, hex);
    checksum_free(c);
}

static void checksums_have_their_published_values(void **state)
{
    assert_checksum(CHECKSUM_CRC32, "cbf43926");
    assert_checksum(CHECKSUM_CRC32C, "e3069283");
    assert_checksum(CHECKSUM_MD5, "25f9e794323b453885f5181f1b624d0b");
    assert_checksum(CHECKSUM_SHA1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
    assert_checksum(CHECKSUM_SHA256,
                    "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
}

static void crcs_agree_with_a_bit_by_bit_one(void **state)
{
    uint8_t data[100];
    uint32_t slow = 0xffffffff;

    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 37);
        slow ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            slow = slow & 1 ? slow >> 1 ^ 0x82f63b78 : slow >> 1;
    }
    assert_int_equal(checksum_crc32c(0, data, sizeof(data)), ~slow);
}

static void a_checksums_header_names_its_kind(void **state)
{
    assert_int_equal(checksum_kind_of_header("X-Amz-Checksum-CRC32C"), CHECKSUM_CRC32C);
    assert_int_equal(checksum_kind_of_header("x-amz-checksum-sha1"), CHECKSUM_SHA1);
    assert_int_equal(checksum_kind_of_header("x-amz-checksum-mode"), -1);
    assert_int_equal(checksum_kind_of_header("content-md5"), -1);
}

// --- XML ---

static int add_values(const char *const values[static XML_MAX_FIELDS], void *arg)
{
    buf_printf(&out, "%s=%s;", values[0] ? values[0] : "-", values[1] ? values[1] : "-");
    return out.len > 1000 ? -EBADMSG : 0;
}

static int each(const char *text)
{
    static const char *const fields[] = {"Key", "ETag", NULL};

    buf_reset(&out);
    return xml_each(text, strlen(text), "Root", "Item", fields, add_values, NULL);
}

static void items_are_read_with_their_fields(void **state)
{
    assert_int_equal(each("<?xml version='1.0'?><Root xmlns='x'><Item><Key>a&amp;b</Key>"
                          "<Other>x</Other><ETag>1</ETag></Item><Noise><Key>n</Key></Noise>"
                          "<Item><Deep><Key>no</Key></Deep></Item></Root>"),
                     0);
    assert_string_equal(buf_str(&out), "a&b=1;-=-;");
}

static void what_is_not_the_right_xml_is_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "text",
        "<Root>",
        "<Other/>",
        "<Root><Item></Root>",
        "<!DOCTYPE Root [<!ENTITY a 'aaaa'>]><Root><Item><Key>&a;</Key></Item></Root>"};

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(each(wrong[i]), -EBADMSG);
}

static void text_survives_being_written_and_read(void **state)
{
    static const char text[] = "a<b>&\"'\r\n\t c\xc3\xa4";
    struct buf xml = {0};

    buf_add_str(&xml, "<Root><Item>");
    xml_add_element(&xml, "Key", text);
    buf_add_str(&xml, "</Item></Root>");
    assert_int_equal(each(buf_str(&xml)), 0);
    assert_memory_equal(out.data, text, sizeof(text) - 1);
    buf_free(&xml);
}

// --- queries ---

static void a_query_is_cut_into_decoded_pairs(void **state)
{
    static struct query q;

    assert_int_equal(query_parse(&q, "list-type=2&prefix=a%2Fb+c&empty=&flag&&x=1=2", false), 0);
    assert_string_equal(query_get(&q, "list-type"), "2");
    assert_string_equal(query_get(&q, "prefix"), "a/b+c");
    assert_string_equal(query_get(&q, "empty"), "");
    assert_string_equal(query_get(&q, "flag"), "");
    assert_string_equal(query_get(&q, "x"), "1=2");
    assert_null(query_get(&q, "none"));
    assert_int_equal(query_parse(&q, "a=b+c%2Bd%20e", true), 0);
    assert_string_equal(query_get(&q, "a"), "b c+d e");
    assert_null(query_get(&q, "x"));
    query_fini(&q);
}

static void a_broken_query_is_refused(void **state)
{
    static struct query q;
    struct buf many = {0};

    assert_int_equal(query_parse(&q, "a=%4", false), -EINVAL);
    assert_int_equal(query_parse(&q, "%zz", false), -EINVAL);
    assert_int_equal(query_parse(&q, "a=%00", false), -EINVAL);
    for (int i = 0; i <= QUERY_MAX_PAIRS; i++)
        buf_add_str(&many, "a&");
    assert_int_equal(query_parse(&q, buf_str(&many), false), -EINVAL);
    buf_free(&many);
    query_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(chunks_are_put_together_wherever_they_are_cut, release),
        cmocka_unit_test_teardown(what_ends_early_is_not_done, release),
        cmocka_unit_test_teardown(broken_chunks_are_refused, release),
        cmocka_unit_test_teardown(an_endless_line_is_refused, release),
        cmocka_unit_test(checksums_have_their_published_values),
        cmocka_unit_test(crcs_agree_with_a_bit_by_bit_one),
        cmocka_unit_test(a_checksums_header_names_its_kind),
        cmocka_unit_test_teardown(items_are_read_with_their_fields, release),
        cmocka_unit_test_teardown(what_is_not_the_right_xml_is_refused, release),
        cmocka_unit_test_teardown(text_survives_being_written_and_read, release),
        cmocka_unit_test(a_query_is_cut_into_decoded_pairs),
        cmocka_unit_test(a_broken_query_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
