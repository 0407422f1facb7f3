// SPDX-License-Identifier: Apache-2.0
// What one host holds: references to nodes, with their number, and open handles. Nodes and handles
// are the export's, shared by all its hosts; so that none can take away another's, what it gives
// back is looked up here, and what it leaves behind when it goes is given back for it.
//
// Records in a memory that outlives the worker, found through an index that does not: it is made
// again from them. Each record changes by a single store, so that a crash at any moment leaves
// either of two truths. On the namespace loop only.
//
// What an answer gives the host is added before that is sent, and what the host gives back is taken
// away before fs/ is told: after a crash a reference may be there that nobody will give back before
// the session ends, or one too many in fs/ (a few bytes until unmount); never one too few.
#pragma once

#include "base/base.h"

struct fuse_holdings;

// fd: a memfd (stays the caller's) whose bytes from offset on (whole pages; to its end, and
// growing) are the table's; -1: memory of our own. Zeroes are an empty table. 0, -EINVAL (holds
// something else) or -errno.
int fuse_holdings_open(struct fuse_holdings **ret, int fd, uint64_t offset);
void fuse_holdings_close(struct fuse_holdings *h); // NULL is allowed

// -ENOMEM (so many at most: 16 million), else 0.
int fuse_holdings_add_node(struct fuse_holdings *h, uint64_t node, uint64_t n);
// Takes up to n references away; returns how many of them there were.
uint64_t fuse_holdings_drop_node(struct fuse_holdings *h, uint64_t node, uint64_t n);
bool fuse_holdings_has_node(const struct fuse_holdings *h, uint64_t node);
int fuse_holdings_add_handle(struct fuse_holdings *h, uint64_t handle, bool dir);
bool fuse_holdings_has_handle(const struct fuse_holdings *h, uint64_t handle, bool dir);
bool fuse_holdings_drop_handle(struct fuse_holdings *h, uint64_t handle, bool dir);

// Takes away one thing that is held; false: nothing is. For the end of a session.
enum fuse_holding { FUSE_HOLDS_NODE, FUSE_HOLDS_FILE, FUSE_HOLDS_DIR };
bool fuse_holdings_take(struct fuse_holdings *h, enum fuse_holding *ret_what, uint64_t *ret_id,
                        uint64_t *ret_n);
uint64_t fuse_holdings_count(const struct fuse_holdings *h);
