// SPDX-License-Identifier: Apache-2.0
// The worker: the process that has no privilege and talks to the network and to the kernel's
// FUSE requests. Started by the supervisor as the same program with a hidden first argument.
#pragma once

#include "base/base.h"

#define WORKER_ARGUMENT "--worker"

// Descriptors a worker starts with; 0 to 2 as its supervisor has them.
enum {
    WORKER_FD_CHANNEL = 3, // channel.h
    WORKER_FD_OPTIONS,     // memfd: export_options.given
    WORKER_FD_SLOTS,       // memfds of what outlives a worker
    WORKER_FD_NODES,
    WORKER_FD_HANDLES,
    WORKER_FD_CONTROL, // listening socket, control.h
    WORKER_FD_CA,      // memfd: the trusted authorities, if there are any of our own
    WORKER_FD_PROFILE, // memfd: settings of the profile, once a worker has learned them; no keys
    WORKER_FD_LIFE,    // a pipe that every process holds which may write to hosts' memory
    WORKER_FDS_END,
};

// argv[2]: "stderr", "file" (its stderr is a log file) or "syslog"; argv[3], argv[4]: the user and
// group to become when root; what follows is for ps(1). Returns the exit status.
int worker_main(int argc, char **argv);
