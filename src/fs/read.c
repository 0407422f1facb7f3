// SPDX-License-Identifier: Apache-2.0
// READ: the policy's advice is carried out, then the bytes are asked of the cache, which gives
// them on a data loop; they leave from there, or are copied to the host's memory. The operation
// comes back to this loop to be counted and freed.
//
// A large READ into a host's memory is a landing: nothing is read ahead for it, for bytes that
// come directly would come twice. Its host has as many of them under way as it likes.
#include "fs/file.h"
#include "fs/plan_run.h"
#include "fs/range.h"
#include "fs/stalls_file.h"
#include "fs/transfer.h"

#include <string.h>

// From here on, what is absent is received straight into a host's memory if that can be.
#define LAND_MIN         ((uint32_t)1 << 20)
#define READ_LANDING_MAX ((uint32_t)16 << 20)

struct reading {
    struct transfer t;
    struct fs *fs;
    struct file *file;
    uint64_t offset;
    uint32_t len;
    struct cache_read read;
    struct cache_put put;
    struct loop_msg msg;
    int error;
    bool keeps_pages;
    struct range_land range; // last: not there when there is a read
};

// --- which bytes the host has ---

static bool page_given(const struct file *f, uint64_t page)
{
    return f->given[page / 64] >> (page % 64) & 1;
}

// [offset, offset + len) is in the host's memory, for it to keep.
static void keep(struct file *f, uint64_t offset, uint64_t len)
{
    uint64_t pages = (f->size + CACHE_PAGE - 1) / CACHE_PAGE, end = offset + len;

    if (!f->whole.applies)
        return;
    for (uint64_t p = offset / CACHE_PAGE; p * CACHE_PAGE < end; p++)
        if (p * CACHE_PAGE >= offset && MIN((p + 1) * CACHE_PAGE, f->size) <= end)
            f->given[p / 64] |= (uint64_t)1 << p % 64;
    for (uint64_t p = 0; p < pages; p++)
        if (!page_given(f, p))
            return;
    nodes_set_flags(f->fs->nodes, f->node, NODE_SERVED, 0);
}

#define KEPT_SURE 32 // so many in a row by chance are rare where a tenth was let go

static bool was_served(const struct file *f)
{
    return f->whole.applies && nodes_flags(f->fs->nodes, f->node) & NODE_SERVED;
}

void file_released(struct file *f)
{
    if (!f->keeps_pages || f->was_read || !was_served(f))
        return;
    if (++f->fs->kept >= KEPT_SURE)
        f->fs->lets_go = false;
}

bool host_has_kept(struct fs *fs, uint32_t node)
{
    return nodes_flags(fs->nodes, node) & NODE_SERVED && fs->kept >= KEPT_SURE;
}

bool host_may_have_kept(struct fs *fs, uint32_t node)
{
    return nodes_flags(fs->nodes, node) & NODE_SERVED && !fs->lets_go;
}

// A host that keeps pages asks for some: it has none of them. What it was given once it has let go,
// and others too; what it reads for the first time and opens again says nothing of those before.
static void note_missing(struct file *f)
{
    struct fs *fs = f->fs;

    if (!f->whole.applies)
        return;
    fs->kept = 0;
    if (!was_served(f))
        return;
    nodes_set_flags(fs->nodes, f->node, 0, NODE_SERVED);
    memset(f->given, 0, sizeof(f->given));
    fs->lets_go = true;
    plans_doubt_host(fs);
}

// --- reading ahead ---

static void read_ahead(struct file *f, uint64_t offset, uint64_t len)
{
    struct cache *cache = f->fs->cache;
    struct cache_object *o = f->object->cache;
    unsigned pressure = cache_pressure(cache);
    struct stream_action act;

    if (f->fs->o.no_readahead)
        return;
    if (f->whole.applies) {
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

// The answer has left, unless it is ESTALE: the open that the host tries next must find the node
// stale.
static void end(struct reading *rd, const struct cache_waited *waited)
{
    struct fs *fs = rd->fs;

    file_waited(rd->file, waited);
    if (rd->error == 0) {
        if (rd->offset + rd->len == rd->file->size)
            plan_uses_end(&rd->file->plan_uses);
        if (rd->keeps_pages)
            keep(rd->file, rd->offset, rd->len);
    } else if (rd->error == -ESTALE) {
        file_found_stale(fs, rd->file->node);
        rd->t.req->reply->error(rd->t.req, -ESTALE);
    }
    file_unref(rd->file);
    transfer_end(fs, &rd->t);
    free(rd);
}

static void on_answered(struct loop_msg *msg)
{
    struct reading *rd = container_of(msg, struct reading, msg);

    end(rd, &rd->read.waited);
}

// All answers but those with data.
static void answer(struct reading *rd, int error)
{
    struct fs_request *req = rd->t.req;

    if (error == -ENOENT)
        error = -ESTALE; // the version that the handle is on has gone
    rd->error = error;
    if (error == 0)
        req->reply->landed(req, rd->len);
    else if (error != -ESTALE)
        req->reply->error(req, error == -ECANCELED ? -EINTR : error);
}

// --- through pages; these are on a data loop ---

static void on_put(struct cache_put *put, int error)
{
    struct reading *rd = container_of(put, struct reading, put);

    cache_read_release(&rd->read);
    answer(rd, error);
    loop_post(rd->fs->loop, &rd->msg, on_answered);
}

static void on_read(struct cache_read *r, int error)
{
    struct reading *rd = container_of(r, struct reading, read);
    struct fs_request *req = rd->t.req;

    if (error == 0 && !req->dest) {
        rd->error = 0;
        req->reply->data(req, r->iov, r->n_iov);
        cache_read_release(r);
        loop_post(rd->fs->loop, &rd->msg, on_answered);
        return;
    }
    if (error == 0) {
        rd->put = (struct cache_put){.done = on_put};
        error = req->dest->ops->put(req->dest, 0, r->iov, r->n_iov, &rd->put);
        if (error == -EINPROGRESS)
            return;
        cache_read_release(r);
    }
    answer(rd, error);
    loop_post(rd->fs->loop, &rd->msg, on_answered);
}

static void cancel_read(struct transfer *t)
{
    cache_read_cancel(&container_of(t, struct reading, t)->read);
}

static void start_read(struct reading *rd)
{
    rd->read.object = rd->file->object->cache;
    rd->read.offset = rd->offset;
    rd->read.len = rd->len;
    rd->read.done = on_read;
    cache_read_start(rd->fs->cache, &rd->read);
}

// --- by landing ---

static void on_landed(struct range_land *r, int error)
{
    struct reading *rd = container_of(r, struct reading, range);

    answer(rd, error);
    end(rd, &r->waited);
}

static void cancel_landing(struct transfer *t)
{
    range_land_cancel(&container_of(t, struct reading, t)->range);
}

static void start_landing(struct reading *rd)
{
    rd->range.fs = rd->fs;
    rd->range.object = rd->file->object->cache;
    rd->range.offset = rd->offset;
    rd->range.len = rd->len;
    rd->range.dest = rd->t.req->dest;
    rd->range.dest_at = 0;
    rd->range.done = on_landed;
    range_land_start(&rd->range);
}

// --- starting ---

static void start(struct fs *fs, struct fs_request *req, struct file *f, uint64_t offset,
                  uint32_t len)
{
    bool direct = req->dest && req->dest->direct && len >= LAND_MIN;
    bool lands = direct || len > CACHE_READ_MAX;
    size_t size = lands ? sizeof(struct reading) : offsetof(struct reading, range);
    struct reading *rd = xcalloc(1, size);

    rd->fs = fs;
    rd->file = f;
    f->refs++;
    rd->offset = offset;
    rd->len = len;
    transfer_begin(fs, &rd->t, req, lands ? cancel_landing : cancel_read);
    rd->keeps_pages = host_keeps_pages(fs, req);
    f->was_read = true;
    if (rd->keeps_pages)
        note_missing(f);
    // what comes directly is not fetched ahead as well
    if (!direct)
        read_ahead(f, offset, len);
    if (lands)
        start_landing(rd);
    else
        start_read(rd);
}

static void answer_empty(struct fs_request *req)
{
    if (req->dest)
        req->reply->landed(req, 0);
    else
        req->reply->data(req, NULL, 0);
}

void fs_op_read(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                uint32_t size)
{
    uint32_t slot = handles_slot(fs->handles, handle, HANDLE_FILE);
    uint32_t stalls = handles_slot(fs->handles, handle, HANDLE_STALLS);
    struct file *f;

    counter_add(&fs->stats.reads, 1);
    if (!slot) {
        // the other control files are empty
        if (stalls)
            stalls_file_read(fs, req, stalls, offset, size);
        else if (handles_slot(fs->handles, handle, HANDLE_CONTROL) ||
                 handles_slot(fs->handles, handle, HANDLE_GDD))
            answer_empty(req);
        else
            req->reply->error(req, -EBADF);
        return;
    }
    if (req->dest)
        size = (uint32_t)MIN((uint64_t)size, req->dest->len);
    f = file_of_handle(fs, slot);
    if (offset >= f->size || size == 0) {
        answer_empty(req);
        return;
    }
    size = (uint32_t)MIN((uint64_t)size, f->size - offset);
    if (size > (req->dest ? READ_LANDING_MAX : CACHE_READ_MAX))
        req->reply->error(req, -EINVAL); // wires promise not to
    else
        start(fs, req, f, offset, size);
}
