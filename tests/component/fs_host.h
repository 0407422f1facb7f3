// SPDX-License-Identifier: Apache-2.0
// A host of fs/ for component tests: a file system on a real client and cache against os2g-s3d, and
// calls to it that wait.
#pragma once

#include "base/buf.h"
#include "cache/cache.h"
#include "fs/fs.h"
#include "s3_fixture.h"

#include <semaphore.h>

struct fs_host {
    struct s3_fixture *fixture;
    struct cache *cache;
    struct fs *fs;
    struct fs_options options;
};

struct fs_host_name {
    char *name;
    struct fs_entry e;
    uint64_t cookie;
};

struct fs_host_request {
    struct fs_request fs; // first
    struct fs_host *host;
    sem_t answered;
    int error; // 0 for every answer that is none
    struct fs_entry entry;
    struct fs_opened opened;
    struct buf bytes;
    uint64_t landed; // or the size that a fetch told
    struct fs_host_name *names;
    size_t n_names;
    // what is asked for
    int op;
    uint64_t id, offset;
    uint32_t size;
    const char *name;
    const void *in;
};

// prefix and so on by o; memory: of the cache.
void fs_host_start(struct fs_host *h, struct s3_fixture *f, struct fs_options o, uint64_t memory);
void fs_host_stop(struct fs_host *h);

// Each returns 0 or -errno. Any thread.
int fs_host_lookup(struct fs_host *h, uint64_t parent, const char *name, struct fs_entry *ret);
int fs_host_walk(struct fs_host *h, const char *path, struct fs_entry *ret);
// As a kernel opens a path: once more after ESTALE.
int fs_host_open(struct fs_host *h, const char *path, uint64_t *ret_handle, uint64_t *ret_size);
int fs_host_open_node(struct fs_host *h, uint64_t node, uint64_t *ret_handle);
int fs_host_read(struct fs_host *h, uint64_t handle, uint64_t offset, uint32_t size,
                 struct buf *out); // replaces out
// Into dest; landed(len), and a fetch's size, in *ret.
int fs_host_land(struct fs_host *h, uint64_t handle, uint64_t offset, uint32_t size,
                 struct cache_dest *dest, uint64_t *ret_landed);
int fs_host_fetch(struct fs_host *h, const char *key, struct cache_dest *dest, uint64_t *ret_size);
// The same in two steps; r need not be set up.
void fs_host_start_read(struct fs_host *h, struct fs_host_request *r, uint64_t handle,
                        uint64_t offset, uint32_t size, struct cache_dest *dest);
void fs_host_start_fetch(struct fs_host *h, struct fs_host_request *r, const char *key, size_t len,
                         struct cache_dest *dest);
int fs_host_wait(struct fs_host_request *r);
void fs_host_cancel(struct fs_host_request *r);
int fs_host_release(struct fs_host *h, uint64_t handle);
int fs_host_xattr(struct fs_host *h, uint64_t node, const char *name, struct buf *out);
int fs_host_ioctl(struct fs_host *h, uint64_t handle, uint32_t cmd, void *inout, uint32_t size);
// Names of a directory in their order, each followed by '/' if it is one, and by a newline.
int fs_host_list(struct fs_host *h, uint64_t node, struct buf *out);
