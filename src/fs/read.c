// SPDX-License-Identifier: Apache-2.0
// READ: the policy's advice is carried out, then the bytes are asked of the cache, which gives
// them on a data loop; they leave from there. The operation comes back to this loop to be counted
// and freed.
#include "fs/file.h"
#include "fs/plan_run.h"

struct reading {
    struct hmap_link link; // in fs->reads
    struct fs *fs;
    struct fs_request *req; // not touched once it was answered
    uint64_t unique;
    struct file *file;
    struct cache_read read;
    struct loop_msg msg;
    int error;
};

// --- which bytes the host has ---

static bool page_given(const struct file *f, uint64_t page)
{
    return f->given[page / 64] >> (page % 64) & 1;
}

void file_given(struct file *f, uint64_t offset, uint64_t len)
{
    struct fs *fs = f->fs;
    uint64_t pages = (f->size + CACHE_PAGE - 1) / CACHE_PAGE, end = offset + len;

    if (end == f->size)
        plan_uses_end(f);
    if (!f->whole.applies || fs->o.direct_io)
        return;
    for (uint64_t p = offset / CACHE_PAGE; p * CACHE_PAGE < end; p++)
        if (p * CACHE_PAGE >= offset && MIN((p + 1) * CACHE_PAGE, f->size) <= end)
            f->given[p / 64] |= (uint64_t)1 << p % 64;
    for (uint64_t p = 0; p < pages; p++)
        if (!page_given(f, p))
            return;
    nodes_set_flags(fs->nodes, f->node, NODE_SERVED, 0);
}

// --- reading ahead ---

static void read_ahead(struct file *f, uint64_t offset, uint64_t len)
{
    struct cache *cache = f->fs->cache;
    struct cache_object *o = f->object->cache;
    unsigned pressure = cache_pressure(cache);
    struct stream_action act;

    if (f->whole.applies) {
        // the host asks for what it was given: it has let the pages go
        nodes_set_flags(f->fs->nodes, f->node, 0, NODE_SERVED);
        if (whole_read(&f->whole, pressure))
            cache_prefetch(cache, o, 0, f->size);
        return;
    }
    stream_read(&f->stream, offset, len, clock_monotonic_ns(), pressure, &act);
    if (act.unwant.len)
        cache_unwant(cache, o, act.unwant.offset, act.unwant.len);
    for (int i = 0; i < act.n_fetch; i++)
        cache_prefetch(cache, o, act.fetch[i].offset, act.fetch[i].len);
}

// --- the operation ---

// Back on the namespace loop; the host has its answer, unless that is ESTALE: the open it tries
// next must find the node stale.
static void on_answered(struct loop_msg *msg)
{
    struct reading *rd = container_of(msg, struct reading, msg);
    struct fs *fs = rd->fs;

    hmap_remove(&fs->reads, &rd->link);
    if (rd->error == 0) {
        file_given(rd->file, rd->read.offset, rd->read.len);
    } else if (rd->error == -ESTALE) {
        file_found_stale(fs, rd->file->node);
        rd->req->reply->error(rd->req, -ESTALE);
    }
    file_unref(rd->file);
    free(rd);
    fs_busy_end(fs);
}

// On a data loop.
static void on_read(struct cache_read *r, int error)
{
    struct reading *rd = container_of(r, struct reading, read);
    struct fs_request *req = rd->req;

    if (error == -ENOENT)
        error = -ESTALE; // the version that the handle is on has gone
    rd->error = error;
    if (error == 0) {
        req->reply->data(req, r->iov, r->n_iov);
        cache_read_release(r);
    } else if (error != -ESTALE) {
        req->reply->error(req, error == -ECANCELED ? -EINTR : error);
    }
    loop_post(rd->fs->loop, &rd->msg, on_answered);
}

// It may have been answered already, and rd be on its way back here.
static void on_cancel(struct fs_request *req, void *arg)
{
    struct fs *fs = arg;
    uint64_t unique = req->unique;
    struct hmap_link *l = hmap_first(&fs->reads, fs_hash(&unique, sizeof(unique), 0));

    for (; l; l = hmap_next(l)) {
        struct reading *rd = container_of(l, struct reading, link);

        if (rd->unique == unique) {
            cache_read_cancel(&rd->read);
            return;
        }
    }
}

static void start(struct fs *fs, struct fs_request *req, struct file *f, uint64_t offset,
                  uint32_t len)
{
    struct reading *rd = xcalloc(1, sizeof(*rd));

    rd->fs = fs;
    rd->req = req;
    rd->unique = req->unique;
    rd->file = f;
    f->refs++;
    rd->read.object = f->object->cache;
    rd->read.offset = offset;
    rd->read.len = len;
    rd->read.done = on_read;
    hmap_add(&fs->reads, &rd->link, fs_hash(&rd->unique, sizeof(rd->unique), 0));
    req->cancel = on_cancel;
    req->cancel_arg = fs;
    fs_busy_begin(fs);
    read_ahead(f, offset, len);
    cache_read_start(fs->cache, &rd->read);
}

void fs_op_read(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                uint32_t size)
{
    uint32_t slot = handles_slot(fs->handles, handle, HANDLE_FILE);
    struct file *f;

    counter_add(&fs->stats.reads, 1);
    if (!slot) {
        // the control file is empty
        if (handles_slot(fs->handles, handle, HANDLE_CONTROL))
            req->reply->data(req, NULL, 0);
        else
            req->reply->error(req, -EBADF);
        return;
    }
    f = file_of_handle(fs, slot);
    if (offset >= f->size || size == 0)
        req->reply->data(req, NULL, 0);
    else if (MIN((uint64_t)size, f->size - offset) > CACHE_READ_MAX)
        req->reply->error(req, -EINVAL); // wires promise not to
    else
        start(fs, req, f, offset, (uint32_t)MIN((uint64_t)size, f->size - offset));
}
