// SPDX-License-Identifier: Apache-2.0
// The supervisor's half of a vhost-user-fs device: one connection of a host (QEMU, a DPU's
// emulation, libos2g). Reads messages (wire/vhost_user.h), holds the descriptors, so that they
// outlive a worker, and turns them into commands for the worker. Never touches the host's memory.
// One thread; nothing here blocks.
//
//   VERSION_1, INDIRECT_DESC, EVENT_IDX, PROTOCOL_FEATURES: MQ, REPLY_ACK, CONFIGURE_MEM_SLOTS,
//   CONFIG (only with a tag: QEMU has one of its own and warns of devices that bring another)
//
// A message that needs the worker (ADD_MEM_REG, REM_MEM_REG, SET_MEM_TABLE, GET_VRING_BASE, a ring
// that is disabled) is answered when the worker has; no further one is read meanwhile. If the
// worker dies, nothing can land any more (docs/design/gdd.md has an exception): what is said of
// memory is done with. A ring's base comes from the next worker, which finds it in the session's
// memory.
#pragma once

#include "front/vhost/command.h"

struct vhost_link;

struct vhost_link_config {
    int fd;                 // connected socket, becomes the link's; nonblocking
    uint32_t session;       // its number
    uint32_t uid, gid, pid; // of the peer
    int memory_fd;          // the session's memory (memfd), becomes the link's
    const char *tag;        // what GET_CONFIG says, up to 36 bytes; NULL: CONFIG is not offered
    // To the worker, if there is one; fd (or -1) stays the link's. false: there is none now.
    bool (*send)(void *arg, const struct vhost_command *c, int fd);
    void *arg;
};

// Says SESSION_ADD. The descriptors become the link's.
struct vhost_link *vhost_link_new(const struct vhost_link_config *c);
// Closes everything. The worker is not told. NULL is allowed.
void vhost_link_free(struct vhost_link *l);
// The session's memory and its connection, to be closed by the caller; then only for
// vhost_link_free.
int vhost_link_take_memory(struct vhost_link *l);
int vhost_link_take_socket(struct vhost_link *l);
int vhost_link_fd(const struct vhost_link *l);
// For poll(); 0 while it waits for the worker: not to be polled then.
short vhost_link_events(const struct vhost_link *l);

// The socket is ready: takes one message at most. 0; <0: it has ended or broken the protocol
// (*ret_why: a sentence, free it, or NULL for an ordinary end): free it, and tell the worker
// SESSION_REMOVE.
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
    unsigned descriptors; // held here
};
void vhost_link_stats_read(const struct vhost_link *l, struct vhost_link_stats *ret);
