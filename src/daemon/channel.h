// SPDX-License-Identifier: Apache-2.0
// What supervisor and worker say to each other: fixed structs over a SOCK_SEQPACKET pair, with at
// most one descriptor each. The supervisor believes nothing of it but the kind.
#pragma once

#include "base/base.h"

enum channel_kind {
    // worker to supervisor
    CHANNEL_READY = 1, // the export is set up and the store has answered
    CHANNEL_FAILED,    // it cannot be: text says why
    CHANNEL_SERVING,   // requests of the mount are being answered
    CHANNEL_RESOLVE,   // wants credentials resolved with the user's rights; number is its own
    CHANNEL_GONE,      // the kernel has unmounted the file system
    // supervisor to worker
    CHANNEL_SERVE,       // with /dev/fuse of the mount; number: workers before this one
    CHANNEL_CREDENTIALS, // with a pipe that broker_run writes to; number: of the CHANNEL_RESOLVE
};

struct channel_msg {
    uint32_t kind; // enum channel_kind
    uint64_t number;
    char text[1024]; // ends with zero
};

// Nonblocking, close-on-exec. 0 or -errno.
int channel_pair(int ret[2]);
// fd: -1 or one to send along (stays the caller's). -EAGAIN when the other side is far behind,
// -EPIPE when it has gone.
int channel_send(int channel, enum channel_kind kind, uint64_t number, int fd, const char *text);
// 1: a message (text is printable), *ret_fd: -1 or a descriptor, now the caller's; 0: the other
// side has gone; -EAGAIN: nothing there; -EBADMSG: not one of ours.
int channel_receive(int channel, struct channel_msg *ret, int *ret_fd);
