// SPDX-License-Identifier: Apache-2.0
#include "s3/error.h"

#include <string.h>

static const struct s3_error_entry by_code[] = {
#define ENTRY(code, error, class, advice) {#code, error, S3_##class, advice},
    S3_ERROR_TABLE(ENTRY)
#undef ENTRY
};

static const struct {
    int first, last; // HTTP status
    struct s3_error_entry entry;
} by_status[] = {
    {300, 399, {"", EIO, S3_PLACE, "give the bucket's own endpoint or region"}},
    {400, 400, {"", EIO, S3_PLACE, "check endpoint, region and addressing style"}},
    {401, 401, {"", EACCES, S3_FATAL, "check the credentials"}},
    {403, 403, {"", EACCES, S3_FATAL, "check the credentials and their rights"}},
    {404, 404, {"", ENOENT, S3_FATAL, "there is no such object"}},
    {407, 407, {"", EACCES, S3_FATAL, "the proxy wants credentials of its own"}},
    {408, 408, {"", EIO, S3_RETRY, ""}},
    {409, 409, {"", EIO, S3_RETRY, ""}},
    {412, 412, {"", ESTALE, S3_FATAL, "the object has changed"}},
    {416, 416, {"", ERANGE, S3_FATAL, ""}},
    {429, 429, {"", EIO, S3_THROTTLED, ""}},
    {501, 501, {"", EOPNOTSUPP, S3_FATAL, "the store cannot do this"}},
    {503, 503, {"", EIO, S3_THROTTLED, ""}},
    {500, 599, {"", EIO, S3_RETRY, ""}},
};

static const struct s3_error_entry unexpected = {"", EIO, S3_FATAL,
                                                 "is this an S3 store? check the endpoint"};

const struct s3_error_entry *s3_error_find(const char *code, int status)
{
    for (size_t i = 0; i < ARRAY_LEN(by_code); i++)
        if (!strcmp(by_code[i].code, code))
            return &by_code[i];
    for (size_t i = 0; i < ARRAY_LEN(by_status); i++)
        if (status >= by_status[i].first && status <= by_status[i].last)
            return &by_status[i].entry;
    return &unexpected;
}
