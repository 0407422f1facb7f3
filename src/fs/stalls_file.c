// SPDX-License-Identifier: Apache-2.0
// .os2g/stalls: the report as it is when the file is opened. Whoever may list the bucket may read
// it: its mode is the files', and so is who checks it.
#include "fs/stalls_file.h"

#include "cache/dest.h"

void stalls_file_open(struct fs *fs, struct fs_request *req)
{
    struct fs_opened o = {.direct_io = true};
    uint32_t handle = HANDLE_NONE;
    int rc = 0;

    if (req->replayed)
        handle = handles_find_unique(fs->handles, HANDLE_STALLS,
                                     nodes_id(fs->nodes, NODE_STALLS_FILE), req->unique);
    o.known = handle != HANDLE_NONE;
    if (!handle)
        rc = handles_new(fs->handles, HANDLE_STALLS, nodes_id(fs->nodes, NODE_STALLS_FILE),
                         req->unique, &handle);
    if (rc < 0) {
        req->reply->error(req, rc);
        return;
    }
    fs_count_handles(fs);
    o.handle = handles_id(fs->handles, handle);
    req->reply->opened(req, &o);
}

// Made when it is read first, and again from its beginning: what is read on is of one report.
static struct buf *text_of(struct fs *fs, uint32_t handle, uint64_t offset)
{
    struct buf *text = handles_private(fs->handles, handle);

    if (offset)
        return text;
    if (!text) {
        text = xcalloc(1, sizeof(*text));
        handles_set_private(fs->handles, handle, text);
    }
    buf_reset(text);
    fs_stalls(fs, text);
    return text;
}

static void answer_dest(struct fs_request *req, const struct iovec *iov)
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
    struct buf *text = text_of(fs, handle, offset);
    struct iovec iov;

    // begun before the worker died
    if (!text) {
        req->reply->error(req, -ESTALE);
        return;
    }
    if (req->dest)
        size = (uint32_t)MIN((uint64_t)size, req->dest->len);
    offset = MIN(offset, (uint64_t)text->len);
    iov.iov_base = text->data + offset;
    iov.iov_len = MIN((uint64_t)size, text->len - offset);
    if (req->dest)
        answer_dest(req, &iov);
    else
        req->reply->data(req, &iov, iov.iov_len ? 1 : 0);
}

void stalls_handle_forget_private(struct fs *fs, uint32_t handle)
{
    struct buf *text = handles_private(fs->handles, handle);

    if (!text)
        return;
    buf_free(text);
    free(text);
    handles_set_private(fs->handles, handle, NULL);
}

void stalls_handle_free(struct fs *fs, uint32_t handle)
{
    stalls_handle_forget_private(fs, handle);
    handles_free(fs->handles, handle);
    fs_count_handles(fs);
}
