// SPDX-License-Identifier: Apache-2.0
// Descriptors that a host has sent: which are of a kind that is used here, and how to be rid of
// any. A host may be its own file system (FUSE), which answers fstat() and close() of its files
// when it likes; nothing here waits for it.
#pragma once

#include "base/base.h"

enum foreign_kind {
    FOREIGN_OTHER,
    FOREIGN_MEMORY, // a memfd, or a file in tmpfs or hugetlbfs
    FOREIGN_DEVICE, // no file at all, or a device's: a GPU's memory
    FOREIGN_EVENTFD,
};

enum foreign_kind foreign_fd_kind(int fd);
// Both are the same file. Of FOREIGN_MEMORY only.
bool foreign_fd_same(int a, int b);
// Closes it, by a thread of its own if that might wait. -1 is allowed.
void foreign_fd_close(int fd);
