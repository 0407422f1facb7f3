// SPDX-License-Identifier: Apache-2.0
// What lands where: memory told to the device, in a window of addresses each.
#include "host/vhost.h"

#include "host/call.h"
#include "host/error.h"
#include "wire/ops.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_ALIGN (2 * MIB)

static struct vhost *from_base(struct transport *t)
{
    return container_of(t, struct vhost, base);
}

static struct os2g_region_in region_of(const struct transport_memory *m, uint32_t op)
{
    struct os2g_region_in in = {
        .op = op,
        .device = m->device,
        .addr = m->address,
        .size = m->size,
        .handle_offset = m->handle_offset,
    };

    memcpy(in.handle, m->handle, sizeof(in.handle));
    memcpy(in.uuid, m->uuid, sizeof(in.uuid));
    return in;
}

static uint32_t add_op(const struct transport_memory *m)
{
    return m->fd >= 0 ? OS2G_REGION_ADD_CUDA_FD : OS2G_REGION_ADD_CUDA_IPC;
}

int vhost_memory_tell_all(struct vhost *v, struct vhost_session *s, uint64_t deadline_ns)
{
    list_for_each (it, &v->control.memories) {
        struct transport_memory *m = list_entry(it, struct transport_memory, link);
        struct os2g_region_in in = region_of(m, add_op(m));
        int rc = 0;

        if (m->cuda)
            rc = session_exchange(s, v->call_fd, OS2G_OP_REGION, &in, sizeof(in), NULL, 0,
                                  deadline_ns);
        if (rc >= 0 && m->fd >= 0)
            rc = session_region_add(s, m->address, m->size, m->fd, m->fd_offset, deadline_ns);
        if (rc < 0)
            return client_fail_errno(rc, "sharing memory with the daemon");
    }
    return 0;
}

static struct transport_memory *new_memory(struct vhost *v, uint64_t size)
{
    struct transport_memory *m = xcalloc(1, sizeof(*m));

    list_init(&m->link);
    m->fd = -1;
    m->size = size;
    pthread_mutex_lock(&v->control.lock.mutex);
    m->address = v->control.next_address;
    v->control.next_address += ALIGN_UP(size, WINDOW_ALIGN) + WINDOW_ALIGN;
    pthread_mutex_unlock(&v->control.lock.mutex);
    return m;
}

static void free_memory(struct transport_memory *m)
{
    if (m->fd >= 0)
        close(m->fd);
    free(m);
}

static uint64_t deadline_of(const struct vhost *v)
{
    return clock_monotonic_ns() + v->timeout_ns;
}

// The socket is of no use any more: the session has ended, whether that was noticed or not.
static void lost(struct vhost *v)
{
    pthread_mutex_lock(&v->locked.lock.mutex);
    if (v->locked.state == VHOST_UP)
        vhost_lost_locked(v, "it does not answer messages");
    pthread_mutex_unlock(&v->locked.lock.mutex);
}

// Which it is, and whether it is there. control.lock is held: none is made meanwhile.
static unsigned present_session(struct vhost *v, bool *ret_up)
{
    unsigned generation;

    pthread_mutex_lock(&v->locked.lock.mutex);
    *ret_up = v->locked.state == VHOST_UP;
    generation = v->locked.generation;
    pthread_mutex_unlock(&v->locked.lock.mutex);
    return generation;
}

// Whether the device refuses because it has as many regions as it takes: so many, or 0. Asked under
// the lock under which it has refused (control.lock): another thread may take a region away next.
static int look_for_room(struct vhost *v, unsigned *ret_full)
{
    struct vhost_session *s = v->locked.session;
    uint64_t most;
    int rc = session_regions_max(s, &most, deadline_of(v));

    if (rc < 0) {
        lost(v);
        return -ENOTCONN;
    }
    *ret_full = s->n_regions >= most ? s->n_regions : 0;
    return -EREMOTEIO;
}

// In the present session, if there is one, and in those to come. generation: the one in which the
// window was asked for; -EAGAIN: there is another. -EREMOTEIO: refused, *ret_full as of
// look_for_room.
static int share(struct vhost *v, struct transport_memory *m, unsigned generation,
                 unsigned *ret_full)
{
    bool up, same;
    int rc = 0;

    pthread_mutex_lock(&v->control.lock.mutex);
    same = present_session(v, &up) == generation;
    if (up && m->cuda && !same)
        rc = -EAGAIN;
    else if (up && m->fd >= 0)
        rc = session_region_add(v->locked.session, m->address, m->size, m->fd, m->fd_offset,
                                deadline_of(v));
    if (rc == -EPIPE || rc == -ETIMEDOUT || rc == -EBADMSG) {
        lost(v);
        rc = 0;
    }
    if (rc == -EREMOTEIO)
        rc = look_for_room(v, ret_full);
    if (rc == 0)
        list_push_back(&v->control.memories, &m->link);
    pthread_mutex_unlock(&v->control.lock.mutex);
    return rc;
}

#define WHAT_MAKES_ROOM                                                                            \
    "free buffers (a loader's are its batches), make fewer and larger ones, or open another "      \
    "connection"

// full: as of share.
static int explain(int error, unsigned full)
{
    if (error != -EREMOTEIO)
        return client_fail_errno(error, "sharing memory with the daemon");
    if (full)
        return client_fail(-ENOSPC,
                           "the daemon takes no more pieces of memory of one connection than the "
                           "%u that it has: " WHAT_MAKES_ROOM,
                           full);
    return client_fail(-EINVAL, "the daemon does not take this memory: it is to be a memfd, or in "
                                "tmpfs or hugetlbfs");
}

static int explain_cuda(int error, unsigned full)
{
    if (error == -ENOSPC) // of the window
        return client_fail(error, "the daemon opens no more pieces of GPU memory of one "
                                  "connection: " WHAT_MAKES_ROOM);
    if (error == -EREMOTEIO && !full)
        return client_fail(-EOPNOTSUPP, "the daemon cannot open this GPU memory");
    if (error != -EREMOTEIO)
        return client_fail_errno(error, "sharing GPU memory with the daemon");
    return explain(error, full);
}

int vhost_memory_add(struct transport *t, struct transport_memory **ret, void *base, uint64_t size,
                     int fd, uint64_t fd_offset)
{
    struct vhost *v = from_base(t);
    struct transport_memory *m = new_memory(v, size);
    unsigned full = 0;
    int rc;

    m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    m->fd_offset = fd_offset;
    rc = m->fd < 0 ? -errno : share(v, m, 0, &full);
    if (rc < 0) {
        free_memory(m);
        return explain(rc, full);
    }
    *ret = m;
    return 0;
}

static int region_call(struct vhost *v, struct transport_memory *m, uint32_t op,
                       unsigned generation)
{
    struct os2g_region_in in = region_of(m, op);
    struct call call = {
        .opcode = OS2G_OP_REGION,
        .nodeid = FUSE_ROOT_ID,
        .generation = generation,
        .in = {{&in, sizeof(in)}},
        .n_in = 1,
        .deadline_ns = deadline_of(v),
    };

    return call_run(&v->base, &call);
}

// Of that session, if it is still there. A daemon that does not say that it has taken the window
// away any more: the session ends, and with it what it may touch.
static int remove_window(struct vhost *v, struct transport_memory *m, unsigned generation)
{
    int rc = region_call(v, m, OS2G_REGION_REMOVE, generation);
    bool up;

    if (rc == 0 || rc == -ENOENT) // nothing of it is there
        return 0;
    pthread_mutex_lock(&v->control.lock.mutex);
    if (present_session(v, &up) == generation)
        lost(v);
    pthread_mutex_unlock(&v->control.lock.mutex);
    return rc;
}

// The window, then its descriptor, in whatever session is there.
static int share_cuda(struct vhost *v, struct transport_memory *m, unsigned *ret_generation,
                      unsigned *ret_full)
{
    uint64_t deadline_ns = deadline_of(v);
    bool may_be_there, another; // session
    int rc;

    do {
        *ret_generation = transport_generation(&v->base);
        rc = region_call(v, m, add_op(m), *ret_generation);
        may_be_there = rc == 0 || rc == -ETIMEDOUT;
        if (rc == 0)
            rc = share(v, m, *ret_generation, ret_full);
        if (rc == -EAGAIN)
            rc = -ENOTCONN; // with it the window has gone
        else if (rc < 0 && may_be_there)
            remove_window(v, m, *ret_generation);
        another = rc == -ENOTCONN && transport_generation(&v->base) != *ret_generation;
    } while (another && clock_monotonic_ns() < deadline_ns);
    return rc;
}

int vhost_memory_add_cuda(struct transport *t, struct transport_memory **ret, int device,
                          const uint8_t uuid[16], int fd, const void *handle,
                          uint64_t handle_offset, uint64_t size)
{
    struct vhost *v = from_base(t);
    struct transport_memory *m = new_memory(v, size);
    unsigned generation = 0, full = 0;
    int rc = 0;

    m->cuda = true;
    m->device = device;
    memcpy(m->uuid, uuid, sizeof(m->uuid));
    m->handle_offset = handle_offset;
    if (handle)
        memcpy(m->handle, handle, sizeof(m->handle));
    if (fd >= 0 && (m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
        rc = -errno;
    if (rc == 0)
        rc = share_cuda(v, m, &generation, &full);
    if (rc == 0) {
        rc = region_call(v, m, OS2G_REGION_WAIT, generation);
        if (rc == -ENOTCONN) // the next session knows of it, too
            rc = 0;
        if (rc < 0)
            vhost_memory_cut(t, m);
    }
    if (rc < 0) {
        free_memory(m);
        return explain_cuda(rc, full);
    }
    *ret = m;
    return 0;
}

// --- taking it away ---

static void end_listed_locked(struct vhost *v, struct list *l, const struct transport_memory *m)
{
    list_for_each_safe (it, l) {
        struct transport_request *r = list_entry(it, struct transport_request, link);

        if (r->memory == m) {
            list_remove(&r->link);
            vhost_post_locked(v, r, -ECANCELED);
        }
    }
}

// Whatever names m and is not with the device, or is and is done with (fenced): ends.
static void end_requests(struct vhost *v, struct transport_memory *m, bool fenced)
{
    pthread_mutex_lock(&v->locked.lock.mutex);
    m->cut = true;
    end_listed_locked(v, &v->locked.unsent, m);
    end_listed_locked(v, &v->locked.renewals, m);
    for (unsigned i = 0; fenced && i < MIN(v->depth, SESSION_SLOT_MAX) + SESSION_LARGE; i++) {
        struct transport_request *r = v->locked.slots[i].request;

        // the slot is the device's until it answers
        if (r && r->memory == m) {
            v->locked.slots[i].request = NULL;
            vhost_post_locked(v, r, -ECANCELED);
        }
    }
    vhost_wake_locked(v);
    pthread_mutex_unlock(&v->locked.lock.mutex);
}

void vhost_memory_forget_cuda(struct vhost *v)
{
    list_for_each_safe (it, &v->control.memories) {
        struct transport_memory *m = list_entry(it, struct transport_memory, link);

        if (!m->cuda)
            continue;
        list_remove(&m->link);
        m->cut = true;
    }
}

void vhost_memory_cut(struct transport *t, struct transport_memory *m)
{
    struct vhost *v = from_base(t);
    unsigned generation;
    bool up, still_up;
    int rc = 0;

    if (m->cut)
        return;
    if (v->forks != fork_count()) {
        // the session is the parent's, and what it may touch
        list_remove(&m->link);
        m->cut = true;
        return;
    }
    end_requests(v, m, false);
    // of this session it has to be taken away; those to come do not hear of it
    pthread_mutex_lock(&v->control.lock.mutex);
    list_remove(&m->link);
    generation = present_session(v, &up);
    pthread_mutex_unlock(&v->control.lock.mutex);
    if (up && m->cuda)
        rc = remove_window(v, m, generation);
    pthread_mutex_lock(&v->control.lock.mutex);
    up = up && present_session(v, &still_up) == generation && still_up;
    if (up && rc == 0 && m->fd >= 0)
        rc = session_region_remove(v->locked.session, m->address, m->size, deadline_of(v));
    if (up && rc < 0)
        lost(v);
    pthread_mutex_unlock(&v->control.lock.mutex);
    end_requests(v, m, true);
}

void vhost_memory_remove(struct transport *t, struct transport_memory *m)
{
    vhost_memory_cut(t, m);
    free_memory(m);
}
