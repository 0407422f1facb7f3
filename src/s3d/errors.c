// SPDX-License-Identifier: Apache-2.0
#include "s3d/errors.h"

#include <stddef.h>

static const struct {
    const char *code;
    int status;
    const char *message;
} errors[] = {
#define X(code, status, message) [S3_##code] = {#code, status, message},
    S3_ERRORS(X)
#undef X
};

const char *s3_error_code(enum s3_error e)
{
    return errors[e].code;
}

int s3_error_status(enum s3_error e)
{
    return errors[e].status;
}

const char *s3_error_message(enum s3_error e)
{
    return errors[e].message;
}
