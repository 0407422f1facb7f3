// SPDX-License-Identifier: Apache-2.0
// The nodes that the host knows: one for each (name, version) it was told of, in a table that
// outlives the worker. The records are the state itself; what lies beside them in private memory
// (the index, the count of holders) is made again from them at start.
//
//   id, as the host sees it = generation << 32 | slot
//
// A slot that is used again gets a new generation, so that an id never means another version.
// A node lives as long as the host refers to it, one of its children lives, or fs/ holds it.
// On the namespace loop only.
#pragma once

#include "base/buf.h"
#include "fs/etag.h"

#include <stdatomic.h>

struct nodes;

#define NODE_NONE         0 // slot 0 is the table's header
#define NODE_ROOT         1
#define NODE_CONTROL_DIR  2
#define NODE_CONTROL_FILE 3
#define NODE_GDD_FILE     4
#define NODE_STALLS_FILE  5
#define NODE_FIXED_LAST   NODE_STALLS_FILE // always there

enum node_kind {
    NODE_FREE,
    NODE_FILE,
    NODE_DIR,
    NODE_MORE, // the rest of another's name
    NODE_KINDS,
};

enum node_flag {
    NODE_STALE = 1,    // the store has another version by now
    NODE_SERVED = 2,   // the host was given every byte and may keep them
    NODE_ARCHIVED = 4, // its storage class cannot be read at once
};

// What makes two objects of one name different, and their attributes.
struct node_version {
    uint64_t size;
    uint32_t mtime_s; // clamped to what fits
    bool archived;
    struct etag etag;
};

bool node_version_equal(const struct node_version *a, const struct node_version *b);

// fd: -1 for memory of our own. now_s: the time directories get, when the table is new.
int nodes_open(struct nodes **ret, int fd, int64_t now_s);
// Frees what a worker that died had made and not yet told the host of; once open handles hold
// their nodes.
void nodes_sweep(struct nodes *n);
void nodes_close(struct nodes *n); // NULL is allowed

// The slot of an id, NODE_NONE when there is no such node (any more).
uint32_t nodes_slot(const struct nodes *n, uint64_t id);
uint64_t nodes_id(const struct nodes *n, uint32_t slot);

// version: NULL for directories.
uint32_t nodes_find(const struct nodes *n, uint32_t parent, const char *name, size_t len,
                    enum node_kind kind, const struct node_version *version);
// Finds or makes. A new node has no reference yet: add one, hold it, or nodes_settle it.
// -ENOMEM.
int nodes_get(struct nodes *n, uint32_t parent, const char *name, size_t len, enum node_kind kind,
              const struct node_version *version, uint32_t *ret_slot);
// The store shows this under the name (kind NODE_FREE: nothing): other versions become stale.
void nodes_set_current(struct nodes *n, uint32_t parent, const char *name, size_t len,
                       enum node_kind kind, const struct node_version *version);
// Whether a node of this very name and version was found stale.
bool nodes_is_stale_version(const struct nodes *n, uint32_t parent, const char *name, size_t len,
                            const struct node_version *version);

void nodes_add_lookups(struct nodes *n, uint32_t slot, uint64_t count);
void nodes_forget(struct nodes *n, uint32_t slot, uint64_t count);
void nodes_hold(struct nodes *n, uint32_t slot);
void nodes_unhold(struct nodes *n, uint32_t slot);
void nodes_settle(struct nodes *n, uint32_t slot); // frees it if nothing refers to it

enum node_kind nodes_kind(const struct nodes *n, uint32_t slot);
uint32_t nodes_parent(const struct nodes *n, uint32_t slot);
unsigned nodes_flags(const struct nodes *n, uint32_t slot);
void nodes_set_flags(struct nodes *n, uint32_t slot, unsigned set, unsigned clear);
// Of a file. version->etag.text points to memory that the next call reuses.
void nodes_version(struct nodes *n, uint32_t slot, struct node_version *ret);
size_t nodes_name(const struct nodes *n, uint32_t slot, char out[static 256]); // its length
// Appends the key below the export: "a/b" for a file, "a/b/" for a directory, nothing for the root.
void nodes_path(const struct nodes *n, uint32_t slot, struct buf *out);
// The directory of a path like "a/b/", if the host knows it; else NODE_NONE.
uint32_t nodes_find_dir(const struct nodes *n, const char *path, size_t len);
int64_t nodes_created_s(const struct nodes *n);

uint64_t nodes_count(const struct nodes *n);
uint64_t nodes_bytes(const struct nodes *n); // memory, shared and private
