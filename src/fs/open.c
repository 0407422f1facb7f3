// SPDX-License-Identifier: Apache-2.0
// OPEN and RELEASE. A small object is fetched from OPEN on, and OPEN waits for the head of the
// answer: it tells whether the version is still the store's. If not, ESTALE makes the host's
// kernel look the name up again and open what is there now; no program sees it.
#include "fs/dirs.h"
#include "fs/file.h"
#include "fs/gdd_file.h"
#include "fs/plan_run.h"
#include "fs/stalls_file.h"
#include "wire/control.h"

#include <string.h>

struct opening {
    struct fs *fs;
    struct fs_request *req; // NULL once it was interrupted
    struct file *file;
    struct cache_load load;
    struct cache_read read; // of an archived object too large to load: its first byte
    struct loop_msg msg;
    uint64_t started_ns;
    int error;
};

// --- files ---

struct file *file_new(struct fs *fs, uint32_t node, const char *path, size_t len,
                      const struct node_version *v)
{
    struct file *f = xcalloc(1, sizeof(*f));

    f->fs = fs;
    f->refs = 1;
    f->node = node;
    nodes_hold(fs->nodes, node);
    f->size = v->size;
    list_init(&f->plan_uses);
    if (f->size) {
        f->object = object_get(fs, path, len, v);
        stream_init(&f->stream, f->size, fs->o.readahead_max);
    }
    return f;
}

void file_unref(struct file *f)
{
    struct fs *fs = f->fs;

    assert(f->refs > 0);
    if (--f->refs)
        return;
    plan_uses_end(&f->plan_uses);
    if (f->object)
        object_put(fs, f->object);
    nodes_unhold(fs->nodes, f->node);
    fs_count_nodes(fs);
    free(f);
}

static struct file *make(struct fs *fs, uint32_t node)
{
    struct node_version v;
    struct buf path = {0};
    struct file *f;

    nodes_version(fs->nodes, node, &v);
    nodes_path(fs->nodes, node, &path);
    f = file_new(fs, node, path.data, path.len, &v);
    buf_free(&path);
    return f;
}

struct file *file_of_handle(struct fs *fs, uint32_t handle)
{
    struct file *f = handles_private(fs->handles, handle);

    if (f)
        return f;
    // opened before the worker died
    f = make(fs, nodes_slot(fs->nodes, handles_node(fs->handles, handle)));
    if (!fs->o.no_readahead)
        whole_open(&f->whole, f->size, true);
    f->handle = handle;
    handles_set_private(fs->handles, handle, f);
    return f;
}

void file_waited(struct file *f, const struct cache_waited *w)
{
    const struct cache_object *o = f->object->cache;
    size_t prefix_len = strlen(f->fs->o.prefix);

    stalls_wait(&f->fs->stalls, STALL_READ, f->lead, w, o->key + prefix_len,
                o->key_len - prefix_len, &f->stalled);
}

// What a listing says of this name is not to be believed.
static void doubt(struct snapshot *s, const char *name, size_t len)
{
    uint32_t i;

    if (s && snapshot_lookup(s, name, len, &i) == SNAP_THERE)
        s->entries[i].flags |= SNAP_DOUBTFUL;
}

void path_found_stale(struct fs *fs, const char *path, size_t len)
{
    const char *slash = memrchr(path, '/', len);
    size_t dir_len = slash ? (size_t)(slash - path) + 1 : 0;
    struct dir *d = dir_find(fs, path, dir_len);

    if (!d)
        return;
    doubt(d->snap, path + dir_len, len - dir_len);
    doubt(d->next, path + dir_len, len - dir_len);
}

void file_found_stale(struct fs *fs, uint32_t node)
{
    struct buf path = {0};

    nodes_set_flags(fs->nodes, node, NODE_STALE, 0);
    nodes_path(fs->nodes, node, &path);
    path_found_stale(fs, path.data, path.len);
    buf_free(&path);
}

// --- OPEN ---

static void reply_opened(struct fs *fs, struct fs_request *req, uint32_t handle, bool known)
{
    struct fs_opened o = {
        .handle = handles_id(fs->handles, handle),
        .direct_io = fs->o.direct_io,
        // a node is one version: pages that the host has of it stay right
        .keep_cache = !fs->o.direct_io,
        .known = known,
    };

    req->reply->opened(req, &o);
}

// Takes over the reference to f.
static void finish(struct fs *fs, struct fs_request *req, struct file *f)
{
    uint32_t handle;
    int rc =
        handles_new(fs->handles, HANDLE_FILE, nodes_id(fs->nodes, f->node), req->unique, &handle);

    if (rc < 0) {
        file_unref(f);
        req->reply->error(req, rc);
        return;
    }
    f->handle = handle;
    nodes_hold(fs->nodes, f->node);
    handles_set_private(fs->handles, handle, f);
    fs_count_handles(fs);
    reply_opened(fs, req, handle, false);
}

static void tell_archived(struct fs *fs, uint32_t node)
{
    struct buf path = {0};

    nodes_path(fs->nodes, node, &path);
    log_warning("fs",
                "%s%s cannot be read: its storage class is an archive (GLACIER or DEEP_ARCHIVE). "
                "Have it restored (aws s3api restore-object), then open it again",
                fs->o.prefix, buf_str(&path));
    buf_free(&path);
}

static int open_error(struct fs *fs, struct file *f, int error)
{
    if (error == -ESTALE || error == -ENOENT) {
        // also for what has gone: the next lookup says so
        file_found_stale(fs, f->node);
        return -ESTALE;
    }
    if (nodes_flags(fs->nodes, f->node) & NODE_ARCHIVED && error != -ECANCELED) {
        tell_archived(fs, f->node);
        return -EIO;
    }
    return error;
}

static void on_answered(struct loop_msg *msg)
{
    struct opening *op = container_of(msg, struct opening, msg);
    struct fs *fs = op->fs;
    struct buf path = {0};
    int error = op->error ? open_error(fs, op->file, op->error) : 0;

    file_waited(op->file, &op->load.waited);
    file_waited(op->file, &op->read.waited);
    if (!error && op->file->whole.asked) {
        nodes_path(fs->nodes, op->file->node, &path);
        ahead_fetched(fs, path.data, path.len, clock_monotonic_ns() - op->started_ns);
        buf_free(&path);
    }
    if (op->req) {
        op->req->cancel = NULL;
        if (error)
            op->req->reply->error(op->req, error);
        else
            finish(fs, op->req, op->file);
    }
    if (!op->req || error)
        file_unref(op->file);
    free(op);
    fs_busy_end(fs);
}

// On a data loop.
static void on_load(struct cache_load *load, int error)
{
    struct opening *op = container_of(load, struct opening, load);

    op->error = error;
    loop_post(op->fs->loop, &op->msg, on_answered);
}

static void on_first_byte(struct cache_read *r, int error)
{
    struct opening *op = container_of(r, struct opening, read);

    if (!error)
        cache_read_release(r);
    op->error = error;
    loop_post(op->fs->loop, &op->msg, on_answered);
}

// The bytes are fetched nevertheless: they have been paid for.
static void on_cancel(struct fs_request *req, void *arg)
{
    struct opening *op = arg;

    op->req = NULL;
    req->cancel = NULL;
    req->reply->error(req, -EINTR);
}

static struct opening *opening_new(struct fs *fs, struct fs_request *req, struct file *f)
{
    struct opening *op = xcalloc(1, sizeof(*op));

    op->fs = fs;
    op->req = req;
    op->file = f;
    op->started_ns = clock_monotonic_ns();
    req->cancel = on_cancel;
    req->cancel_arg = op;
    fs_busy_begin(fs);
    return op;
}

// What else this open asks for, behind its own bytes.
static void look_ahead(struct file *f)
{
    struct buf path = {0};

    nodes_path(f->fs->nodes, f->node, &path);
    if (!plan_uses_begin(f->fs, &f->plan_uses, path.data, path.len, &f->lead))
        ahead_opened(f->fs, path.data, path.len, f->keeps_pages);
    buf_free(&path);
}

static void open_file(struct fs *fs, struct fs_request *req, uint32_t node)
{
    unsigned flags = nodes_flags(fs->nodes, node);
    struct file *f = make(fs, node);
    struct opening *op;

    f->keeps_pages = host_keeps_pages(fs, req);
    if (!fs->o.no_readahead &&
        whole_open(&f->whole, f->size, f->keeps_pages && flags & NODE_SERVED)) {
        op = opening_new(fs, req, f);
        op->load = (struct cache_load){.object = f->object->cache, .done = on_load};
        cache_load_start(fs->cache, &op->load);
        look_ahead(f);
    } else if (flags & NODE_ARCHIVED && f->size && !f->whole.applies) {
        op = opening_new(fs, req, f);
        op->read = (struct cache_read){.object = f->object->cache, .len = 1, .done = on_first_byte};
        cache_read_start(fs->cache, &op->read);
        look_ahead(f);
    } else {
        look_ahead(f);
        finish(fs, req, f);
    }
}

static void open_control(struct fs *fs, struct fs_request *req)
{
    struct fs_opened o = {.direct_io = true};
    uint32_t handle;
    int rc = handles_new(fs->handles, HANDLE_CONTROL, NODE_CONTROL_FILE, req->unique, &handle);

    if (rc < 0) {
        req->reply->error(req, rc);
        return;
    }
    fs_count_handles(fs);
    o.handle = handles_id(fs->handles, handle);
    req->reply->opened(req, &o);
}

void fs_op_open(struct fs *fs, struct fs_request *req, uint64_t node, int flags)
{
    uint32_t slot = nodes_slot(fs->nodes, node), handle = HANDLE_NONE;

    counter_add(&fs->stats.opens, 1);
    if (!slot || nodes_kind(fs->nodes, slot) != NODE_FILE) {
        req->reply->error(req, slot ? -EISDIR : -ESTALE);
        return;
    }
    if (slot == NODE_CONTROL_FILE) {
        open_control(fs, req);
        return;
    }
    if (slot == NODE_GDD_FILE) {
        gdd_open(fs, req);
        return;
    }
    if (slot == NODE_STALLS_FILE) {
        stalls_file_open(fs, req);
        return;
    }
    if (req->replayed)
        handle = handles_find_unique(fs->handles, HANDLE_FILE, node, req->unique);
    if (handle)
        reply_opened(fs, req, handle, true);
    else if (nodes_flags(fs->nodes, slot) & NODE_STALE)
        req->reply->error(req, -ESTALE);
    else
        open_file(fs, req, slot);
}

// --- RELEASE ---

static void unwant_rest(struct file *f)
{
    struct prefetch_range r;

    if (!f->object || f->whole.applies || f->fs->o.no_readahead)
        return;
    for (stream_close(&f->stream, &r); r.len; stream_close(&f->stream, &r))
        cache_unwant(f->fs->cache, f->object->cache, r.offset, r.len);
}

static void handle_free(struct fs *fs, uint32_t handle)
{
    struct file *f = handles_private(fs->handles, handle);
    uint32_t node = nodes_slot(fs->nodes, handles_node(fs->handles, handle));

    if (f) {
        file_released(f);
        f->handle = HANDLE_NONE;
        plan_uses_end(&f->plan_uses);
        unwant_rest(f);
        file_unref(f);
    }
    handles_free(fs->handles, handle);
    nodes_unhold(fs->nodes, node);
    fs_count_nodes(fs);
    fs_count_handles(fs);
}

static bool release(struct fs *fs, uint64_t handle)
{
    uint32_t slot = handles_slot(fs->handles, handle, HANDLE_FILE);

    if (slot) {
        handle_free(fs, slot);
        return true;
    }
    slot = handles_slot(fs->handles, handle, HANDLE_CONTROL);
    if (slot) {
        control_handle_free(fs, slot);
        return true;
    }
    slot = handles_slot(fs->handles, handle, HANDLE_GDD);
    if (slot) {
        gdd_handle_free(fs, slot);
        return true;
    }
    slot = handles_slot(fs->handles, handle, HANDLE_STALLS);
    if (slot) {
        stalls_handle_free(fs, slot);
        return true;
    }
    return false;
}

void fs_op_release(struct fs *fs, struct fs_request *req, uint64_t handle)
{
    bool done = release(fs, handle);

    // a replayed one finds its work done
    req->reply->error(req, done || req->replayed ? 0 : -EBADF);
}

void fs_op_unopen(struct fs *fs, uint64_t handle)
{
    uint32_t dir = handles_slot(fs->handles, handle, HANDLE_DIR);

    if (dir)
        fs_dir_handle_free(fs, dir);
    else
        release(fs, handle);
}
