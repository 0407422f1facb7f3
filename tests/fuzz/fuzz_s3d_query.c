// SPDX-License-Identifier: Apache-2.0
// Texts that clients of os2g-s3d send: queries, ranges, fault rules.
#include "s3d/conditions.h"
#include "s3d/faults.h"
#include "s3d/query.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = xmemdup(data, size), *why = NULL;
    static struct query q;
    struct fault_set *set;
    uint64_t off, len;

    query_parse(&q, text, size % 2);
    query_get(&q, "prefix");
    query_fini(&q);
    if (range_parse(text, 1000, &off, &len) == 0)
        assert(len && off + len <= 1000);
    if (fault_set_parse(&set, text, &why) == 0)
        fault_set_unref(set);
    free(why);
    free(text);
    return 0;
}
