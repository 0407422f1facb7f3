// SPDX-License-Identifier: Apache-2.0
#include "host/dirents.h"

#include <string.h>

size_t dirents_take(const uint8_t *bytes, size_t len, struct dirent_plus *ret)
{
    struct fuse_direntplus d;
    size_t size, n;

    if (len < FUSE_NAME_OFFSET_DIRENTPLUS)
        return 0;
    memcpy(&d, bytes, FUSE_NAME_OFFSET_DIRENTPLUS);
    n = d.dirent.namelen;
    size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + n);
    if (!n || n >= sizeof(ret->name) || size > len)
        return 0;
    ret->entry = d.entry_out;
    ret->next = d.dirent.off;
    memcpy(ret->name, bytes + FUSE_NAME_OFFSET_DIRENTPLUS, n);
    ret->name[n] = 0;
    // a name that no path can have
    return strlen(ret->name) == n && !memchr(ret->name, '/', n) ? size : 0;
}
