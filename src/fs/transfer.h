// SPDX-License-Identifier: Apache-2.0
// READs and FETCHes under way: their answers may leave on data loops, so that whoever cancels one
// may come too late to touch its request.
#pragma once

#include "fs/impl.h"

struct transfer {
    struct hmap_link link;  // in fs->transfers
    struct fs_request *req; // not touched once it was answered
    uint64_t unique;
    void (*cancel)(struct transfer *t); // on the namespace loop, until transfer_end
};

// Brackets the operation, as fs_busy_begin and _end.
void transfer_begin(struct fs *fs, struct transfer *t, struct fs_request *req,
                    void (*cancel)(struct transfer *t));
void transfer_end(struct fs *fs, struct transfer *t);
