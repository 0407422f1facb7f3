// SPDX-License-Identifier: Apache-2.0
// What mount.c and fusermount.c share.
#pragma once

#include "front/devfuse/devfuse.h"

static inline uint32_t devfuse_mount_max_read(const struct devfuse_mount_options *o)
{
    return o->max_read ? o->max_read : DEVFUSE_MAX_READ;
}

// As devfuse_mount and devfuse_unmount, by the set-uid program fusermount3. path is absolute.
int fusermount_mount(const char *path, const struct devfuse_mount_options *o, char **ret_error);
int fusermount_unmount(const char *dir, bool lazy, char **ret_error);
