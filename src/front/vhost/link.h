// SPDX-License-Identifier: Apache-2.0
// The supervisor's half of a vhost-user-fs device: one connection of a host (QEMU, a DPU's
// emulation, libos2g). Reads messages (wire/vhost_user.h), holds the descriptors, so that they
// outlive a worker, and turns them into commands for the worker. Never touches the host's memory.
// One thread; nothing here blocks.
//
//   VERSION_1, INDIRECT_DESC, EVENT_IDX, PROTOCOL_FEATURES: MQ, REPLY_ACK, CONFIGURE_MEM_SLOTS
//
// A message that needs the worker (REM_MEM_REG, SET_MEM_TABLE, GET_VRING_BASE) is answered when
// the worker has; no further one is read meanwhile.
#pragma once

#include "front/vhost/command.h"

struct vhost_link;

struct vhost_link_config {
    int fd;                 // connected socket, becomes the link's; nonblocking
    uint32_t session;       // its number
    uint32_t uid, gid, pid; // of the peer
    const char *tag;        // what GET_CONFIG says, up to 36 bytes
    // To the worker, if there is one; fd (or -1) stays the link's. false: there is none now.
    bool (*send)(void *arg, const struct vhost_command *c, int fd);
    void *arg;
};

int vhost_link_new(struct vhost_link **ret, const struct vhost_link_config *c); // 0 or -errno
// Closes everything. The worker is not told. NULL is allowed.
void vhost_link_free(struct vhost_link *l);
int vhost_link_fd(const struct vhost_link *l);
short vhost_link_events(const struct vhost_link *l); // for poll(); 0 while it waits for the worker
uint32_t vhost_link_session(const struct vhost_link *l);

// The socket is ready. 0; <0: it has ended or broken the protocol (*ret_why: a sentence, free it,
// or NULL for an ordinary end): free it, and tell the worker SESSION_REMOVE.
int vhost_link_ready(struct vhost_link *l, char **ret_why);
// As vhost_link_ready.
int vhost_link_event(struct vhost_link *l, const struct vhost_event *e, char **ret_why);
// A new worker has started: says everything again.
int vhost_link_resume(struct vhost_link *l, char **ret_why);
// The worker has died: what it was asked is done with.
int vhost_link_worker_died(struct vhost_link *l, char **ret_why);

struct vhost_link_stats {
    uint32_t regions, queues; // shared, running
    uint64_t region_bytes;
    uint64_t since_ns;
};
void vhost_link_stats_read(const struct vhost_link *l, struct vhost_link_stats *ret);
