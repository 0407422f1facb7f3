// SPDX-License-Identifier: Apache-2.0
// A host in front of a link, and a worker behind it that writes down what it is told.
#pragma once

#include "front/vhost/link.h"
#include "wire/vhost_user.h"

#include <sys/stat.h>

#define FRONT_COMMANDS_MAX 512

struct front {
    int fd; // the host's end of the connection
    struct vhost_link *link;
    char *why;                                         // why the session ended
    int rc;                                            // what the link said last
    bool worker;                                       // there is one
    bool answers;                                      // it answers each command at once, in pump
    struct vhost_command commands[FRONT_COMMANDS_MAX]; // since front_forget
    struct stat files[FRONT_COMMANDS_MAX];             // st_ino 0: none came along
    unsigned n_commands, n_answered;
};

void front_open(struct front *f, const char *tag);
void front_close(struct front *f);

// Sends a message; the link reads it.
void front_send(struct front *f, uint32_t request, uint32_t flags, const void *payload,
                uint32_t size, const int *fds, unsigned n_fds);
void front_send_u64(struct front *f, uint32_t request, uint64_t value);
void front_send_state(struct front *f, uint32_t request, uint32_t index, uint32_t num);
void front_send_fd(struct front *f, uint32_t request, uint64_t value, int fd);
// ADD_MEM_REG or REM_MEM_REG with NEED_REPLY.
void front_send_region(struct front *f, uint32_t request, uint64_t addr, uint64_t size, int fd);
// All that a ring takes, at the beginning of the region at addr; kick and call are eventfds.
void front_send_ring(struct front *f, uint32_t index, uint64_t user_addr, int kick, int call);
// Lets the link run until there is nothing to do.
void front_pump(struct front *f);

// The reply's payload; -1 when there is no reply, else its length.
int front_reply(struct front *f, uint32_t request, void *payload, size_t size);
uint64_t front_reply_u64(struct front *f, uint32_t request);
bool front_has_reply(struct front *f);

// The n-th command since front_forget; the kind is checked.
const struct vhost_command *front_command(struct front *f, unsigned n, uint32_t kind);
void front_forget(struct front *f);
void front_done(struct front *f, uint64_t seq, uint64_t value);
void front_kill_worker(struct front *f);
void front_new_worker(struct front *f);

int front_memfd(uint64_t size);
