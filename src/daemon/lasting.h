// SPDX-License-Identifier: Apache-2.0
// What an export keeps over the lives of its workers, /dev/fuse aside: memory of its state, its
// options, its control socket. Held by the supervisor, handed to each worker; for supervised.c.
#pragma once

#include "daemon/export_options.h"
#include "daemon/listen.h"

struct lasting {
    int options_fd, slots_fd, nodes_fd, handles_fd; // memfds
    int ca_fd;                                      // memfd: the trusted authorities, or -1
    int profile_fd;                                 // memfd: what workers know of the profile
    struct listener control;                        // of the control socket
};

#define LASTING_NONE                                                                               \
    ((struct lasting){.options_fd = -1,                                                            \
                      .slots_fd = -1,                                                              \
                      .nodes_fd = -1,                                                              \
                      .handles_fd = -1,                                                            \
                      .ca_fd = -1,                                                                 \
                      .profile_fd = -1,                                                            \
                      .control = LISTENER_NONE})

// New ones, for a new mount. 0, or -errno with a sentence; l is to be closed in any case.
int lasting_make(struct lasting *l, const struct export_options *o, char **ret_error);
// What the next worker reads instead. 0 or -errno (all as before).
int lasting_set_options(struct lasting *l, const struct export_options *o);
// A mount's socket is offered: whoever names that finds the control socket, too.
void lasting_alias_control(struct lasting *l, const struct export_options *o);
void lasting_drop_control(struct lasting *l); // its name is free again
void lasting_close(struct lasting *l);
