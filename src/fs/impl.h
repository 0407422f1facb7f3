// SPDX-License-Identifier: Apache-2.0
// What the files of fs/ share. Everything here is the namespace loop's.
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/counter.h"
#include "base/log.h"
#include "cache/cache.h"
#include "fs/fs.h"
#include "fs/handles.h"
#include "fs/hmap.h"
#include "fs/names.h"
#include "fs/nodes.h"
#include "fs/snapshot.h"
#include "fs/stalls.h"

struct fs {
    struct loop *loop;
    struct fs_options o; // its strings are ours
    struct s3_client *s3;
    struct cache *cache;
    struct nodes *nodes;
    struct handles *handles;

    // dirs.c
    struct hmap dirs;
    struct list idle_dirs; // known for nothing but the lookups counted in them, oldest first
    unsigned n_idle_dirs;
    struct list snapshots; // least recently used first
    uint64_t snapshot_bytes, n_snapshots;
    unsigned prelisting; // listings nobody waits for yet
    struct hidden_names hidden;

    // objects.c
    struct hmap objects;
    struct list idle_objects; // nobody uses them, oldest first
    unsigned n_idle_objects;

    struct hmap transfers; // transfer.c
    unsigned fetching;     // fetch.c: FETCHes under way
    struct list run_plans; // plan_run.c
    uint64_t plan_window;  // plan_run.c: what the latest plan came to need that was given none
    unsigned kept;         // read.c: small files in a row of which the host had kept all
    bool lets_go;          // read.c: it had not of one, and not of enough since
    struct stalls stalls;
    struct list reports; // stalls_file.c
    unsigned n_reports;
    struct list gdd_files; // gdd_file.c
    unsigned gdd_reads;    // under way or not reaped
    uint64_t gdd_unique;

    // S3 operations, reads and loads in progress; fs_close waits for them
    unsigned busy;
    bool closing;
    void (*closed)(void *arg);
    void *closed_arg;
    struct loop_msg closed_msg;

    // for fs_stats_read
    struct {
        struct counter nodes, node_bytes, handles, snapshots, snapshot_bytes;
        struct counter lookups, opens, reads, readdirs, hidden_keys;
        struct counter plan_entries, plan_fetched, plan_used, plan_dropped;
        struct counter fetches, fetch_bytes;
    } stats;
};

static inline void counter_set(struct counter *c, uint64_t v)
{
    atomic_store_explicit(&c->value, v, memory_order_relaxed);
}

// Brackets everything that is under way outside this loop.
void fs_busy_begin(struct fs *fs);
void fs_busy_end(struct fs *fs);

void fs_count_nodes(struct fs *fs); // after nodes were made or freed
void fs_count_handles(struct fs *fs);

// --- attr.c ---

uint64_t fs_sum_ns(uint64_t a, uint64_t b); // UINT64_MAX is for ever
void fs_attr_fill(struct fs *fs, uint32_t node, struct fs_attr *ret);
// valid_ns: of the name; attributes of a version never change and are valid for the whole TTL.
// The bits of mode (rwx) that this caller has. Its further groups are not known here; a mount
// that must know has the kernel check (default_permissions).
unsigned fs_granted(const struct fs_request *req, const struct fs_attr *a);
void fs_entry_fill(struct fs *fs, uint32_t node, uint64_t valid_ns, struct fs_entry *ret);
void fs_reply_negative(struct fs *fs, struct fs_request *req);
void fs_version_from_info(const struct s3_object_info *info, struct node_version *ret);

void fs_op_forget(struct fs *fs, uint64_t node, uint64_t n);
void fs_op_unlookup(struct fs *fs, uint64_t node, uint64_t n);
void fs_op_getattr(struct fs *fs, struct fs_request *req, uint64_t node);
void fs_op_access(struct fs *fs, struct fs_request *req, uint64_t node, int mask);
void fs_op_statfs(struct fs *fs, struct fs_request *req);

// --- lookup.c ---

void fs_op_lookup(struct fs *fs, struct fs_request *req, uint64_t parent, const char *name,
                  size_t len);

// --- readdir.c ---

void fs_op_opendir(struct fs *fs, struct fs_request *req, uint64_t node);
void fs_op_readdir(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                   bool plus);
void fs_op_releasedir(struct fs *fs, struct fs_request *req, uint64_t handle);
void fs_dir_handle_free(struct fs *fs, uint32_t handle);
void fs_dir_handle_forget_private(struct fs *fs, uint32_t handle); // the table keeps the handle

// --- open.c, read.c, fetch.c ---

void fs_op_open(struct fs *fs, struct fs_request *req, uint64_t node, int flags);
void fs_op_unopen(struct fs *fs, uint64_t handle);
void fs_op_release(struct fs *fs, struct fs_request *req, uint64_t handle);
void fs_op_read(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                uint32_t size);
void fs_op_fetch(struct fs *fs, struct fs_request *req, const char *key, size_t len);

// --- gdd_file.c ---

void gdd_attr_fill(struct fs *fs, struct fs_attr *a); // what is different of the file's
void gdd_open(struct fs *fs, struct fs_request *req);

// --- xattr.c, control.c ---

void fs_op_getxattr(struct fs *fs, struct fs_request *req, uint64_t node, const char *name);
void fs_op_listxattr(struct fs *fs, struct fs_request *req, uint64_t node);
void fs_op_ioctl(struct fs *fs, struct fs_request *req, uint64_t node, uint64_t handle,
                 uint32_t cmd, const void *in, size_t in_len, size_t out_size);
