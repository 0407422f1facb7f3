// SPDX-License-Identifier: Apache-2.0
#include "base/unix_address.h"

#include <unistd.h>

int unix_connect(const char *path, int flags)
{
    struct sockaddr_un address;
    int fd, rc = unix_address(&address, path);

    if (rc < 0)
        return rc;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}
