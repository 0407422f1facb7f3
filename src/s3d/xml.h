// SPDX-License-Identifier: Apache-2.0
// Writing XML answers, and reading the two kinds of XML requests.
#pragma once

#include "base/buf.h"

#define XML_HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define XML_NS   " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

// Text with the five entities, and as character references what XML 1.0 forbids or would change.
void xml_add_text(struct buf *b, const char *s);
void xml_add_element(struct buf *b, const char *name, const char *text);

// Calls fn for each element named item (at any depth) with the texts of its children whose names
// are in fields (ending with NULL; at most XML_MAX_FIELDS), NULL where absent. fn may stop with a
// negative value, which is returned; -EBADMSG when it is not well-formed or its root isn't root.
#define XML_MAX_FIELDS 6
int xml_each(const char *data, size_t len, const char *root, const char *item,
             const char *const *fields,
             int (*fn)(const char *const values[static XML_MAX_FIELDS], void *arg), void *arg);
