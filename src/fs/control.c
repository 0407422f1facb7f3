// SPDX-License-Identifier: Apache-2.0
// ioctl: plans, on the control file (control.h). Each open file holds at most one plan, which ends
// with the file. What .os2g/gdd has is in gdd_file.c.
#include "wire/control.h"
#include "wire/gdd.h"

#include "fs/file.h"
#include "fs/gdd_file.h"
#include "fs/plan_run.h"

#include <string.h>

void control_handle_forget_private(struct fs *fs, uint32_t handle)
{
    run_plan_free(handles_private(fs->handles, handle));
    handles_set_private(fs->handles, handle, NULL);
}

void control_handle_free(struct fs *fs, uint32_t handle)
{
    control_handle_forget_private(fs, handle);
    handles_free(fs->handles, handle);
    fs_count_handles(fs);
}

// Adds the paths of a request, each ended by a zero.
static int add_paths(struct run_plan *rp, const struct os2g_plan_request *r)
{
    const char *p = r->data, *end = r->data + r->len;

    while (p < end) {
        const char *zero = memchr(p, 0, (size_t)(end - p));
        int rc = zero ? run_plan_add(rp, p, (size_t)(zero - p)) : -EINVAL;

        if (rc < 0)
            return rc;
        p = zero + 1;
    }
    return 0;
}

// A process of a host; its number may be another host's too.
static uint64_t owner_of(const struct fs_request *req)
{
    return (uint64_t)(req->gpu ? req->gpu->host : 0) << 32 | req->pid;
}

static int begin(struct fs *fs, const struct fs_request *req, uint32_t handle,
                 const struct os2g_plan_request *r)
{
    struct run_plan *rp;
    int rc;

    control_handle_forget_private(fs, handle);
    rc = run_plan_new(&rp, fs, r->window_bytes, owner_of(req), host_keeps_pages(fs, req));
    if (rc == 0)
        handles_set_private(fs->handles, handle, rp);
    return rc;
}

static int carry_out(struct fs *fs, const struct fs_request *req, uint32_t handle,
                     const struct os2g_plan_request *r)
{
    struct run_plan *rp = handles_private(fs->handles, handle);
    bool open = rp && !run_plan_committed(rp);

    switch (r->op) {
    case OS2G_PLAN_BEGIN:
        return begin(fs, req, handle, r);
    case OS2G_PLAN_ADD:
        return open ? add_paths(rp, r) : rp ? -EINVAL : -ESTALE;
    case OS2G_PLAN_COMMIT:
        if (open)
            run_plan_commit(rp);
        return open ? 0 : rp ? -EINVAL : -ESTALE;
    case OS2G_PLAN_STATUS:
        return 0;
    default:
        return -EINVAL;
    }
}

static void fill_status(const struct run_plan *rp, struct os2g_plan_request *r)
{
    struct plan_stats s = {0};

    if (rp)
        run_plan_stats(rp, &s);
    r->entries = s.entries;
    r->fetched = s.fetched;
    r->used = s.used;
    r->dropped = s.dropped;
    r->missing = s.missing;
    r->bytes = s.bytes;
}

static void plan_ioctl(struct fs *fs, struct fs_request *req, uint32_t slot, const void *in,
                       size_t in_len, size_t out_size)
{
    struct os2g_plan_request r;
    int rc;

    if (in_len != sizeof(r) || out_size < sizeof(r)) {
        req->reply->error(req, -EINVAL);
        return;
    }
    memcpy(&r, in, sizeof(r));
    if (r.len > sizeof(r.data)) {
        req->reply->error(req, -EINVAL);
        return;
    }
    rc = carry_out(fs, req, slot, &r);
    if (rc < 0) {
        req->reply->error(req, rc);
        return;
    }
    fill_status(handles_private(fs->handles, slot), &r);
    req->reply->ioctl(req, 0, &r, sizeof(r));
}

// What a SUBMIT to .os2g/gdd calls an open object.
static void gdd_id_ioctl(struct fs *fs, struct fs_request *req, uint32_t slot, size_t out_size)
{
    struct os2g_gdd_id id = {.id = handles_id(fs->handles, slot)};

    if (out_size < sizeof(id)) {
        req->reply->error(req, -EINVAL);
        return;
    }
    id.size = file_of_handle(fs, slot)->size;
    req->reply->ioctl(req, 0, &id, sizeof(id));
}

void fs_op_ioctl(struct fs *fs, struct fs_request *req, uint64_t node, uint64_t handle,
                 uint32_t cmd, const void *in, size_t in_len, size_t out_size)
{
    uint32_t control = handles_slot(fs->handles, handle, HANDLE_CONTROL),
             gdd = handles_slot(fs->handles, handle, HANDLE_GDD),
             file = handles_slot(fs->handles, handle, HANDLE_FILE);

    if (control && cmd == OS2G_IOC_PLAN)
        plan_ioctl(fs, req, control, in, in_len, out_size);
    else if (gdd)
        gdd_ioctl(fs, req, gdd, cmd, in, in_len, out_size);
    else if (file && cmd == OS2G_IOC_GDD_ID)
        gdd_id_ioctl(fs, req, file, out_size);
    else
        req->reply->error(req, -ENOTTY);
}
