// SPDX-License-Identifier: Apache-2.0
// An open file's private half: which bytes it reads and how. Made at OPEN, or, for a handle from
// before a crash, at its first READ.
#pragma once

#include "fs/objects.h"
#include "prefetch/stream.h"
#include "prefetch/whole.h"

#define FILE_PAGES (WHOLE_MAX / CACHE_PAGE)

struct file {
    struct fs *fs;
    unsigned refs;   // the handle, and everything in progress for it
    uint32_t handle; // HANDLE_NONE before and after
    uint32_t node;   // held
    uint64_t size;
    struct object *object; // NULL: empty
    struct whole whole;
    struct stream stream;
    uint64_t given[FILE_PAGES / 64]; // pages of a small object that the host was given to keep
    bool keeps_pages, was_read;      // keeps_pages: its host does
    struct list plan_uses;           // plan_run.c: entries of plans that this file is
    enum plan_lead lead;             // what plans have done for it
    struct stall_tally stalled;
};

// The reference is the caller's. The node is held.
struct file *file_new(struct fs *fs, uint32_t node, const char *path, size_t len,
                      const struct node_version *v);
void file_unref(struct file *f);
struct file *file_of_handle(struct fs *fs, uint32_t handle);

// Its reader has waited, for an OPEN or a READ.
void file_waited(struct file *f, const struct cache_waited *w);

// The store has another version than this node's.
void file_found_stale(struct fs *fs, uint32_t node);
// What a listing says of this path is not to be believed.
void path_found_stale(struct fs *fs, const char *path, size_t len);

// --- read.c ---

// Whether what READ gives this host may be kept there (NODE_SERVED).
static inline bool host_keeps_pages(const struct fs *fs, const struct fs_request *req)
{
    return req->keeps_pages && !fs->o.direct_io;
}

// Its reader is done: whether the host had kept what it was given tells what to believe of the
// rest.
void file_released(struct file *f);

// Whether the host still has every byte of a node: it was given them, and has kept the like of
// late. It may let go of pages without a word.
bool host_has_kept(struct fs *fs, uint32_t node);
// The same, where a mistake costs little: until it has been seen to let go.
bool host_may_have_kept(struct fs *fs, uint32_t node);

// --- ahead.c: the files that are likely opened next ---

// The file at path was opened (keeps_pages: by a host that may have its neighbours); it was
// fetched, in that time.
void ahead_opened(struct fs *fs, const char *path, size_t len, bool keeps_pages);
void ahead_fetched(struct fs *fs, const char *path, size_t len, uint64_t took_ns);
