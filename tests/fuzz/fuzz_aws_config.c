// SPDX-License-Identifier: Apache-2.0
// Shared configuration and credentials files.
#include "s3/aws_config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (enum aws_file kind = AWS_CONFIG_FILE; kind <= AWS_CREDENTIALS_FILE; kind++) {
        struct aws_config *c = NULL;
        char *error = NULL;

        if (aws_config_parse(&c, kind, "file", (const char *)data, size, &error) == 0) {
            aws_config_has(c, AWS_PROFILE, "default");
            aws_config_get(c, AWS_PROFILE, "default", "s3.addressing_style");
            aws_config_get(c, AWS_SSO_SESSION, "corp", "sso_region");
        } else if (!error) {
            abort(); // a refusal says why
        }
        aws_config_free(c);
        free(error);
    }
    return 0;
}
