// SPDX-License-Identifier: Apache-2.0
// front/vhost: the wire to hosts that share memory: guests' and DPUs' virtio-fs drivers, and
// libos2g. Knows fuse/, the fs ops table, gdd/, cache/dest.h and fences, wire/, loop/, base/.
//
// Two halves: link.h in the supervisor, this in the worker; command.h between them. Requests are
// taken from the rings on the namespace loop; answers go out on whatever loop has them.
#pragma once

#include "front/vhost/command.h"
#include "fs/fs.h"
#include "gdd/region.h"
#include "loop/loop.h"

struct vhost;
struct cache;

struct vhost_config {
    const struct fs_ops *ops;
    struct fs *fs;
    struct cache *cache; // for fences
    uint32_t max_readahead;
    uint16_t max_background;
    const struct region_file *gpu_memory; // declared by the operator
    size_t n_gpu_memory;
    const char *helper_program; // for gdd/engine.h
    int life_fd;                // for gdd/engine.h
    // What hosts are told is served (wire/ops.h); not copied.
    const char *source, *endpoint;
    // To the supervisor.
    void (*event)(void *arg, const struct vhost_event *e);
    void *arg;
};

// On the namespace loop, as everything here. 0 or -errno.
int vhost_new(struct vhost **ret, struct loop *l, const struct vhost_config *c);
// fd (or -1) becomes vhost's. A command that makes no sense is answered VHOST_BAD.
void vhost_command(struct vhost *v, const struct vhost_command *c, int fd);

// What of a session outlives a worker (docs/design/vhost.md): what INIT and HELLO agreed on, a log
// of requests in progress for each queue, and which nodes and handles the host holds.
size_t vhost_session_bytes(void); // at first; the worker lets it grow

struct vhost_stats {
    uint64_t sessions, requests, read_bytes, fetches;
    uint64_t landed_direct_bytes, landed_copied_bytes, landed_engine_bytes;
    uint64_t cut_off; // requests whose memory went away
    uint64_t bad;     // sessions ended for breaking the rules
};
void vhost_stats_read(const struct vhost *v, struct vhost_stats *ret); // any thread
