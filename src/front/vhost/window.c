// SPDX-License-Identifier: Apache-2.0
// Windows of GPU memory (wire/ops.h, REGION), which a helper process opens. A window is kept in the
// session's memory: a new worker opens it again, with a helper of its own. The descriptor of an
// ADD_CUDA_FD comes, and comes again, as a region does.
#include "base/log.h"
#include "front/vhost/session.h"
#include "gdd/engine.h"

#include <string.h>
#include <unistd.h>

static bool in_use(const struct window *w)
{
    return w->in->op || w->memory || w->closing;
}

static struct window *find(struct session *s, uint64_t addr, uint64_t size)
{
    for (unsigned i = 0; i < SESSION_WINDOWS; i++) {
        struct window *w = &s->windows[i];

        if (in_use(w) && w->in->addr == addr && w->in->size == size)
            return w;
    }
    return NULL;
}

static struct window *find_unused(struct session *s)
{
    for (unsigned i = 0; i < SESSION_WINDOWS; i++)
        if (!in_use(&s->windows[i]))
            return &s->windows[i];
    return NULL;
}

// For the next worker: op says that the rest holds.
static void set_op(struct window *w, uint32_t op)
{
    __atomic_store_n(&w->in->op, op, __ATOMIC_RELEASE);
}

static void answer(struct fuse_request **r, int error)
{
    struct fuse_request *one = *r;

    *r = NULL;
    if (one)
        fuse_session_answer(one, error);
}

// The memory is not the engine's any more.
static void on_closed(void *arg)
{
    struct window *w = arg;
    struct session *s = w->session;
    bool still_shared = w->in->op == OS2G_REGION_ADD_CUDA_FD && w->memory && !w->removed;
    void (*removed)(struct session * s) = w->removed;

    if (w->region)
        region_remove_end(s->map, w->region);
    w->region = 0;
    w->memory = NULL;
    w->closing = false;
    w->removed = NULL;
    if (!s->fenced)
        set_op(w, still_shared ? OS2G_REGION_REMOVE : 0);
    answer(&w->removing, 0);
    if (removed)
        removed(s);
    if (s->fenced)
        session_window_ended(s);
}

static void close_memory(struct window *w)
{
    if (w->memory)
        engine_memory_close(w->memory, on_closed, w);
    else
        on_closed(w);
}

// --- opening ---

static void on_failed(void *arg, const char *text)
{
    struct session *s = arg;

    session_bad(s, "the helper for GPU memory has died%s%s", text[0] ? ": " : "", text);
}

static int need_engine(struct session *s)
{
    struct engine_config c = {.program = s->vhost->config.helper_program,
                              .life_fd = s->vhost->config.life_fd,
                              .failed = on_failed,
                              .arg = s};

    if (s->engine)
        return 0;
    cache_arena(s->vhost->config.cache, &c.arena_fd, &c.arena, &c.arena_len);
    if (c.arena_fd < 0)
        return -EOPNOTSUPP;
    return engine_new(&s->engine, s->vhost->loop, &c);
}

static void opened(struct window *w, int error, const char *text)
{
    unsigned number = w->session->number;

    w->opened = true;
    w->error = error;
    if (error < 0)
        log_warning("vhost", "session %u: GPU memory of %llu KiB cannot be opened: %s", number,
                    (unsigned long long)(w->in->size / KIB), text);
    else
        log_info("vhost", "session %u: GPU memory of %llu KiB is copied into by the helper", number,
                 (unsigned long long)(w->in->size / KIB));
    answer(&w->waiting, error);
}

static void on_opened(void *arg, int error, const char *text)
{
    struct window *w = arg;

    if (!w->closing)
        opened(w, error, text);
}

// fd (or -1) becomes the engine's, or is closed.
static int open_memory(struct window *w, int fd)
{
    struct session *s = w->session;
    const struct region_info info = {.addr = w->in->addr, .size = w->in->size};
    struct engine_open o = {
        .device = w->in->device,
        .fd = fd,
        .handle_offset = w->in->handle_offset,
        .size = w->in->size,
        .opened = on_opened,
        .arg = w,
    };
    int rc = need_engine(s);

    memcpy(o.uuid, w->in->uuid, sizeof(o.uuid));
    memcpy(o.handle, w->in->handle, sizeof(o.handle));
    w->opened = false;
    if (rc == 0)
        rc = engine_memory_open(s->engine, &w->memory, &o);
    if (rc < 0) {
        if (fd >= 0)
            close(fd);
        return rc;
    }
    rc = region_add_window(s->map, &info, w->memory, &w->region);
    if (rc < 0) {
        w->closing = true;
        close_memory(w);
    }
    return rc;
}

// --- closing ---

static void on_fenced(struct cache_fence *f)
{
    close_memory(container_of(f, struct window, fence));
}

static void window_close(struct window *w)
{
    struct session *s = w->session;

    w->closing = true;
    answer(&w->waiting, -ECANCELED);
    if (w->region) {
        region_remove_begin(s->map, w->region);
        cut_off_region(s, w->region);
    }
    w->fence.done = on_fenced;
    cache_fence_start(s->vhost->config.cache, &w->fence);
}

// --- requests ---

static int add(struct session *s, const struct os2g_region_in *in)
{
    struct window *w = find_unused(s);
    int rc = 0;

    if (!in->size || in->addr > UINT64_MAX - in->size)
        return -EINVAL;
    if (!w)
        return -ENOSPC;
    memcpy((char *)w->in + sizeof(in->op), (const char *)in + sizeof(in->op),
           sizeof(*in) - sizeof(in->op));
    w->opened = false;
    rc = in->op == OS2G_REGION_ADD_CUDA_IPC ? open_memory(w, -1) : need_engine(s);
    if (rc == 0)
        set_op(w, in->op);
    return rc;
}

static void remove_window(struct fuse_request *r, struct window *w)
{
    // one of a queue that was stopped meanwhile; this is the same once more
    answer(&w->removing, -ECANCELED);
    if (w->closing) {
        w->removing = r;
    } else if (!w->memory && w->in->op != OS2G_REGION_REMOVE) {
        answer(&w->waiting, -ECANCELED);
        set_op(w, 0);
        fuse_session_answer(r, 0);
    } else if (!w->memory) {
        fuse_session_answer(r, 0);
    } else {
        w->removing = r;
        window_close(w);
    }
}

static void wait_for(struct fuse_request *r, struct window *w)
{
    answer(&w->waiting, -ECANCELED);
    if (w->closing || w->in->op == OS2G_REGION_REMOVE)
        fuse_session_answer(r, -ECANCELED);
    else if (w->opened)
        fuse_session_answer(r, w->error);
    else
        w->waiting = r;
}

void window_request(struct fuse_request *r, const struct os2g_region_in *in)
{
    struct session *s = container_of(r, struct request, fuse)->session;
    struct window *w = find(s, in->addr, in->size);

    switch (in->op) {
    case OS2G_REGION_ADD_CUDA_IPC:
    case OS2G_REGION_ADD_CUDA_FD:
        if (w)
            fuse_session_answer(r, r->fs.replayed && w->in->op == in->op ? 0 : -EEXIST);
        else
            fuse_session_answer(r, add(s, in));
        break;
    case OS2G_REGION_REMOVE:
        if (w)
            remove_window(r, w);
        else
            fuse_session_answer(r, r->fs.replayed ? 0 : -ENOENT);
        break;
    case OS2G_REGION_WAIT:
        if (w)
            wait_for(r, w);
        else
            fuse_session_answer(r, -ENOENT);
        break;
    default:
        fuse_session_answer(r, -EINVAL);
    }
}

// --- descriptors ---

bool window_take_fd(struct session *s, const struct region_info *info, int fd)
{
    struct window *w = find(s, info->addr, info->size);
    int rc;

    if (!w || w->closing || w->memory)
        return false;
    if (w->in->op == OS2G_REGION_REMOVE) {
        close(fd);
        return true;
    }
    if (w->in->op != OS2G_REGION_ADD_CUDA_FD)
        return false;
    rc = open_memory(w, fd);
    if (rc < 0)
        opened(w, rc, strerror(-rc));
    return true;
}

int window_drop_fd(struct session *s, const struct region_info *info,
                   void (*removed)(struct session *s))
{
    struct window *w = find(s, info->addr, info->size);

    if (!w || (w->in->op != OS2G_REGION_ADD_CUDA_FD && w->in->op != OS2G_REGION_REMOVE))
        return -ENOENT;
    if (!w->memory && !w->closing) {
        set_op(w, 0);
        return 0;
    }
    w->removed = removed;
    if (!w->closing)
        window_close(w);
    return -EINPROGRESS;
}

// --- the session's life ---

void windows_resume(struct session *s)
{
    for (unsigned i = 0; i < SESSION_WINDOWS; i++) {
        struct window *w = &s->windows[i];
        int rc;

        w->session = s;
        w->in = &s->memory.head->windows[i];
        if (w->in->op != OS2G_REGION_ADD_CUDA_IPC)
            continue;
        rc = open_memory(w, -1);
        if (rc < 0)
            opened(w, rc, strerror(-rc));
    }
}

void windows_end(struct session *s)
{
    for (unsigned i = 0; i < SESSION_WINDOWS; i++) {
        struct window *w = &s->windows[i];

        answer(&w->waiting, -ECANCELED);
        if (w->memory && !w->closing) {
            w->closing = true;
            close_memory(w);
        }
    }
}

bool windows_ended(const struct session *s)
{
    for (unsigned i = 0; i < SESSION_WINDOWS; i++)
        if (s->windows[i].memory || s->windows[i].closing)
            return false;
    return true;
}
