// SPDX-License-Identifier: Apache-2.0
#include "fs/gdd_file.h"

#include <stdlib.h>
#include <string.h>

#define REAP_MAX_MS 1000
#define FILES_MAX   256 // open at a time, of one host: to find a place takes a look at all leases

// A request that is answered later.
struct waiting {
    struct list link;
    struct gdd_file *file;
    struct fs_request *req;
    struct loop_timer timer; // REAP
    uint32_t min, room;      // REAP: completions
    uint64_t lease;          // UNLEASE: its offset
};

static uint32_t host_of(const struct fs_request *req)
{
    return req->gpu ? req->gpu->host : 0;
}

static void store(struct gdd_file *f)
{
    gdd_leases_store(handles_room(f->fs->handles, f->handle), &f->leases);
}

static void waiting_free(struct waiting *w)
{
    loop_timer_stop(&w->timer);
    list_remove(&w->link);
    free(w);
}

static struct waiting *waiting_new(struct gdd_file *f, struct fs_request *req, struct list *list)
{
    struct waiting *w = xcalloc(1, sizeof(*w));

    w->file = f;
    w->req = req;
    list_push_back(list, &w->link);
    return w;
}

// --- REAP ---

static void reply_reap(struct gdd_file *f, struct fs_request *req, uint32_t room)
{
    struct {
        struct os2g_gdd_reap head;
        struct os2g_gdd_completion c[OS2G_GDD_BYTES_MAX / sizeof(struct os2g_gdd_completion)];
    } out;
    uint32_t n = 0;

    out.head = (struct os2g_gdd_reap){.epoch = f->leases.epoch};
    while (n < MIN(room, (uint32_t)ARRAY_LEN(out.c)) && !list_empty(&f->done)) {
        struct gdd_read *r = list_entry(f->done.next, struct gdd_read, link);

        out.c[n++] =
            (struct os2g_gdd_completion){.tag = r->tag, .result = r->result, .size = r->size};
        f->n_done--;
        gdd_read_free(r);
    }
    out.head.n = n;
    req->reply->ioctl(req, 0, &out, offsetof(typeof(out), c) + n * sizeof(out.c[0]));
}

static bool enough(const struct gdd_file *f, uint32_t min)
{
    return f->n_done >= min || f->n_running == 0 || !f->handle;
}

static void end_reap(struct waiting *w)
{
    struct gdd_file *f = w->file;
    struct fs_request *req = w->req;
    uint32_t room = w->room;

    waiting_free(w);
    req->cancel = NULL;
    reply_reap(f, req, room);
}

static void on_reap_time(struct loop_timer *t)
{
    end_reap(container_of(t, struct waiting, timer));
}

static void on_reap_cancel(struct fs_request *req, void *arg)
{
    waiting_free(arg);
    req->cancel = NULL;
    req->reply->error(req, -EINTR);
}

static void reap(struct gdd_file *f, struct fs_request *req, const void *in, size_t len)
{
    struct os2g_gdd_reap r;
    struct waiting *w;
    uint32_t room;

    if (len < sizeof(r) + sizeof(struct os2g_gdd_completion)) {
        req->reply->error(req, -EINVAL);
        return;
    }
    memcpy(&r, in, sizeof(r));
    room = (uint32_t)((len - sizeof(r)) / sizeof(struct os2g_gdd_completion));
    r.min = MIN(r.min, room);
    if (enough(f, r.min) || !r.timeout_ms) {
        reply_reap(f, req, room);
        return;
    }
    w = waiting_new(f, req, &f->reaps);
    w->min = r.min;
    w->room = room;
    req->cancel = on_reap_cancel;
    req->cancel_arg = w;
    loop_timer_init(&w->timer, f->fs->loop, on_reap_time);
    loop_timer_start_ns(&w->timer, MIN(r.timeout_ms, (uint32_t)REAP_MAX_MS) * NS_PER_MS);
}

// --- LEASE and UNLEASE ---

// The end of what somebody of this host holds there, 0 if nobody does.
static uint64_t taken(struct gdd_file *f, uint64_t offset, uint64_t size)
{
    uint64_t end = 0;

    list_for_each (it, &f->fs->gdd_files) {
        struct gdd_file *other = list_entry(it, struct gdd_file, link);

        if (!end && other->leases.host == f->leases.host)
            end = gdd_leases_overlap(&other->leases, offset, size);
    }
    return end;
}

static int find_place(struct gdd_file *f, uint64_t size, uint64_t memory_size, uint64_t *ret)
{
    uint64_t offset = 0, end;

    while (offset <= memory_size && size <= memory_size - offset) {
        end = taken(f, offset, size);
        if (!end) {
            *ret = offset;
            return 0;
        }
        offset = end;
    }
    return -ENOSPC;
}

// A worker before this one has made the lease that req asks for.
static struct gdd_lease *made_before(struct gdd_file *f, const struct fs_request *req)
{
    if (!req->replayed || f->leases.unique != req->unique || !f->leases.n)
        return NULL;
    return &f->leases.lease[f->leases.n - 1];
}

static int lease(struct gdd_file *f, struct fs_request *req, struct os2g_gdd_lease *l)
{
    const struct gdd_lease *before = made_before(f, req);
    int rc = req->gpu ? req->gpu->size(req->gpu, &l->memory_size) : -ENXIO;

    if (before) {
        l->offset = before->offset;
        return 0;
    }
    if (rc < 0)
        return rc;
    if (f->leases.n == OS2G_GDD_LEASES)
        return -ENOSPC;
    if (l->offset == OS2G_GDD_ANYWHERE && gdd_lease_valid(0, l->size)) {
        rc = find_place(f, l->size, l->memory_size, &l->offset);
        if (rc < 0)
            return rc;
    }
    if (!gdd_lease_valid(l->offset, l->size) || l->offset > l->memory_size ||
        l->size > l->memory_size - l->offset)
        return -EINVAL;
    if (taken(f, l->offset, l->size))
        return -EBUSY;
    f->leases.lease[f->leases.n++] = (struct gdd_lease){.offset = l->offset, .size = l->size};
    f->leases.unique = req->unique;
    store(f);
    return 0;
}

static void end_leases(struct gdd_file *f)
{
    list_for_each_safe (it, &f->leaving) {
        struct waiting *w = list_entry(it, struct waiting, link);
        struct gdd_lease *one = gdd_leases_at(&f->leases, w->lease);
        struct fs_request *req = w->req;

        if (one && gdd_lands_in(f, one))
            continue;
        waiting_free(w);
        if (one) {
            gdd_leases_remove(&f->leases, one);
            if (f->handle)
                store(f);
        }
        req->reply->ioctl(req, 0, NULL, 0);
    }
}

static void unlease(struct gdd_file *f, struct fs_request *req, const struct os2g_gdd_lease *l)
{
    struct gdd_lease *one = gdd_leases_at(&f->leases, l->offset);

    if (!one || one->leaving) {
        // a replayed one may find its work done
        req->reply->error(req, req->replayed && !one ? 0 : -ENOENT);
        return;
    }
    one->leaving = true;
    gdd_cut(f, one);
    waiting_new(f, req, &f->leaving)->lease = l->offset;
    end_leases(f);
}

// --- the file ---

static void destroy(struct gdd_file *f)
{
    list_remove(&f->link);
    free(f);
}

void gdd_file_settle(struct gdd_file *f)
{
    list_for_each_safe (it, &f->reaps) {
        struct waiting *w = list_entry(it, struct waiting, link);

        if (enough(f, w->min))
            end_reap(w);
    }
    end_leases(f);
    if (!f->handle && !f->n_running)
        destroy(f);
}

static struct gdd_file *file_new(struct fs *fs, uint32_t handle)
{
    struct gdd_file *f = xcalloc(1, sizeof(*f));

    f->fs = fs;
    f->handle = handle;
    list_init(&f->running);
    list_init(&f->done);
    list_init(&f->reaps);
    list_init(&f->leaving);
    list_push_back(&fs->gdd_files, &f->link);
    handles_set_private(fs->handles, handle, f);
    return f;
}

void gdd_handle_forget_private(struct fs *fs, uint32_t handle)
{
    struct gdd_file *f = handles_private(fs->handles, handle);

    handles_set_private(fs->handles, handle, NULL);
    f->handle = HANDLE_NONE;
    gdd_cut(f, NULL);
    list_for_each_safe (it, &f->done)
        gdd_read_free(list_entry(it, struct gdd_read, link));
    f->n_done = 0;
    gdd_file_settle(f);
}

void gdd_handle_free(struct fs *fs, uint32_t handle)
{
    gdd_handle_forget_private(fs, handle);
    handles_free(fs->handles, handle);
    fs_count_handles(fs);
}

void gdd_take_over(struct fs *fs, uint32_t handle)
{
    struct gdd_file *f = file_new(fs, handle);

    gdd_leases_load(handles_room(fs->handles, handle), &f->leases);
    f->leases.epoch++;
    store(f);
}

// --- OPEN ---

void gdd_attr_fill(struct fs *fs, struct fs_attr *a)
{
    a->mode = S_IFREG | (fs->o.gdd_gid ? 0660 : 0600);
    if (fs->o.gdd_gid)
        a->gid = fs->o.gdd_gid;
}

static bool may_open(struct fs *fs, const struct fs_request *req)
{
    struct fs_attr a;

    fs_attr_fill(fs, NODE_GDD_FILE, &a);
    if (fs_granted(req, &a) & R_OK)
        return true;
    // one of the caller's further groups may be it, which only its kernel knows
    return fs->o.gdd_gid && req->gpu && req->gpu->checks_modes;
}

static unsigned files_of(const struct fs *fs, uint32_t host)
{
    unsigned n = 0;

    list_for_each (it, &fs->gdd_files)
        n += list_entry(it, struct gdd_file, link)->leases.host == host;
    return n;
}

void gdd_open(struct fs *fs, struct fs_request *req)
{
    struct fs_opened o = {.direct_io = true};
    uint32_t handle = HANDLE_NONE;
    struct gdd_file *f;

    if (!may_open(fs, req)) {
        req->reply->error(req, -EACCES);
        return;
    }
    if (req->replayed)
        handle = handles_find_unique(fs->handles, HANDLE_GDD, NODE_GDD_FILE, req->unique);
    o.known = handle != HANDLE_NONE;
    if (!handle) {
        int rc = -EMFILE;

        if (files_of(fs, host_of(req)) < FILES_MAX)
            rc = handles_new(fs->handles, HANDLE_GDD, NODE_GDD_FILE, req->unique, &handle);
        if (rc < 0) {
            req->reply->error(req, rc);
            return;
        }
        file_new(fs, handle);
        fs_count_handles(fs);
    }
    f = handles_private(fs->handles, handle);
    f->leases.host = host_of(req);
    f->leases.epoch = MAX(f->leases.epoch, 1u);
    store(f);
    o.handle = handles_id(fs->handles, handle);
    req->reply->opened(req, &o);
}

// --- IOCTL ---

static void ioctl_lease(struct gdd_file *f, struct fs_request *req, const void *in, bool end)
{
    struct os2g_gdd_lease l;
    int rc;

    memcpy(&l, in, sizeof(l));
    if (end) {
        unlease(f, req, &l);
        return;
    }
    rc = lease(f, req, &l);
    if (rc < 0)
        req->reply->error(req, rc);
    else
        req->reply->ioctl(req, 0, &l, sizeof(l));
}

static void ioctl_cancel(struct gdd_file *f, struct fs_request *req, const void *in)
{
    struct os2g_gdd_cancel c;

    memcpy(&c, in, sizeof(c));
    gdd_cancel(f, c.tag);
    req->reply->ioctl(req, 0, NULL, 0);
}

void gdd_ioctl(struct fs *fs, struct fs_request *req, uint32_t handle, uint32_t cmd, const void *in,
               size_t in_len, size_t out_size)
{
    struct gdd_file *f = handles_private(fs->handles, handle);
    size_t len = _IOC_SIZE(cmd);
    bool sized = in_len == (_IOC_DIR(cmd) & _IOC_WRITE ? len : 0) &&
                 out_size == (_IOC_DIR(cmd) & _IOC_READ ? len : 0);

    if (f->leases.host != host_of(req))
        req->reply->error(req, -EBADF); // another host's
    else if (!sized)
        req->reply->error(req, -EINVAL);
    else if (cmd == OS2G_IOC_GDD_LEASE || cmd == OS2G_IOC_GDD_UNLEASE)
        ioctl_lease(f, req, in, cmd == OS2G_IOC_GDD_UNLEASE);
    else if (cmd == OS2G_IOC_GDD_CANCEL)
        ioctl_cancel(f, req, in);
    else if (cmd == OS2G_IOC_GDD_SUBMIT(len))
        gdd_submit(f, req, in, len);
    else if (cmd == OS2G_IOC_GDD_REAP(len))
        reap(f, req, in, len);
    else
        req->reply->error(req, -ENOTTY);
}
