// SPDX-License-Identifier: Apache-2.0
// What supervisor and worker say to each other: fixed structs over a SOCK_SEQPACKET pair, with at
// most one descriptor each. The supervisor believes nothing of it but the kind, and of a
// vhost_event what link.h makes of it.
#pragma once

#include "base/list.h"
#include "front/vhost/command.h"

enum channel_kind {
    // worker to supervisor
    CHANNEL_READY = 1,   // the export is set up and the store has answered
    CHANNEL_FAILED,      // it cannot be: text says why, number is an errno or 0
    CHANNEL_SERVING,     // requests are being answered
    CHANNEL_RESOLVE,     // wants credentials resolved with the user's rights; number is its own
    CHANNEL_GONE,        // the kernel has unmounted the file system
    CHANNEL_VHOST_EVENT, // event
    // supervisor to worker
    CHANNEL_SERVE,       // with /dev/fuse of the mount, if there is one; number: workers before
    CHANNEL_CREDENTIALS, // with a pipe that broker_run writes to; number: of the CHANNEL_RESOLVE
    CHANNEL_VHOST,       // command, with its descriptor; after CHANNEL_SERVING only
};

struct channel_msg {
    uint32_t kind; // enum channel_kind
    uint64_t number;
    union {
        char text[1024]; // ends with zero
        struct vhost_command command;
        struct vhost_event event;
    };
};

// Nonblocking, close-on-exec. 0 or -errno.
int channel_pair(int ret[2]);
// fd: -1 or one to send along (stays the caller's). -EAGAIN when the other side is far behind,
// -EPIPE when it has gone.
int channel_send(int channel, enum channel_kind kind, uint64_t number, int fd, const char *text);
// 1: a message (text is printable), *ret_fd: -1 or a descriptor, now the caller's; 0: the other
// side has gone; -EAGAIN: nothing there; -EBADMSG: not one of ours.
int channel_receive(int channel, struct channel_msg *ret, int *ret_fd);

// --- messages that wait when the other side is behind ---

struct channel_queue {
    struct list waiting; // in order
};

void channel_queue_init(struct channel_queue *q);
// Sends it, or keeps it with a copy of fd until the next flush. 0; -EPIPE and other -errno: the
// channel is of no use any more.
int channel_queue_command(struct channel_queue *q, int channel, const struct vhost_command *c,
                          int fd);
int channel_queue_event(struct channel_queue *q, int channel, const struct vhost_event *e);
// When the channel can be written to (POLLOUT).
int channel_queue_flush(struct channel_queue *q, int channel);
bool channel_queue_empty(const struct channel_queue *q);
void channel_queue_clear(struct channel_queue *q);
