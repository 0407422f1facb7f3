// SPDX-License-Identifier: Apache-2.0
// What a kind of transport implements; each function is as transport.h has it.
#pragma once

#include "host/transport.h"

struct transport_kind {
    const char *way; // os2g_stats.way
    void (*free)(struct transport *t);
    int (*submit)(struct transport *t, struct transport_request *r, bool nonblock);
    void (*post)(struct transport *t, struct transport_request *r);
    void (*plug)(struct transport *t);
    void (*unplug)(struct transport *t);
    void (*cancel)(struct transport *t, struct transport_request *r);
    void (*forget)(struct transport *t, unsigned generation, uint64_t nodeid, uint64_t n);
    int (*wait)(struct transport *t, const _Atomic uint32_t *flag, const _Atomic uint32_t *missing,
                uint64_t deadline_ns);
    void (*flag)(struct transport *t, _Atomic uint32_t *flag);
    unsigned (*poll)(struct transport *t);
    int (*event_fd)(struct transport *t);
    unsigned (*generation)(struct transport *t);
    void (*stats)(struct transport *t, struct os2g_stats *ret);
    int (*memory_add)(struct transport *t, struct transport_memory **ret, void *base, uint64_t size,
                      int fd, uint64_t fd_offset);
    // NULL where there is none: -EOPNOTSUPP, for add_cuda with a sentence.
    int (*memory_add_cuda)(struct transport *t, struct transport_memory **ret, int device,
                           const uint8_t uuid[16], int fd, const void *handle,
                           uint64_t handle_offset, uint64_t size);
    int (*memory_lease)(struct transport *t, struct transport_memory **ret, void **ret_base,
                        uint64_t size);
    void (*memory_cut)(struct transport *t, struct transport_memory *m);
    void (*memory_remove)(struct transport *t, struct transport_memory *m);
    int (*after_fork)(struct transport *t);
};

// The first member of each kind's own struct. Whoever has called done for some calls room next.
struct transport {
    const struct transport_kind *kind;
    _Atomic uint32_t max_read; // settled before the first request of a session
    void (*room)(void *arg);   // of transport_on_room; NULL: nobody
    void *room_arg;
    char *below; // settled before the first session; NULL: ""
};
