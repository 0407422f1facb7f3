// SPDX-License-Identifier: Apache-2.0
// A program that reads one directory after another in the order of their parent's listing walks
// the tree (find, du, cp -r): the next ones are listed before it asks.
#include "fs/dirs.h"

#include <string.h>

#define WALK_AHEAD 8    // listings ahead of the program, over all its walks
#define WALK_SCAN  4096 // entries looked at to find the next directories

// Lists what follows entry i of parent.
static void list_ahead(struct fs *fs, const char *parent, size_t parent_len,
                       const struct snapshot *s, uint32_t i)
{
    struct buf path = {0};
    unsigned found = 0;

    for (uint32_t seen = 0; ++i < s->n && seen < WALK_SCAN && found < WALK_AHEAD; seen++) {
        struct dir *d;

        if (!(s->entries[i].flags & SNAP_DIR))
            continue;
        if (fs->prelisting >= WALK_AHEAD)
            break;
        found++;
        buf_reset(&path);
        buf_add(&path, parent, parent_len);
        buf_add(&path, snapshot_name(s, i), s->entries[i].name_len);
        buf_add_str(&path, "/");
        d = dir_get(fs, path.data, path.len);
        dir_prelist(d);
        if (d->snap)
            d->snap->walk_run = 1; // a tree is walked: its first child tells already
        dir_put(d);
    }
    buf_free(&path);
}

void walk_note(struct fs *fs, const char *path, size_t len)
{
    const char *slash;
    size_t parent_len, name_len;
    struct snapshot *s;
    struct dir *parent;
    uint32_t i;

    if (len == 0)
        return;
    slash = memrchr(path, '/', len - 1);
    parent_len = slash ? (size_t)(slash - path) + 1 : 0;
    name_len = len - 1 - parent_len;
    parent = dir_find(fs, path, parent_len);
    if (!parent || !parent->snap)
        return;
    s = parent->snap;
    if (snapshot_lookup(s, path + parent_len, name_len, &i) != SNAP_THERE ||
        !(s->entries[i].flags & SNAP_DIR))
        return;
    if (i + 1 == s->walk_last)
        return; // the same again
    s->walk_run = i >= s->walk_last ? s->walk_run + 1 : 0;
    s->walk_last = i + 1;
    if (s->walk_run >= 2)
        list_ahead(fs, path, parent_len, s, i);
}
