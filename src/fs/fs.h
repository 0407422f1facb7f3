// SPDX-License-Identifier: Apache-2.0
// fs/: a bucket's keys as a file system: namespace, directory snapshots, handles, the read path.
// Runs on one namespace loop per export; uses prefetch/, cache/, s3/, loop/, base/. The wires
// above reach it through struct fs_ops only, and it answers them through struct fs_reply.
//
// Every operation is called on the namespace loop and answered exactly once, now or later, by one
// call of req->reply->…, on the namespace loop or on a data loop (read, fetch).
#pragma once

#include "base/base.h"
#include "loop/loop.h"

#include <sys/stat.h>
#include <sys/uio.h>

struct buf;
struct cache_dest;
struct fs;
struct fs_request;

#define FS_ROOT      1 // node id of the root, as FUSE has it
#define FS_DATA_IOVS 128

struct fs_attr {
    uint64_t node; // id; inode number shown to programs
    uint64_t size;
    int64_t mtime_s;
    uint32_t mode; // S_IFDIR or S_IFREG with permissions
    uint32_t uid, gid, nlink;
};

struct fs_entry {
    struct fs_attr attr; // attr.node == 0 in a lookup's answer: no such name (cached as negative)
    uint64_t generation;
    uint64_t entry_valid_ns, attr_valid_ns;
};

struct fs_opened {
    uint64_t handle;
    bool direct_io;
    bool keep_cache; // the kernel's pages of this node are still right
    bool cache_dir;
    // A worker before this one made the handle, and may have been heard: no unopen if this answer
    // is not.
    bool known;
};

// How a wire takes answers. Any of them ends the request; req must not be touched afterwards.
struct fs_reply {
    void (*error)(struct fs_request *req, int error); // 0 or -errno
    void (*entry)(struct fs_request *req, const struct fs_entry *e);
    void (*attr)(struct fs_request *req, const struct fs_attr *a, uint64_t valid_ns);
    void (*opened)(struct fs_request *req, const struct fs_opened *o);
    // The bytes are copied out before it returns; short only at the end of the file; at most
    // FS_DATA_IOVS pieces. For read only.
    void (*data)(struct fs_request *req, const struct iovec *iov, int n);
    // In place of data when req->dest is there: its first len bytes have been written.
    void (*landed)(struct fs_request *req, uint64_t len);
    // A fetch's: 0 (size bytes have been written to req->dest), -EFBIG (size says how large the
    // object is), or another -errno (size means nothing).
    void (*fetched)(struct fs_request *req, int error, uint64_t size);
    void (*statfs)(struct fs_request *req, uint64_t files);
    void (*ioctl)(struct fs_request *req, int result, const void *out, size_t len);
    // Not an end: adds one name to a readdir's answer; false when there is no room (not added).
    // e: with its attributes (READDIRPLUS), or only e->attr.node and mode used. With attributes,
    // each name added carries a reference to its node, as a lookup's answer does; "." and ".."
    // and a node of 0 carry none.
    // cookie: what the next readdir passes as offset to go on behind this name.
    bool (*dirent)(struct fs_request *req, const char *name, size_t len, uint64_t cookie,
                   const struct fs_entry *e);
    void (*dirents_end)(struct fs_request *req); // the end of a readdir
    // For xattrs: size == 0 asked for the length only. The wire answers ERANGE by itself.
    void (*xattr)(struct fs_request *req, const void *value, size_t len);
};

// GPU memory of the host that a wire leads to, as far as pieces of it can be leased (wire/gdd.h).
// Calls on the namespace loop.
struct fs_gpu {
    // -ENXIO: there is no such memory, at the moment.
    int (*size)(struct fs_gpu *g, uint64_t *ret_size);
    // Bytes [offset, offset + len) of it. The wire cuts it when the memory goes away. -ENXIO;
    // -EFAULT: beyond the end.
    int (*landing_new)(struct fs_gpu *g, uint64_t offset, uint64_t len, struct cache_dest **ret);
    // Nothing uses it any more. The host may have gone.
    void (*landing_free)(struct cache_dest *d);
    bool (*holds_file)(struct fs_gpu *g, uint64_t handle); // the host has opened it
    uint32_t host; // its number: never another's, and the same for the next worker
    // The host's kernel has compared file modes with the caller and all of the caller's groups.
    bool checks_modes;
};

// The wire's request begins with this.
struct fs_request {
    const struct fs_reply *reply;
    struct fs_gpu *gpu; // NULL: a host without such memory
    uint64_t unique;    // among the requests of all hosts
    uint32_t uid, gid, pid;
    // read and fetch: where the bytes go, the wire's until the answer; cache/dest.h. NULL: read
    // answers with data, and there is no fetch.
    struct cache_dest *dest;
    // Answered again after a crash of the worker: it may have been carried out already.
    bool replayed;
    // What READ gives it, its host may keep in memory and not ask for again: a kernel.
    bool keeps_pages;
    // For fs/: set while the request can be interrupted. Called on the namespace loop, and, for a
    // request that a data loop may answer, possibly while it is being answered there: it goes by
    // unique, not by memory that the answer has freed.
    void (*cancel)(struct fs_request *req, void *arg);
    void *cancel_arg;
};

// Nodes and handles are whatever the host sent: one that fs/ does not know is answered with an
// error (ESTALE, EBADF). Names are 1 to 255 bytes without '/' or zero bytes, never "." or "..";
// open never comes with a wish to write. in and name stay valid until the answer.
struct fs_ops {
    void (*lookup)(struct fs *fs, struct fs_request *req, uint64_t parent, const char *name,
                   size_t len);
    void (*forget)(struct fs *fs, uint64_t node, uint64_t n); // no answer
    // The wire's answer that carried n references to node, or that opened handle (a file or a
    // directory), never reached the host. On the namespace loop, from within that answer's call.
    void (*unlookup)(struct fs *fs, uint64_t node, uint64_t n);
    void (*unopen)(struct fs *fs, uint64_t handle);
    void (*getattr)(struct fs *fs, struct fs_request *req, uint64_t node);
    void (*access)(struct fs *fs, struct fs_request *req, uint64_t node, int mask);
    void (*open)(struct fs *fs, struct fs_request *req, uint64_t node, int flags);
    void (*read)(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                 uint32_t size);
    // A whole object by its key below the export, taken literally: lookup, open, read, release.
    void (*fetch)(struct fs *fs, struct fs_request *req, const char *key, size_t len);
    void (*release)(struct fs *fs, struct fs_request *req, uint64_t handle);
    void (*opendir)(struct fs *fs, struct fs_request *req, uint64_t node);
    void (*readdir)(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                    bool plus);
    void (*releasedir)(struct fs *fs, struct fs_request *req, uint64_t handle);
    void (*statfs)(struct fs *fs, struct fs_request *req);
    void (*getxattr)(struct fs *fs, struct fs_request *req, uint64_t node, const char *name);
    void (*listxattr)(struct fs *fs, struct fs_request *req, uint64_t node);
    void (*ioctl)(struct fs *fs, struct fs_request *req, uint64_t node, uint64_t handle,
                  uint32_t cmd, const void *in, size_t in_len, size_t out_size);
};

const struct fs_ops *fs_ops(void);

// --- making one (daemon/) ---

struct s3_bucket;
struct cache;

struct fs_options {
    const char *prefix; // "" or "a/b/"
    uint32_t uid, gid;
    uint32_t file_mode, dir_mode; // permissions
    uint32_t gdd_gid;             // group that may use .os2g/gdd, beside uid; 0: nobody
    uint64_t metadata_ttl_ns;     // 0: close-to-open; UINT64_MAX: for ever
    uint64_t negative_ttl_ns;
    bool direct_io;
    uint64_t readahead_max;   // largest stream window; 0: 64 MiB
    bool no_readahead;        // only what is asked for or planned is fetched
    uint64_t metadata_memory; // for directory snapshots; 0: 256 MiB
    // State that outlives a crash of the worker: memfds given by the supervisor (any size, grown
    // with ftruncate; empty at first), or -1 for memory of our own.
    int nodes_fd, handles_fd;
};

// Strings are copied. After a crash (memfds not empty) nodes and handles are as before.
// Call on any thread before l has requests. 0 or -errno with a sentence in *ret_error.
int fs_new(struct fs **ret, struct loop *l, const struct fs_options *o, struct s3_bucket *bucket,
           struct cache *cache, char **ret_error);
// On the namespace loop, when every request was answered: ends listings, plans and pre-reading.
// closed is called once, later, on the namespace loop: then fs_free, and no sooner.
void fs_close(struct fs *fs, void (*closed)(void *arg), void *arg);
void fs_free(struct fs *fs); // on the namespace loop; NULL is allowed

struct fs_stats {
    uint64_t nodes, node_bytes, handles, snapshots, snapshot_bytes;
    uint64_t lookups, opens, reads, readdirs;
    uint64_t hidden_keys;
    uint64_t plan_entries, plan_fetched, plan_used, plan_dropped;
    uint64_t fetches, fetch_bytes;
};
void fs_stats_read(const struct fs *fs, struct fs_stats *ret); // any thread
const struct s3_client *fs_s3_client(const struct fs *fs);     // for its stats
// Appends the stall report as JSON, as .os2g/stalls has it. On the namespace loop.
void fs_stalls(const struct fs *fs, struct buf *out);
