// SPDX-License-Identifier: Apache-2.0
// Tests see no AWS settings but their own: set up each with without_aws_environment.
#pragma once

#include "base/base.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline int without_aws_environment(void **state)
{
    for (char **e = environ; *e;) {
        char *name = xstrndup(*e, strcspn(*e, "="));

        if (strncmp(name, "AWS_", 4) == 0) {
            unsetenv(name);
            e = environ;
        } else {
            e++;
        }
        free(name);
    }
    return 0;
}
