// SPDX-License-Identifier: Apache-2.0
// LOOKUP: from the directory's snapshot where it says enough, else asked of the store.
#include "fs/cold.h"
#include "wire/control.h"
#include "wire/gdd.h"

#include <string.h>

struct lookup {
    struct cold_waiter waiter;
    struct fs *fs;
    struct fs_request *req;
    struct dir *dir;
    uint32_t parent; // held
    uint8_t name_len;
    char name[NAME_MAX_BYTES + 1];
};

static void reply_node(struct fs *fs, struct fs_request *req, uint32_t node, uint64_t valid_ns)
{
    struct fs_entry e;

    fs_entry_fill(fs, node, valid_ns, &e);
    nodes_add_lookups(fs->nodes, node, 1);
    fs_count_nodes(fs);
    req->reply->entry(req, &e);
}

static void reply_found(struct fs *fs, struct fs_request *req, uint32_t parent, const char *name,
                        size_t len, enum node_kind kind, const struct node_version *v,
                        uint64_t valid_ns)
{
    uint32_t node;
    int rc = nodes_get(fs->nodes, parent, name, len, kind, v, &node);

    if (rc < 0)
        req->reply->error(req, rc);
    else
        reply_node(fs, req, node, valid_ns);
}

// --- asked of the store ---

static void lookup_free(struct lookup *l)
{
    nodes_unhold(l->fs->nodes, l->parent);
    dir_put(l->dir);
    free(l);
}

static void on_cold(struct cold_waiter *w, int error, enum node_kind kind,
                    const struct node_version *v)
{
    struct lookup *l = container_of(w, struct lookup, waiter);
    struct fs *fs = l->fs;
    uint32_t same;

    l->req->cancel = NULL;
    if (error) {
        l->req->reply->error(l->req, error);
        lookup_free(l);
        return;
    }
    nodes_set_current(fs->nodes, l->parent, l->name, l->name_len, kind, v);
    if (kind == NODE_FILE) {
        // an answer of just now: a version thought stale is the current one again
        same = nodes_find(fs->nodes, l->parent, l->name, l->name_len, kind, v);
        if (same)
            nodes_set_flags(fs->nodes, same, 0, NODE_STALE);
    }
    if (kind == NODE_FREE)
        fs_reply_negative(fs, l->req);
    else
        reply_found(fs, l->req, l->parent, l->name, l->name_len, kind, kind == NODE_FILE ? v : NULL,
                    fs->o.metadata_ttl_ns);
    lookup_free(l);
}

static void on_cancel(struct fs_request *req, void *arg)
{
    struct lookup *l = arg;

    cold_cancel(&l->waiter);
    req->cancel = NULL;
    req->reply->error(req, -EINTR);
    lookup_free(l);
}

// Takes over the reference to d.
static void ask_store(struct fs *fs, struct fs_request *req, struct dir *d, uint32_t parent,
                      const char *name, size_t len)
{
    struct lookup *l;

    if (strlen(fs->o.prefix) + d->len + len > KEY_MAX_BYTES) {
        dir_put(d);
        req->reply->error(req, -ENAMETOOLONG);
        return;
    }
    l = xcalloc(1, sizeof(*l));
    l->fs = fs;
    l->req = req;
    l->dir = d;
    l->parent = parent;
    nodes_hold(fs->nodes, parent);
    memcpy(l->name, name, len);
    l->name_len = (uint8_t)len;
    l->waiter.done = on_cold;
    req->cancel = on_cancel;
    req->cancel_arg = l;
    cold_lookup(d, name, len, &l->waiter);
}

// --- from a snapshot ---

// false: it does not say enough.
static bool from_snapshot(struct fs *fs, struct fs_request *req, struct dir *d, uint32_t parent,
                          const char *name, size_t len)
{
    struct snapshot *s = dir_fresh(d, UINT64_MAX);
    struct node_version v;
    bool is_dir;
    uint32_t i;

    if (!s)
        return false;
    switch (snapshot_lookup(s, name, len, &i)) {
    case SNAP_UNKNOWN:
        return false;
    case SNAP_ABSENT:
        // what did not exist is asked for again sooner than what did
        if (fs_sum_ns(s->listed_ns, fs->o.negative_ttl_ns) <= clock_monotonic_ns())
            return false;
        fs_reply_negative(fs, req);
        return true;
    case SNAP_THERE:
        break;
    }
    is_dir = s->entries[i].flags & SNAP_DIR;
    snapshot_version(s, i, &v);
    if (!is_dir && (s->entries[i].flags & SNAP_DOUBTFUL ||
                    nodes_is_stale_version(fs->nodes, parent, name, len, &v)))
        return false;
    reply_found(fs, req, parent, name, len, is_dir ? NODE_DIR : NODE_FILE, is_dir ? NULL : &v,
                dir_valid_ns(fs, s));
    return true;
}

static void lookup_control(struct fs *fs, struct fs_request *req, const char *name, size_t len)
{
    if (len == strlen(OS2G_CONTROL_FILE) && !memcmp(name, OS2G_CONTROL_FILE, len))
        reply_node(fs, req, NODE_CONTROL_FILE, UINT64_MAX);
    else if (len == strlen(OS2G_GDD_FILE) && !memcmp(name, OS2G_GDD_FILE, len))
        reply_node(fs, req, NODE_GDD_FILE, UINT64_MAX);
    else if (len == strlen(OS2G_STALLS_FILE) && !memcmp(name, OS2G_STALLS_FILE, len))
        reply_node(fs, req, NODE_STALLS_FILE, UINT64_MAX);
    else
        fs_reply_negative(fs, req);
}

void fs_op_lookup(struct fs *fs, struct fs_request *req, uint64_t parent, const char *name,
                  size_t len)
{
    uint32_t slot = nodes_slot(fs->nodes, parent);
    enum name_rule rule;
    struct dir *d;

    counter_add(&fs->stats.lookups, 1);
    if (!slot) {
        req->reply->error(req, -ESTALE);
        return;
    }
    if (nodes_kind(fs->nodes, slot) != NODE_DIR) {
        req->reply->error(req, -ENOTDIR);
        return;
    }
    if (slot == NODE_CONTROL_DIR) {
        lookup_control(fs, req, name, len);
        return;
    }
    rule = name_check(name, len, slot == NODE_ROOT);
    if (rule == NAME_CONTROL) {
        reply_node(fs, req, NODE_CONTROL_DIR, UINT64_MAX);
        return;
    }
    if (rule != NAME_OK) {
        req->reply->error(req, rule == NAME_TOO_LONG ? -ENAMETOOLONG : -ENOENT);
        return;
    }
    d = dir_of_node(fs, slot);
    if (from_snapshot(fs, req, d, slot, name, len))
        dir_put(d);
    else
        ask_store(fs, req, d, slot, name, len);
}
