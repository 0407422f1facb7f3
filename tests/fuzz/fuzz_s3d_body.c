// SPDX-License-Identifier: Apache-2.0
// Bodies of requests to os2g-s3d: the aws-chunked coding, fed in two pieces, and the XML of
// multi-delete.
#include "s3d/aws_chunked.h"
#include "s3d/xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void count(void *arg, const void *data, size_t len)
{
    *(size_t *)arg += len;
}

static int ignore(const char *const values[static XML_MAX_FIELDS], void *arg)
{
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const fields[] = {"Key", "VersionId", NULL};
    struct aws_chunked c;
    size_t cut = size ? data[0] % size : 0, decoded = 0;

    aws_chunked_init(&c, NULL, NULL, NULL);
    if (aws_chunked_feed(&c, (const char *)data, cut, count, &decoded) == 0)
        aws_chunked_feed(&c, (const char *)data + cut, size - cut, count, &decoded);
    assert(decoded <= size);
    aws_chunked_fini(&c);
    xml_each((const char *)data, size, "Delete", "Object", fields, ignore, NULL);
    return 0;
}
