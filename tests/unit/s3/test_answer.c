// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3/answer.h"

#include <string.h>

static int read_head(struct s3_answer *a, int64_t content_length, size_t n,
                     const struct http_header *headers)
{
    static struct http_head head;

    head = (struct http_head){.status = 206, .content_length = content_length, .n_headers = n};
    memcpy(head.headers, headers, n * sizeof(*headers));
    return s3_answer_read(a, &head);
}

static int read_range(struct s3_answer *a, const char *range)
{
    return read_head(a, -1, 1, (struct http_header[]){{"Content-Range", range}});
}

static void a_head_tells_all_of_an_object(void **state)
{
    struct s3_answer a;

    assert_int_equal(read_head(&a, 100, 7,
                               (struct http_header[]){
                                   {"Content-Type", "image/jpeg"},
                                   {"ETAG", "\"e\""},
                                   {"last-modified", "Sun, 29 Nov 2026 18:29:03 GMT"},
                                   {"x-amz-storage-class", "GLACIER"},
                                   {"x-amz-meta-Label", "cat"},
                                   {"X-Amz-Meta-Source", "web"},
                                   {"x-amz-request-id", "1"},
                               }),
                     0);
    assert_true(a.has_size);
    assert_int_equal(a.info.size, 100);
    assert_string_equal(a.info.content_type, "image/jpeg");
    assert_string_equal(a.info.etag, "\"e\"");
    assert_int_equal(a.info.mtime_s, 1795976943);
    assert_string_equal(a.info.storage_class, "GLACIER");
    assert_int_equal(a.info.n_metadata, 2);
    assert_string_equal(a.info.metadata[0].name, "Label");
    assert_string_equal(a.info.metadata[1].value, "web");
}

static void the_size_of_a_range_is_that_of_the_object(void **state)
{
    struct s3_answer a;

    assert_int_equal(read_range(&a, "bytes 10-19/1234"), 0);
    assert_true(a.has_range);
    assert_int_equal(a.first, 10);
    assert_int_equal(a.last, 19);
    assert_int_equal(a.info.size, 1234);
}

static void ranges_that_make_no_sense_are_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "bytes",
                                      "bytes 1-2",
                                      "bytes 2-1/10",
                                      "bytes 1-10/10",
                                      "bytes -1/10",
                                      "bytes 1-/9",
                                      "bytes */10",
                                      "bytes 0-1/*",
                                      "bytes 0-1/2x",
                                      "lines 0-1/2",
                                      "bytes 0-99999999999999999999/99999999999999999999"};
    struct s3_answer a;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(read_range(&a, bad[i]), -EBADMSG);
}

static void without_length_the_size_is_not_known(void **state)
{
    struct s3_answer a;

    assert_int_equal(read_head(&a, -1, 0, (struct http_header[]){{NULL, NULL}}), 0);
    assert_false(a.has_size);
    assert_false(a.has_range);
}

static void etags_are_equal_with_and_without_quotes(void **state)
{
    assert_true(s3_etag_equal("\"a\"", "\"a\""));
    assert_true(s3_etag_equal("\"a\"", "a"));
    assert_false(s3_etag_equal("\"a\"", "\"b\""));
    assert_false(s3_etag_equal("a", "ab"));
    assert_false(s3_etag_equal("\"a\"", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_tells_all_of_an_object),
        cmocka_unit_test(the_size_of_a_range_is_that_of_the_object),
        cmocka_unit_test(ranges_that_make_no_sense_are_refused),
        cmocka_unit_test(without_length_the_size_is_not_known),
        cmocka_unit_test(etags_are_equal_with_and_without_quotes),
    };

    return cmocka_run_group_tests_name("s3 answer", tests, NULL, NULL);
}
