// SPDX-License-Identifier: Apache-2.0
#include "fs/listing.h"

#include <stdio.h>
#include <string.h>

// Sorts behind every key below a directory, so that a listing that begins after it does not show
// the directory again: U+10FFFF.
#define BEHIND_ALL "\xf4\x8f\xbf\xbf"

struct listing *listing_new(struct fs *fs, const char *path, size_t len, const char *after,
                            size_t after_len, struct snapshot *into)
{
    struct listing *l = xcalloc(1, sizeof(*l));
    struct buf b = {0};

    l->fs = fs;
    l->into = into;
    l->priority = HTTP_DEMAND;
    buf_add_str(&b, fs->o.prefix);
    buf_add(&b, path, len);
    l->path_len = len;
    l->prefix_len = b.len;
    l->prefix = buf_steal(&b);
    if (after) {
        buf_add(&b, l->prefix, l->prefix_len);
        buf_add(&b, after, after_len);
        if (after_len && after[after_len - 1] == '/')
            buf_add_str(&b, BEHIND_ALL);
        l->start_after = buf_steal(&b);
    }
    return l;
}

static void hide(struct listing *l, enum name_rule rule, const struct s3_list_entry *e)
{
    l->into->hidden++;
    hidden_names_add(&l->fs->hidden, rule, e->key, e->key_len);
}

static int on_entry(struct s3_list *op, const struct s3_list_entry *e)
{
    struct listing *l = container_of(op, struct listing, op);
    const char *name = e->key + l->prefix_len;
    size_t len = e->key_len - l->prefix_len;
    struct node_version v;
    enum name_rule rule;

    if (l->abandoned)
        return -ECANCELED;
    if (e->key_len < l->prefix_len || memcmp(e->key, l->prefix, l->prefix_len) != 0)
        return -EIO; // not what was asked for
    if (!e->is_prefix && len == 0) {
        if (e->info.size && l->prefix_len)
            hide(l, NAME_EMPTY, e); // bytes in a directory's own key
        return 0;
    }
    if (e->is_prefix) {
        if (len == 0 || name[len - 1] != '/')
            return -EIO;
        len--;
    }
    if (memchr(name, '/', len))
        return -EIO;
    rule = name_check(name, len, l->path_len == 0);
    if (rule != NAME_OK) {
        hide(l, rule, e);
        return 0;
    }
    if (!e->is_prefix)
        fs_version_from_info(&e->info, &v);
    return snapshot_add(l->into, name, len, e->is_prefix ? NULL : &v);
}

// Nodes of the names listed that are other versions become stale.
static void tell_nodes(struct listing *l, uint32_t first)
{
    struct fs *fs = l->fs;
    struct snapshot *s = l->into;
    uint32_t dir = nodes_find_dir(fs->nodes, l->prefix + l->prefix_len - l->path_len, l->path_len);

    if (!dir)
        return;
    for (uint32_t i = first; i < s->page; i++) {
        struct node_version v;

        snapshot_version(s, i, &v);
        nodes_set_current(fs->nodes, dir, snapshot_name(s, i), s->entries[i].name_len,
                          s->entries[i].flags & SNAP_DIR ? NODE_DIR : NODE_FILE, &v);
    }
}

static void destroy(struct listing *l)
{
    free(l->prefix);
    free(l->start_after);
    free(l->continuation);
    free(l);
}

static void on_done(struct s3_list *op, int error, const char *continuation)
{
    struct listing *l = container_of(op, struct listing, op);
    struct fs *fs = l->fs;
    uint32_t first;
    char *next;

    l->running = false;
    if (l->abandoned) {
        destroy(l);
        fs_busy_end(fs);
        return;
    }
    if (error == 0 && continuation && l->continuation && !strcmp(l->continuation, continuation)) {
        snprintf(op->error_text, sizeof(op->error_text),
                 "the store sends the same page again and again");
        error = -EIO;
    }
    next = error || !continuation ? NULL : xstrdup(continuation);
    free(l->continuation);
    l->continuation = next;
    if (error == 0) {
        first = l->into->page;
        snapshot_page_end(l->into);
        tell_nodes(l, first);
    }
    l->page(l, error, !l->continuation);
    fs_busy_end(fs);
}

void listing_next(struct listing *l)
{
    l->op = (struct s3_list){
        .prefix = l->prefix,
        .prefix_len = l->prefix_len,
        .delimiter = '/',
        .start_after = l->continuation ? NULL : l->start_after,
        .start_after_len = l->continuation || !l->start_after ? 0 : strlen(l->start_after),
        .continuation = l->continuation,
        .priority = l->priority,
        .entry = on_entry,
        .done = on_done,
    };
    l->running = true;
    fs_busy_begin(l->fs);
    s3_list_start(l->fs->s3, &l->op);
}

void listing_free(struct listing *l)
{
    if (!l)
        return;
    if (l->running) {
        l->abandoned = true;
        s3_list_cancel(&l->op);
        return;
    }
    destroy(l);
}

const char *listing_error(const struct listing *l)
{
    return l->op.error_text;
}
