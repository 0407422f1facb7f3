// SPDX-License-Identifier: Apache-2.0
// The answer to READDIRPLUS, as it comes from the device: checked. No I/O.
#pragma once

#include "base/base.h"

#include <linux/fuse.h>

struct dirent_plus {
    struct fuse_entry_out entry; // nodeid 0: carries no reference
    uint64_t next;               // offset of what comes behind it
    char name[256];
};

// The entry at the beginning of len bytes; how many of them it takes, 0: it is broken.
size_t dirents_take(const uint8_t *bytes, size_t len, struct dirent_plus *ret);
