// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "s3/xml.h"

#include <stdlib.h>
#include <string.h>

#define LIST(inside)                                                                               \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"                                                 \
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" inside                  \
    "</ListBucketResult>"
#define OBJECT(key)                                                                                \
    "<Contents><Key>" key "</Key><LastModified>2026-11-29T18:29:03.000Z</LastModified>"            \
    "<ETag>&quot;e1&quot;</ETag><Size>5</Size><StorageClass>STANDARD</StorageClass>"               \
    "<Owner><ID>u</ID></Owner></Contents>"
#define PREFIX(prefix) "<CommonPrefixes><Prefix>" prefix "</Prefix></CommonPrefixes>"
#define URL            "<EncodingType>url</EncodingType>"

// Feeds text in pieces; the page, or NULL if it was refused.
static struct s3_xml_page *parse_in_pieces(const char *text, size_t piece)
{
    struct s3_xml_page *p = s3_xml_page_new();
    size_t left = strlen(text);
    int rc = 0;

    while (left && rc == 0) {
        size_t room, n;
        char *to = s3_xml_page_room(p, &room);

        n = MIN(MIN(left, piece), room);
        memcpy(to, text, n);
        text += n;
        left -= n;
        rc = s3_xml_page_fed(p, n);
    }
    if (rc == 0)
        rc = s3_xml_page_finish(p);
    if (rc == 0)
        return p;
    assert_int_equal(rc, -EBADMSG);
    s3_xml_page_free(p);
    return NULL;
}

static struct s3_xml_page *parse(const char *text)
{
    return parse_in_pieces(text, SIZE_MAX);
}

static void refused(const char *text)
{
    assert_null(parse(text));
}

static void keys_are(struct s3_xml_page *p, size_t n, const char *const *keys)
{
    assert_non_null(p);
    assert_int_equal(s3_xml_page_count(p), n);
    for (size_t i = 0; i < n; i++) {
        struct s3_list_entry e;

        s3_xml_page_entry(p, i, &e);
        assert_string_equal(e.key, keys[i]);
        assert_int_equal(e.key_len, strlen(keys[i]));
    }
    s3_xml_page_free(p);
}

static void a_page_has_objects_with_all_they_say(void **state)
{
    struct s3_xml_page *p = parse(LIST("<Name>b</Name><Prefix>x/</Prefix>" OBJECT("x/a")));
    struct s3_list_entry e;

    assert_non_null(p);
    assert_int_equal(s3_xml_page_count(p), 1);
    s3_xml_page_entry(p, 0, &e);
    assert_string_equal(e.key, "x/a");
    assert_false(e.is_prefix);
    assert_int_equal(e.info.size, 5);
    assert_int_equal(e.info.mtime_s, 1795976943);
    assert_string_equal(e.info.etag, "\"e1\"");
    assert_string_equal(e.info.storage_class, "");
    assert_null(s3_xml_page_continuation(p));
    s3_xml_page_free(p);
}

static void other_storage_classes_are_named(void **state)
{
    struct s3_xml_page *p = parse(LIST("<Contents><Key>a</Key><Size>0</Size>"
                                       "<StorageClass>GLACIER</StorageClass></Contents>"));
    struct s3_list_entry e;

    assert_non_null(p);
    s3_xml_page_entry(p, 0, &e);
    assert_string_equal(e.info.storage_class, "GLACIER");
    assert_string_equal(e.info.etag, "");
    s3_xml_page_free(p);
}

static void pieces_of_any_size_give_the_same_page(void **state)
{
    for (size_t piece = 1; piece < 40; piece++)
        keys_are(parse_in_pieces(LIST(URL OBJECT("a%2Bb") OBJECT("a&amp;c")), piece), 2,
                 (const char *[]){"a&c", "a+b"});
}

static void objects_and_prefixes_are_merged_in_byte_order(void **state)
{
    keys_are(parse(LIST(OBJECT("a") OBJECT("c") OBJECT("d/") PREFIX("b/") PREFIX("d/"))), 5,
             (const char *[]){"a", "b/", "c", "d/", "d/"});
}

static void keys_are_decoded_when_the_store_says_so(void **state)
{
    keys_are(parse(LIST(OBJECT("a%20b") OBJECT("a+b") OBJECT("a%2Bc") OBJECT("%0A%ff") URL)), 4,
             (const char *[]){"\n\xff", "a b", "a b", "a+c"});
}

static void keys_are_taken_as_they_are_when_it_does_not(void **state)
{
    keys_are(parse(LIST(OBJECT("100%") OBJECT("a+b"))), 2, (const char *[]){"100%", "a+b"});
}

static void keys_with_a_zero_byte_are_left_out_and_counted(void **state)
{
    struct s3_xml_page *p = parse(LIST(URL OBJECT("a%00b") OBJECT("c")));

    assert_non_null(p);
    assert_int_equal(s3_xml_page_skipped(p), 1);
    keys_are(p, 1, (const char *[]){"c"});
}

static void a_truncated_page_says_where_to_go_on(void **state)
{
    struct s3_xml_page *p = parse(LIST("<IsTruncated>true</IsTruncated><NextContinuationToken>t/+=="
                                       "</NextContinuationToken>"));

    assert_non_null(p);
    assert_string_equal(s3_xml_page_continuation(p), "t/+==");
    s3_xml_page_free(p);
}

static void a_truncated_page_without_a_token_is_refused(void **state)
{
    refused(LIST("<IsTruncated>true</IsTruncated>"));
    refused(LIST("<IsTruncated>true</IsTruncated><NextContinuationToken/>"));
}

static void what_is_no_listing_is_refused(void **state)
{
    refused("");
    refused("<html><body>hello</body></html>");
    refused("<Error><Code>InternalError</Code></Error>");
    refused("{\"json\": true}");
}

static void broken_pages_are_refused(void **state)
{
    refused("<ListBucketResult><Contents><Key>a</Key>");
    refused(LIST("<Contents><Size>1</Size></Contents>")); // no key
    refused(LIST("<Contents><Key>a</Key></Contents>"));   // no size
    refused(LIST("<Contents><Key>a</Key><Size>-1</Size></Contents>"));
    refused(LIST("<Contents><Key>a</Key><Size>99999999999999999999</Size></Contents>"));
    refused(LIST(URL OBJECT("a%2")));
    refused(LIST(URL OBJECT("a%zz")));
    refused(LIST("<Contents><Key>a</Key><Size>1</Size><ETag>&#10;x</ETag></Contents>"));
}

static void entities_of_a_document_are_refused(void **state)
{
    refused("<!DOCTYPE l [<!ENTITY a \"aaaa\">]>" LIST(OBJECT("&a;")));
}

static void deep_and_long_elements_are_refused(void **state)
{
    struct buf b = {0};

    buf_add_str(&b, "<ListBucketResult>");
    for (int i = 0; i < 100; i++)
        buf_add_str(&b, "<a>");
    refused(b.data);

    buf_reset(&b);
    buf_add_str(&b, "<ListBucketResult><Contents><Key>");
    for (int i = 0; i < 20000; i++)
        buf_add_str(&b, "a");
    buf_add_str(&b, "</Key><Size>1</Size></Contents></ListBucketResult>");
    refused(b.data);
    buf_free(&b);
}

static void an_error_document_is_read(void **state)
{
    static const char doc[] =
        "<?xml version=\"1.0\"?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference is "
        "&lt;too&gt; large</Message><ServerTime>2026-11-29T18:29:03Z</ServerTime>"
        "<Region>eu-west-1</Region><Endpoint>b.s3.amazonaws.com</Endpoint></Error>";
    struct s3_xml_error e;

    assert_true(s3_xml_error_parse(doc, strlen(doc), &e));
    assert_string_equal(e.code, "RequestTimeTooSkewed");
    assert_string_equal(e.message, "The difference is <too> large");
    assert_string_equal(e.region, "eu-west-1");
    assert_string_equal(e.endpoint, "b.s3.amazonaws.com");
    assert_int_equal(e.server_time_s, 1795976943);
}

static void a_broken_error_document_gives_what_it_has(void **state)
{
    static const char doc[] = "<Error><Code>SlowDown</Code><Message>Ple";
    struct s3_xml_error e;

    assert_true(s3_xml_error_parse(doc, strlen(doc), &e));
    assert_string_equal(e.code, "SlowDown");
}

static void long_texts_of_an_error_are_cut(void **state)
{
    struct buf b = {0};
    struct s3_xml_error e;

    buf_add_str(&b, "<Error><Code>");
    for (int i = 0; i < 1000; i++)
        buf_add_str(&b, "C");
    buf_add_str(&b, "</Code></Error>");
    assert_true(s3_xml_error_parse(b.data, b.len, &e));
    assert_int_equal(strlen(e.code), sizeof(e.code) - 1);
    buf_free(&b);
}

static void what_is_no_error_document_names_no_code(void **state)
{
    struct s3_xml_error e;

    assert_false(s3_xml_error_parse("<html>oops</html>", 17, &e));
    assert_false(s3_xml_error_parse("", 0, &e));
    assert_string_equal(e.code, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_has_objects_with_all_they_say),
        cmocka_unit_test(other_storage_classes_are_named),
        cmocka_unit_test(pieces_of_any_size_give_the_same_page),
        cmocka_unit_test(objects_and_prefixes_are_merged_in_byte_order),
        cmocka_unit_test(keys_are_decoded_when_the_store_says_so),
        cmocka_unit_test(keys_are_taken_as_they_are_when_it_does_not),
        cmocka_unit_test(keys_with_a_zero_byte_are_left_out_and_counted),
        cmocka_unit_test(a_truncated_page_says_where_to_go_on),
        cmocka_unit_test(a_truncated_page_without_a_token_is_refused),
        cmocka_unit_test(what_is_no_listing_is_refused),
        cmocka_unit_test(broken_pages_are_refused),
        cmocka_unit_test(entities_of_a_document_are_refused),
        cmocka_unit_test(deep_and_long_elements_are_refused),
        cmocka_unit_test(an_error_document_is_read),
        cmocka_unit_test(a_broken_error_document_gives_what_it_has),
        cmocka_unit_test(long_texts_of_an_error_are_cut),
        cmocka_unit_test(what_is_no_error_document_names_no_code),
    };

    return cmocka_run_group_tests_name("s3 xml", tests, NULL, NULL);
}
