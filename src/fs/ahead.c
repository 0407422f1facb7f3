// SPDX-License-Identifier: Apache-2.0
// Files that are opened in the order of their directory's listing: the next ones are fetched
// before they are asked for (prefetch/neighbours.h decides).
#include "fs/dirs.h"
#include "fs/file.h"

#include <string.h>

struct fetch {
    struct fs *fs;
    struct object *object;
    struct cache_load load;
    struct loop_msg msg;
    uint64_t started_ns;
    int error;
    size_t len;
    char path[];
};

// The snapshot that holds a file, and its place there; NULL if it is not at hand.
static struct snapshot *find(struct fs *fs, const char *path, size_t len, size_t *ret_dir_len,
                             uint32_t *ret_i)
{
    const char *slash = memrchr(path, '/', len);
    size_t dir_len = slash ? (size_t)(slash - path) + 1 : 0;
    struct dir *d = dir_find(fs, path, dir_len);
    struct snapshot *s = d ? dir_fresh(d, UINT64_MAX) : NULL;

    if (!s || snapshot_lookup(s, path + dir_len, len - dir_len, ret_i) != SNAP_THERE)
        return NULL;
    *ret_dir_len = dir_len;
    return s;
}

void ahead_fetched(struct fs *fs, const char *path, size_t len, uint64_t took_ns)
{
    size_t dir_len;
    uint32_t i;
    struct snapshot *s = find(fs, path, len, &dir_len, &i);

    if (s)
        neighbours_fetched(&s->neighbours, took_ns);
}

static void on_fetched(struct loop_msg *msg)
{
    struct fetch *f = container_of(msg, struct fetch, msg);
    struct fs *fs = f->fs;

    if (f->error == 0)
        ahead_fetched(fs, f->path, f->len, clock_monotonic_ns() - f->started_ns);
    object_put(fs, f->object);
    free(f);
    fs_busy_end(fs);
}

// On a data loop.
static void on_load(struct cache_load *load, int error)
{
    struct fetch *f = container_of(load, struct fetch, load);

    f->error = error;
    loop_post(f->fs->loop, &f->msg, on_fetched);
}

static void fetch(struct fs *fs, const char *path, size_t len, const struct node_version *v)
{
    struct fetch *f = xcalloc(1, sizeof(*f) + len + 1);

    f->fs = fs;
    f->object = object_get(fs, path, len, v);
    f->load = (struct cache_load){.object = f->object->cache, .background = true, .done = on_load};
    f->started_ns = clock_monotonic_ns();
    f->len = len;
    memcpy(f->path, path, len);
    fs_busy_begin(fs);
    cache_load_start(fs->cache, &f->load);
}

// Whether fetching entry i is of any use.
static bool wanted(struct fs *fs, const struct snapshot *s, uint32_t i, uint32_t dir,
                   const struct node_version *v)
{
    uint32_t node;

    if (s->entries[i].flags || v->size == 0 || v->size > WHOLE_MAX)
        return false; // a directory, hidden, in doubt or archived; nothing to fetch; too much
    if (!dir)
        return true;
    node = nodes_find(fs->nodes, dir, snapshot_name(s, i), s->entries[i].name_len, NODE_FILE, v);
    return !node || !host_may_have_kept(fs, node);
}

void ahead_opened(struct fs *fs, const char *path, size_t len, bool keeps_pages)
{
    size_t dir_len;
    uint32_t i, first, n, dir;
    struct snapshot *s = find(fs, path, len, &dir_len, &i);
    struct buf next = {0};

    if (!s || fs->closing || fs->o.no_readahead)
        return;
    n = neighbours_open(&s->neighbours, i, s->n, clock_monotonic_ns(), cache_pressure(fs->cache),
                        &first);
    if (!n)
        return;
    dir = keeps_pages ? nodes_find_dir(fs->nodes, path, dir_len) : NODE_NONE;
    for (i = first; i < first + n && i < s->page; i++) {
        struct node_version v;

        snapshot_version(s, i, &v);
        if (!wanted(fs, s, i, dir, &v))
            continue;
        buf_reset(&next);
        buf_add(&next, path, dir_len);
        buf_add(&next, snapshot_name(s, i), s->entries[i].name_len);
        fetch(fs, next.data, next.len, &v);
    }
    buf_free(&next);
}
