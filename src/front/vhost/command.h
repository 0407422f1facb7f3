// SPDX-License-Identifier: Apache-2.0
// What the supervisor's half of the wire (link.h: it reads vhost-user messages and holds the
// descriptors) and the worker's half (vhost.h: it touches the host's memory) say to each other:
// fixed structs with at most one descriptor, carried by daemon/channel.h. Plain numbers, checked
// by the receiver.
#pragma once

#include "base/base.h"

#define VHOST_QUEUES   9 // hiprio, and 8 request queues
#define VHOST_RING_MAX 1024

// supervisor to worker. Each is answered by one VHOST_DONE with its seq, when it is done. After a
// new worker has started, the supervisor says all that holds again, and takes what the old one had
// not answered as done.
enum vhost_command_kind {
    VHOST_SESSION_ADD = 1, // fd: the session's memory (memfd, vhost_session_bytes, growable)
    // The host has gone. Done: nothing touches its memory any more, and what it held of nodes and
    // handles has been given back. Done by a worker that knew it only from its memory, too.
    VHOST_SESSION_REMOVE,
    VHOST_REGION_ADD,    // fd: memory; region
    VHOST_REGION_REMOVE, // region. Done: nothing can land there any more
    // fd: kick; ring, queue, start. Goes on after a crash: the session's memory knows the start
    // that it is of.
    VHOST_QUEUE_START,
    // fd: call, or -1. Follows a start; signalled at once, for answers may have gone out before, or
    // to the one that it replaces.
    VHOST_QUEUE_CALL,
    VHOST_QUEUE_STOP, // queue. Done: value is the ring's base; the queue is not touched
};

struct vhost_command {
    uint32_t kind;
    uint32_t session; // number, never used again by another
    uint64_t seq;
    uint32_t queue;
    uint32_t start; // QUEUE_START: its number, never 0; the same again when a new worker is told
    struct {
        uint64_t addr, user_addr, size, fd_offset;
    } region;
    struct {
        uint64_t desc, avail, used; // user addresses
        uint32_t size, base;
        uint64_t features;
    } ring;
    struct {
        uint32_t uid, gid, pid;
        uint32_t pad;
        uint64_t since_s; // when it connected, wall-clock time
    } peer;               // SESSION_ADD
};

enum vhost_event_kind {
    VHOST_DONE = 1,
    VHOST_BAD, // the session has broken the rules (text says how): end it
};

struct vhost_event {
    uint32_t kind;
    uint32_t session;
    uint64_t seq;   // DONE
    uint64_t value; // DONE of QUEUE_STOP
    char text[160]; // BAD; ends with zero
};
