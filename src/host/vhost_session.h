// SPDX-License-Identifier: Apache-2.0
// One session with a daemon: its socket, the memory shared for rings and slots, the two queues.
// Begins with everything agreed on; not a thread's in particular, its user sees to that.
#pragma once

#include "host/source.h"
#include "host/vhost_message.h"
#include "host/vhost_ring.h"
#include "host/vhost_slots.h"

// Rings and slots come first among the addresses; other memory lies behind.
#define SESSION_ADDRESS  ((uint64_t)1 << 40)
#define SESSION_RING     1024
#define SESSION_HIPRIO   64
#define SESSION_LARGE    8 // slots
#define SESSION_FORGETS  32
#define SESSION_SLOT_MAX (SESSION_RING - SESSION_LARGE)

struct vhost_session {
    int socket;
    struct ring hiprio, requests;
    struct slots hiprio_slots, slots;
    uint32_t max_read;
    unsigned n_regions; // that the device has, that of the rings among them
    char release[16];
    struct source source; // what the daemon has told that it serves

    // private
    int kick_hiprio, kick_requests;
    void *memory;
    size_t memory_bytes;
    struct fuse_in_header identity;
};

// On a connection to path, which becomes its own (closed on failure), with n_small slots; signals
// of the device come to call_fd, which stays the caller's. 0, or -errno with a sentence: -EPROTO
// (it is no such device, or the versions differ), -ETIMEDOUT, -EPIPE (it has gone meanwhile).
int session_open(struct vhost_session **ret, int socket, const char *path, unsigned n_small,
                 int call_fd, uint64_t deadline_ns);
// A sentence for why there is no session at path; returns error, or what it means to a caller.
int session_explain(int error, const char *path);
// FUSE_INIT and HELLO, before any other request. As session_open.
int session_hello(struct vhost_session *s, int call_fd, uint64_t deadline_ns);
// Closes the socket, unmaps. NULL is allowed.
void session_close(struct vhost_session *s);

// ADD_MEM_REG and REM_MEM_REG. fd -1: without one. 0 or -errno (-EREMOTEIO: refused).
int session_region_add(struct vhost_session *s, uint64_t address, uint64_t size, int fd,
                       uint64_t fd_offset, uint64_t deadline_ns);
int session_region_remove(struct vhost_session *s, uint64_t address, uint64_t size,
                          uint64_t deadline_ns);
// How many regions the device takes of a session, that of its rings among them. 0 or -errno.
int session_regions_max(struct vhost_session *s, uint64_t *ret, uint64_t deadline_ns);

// The header of a request in this process's name.
struct fuse_in_header session_header(const struct vhost_session *s, uint32_t opcode,
                                     uint64_t nodeid, uint64_t unique);
// A request and its answer in a slot, while no other is under way. Bytes of out, or -errno.
int session_exchange(struct vhost_session *s, int call_fd, uint32_t opcode, const void *in,
                     size_t in_len, void *out, size_t out_len, uint64_t deadline_ns);
// Tells the device of what was added to the rings, if it wants to know.
void session_kick(struct vhost_session *s);
