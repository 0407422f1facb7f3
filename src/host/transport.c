// SPDX-License-Identifier: Apache-2.0
// Calls of a transport go to its kind.
#include "host/error.h"
#include "host/transport_kind.h"

#include <stdio.h>

void transport_free(struct transport *t)
{
    if (t)
        t->kind->free(t);
}

int transport_submit(struct transport *t, struct transport_request *r, bool nonblock)
{
    return t->kind->submit(t, r, nonblock);
}

void transport_on_room(struct transport *t, void (*room)(void *arg), void *arg)
{
    t->room = room;
    t->room_arg = arg;
}

void transport_post(struct transport *t, struct transport_request *r)
{
    t->kind->post(t, r);
}

void transport_plug(struct transport *t)
{
    t->kind->plug(t);
}

void transport_unplug(struct transport *t)
{
    t->kind->unplug(t);
}

void transport_cancel(struct transport *t, struct transport_request *r)
{
    t->kind->cancel(t, r);
}

void transport_forget(struct transport *t, unsigned generation, uint64_t nodeid, uint64_t n)
{
    t->kind->forget(t, generation, nodeid, n);
}

int transport_wait(struct transport *t, const _Atomic uint32_t *flag, uint64_t deadline_ns)
{
    return t->kind->wait(t, flag, NULL, deadline_ns);
}

int transport_wait_many(struct transport *t, const _Atomic uint32_t *flag,
                        const _Atomic uint32_t *missing, uint64_t deadline_ns)
{
    return t->kind->wait(t, flag, missing, deadline_ns);
}

void transport_flag(struct transport *t, _Atomic uint32_t *flag)
{
    t->kind->flag(t, flag);
}

unsigned transport_poll(struct transport *t)
{
    return t->kind->poll(t);
}

int transport_event_fd(struct transport *t)
{
    return t->kind->event_fd(t);
}

unsigned transport_generation(struct transport *t)
{
    return t->kind->generation(t);
}

uint32_t transport_max_read(const struct transport *t)
{
    return t->max_read;
}

const char *transport_below(const struct transport *t)
{
    return t->below ? t->below : "";
}

void transport_stats(struct transport *t, struct os2g_stats *ret)
{
    snprintf(ret->way, sizeof(ret->way), "%s", t->kind->way);
    t->kind->stats(t, ret);
}

int transport_memory_add(struct transport *t, struct transport_memory **ret, void *base,
                         uint64_t size, int fd, uint64_t fd_offset)
{
    return t->kind->memory_add ? t->kind->memory_add(t, ret, base, size, fd, fd_offset)
                               : -EOPNOTSUPP;
}

int transport_memory_add_cuda(struct transport *t, struct transport_memory **ret, int device,
                              const uint8_t uuid[16], int fd, const void *handle,
                              uint64_t handle_offset, uint64_t size)
{
    return t->kind->memory_add_cuda
               ? t->kind->memory_add_cuda(t, ret, device, uuid, fd, handle, handle_offset, size)
               : client_fail(-EOPNOTSUPP, "the daemon is on another machine than the GPU");
}

int transport_memory_lease(struct transport *t, struct transport_memory **ret, void **ret_base,
                           uint64_t size)
{
    return t->kind->memory_lease ? t->kind->memory_lease(t, ret, ret_base, size) : -EOPNOTSUPP;
}

void transport_memory_cut(struct transport *t, struct transport_memory *m)
{
    t->kind->memory_cut(t, m);
}

void transport_memory_remove(struct transport *t, struct transport_memory *m)
{
    t->kind->memory_remove(t, m);
}

int transport_after_fork(struct transport *t)
{
    return t->kind->after_fork(t);
}
