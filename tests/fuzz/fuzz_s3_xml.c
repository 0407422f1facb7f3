// SPDX-License-Identifier: Apache-2.0
// Error documents and listings as a store might send them. The first byte chooses the size of the
// pieces in which a listing arrives.
#include "s3/xml.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_entries(const struct s3_xml_page *p)
{
    for (size_t i = 0; i < s3_xml_page_count(p); i++) {
        struct s3_list_entry e;

        s3_xml_page_entry(p, i, &e);
        if (strlen(e.key) != e.key_len)
            abort();
        if (!e.is_prefix && strlen(e.info.etag) + strlen(e.info.storage_class) > 64 * KIB)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct s3_xml_page *p;
    struct s3_xml_error error;
    size_t piece;
    int rc = 0;

    if (size == 0)
        return 0;
    piece = data[0] + 1u;
    data++;
    size--;
    s3_xml_error_parse((const char *)data, size, &error);

    p = s3_xml_page_new();
    while (size && rc == 0) {
        size_t room, n;
        void *to = s3_xml_page_room(p, &room);

        n = MIN(MIN(size, piece), room);
        memcpy(to, data, n);
        data += n;
        size -= n;
        rc = s3_xml_page_fed(p, n);
    }
    if (rc == 0 && s3_xml_page_finish(p) == 0)
        read_entries(p);
    s3_xml_page_free(p);
    return 0;
}
