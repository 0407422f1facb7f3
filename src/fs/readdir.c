// SPDX-License-Identifier: Apache-2.0
// Directory handles. A handle reads the snapshot that its directory shares with everybody, also
// while the listing is still coming in. Where that ends (the directory is too large for memory) or
// is gone (dropped, or a new worker), it goes on with pages of its own, listed behind the name it
// had reached.
#include "fs/dirs.h"
#include "wire/control.h"
#include "wire/gdd.h"

#include <string.h>

#define OWN_ENTRIES  4096       // of a handle's own pages, kept for a host that asks again
#define OWN_UNSURE   65536      // how far to look for a directory of an object's name
#define UNKNOWN_NODE 0xffffffff // an inode number for what has none yet

struct dirstream {
    struct fs *fs;
    uint32_t handle, node; // node: held by the handle
    struct dir *dir;
    uint64_t opened_ns;
    bool begun;

    struct snapshot *snap; // NULL: none yet
    struct list link;      // in snap->streams; alone: ours, or it has been dropped
    struct listing *own;   // fills snap, which is ours then
    uint64_t base;         // entries before snap's first

    // the request that waits for the next page
    struct fs_request *req;
    uint64_t offset;
    bool plus;
    struct dir_waiter waiter;
};

static void go_on(struct dirstream *ds);

// --- which snapshot ---

static void let_go(struct dirstream *ds)
{
    if (ds->own) {
        listing_free(ds->own);
        ds->own = NULL;
        snapshot_free(ds->snap);
    } else if (ds->snap) {
        dirs_detach(ds->fs, ds->snap, &ds->link);
    }
    ds->snap = NULL;
    ds->base = 0;
}

static bool is_lost(const struct dirstream *ds)
{
    return !ds->snap || (!ds->own && list_empty(&ds->link));
}

static void read_shared(struct dirstream *ds, struct snapshot *s)
{
    let_go(ds);
    ds->snap = s;
    dirs_attach(s, &ds->link);
}

static void on_own_page(struct listing *l, int error, bool last);

// Pages of our own from behind key on; base entries are before it.
static void read_own(struct dirstream *ds, const char *key, size_t len, uint64_t base)
{
    let_go(ds);
    ds->snap = snapshot_new(clock_monotonic_ns());
    ds->base = base;
    ds->own = listing_new(ds->fs, ds->dir->path, ds->dir->len, key, len, ds->snap);
    ds->own->page = on_own_page;
    ds->own->arg = ds;
}

// From the beginning, or somewhere else in what a listing of now says.
static void begin(struct dirstream *ds)
{
    read_shared(ds, dir_list(ds->dir, ds->begun ? clock_monotonic_ns() : ds->opened_ns));
    ds->begun = true;
}

static size_t last_place(struct dirstream *ds, char out[static 257])
{
    uint64_t cookie;
    size_t len = handles_place(ds->fs->handles, ds->handle, &cookie, out);

    return len && cookie == ds->offset ? len : 0;
}

// How many entries of the directory are before ds->offset, as its cookie has it.
static uint64_t behind_number(const struct dirstream *ds)
{
    uint64_t number = cookie_number(ds->offset);

    return number > COOKIE_DOTDOT ? number - COOKIE_DOTDOT : 0;
}

// The first entry to give out, or false when the listing has not come so far.
static bool find_place(struct dirstream *ds, uint32_t *ret)
{
    const struct snapshot *s = ds->snap;
    uint64_t next;
    char key[257];
    size_t len;

    if (ds->offset <= COOKIE_DOTDOT) {
        *ret = 0;
        return true;
    }
    if (snapshot_seek(s, ds->offset, ds->base, ret))
        return true;
    len = last_place(ds, key);
    if (len && (ds->own || s->complete)) {
        *ret = snapshot_behind(s, key, len);
        return true;
    }
    if (!s->complete && !s->truncated && !ds->own)
        return false;
    // the name has gone: by number
    next = behind_number(ds);
    *ret = (uint32_t)MIN(next > ds->base ? next - ds->base : 0, (uint64_t)s->n);
    return true;
}

// Makes ds->snap one that can answer for ds->offset.
static void choose(struct dirstream *ds)
{
    struct snapshot *s;
    char key[257];
    size_t len;

    if (ds->offset == 0) {
        begin(ds);
        return;
    }
    len = last_place(ds, key);
    // a host may go back to before what we still have
    if (!is_lost(ds) && (len || behind_number(ds) >= ds->base))
        return;
    s = dir_fresh(ds->dir, UINT64_MAX);
    if (len && !(s && s->complete))
        read_own(ds, key, len, behind_number(ds));
    else
        begin(ds);
}

// --- answering ---

static void end(struct dirstream *ds, int error)
{
    struct fs_request *req = ds->req;

    ds->req = NULL;
    req->cancel = NULL;
    if (error)
        req->reply->error(req, error);
    else
        req->reply->dirents_end(req);
}

static bool add_dots(struct dirstream *ds)
{
    struct nodes *n = ds->fs->nodes;
    struct fs_entry e;

    if (ds->offset < COOKIE_DOT) {
        fs_entry_fill(ds->fs, ds->node, 0, &e);
        if (!ds->req->reply->dirent(ds->req, ".", 1, COOKIE_DOT, &e))
            return false;
        ds->offset = COOKIE_DOT;
    }
    if (ds->offset < COOKIE_DOTDOT) {
        uint32_t parent = ds->node == NODE_ROOT ? NODE_ROOT : nodes_parent(n, ds->node);

        fs_entry_fill(ds->fs, parent, 0, &e);
        if (!ds->req->reply->dirent(ds->req, "..", 2, COOKIE_DOTDOT, &e))
            return false;
        ds->offset = COOKIE_DOTDOT;
    }
    return true;
}

// With attributes, and so with a node that the host refers to from now on.
static bool add_plus(struct dirstream *ds, uint32_t i, uint64_t cookie, uint64_t valid_ns)
{
    struct fs *fs = ds->fs;
    struct snapshot *s = ds->snap;
    const struct snap_entry *entry = &s->entries[i];
    bool is_dir = entry->flags & SNAP_DIR;
    struct fs_entry e = {.attr.mode = is_dir ? S_IFDIR : S_IFREG};
    uint32_t node = NODE_NONE;
    struct node_version v;

    snapshot_version(s, i, &v);
    if (!(entry->flags & SNAP_DOUBTFUL) &&
        nodes_get(fs->nodes, ds->node, snapshot_name(s, i), entry->name_len,
                  is_dir ? NODE_DIR : NODE_FILE, is_dir ? NULL : &v, &node) == 0 &&
        !(nodes_flags(fs->nodes, node) & NODE_STALE))
        fs_entry_fill(fs, node, valid_ns, &e);
    if (!ds->req->reply->dirent(ds->req, snapshot_name(s, i), entry->name_len, cookie, &e)) {
        if (node)
            nodes_settle(fs->nodes, node);
        return false;
    }
    if (e.attr.node)
        nodes_add_lookups(fs->nodes, node, 1);
    else if (node)
        nodes_settle(fs->nodes, node);
    return true;
}

static bool add_plain(struct dirstream *ds, uint32_t i, uint64_t cookie)
{
    struct snapshot *s = ds->snap;
    const struct snap_entry *entry = &s->entries[i];
    bool is_dir = entry->flags & SNAP_DIR;
    struct fs_entry e = {.attr.mode = is_dir ? S_IFDIR : S_IFREG, .attr.node = UNKNOWN_NODE};
    struct node_version v;
    uint32_t node;

    snapshot_version(s, i, &v);
    node = nodes_find(ds->fs->nodes, ds->node, snapshot_name(s, i), entry->name_len,
                      is_dir ? NODE_DIR : NODE_FILE, &v);
    if (node)
        e.attr.node = nodes_id(ds->fs->nodes, node);
    return ds->req->reply->dirent(ds->req, snapshot_name(s, i), entry->name_len, cookie, &e);
}

// Entry i's key below the directory, as listings begin behind it.
static size_t entry_key(const struct snapshot *s, uint32_t i, char out[static 257])
{
    size_t len = s->entries[i].name_len;

    memcpy(out, snapshot_name(s, i), len);
    if (s->entries[i].flags & SNAP_DIR)
        out[len++] = '/';
    return len;
}

// For a new worker, or for when this snapshot has been dropped.
static void remember_place(struct dirstream *ds, uint32_t i)
{
    char key[257];
    size_t len = entry_key(ds->snap, i, key);

    handles_set_place(ds->fs->handles, ds->handle, snapshot_cookie(ds->snap, i, ds->base), key,
                      len);
}

static bool is_ready(const struct dirstream *ds, uint32_t i)
{
    return snapshot_settled(ds->snap, i) || (ds->own && ds->snap->n - i > OWN_UNSURE);
}

// Adds entries from *i on, as far as they are known and there is room; false: no more room.
static bool add_entries(struct dirstream *ds, uint32_t *i, unsigned *added)
{
    struct snapshot *s = ds->snap;
    uint64_t valid_ns = dir_valid_ns(ds->fs, s);
    uint32_t last = UINT32_MAX;
    bool room = true;

    for (; *i < s->n && is_ready(ds, *i); ++*i) {
        uint64_t cookie = snapshot_cookie(s, *i, ds->base);

        if (s->entries[*i].flags & SNAP_HIDDEN)
            continue;
        room = ds->plus ? add_plus(ds, *i, cookie, valid_ns) : add_plain(ds, *i, cookie);
        if (!room)
            break;
        last = *i;
        ++*added;
    }
    if (last != UINT32_MAX)
        remember_place(ds, last);
    fs_count_nodes(ds->fs);
    return room;
}

static void on_cancel(struct fs_request *req, void *arg)
{
    struct dirstream *ds = arg;

    dir_wait_cancel(&ds->waiter);
    end(ds, -EINTR);
}

static void wait_for_page(struct dirstream *ds)
{
    ds->req->cancel = on_cancel;
    ds->req->cancel_arg = ds;
    if (!ds->own)
        dir_wait(ds->dir, &ds->waiter);
    else if (!ds->own->running)
        listing_next(ds->own);
}

static void on_shared_page(struct dir_waiter *w, int error)
{
    struct dirstream *ds = container_of(w, struct dirstream, waiter);

    if (error) {
        end(ds, error);
        return;
    }
    if (is_lost(ds)) // what others did on the same page took the memory
        choose(ds);
    go_on(ds);
}

static void on_own_page(struct listing *l, int error, bool last)
{
    struct dirstream *ds = l->arg;

    if (error || ds->snap->disordered) {
        log_warning("fs", "listing %s%s: %s", ds->fs->o.prefix, ds->dir->path,
                    error ? listing_error(l) : "the store's pages are not in order");
        let_go(ds);
        if (ds->req)
            end(ds, error ? error : -EIO);
        return;
    }
    ds->snap->listed_ns = clock_monotonic_ns();
    if (last)
        snapshot_complete(ds->snap);
    if (ds->req)
        go_on(ds);
}

// Everything that is known, the entries before i, has been given out: false at the end of the
// directory.
static bool more_to_come(struct dirstream *ds, uint32_t i)
{
    struct snapshot *s = ds->snap;
    char key[257];

    if (s->complete)
        return false;
    if (ds->own && i > OWN_ENTRIES) {
        ds->base += i - OWN_ENTRIES / 2;
        snapshot_drop_front(s, i - OWN_ENTRIES / 2);
    } else if (s->truncated) {
        read_own(ds, key, i ? entry_key(s, i - 1, key) : 0, i);
    }
    return true;
}

static void go_on(struct dirstream *ds)
{
    unsigned added = 0;
    uint32_t i = 0;

    if (!add_dots(ds)) {
        end(ds, 0);
        return;
    }
    if (!find_place(ds, &i)) {
        wait_for_page(ds);
        return;
    }
    if (!add_entries(ds, &i, &added) || added || !more_to_come(ds, i))
        end(ds, 0);
    else
        wait_for_page(ds);
}

static void read_control_dir(struct dirstream *ds)
{
    static const char *const names[] = {OS2G_CONTROL_FILE, OS2G_GDD_FILE, OS2G_STALLS_FILE};
    struct fs_entry e;
    bool room = add_dots(ds);

    for (uint32_t i = 0; room && i < ARRAY_LEN(names); i++) {
        uint64_t cookie = COOKIE_DOTDOT + 1 + i;
        uint32_t node = NODE_CONTROL_FILE + i;

        if (ds->offset >= cookie)
            continue;
        fs_entry_fill(ds->fs, node, UINT64_MAX, &e);
        room = ds->req->reply->dirent(ds->req, names[i], strlen(names[i]), cookie, &e);
        if (room && ds->plus)
            nodes_add_lookups(ds->fs->nodes, node, 1);
    }
    end(ds, 0);
}

// --- operations ---

static struct dirstream *stream_new(struct fs *fs, uint32_t handle, uint32_t node)
{
    struct dirstream *ds = xcalloc(1, sizeof(*ds));

    ds->fs = fs;
    ds->handle = handle;
    ds->node = node;
    ds->dir = dir_of_node(fs, node);
    ds->opened_ns = clock_monotonic_ns();
    list_init(&ds->link);
    list_init(&ds->waiter.link);
    ds->waiter.wake = on_shared_page;
    handles_set_private(fs->handles, handle, ds);
    return ds;
}

void fs_op_opendir(struct fs *fs, struct fs_request *req, uint64_t node)
{
    uint32_t slot = nodes_slot(fs->nodes, node), handle = HANDLE_NONE;
    struct fs_opened o = {0};
    int rc = 0;

    if (!slot || nodes_kind(fs->nodes, slot) != NODE_DIR) {
        req->reply->error(req, slot ? -ENOTDIR : -ESTALE);
        return;
    }
    if (req->replayed)
        handle = handles_find_unique(fs->handles, HANDLE_DIR, node, req->unique);
    o.known = handle != HANDLE_NONE;
    if (!handle) {
        rc = handles_new(fs->handles, HANDLE_DIR, node, req->unique, &handle);
        if (rc < 0) {
            req->reply->error(req, rc);
            return;
        }
        nodes_hold(fs->nodes, slot);
        stream_new(fs, handle, slot);
        fs_count_handles(fs);
    }
    o.handle = handles_id(fs->handles, handle);
    req->reply->opened(req, &o);
}

void fs_op_readdir(struct fs *fs, struct fs_request *req, uint64_t handle, uint64_t offset,
                   bool plus)
{
    uint32_t slot = handles_slot(fs->handles, handle, HANDLE_DIR);
    struct dirstream *ds;

    counter_add(&fs->stats.readdirs, 1);
    if (!slot) {
        req->reply->error(req, -EBADF);
        return;
    }
    ds = handles_private(fs->handles, slot);
    if (!ds) // opened before the worker died
        ds = stream_new(fs, slot, nodes_slot(fs->nodes, handles_node(fs->handles, slot)));
    // one that is answered again after a crash may have been heard before it
    if (ds->req && ds->req->replayed)
        on_cancel(ds->req, ds);
    if (ds->req) {
        req->reply->error(req, -EBUSY);
        return;
    }
    ds->req = req;
    ds->offset = offset;
    ds->plus = plus;
    if (ds->node == NODE_CONTROL_DIR) {
        read_control_dir(ds);
        return;
    }
    choose(ds);
    go_on(ds);
    // last: listing ahead may take the memory of what is being read here
    if (offset == 0)
        walk_note(fs, ds->dir->path, ds->dir->len);
}

static void stream_free(struct dirstream *ds)
{
    dir_wait_cancel(&ds->waiter);
    if (ds->req)
        end(ds, -EBADF);
    let_go(ds);
    dir_put(ds->dir);
    free(ds);
}

void fs_dir_handle_free(struct fs *fs, uint32_t handle)
{
    uint32_t node = nodes_slot(fs->nodes, handles_node(fs->handles, handle));
    struct dirstream *ds = handles_private(fs->handles, handle);

    if (ds)
        stream_free(ds);
    handles_free(fs->handles, handle);
    nodes_unhold(fs->nodes, node);
    fs_count_nodes(fs);
    fs_count_handles(fs);
}

void fs_op_releasedir(struct fs *fs, struct fs_request *req, uint64_t handle)
{
    uint32_t slot = handles_slot(fs->handles, handle, HANDLE_DIR);

    if (slot)
        fs_dir_handle_free(fs, slot);
    // a replayed one finds its work done
    req->reply->error(req, slot || req->replayed ? 0 : -EBADF);
}

void fs_dir_handle_forget_private(struct fs *fs, uint32_t handle)
{
    struct dirstream *ds = handles_private(fs->handles, handle);

    if (ds)
        stream_free(ds);
    handles_set_private(fs->handles, handle, NULL);
}
