// SPDX-License-Identifier: Apache-2.0
// A connection: what all calls on one share.
#pragma once

#include "host/error.h"
#include "host/fork.h"
#include "host/transport.h"

#include <stdatomic.h>

struct private_daemon;
struct staging;
struct client_cuda;

struct os2g {
    struct transport *transport;
    struct os2g_options options;    // filled in; no pointers but event's
    struct private_daemon *started; // what is started when there is none; NULL: nothing

    struct fork_lock enter; // FORK_ENTER: held while a child connects anew
    _Atomic unsigned forks; // fork_count() of the process that the transport serves

    struct {
        struct fork_lock lock;        // FORK_CLIENT
        struct os2g_buffer **buffers; // by base; none overlaps another
        size_t n, size;
        struct staging *bounce;   // for memory that is nobody's buffer; made when first needed
        struct list pending;      // struct io that have more to submit (io.c)
        bool pumping, pump_more;  // (io.c)
        struct client_cuda *cuda; // (cuda.h); made when first needed
    } locked;

    _Atomic uint64_t bounced_bytes, cuda_bytes;
};

// The beginning of every public call that talks to the device: in a child of the process that made
// c it connects anew. 0 or -errno with its sentence.
int client_enter(struct os2g *c);
// When a call that begins now gives up; CLOCK_MONOTONIC.
uint64_t client_deadline(const struct os2g *c);
// As transport_wait, and with missing (or NULL) as transport_wait_many, for a call of c's user:
// -EINTR when the user is called away (os2g_options.interrupted).
int client_wait(struct os2g *c, const _Atomic uint32_t *flag, const _Atomic uint32_t *missing,
                uint64_t deadline_ns);
void client_event(struct os2g *c, enum os2g_event event, const char *fmt, ...) PRINTF_LIKE(3, 4);
// Bounce memory for data that is going nowhere else; made by the first call. 0 or -errno.
int client_bounce(struct os2g *c, struct staging **ret);
