// SPDX-License-Identifier: Apache-2.0
// The XML that S3 stores send: error documents and pages of ListObjectsV2. Everything is bounded,
// and documents with a DTD are refused, so no entity can grow.
// Source: Amazon S3 API Reference, "Error responses" and "ListObjectsV2".
#pragma once

#include "base/buf.h"
#include "s3/s3.h"

// --- errors ---

#define S3_XML_MAX_ERROR (64 * 1024) // bytes of a document

// "" or 0 where the document says nothing; longer texts are cut.
struct s3_xml_error {
    char code[64];
    char message[200];
    char region[64];
    char endpoint[256];
    int64_t server_time_s;
};

// Takes what can be read of a document, also of a broken one; false: it names no code.
bool s3_xml_error_parse(const char *data, size_t len, struct s3_xml_error *ret);

// --- pages of a listing ---

#define S3_XML_MAX_PAGE (64 * MIB)

struct s3_xml_page;

struct s3_xml_page *s3_xml_page_new(void);
void s3_xml_page_free(struct s3_xml_page *p); // NULL is allowed

// Where the next bytes of the document go, and that they are there: -EBADMSG when it is no
// listing, is broken or too large. Nothing is to be fed after an error.
void *s3_xml_page_room(struct s3_xml_page *p, size_t *ret_len);
int s3_xml_page_fed(struct s3_xml_page *p, size_t len);

// The document has ended: decodes and sorts. 0 or -EBADMSG.
int s3_xml_page_finish(struct s3_xml_page *p);

// After finish. Objects and prefixes together, in byte order.
size_t s3_xml_page_count(const struct s3_xml_page *p);
void s3_xml_page_entry(const struct s3_xml_page *p, size_t i, struct s3_list_entry *ret);
// NULL: this was the last page.
const char *s3_xml_page_continuation(const struct s3_xml_page *p);
// Keys with a zero byte, which no path can hold, are left out and counted.
size_t s3_xml_page_skipped(const struct s3_xml_page *p);
