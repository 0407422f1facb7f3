// SPDX-License-Identifier: Apache-2.0
#include "fs/fs.h"

#include "fs/dirs.h"
#include "fs/file.h"
#include "fs/gdd_file.h"
#include "fs/impl.h"
#include "fs/plan_run.h"
#include "fs/stalls_file.h"

#include <string.h>

static const struct fs_ops ops = {
    .lookup = fs_op_lookup,
    .forget = fs_op_forget,
    .unlookup = fs_op_unlookup,
    .unopen = fs_op_unopen,
    .getattr = fs_op_getattr,
    .access = fs_op_access,
    .open = fs_op_open,
    .read = fs_op_read,
    .fetch = fs_op_fetch,
    .release = fs_op_release,
    .opendir = fs_op_opendir,
    .readdir = fs_op_readdir,
    .releasedir = fs_op_releasedir,
    .statfs = fs_op_statfs,
    .getxattr = fs_op_getxattr,
    .listxattr = fs_op_listxattr,
    .ioctl = fs_op_ioctl,
};

const struct fs_ops *fs_ops(void)
{
    return &ops;
}

// --- what is under way ---

static void on_closed(struct loop_msg *msg)
{
    struct fs *fs = container_of(msg, struct fs, closed_msg);

    fs->closed(fs->closed_arg);
}

void fs_busy_begin(struct fs *fs)
{
    fs->busy++;
}

void fs_busy_end(struct fs *fs)
{
    assert(fs->busy > 0);
    if (--fs->busy == 0 && fs->closing)
        loop_post(fs->loop, &fs->closed_msg, on_closed);
}

void fs_close(struct fs *fs, void (*closed)(void *arg), void *arg)
{
    fs->closing = true;
    fs->closed = closed;
    fs->closed_arg = arg;
    fs_busy_begin(fs);
    // plans and directory handles have listings and loads under way
    for (uint32_t h = handles_next(fs->handles, 1); h; h = handles_next(fs->handles, h + 1)) {
        if (handles_kind(fs->handles, h) == HANDLE_DIR)
            fs_dir_handle_forget_private(fs, h);
        else if (handles_kind(fs->handles, h) == HANDLE_CONTROL)
            control_handle_forget_private(fs, h);
        else if (handles_kind(fs->handles, h) == HANDLE_GDD)
            gdd_handle_forget_private(fs, h);
        else if (handles_kind(fs->handles, h) == HANDLE_STALLS)
            stalls_handle_forget_private(fs, h);
    }
    dirs_stop(fs);
    fs_busy_end(fs);
}

// --- life ---

// Handles hold their nodes, as they did before the worker died.
static void take_over_handles(struct fs *fs)
{
    for (uint32_t h = handles_next(fs->handles, 1); h; h = handles_next(fs->handles, h + 1)) {
        enum handle_kind kind = handles_kind(fs->handles, h);
        uint32_t node = nodes_slot(fs->nodes, handles_node(fs->handles, h));
        enum node_kind wanted = kind == HANDLE_DIR ? NODE_DIR : NODE_FILE;

        if (!node || nodes_kind(fs->nodes, node) != wanted)
            handles_free(fs->handles, h);
        else if (kind == HANDLE_GDD)
            gdd_take_over(fs, h);
        else if (kind != HANDLE_CONTROL && kind != HANDLE_STALLS)
            nodes_hold(fs->nodes, node);
    }
}

static int open_tables(struct fs *fs, const struct fs_options *o, char **ret_error)
{
    int rc = nodes_open(&fs->nodes, o->nodes_fd, clock_wall_s());

    if (rc == 0)
        rc = handles_open(&fs->handles, o->handles_fd);
    if (rc < 0) {
        *ret_error = xasprintf("cannot map the tables of nodes and handles: %s", strerror(-rc));
        return rc;
    }
    take_over_handles(fs);
    nodes_sweep(fs->nodes);
    fs_count_nodes(fs);
    fs_count_handles(fs);
    return 0;
}

int fs_new(struct fs **ret, struct loop *l, const struct fs_options *o, struct s3_bucket *bucket,
           struct cache *cache, char **ret_error)
{
    struct fs *fs = xcalloc(1, sizeof(*fs));
    int rc;

    fs->loop = l;
    fs->o = *o;
    fs->o.prefix = xstrdup(o->prefix ? o->prefix : "");
    fs->cache = cache;
    list_init(&fs->idle_objects);
    list_init(&fs->run_plans);
    list_init(&fs->gdd_files);
    list_init(&fs->reports);
    fs->gdd_unique = (uint64_t)1 << 63; // beyond those of any host
    stalls_init(&fs->stalls, clock_monotonic_ns(), clock_wall_s());
    dirs_init(fs);
    rc = open_tables(fs, o, ret_error);
    if (rc == 0) {
        rc = s3_client_new(&fs->s3, l, bucket);
        if (rc < 0)
            *ret_error = xasprintf("cannot make an S3 client: %s", strerror(-rc));
    }
    if (rc < 0) {
        fs_free(fs);
        return rc;
    }
    *ret = fs;
    return 0;
}

// The tables keep the handles; what we have beside them goes.
static void drop_private(struct fs *fs)
{
    for (uint32_t h = handles_next(fs->handles, 1); h; h = handles_next(fs->handles, h + 1)) {
        struct file *f = handles_private(fs->handles, h);

        if (f && handles_kind(fs->handles, h) == HANDLE_GDD)
            gdd_handle_forget_private(fs, h);
        else if (f && handles_kind(fs->handles, h) == HANDLE_STALLS)
            stalls_handle_forget_private(fs, h);
        if (!f || handles_kind(fs->handles, h) != HANDLE_FILE)
            continue;
        handles_set_private(fs->handles, h, NULL);
        file_unref(f);
    }
}

void fs_free(struct fs *fs)
{
    if (!fs)
        return;
    assert(fs->busy == 0);
    if (fs->nodes && fs->handles)
        drop_private(fs);
    dirs_fini(fs);
    objects_fini(fs);
    hmap_fini(&fs->transfers);
    stalls_fini(&fs->stalls);
    if (fs->s3)
        s3_client_free(fs->s3);
    handles_close(fs->handles);
    nodes_close(fs->nodes);
    free((char *)fs->o.prefix);
    free(fs);
}

// --- statistics ---

void fs_count_nodes(struct fs *fs)
{
    counter_set(&fs->stats.nodes, nodes_count(fs->nodes));
    counter_set(&fs->stats.node_bytes, nodes_bytes(fs->nodes));
}

void fs_count_handles(struct fs *fs)
{
    counter_set(&fs->stats.handles, handles_count(fs->handles));
}

void fs_stats_read(const struct fs *fs, struct fs_stats *ret)
{
    *ret = (struct fs_stats){
        .nodes = counter_read(&fs->stats.nodes),
        .node_bytes = counter_read(&fs->stats.node_bytes),
        .handles = counter_read(&fs->stats.handles),
        .snapshots = counter_read(&fs->stats.snapshots),
        .snapshot_bytes = counter_read(&fs->stats.snapshot_bytes),
        .lookups = counter_read(&fs->stats.lookups),
        .opens = counter_read(&fs->stats.opens),
        .reads = counter_read(&fs->stats.reads),
        .readdirs = counter_read(&fs->stats.readdirs),
        .hidden_keys = counter_read(&fs->stats.hidden_keys),
        .plan_entries = counter_read(&fs->stats.plan_entries),
        .plan_fetched = counter_read(&fs->stats.plan_fetched),
        .plan_used = counter_read(&fs->stats.plan_used),
        .plan_dropped = counter_read(&fs->stats.plan_dropped),
        .fetches = counter_read(&fs->stats.fetches),
        .fetch_bytes = counter_read(&fs->stats.fetch_bytes),
    };
}

void fs_stalls(const struct fs *fs, struct buf *out)
{
    stalls_json(&fs->stalls, (unsigned)fs->transfers.n, clock_monotonic_ns(), out);
}

const struct s3_client *fs_s3_client(const struct fs *fs)
{
    return fs->s3;
}
