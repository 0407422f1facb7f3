// SPDX-License-Identifier: Apache-2.0
// The address of a UNIX socket.
#pragma once

#include "base/base.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

// -ENAMETOOLONG: sun_path has no room for it.
static inline int unix_address(struct sockaddr_un *ret, const char *path)
{
    size_t len = strlen(path);

    if (len >= sizeof(ret->sun_path))
        return -ENAMETOOLONG;
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path, path, len + 1);
    return 0;
}
