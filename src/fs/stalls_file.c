// SPDX-License-Identifier: Apache-2.0
// .os2g/stalls: the report as it is when the file is opened. Whoever may list the bucket may read
// it: its mode is the files', and so is who checks it.
#include "fs/stalls_file.h"

#include "cache/dest.h"

#include <stdlib.h>

// Of so many open files the text is kept. One that is opened and left open costs no more than its
// handle then: who reads it begins again.
#define REPORTS_MAX 64

struct report {
    struct list link; // in fs->reports, oldest first
    uint32_t handle;
    struct buf text;
};

static void report_free(struct fs *fs, struct report *r)
{
    handles_set_private(fs->handles, r->handle, NULL);
    list_remove(&r->link);
    fs->n_reports--;
    buf_free(&r->text);
    free(r);
}

static struct report *report_new(struct fs *fs, uint32_t handle)
{
    struct report *r = xcalloc(1, sizeof(*r));

    r->handle = handle;
    fs_stalls(fs, &r->text);
    handles_set_private(fs->handles, handle, r);
    if (fs->n_reports == REPORTS_MAX)
        report_free(fs, list_entry(fs->reports.next, struct report, link));
    list_push_back(&fs->reports, &r->link);
    fs->n_reports++;
    return r;
}

void stalls_file_open(struct fs *fs, struct fs_request *req)
{
    struct fs_opened o = {.direct_io = true};
    uint64_t node = nodes_id(fs->nodes, NODE_STALLS_FILE);
    uint32_t handle = HANDLE_NONE;
    int rc = 0;

    if (req->replayed)
        handle = handles_find_unique(fs->handles, HANDLE_STALLS, node, req->unique);
    o.known = handle != HANDLE_NONE;
    if (!handle)
        rc = handles_new(fs->handles, HANDLE_STALLS, node, req->unique, &handle);
    if (rc < 0) {
        req->reply->error(req, rc);
        return;
    }
    if (!handles_private(fs->handles, handle))
        report_new(fs, handle);
    fs_count_handles(fs);
    o.handle = handles_id(fs->handles, handle);
    req->reply->opened(req, &o);
}

static void land(struct fs_request *req, const struct iovec *iov)
{
    struct cache_dest *d = req->dest;
    struct cache_put put = {0};
    int rc;

    // a copy engine takes nothing but pages of the cache
    if (!d->n_iov) {
        req->reply->error(req, -EINVAL);
        return;
    }
    rc = iov->iov_len ? d->ops->put(d, 0, iov, 1, &put) : 0;
    if (rc < 0)
        req->reply->error(req, rc == -ECANCELED ? -EINTR : rc);
    else
        req->reply->landed(req, iov->iov_len);
}

void stalls_file_read(struct fs *fs, struct fs_request *req, uint32_t handle, uint64_t offset,
                      uint32_t size)
{
    struct report *r = handles_private(fs->handles, handle);
    struct iovec iov;

    // the worker that made it has died, or many others were opened since
    if (!r && !offset)
        r = report_new(fs, handle);
    if (!r) {
        req->reply->error(req, -ESTALE);
        return;
    }
    if (req->dest)
        size = (uint32_t)MIN((uint64_t)size, req->dest->len);
    offset = MIN(offset, (uint64_t)r->text.len);
    iov.iov_base = r->text.data + offset;
    iov.iov_len = MIN((uint64_t)size, r->text.len - offset);
    if (req->dest)
        land(req, &iov);
    else
        req->reply->data(req, &iov, iov.iov_len ? 1 : 0);
}

void stalls_handle_forget_private(struct fs *fs, uint32_t handle)
{
    struct report *r = handles_private(fs->handles, handle);

    if (r)
        report_free(fs, r);
}

void stalls_handle_free(struct fs *fs, uint32_t handle)
{
    stalls_handle_forget_private(fs, handle);
    handles_free(fs->handles, handle);
    fs_count_handles(fs);
}
