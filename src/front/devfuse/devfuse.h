// SPDX-License-Identifier: Apache-2.0
// front/devfuse: the wire to programs on the same machine, /dev/fuse. Knows fuse/, the fs ops
// table, loop/ and base/, nothing else.
//
// A request is read straight into a slot of a memory that the supervisor holds too, so that a
// worker that dies leaves its unanswered requests to the next one. Slots: docs/design/devfuse.md.
#pragma once

#include "fs/fs.h"
#include "loop/loop.h"

struct devfuse;

#define DEVFUSE_MAX_READ ((uint32_t)1 << 20) // the kernel's own ceiling, unless raised by sysctl

struct devfuse_config {
    const struct fs_ops *ops;
    struct fs *fs;
    int fuse_fd;       // /dev/fuse of a mounted file system, set to O_NONBLOCK; not owned
    int slots_fd;      // memfd of devfuse_slots_size() bytes, zero at first; -1: memory of our own
    uint32_t max_read; // 0: DEVFUSE_MAX_READ; the same as the mount's
    uint32_t max_readahead;
    uint16_t max_background;
    bool allow_root; // programs of owner_uid and root only; goes with the mount option
    uint32_t owner_uid;
    // The kernel has unmounted the file system (or aborted the connection). On the namespace loop,
    // once.
    void (*gone)(void *arg);
    void *arg;
};

size_t devfuse_slots_size(void);
// On the namespace loop's thread (or before it runs). The requests left by a worker that died are
// taken up, and new ones read, when the loop comes round next. 0 or -errno; -EINVAL: slots_fd
// holds something else.
int devfuse_new(struct devfuse **ret, struct loop *l, const struct devfuse_config *c);
// On the namespace loop. Stops reading; requests in progress are left to the next worker, and no
// loop may be answering one any more. NULL is allowed.
void devfuse_free(struct devfuse *d);
unsigned devfuse_in_flight(struct devfuse *d); // on the namespace loop

struct devfuse_stats {
    uint64_t requests, replies_late; // late: the host no longer waited
    uint64_t read_bytes;             // asked for by READs
};
void devfuse_stats_read(const struct devfuse *d, struct devfuse_stats *ret); // any thread

// --- mounting (supervisor; blocking; no loop) ---

struct devfuse_mount_options {
    const char *source; // shown in /proc/mounts: "s3://bucket/prefix"
    bool allow_other, allow_root, default_permissions;
    uint32_t max_read; // 0: DEVFUSE_MAX_READ
    const char *extra; // more kernel options, or NULL ("noexec,nosuid")
};

// Opens /dev/fuse and mounts it at dir: directly as root, else through fusermount3. Read-only,
// nosuid, nodev. Returns the descriptor, or -errno with a sentence in *ret_error. The mount answers
// once a worker serves it.
int devfuse_mount(const char *dir, const struct devfuse_mount_options *o, char **ret_error);
// lazy: detach even while in use. -EXDEV: something else is mounted over it. dir as in mountinfo.
int devfuse_unmount(const char *dir, bool lazy, char **ret_error);
// Raises the mount's read-ahead (/sys/class/bdi). Only once the file system answers. -EACCES
// without the right.
int devfuse_set_readahead(const char *dir, uint64_t bytes);
