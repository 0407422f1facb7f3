// SPDX-License-Identifier: Apache-2.0
// UNIX sockets: the address of a path, and a connection to it.
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

// A stream connection (close-on-exec; flags: SOCK_NONBLOCK, or 0) to the socket at path: the
// caller's descriptor, or -errno of connect(2): -ENOENT, -ECONNREFUSED, -EACCES; with
// SOCK_NONBLOCK -EAGAIN: its backlog is full.
int unix_connect(const char *path, int flags);
