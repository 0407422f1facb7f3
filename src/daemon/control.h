// SPDX-License-Identifier: Apache-2.0
// The worker's side of the control socket: one line of JSON in, one JSON text out, then it closes.
//
//   {"request": "status"}   everything there is to know, see docs/design/daemon.md
//   {"request": "ping"}     {} as soon as the worker is there
//
// The socket's file mode says who may ask.
#pragma once

#include "daemon/export.h"

struct control;

struct control_config {
    int listen_fd; // nonblocking; not owned
    const struct export *export;
    uint64_t restarts;
};

// On the export's loop, as are all answers. 0 or -errno.
int control_new(struct control **ret, struct loop *l, const struct control_config *c);
