// SPDX-License-Identifier: Apache-2.0
//
//        HEAD key                LIST key/ (1 key)            answer
//   ─────────────────────────────────────────────────────────────────────────────
//        any                     something                    a directory
//        there                   nothing, or EACCES           a file
//        ENOENT                  nothing, or EACCES           no such name
//        EACCES                  nothing                      LIST key (1 key) tells
//        EACCES                  EACCES                       EACCES
//        another error           nothing, or EACCES           that error
//        there, ENOENT, …        another error                that error
#include "fs/cold.h"

#include <stdio.h>
#include <string.h>

struct cold {
    struct list link; // in dir->colds; alone when nobody may join any more
    struct list waiters;
    struct dir *dir;
    struct s3_head head;
    struct s3_list list; // of "key/", then perhaps of "key"
    struct buf key, key_slash;
    size_t name_len; // at the end of key
    bool head_running, list_running, asked_exact;
    int head_error, list_error;
    bool is_dir;
    struct node_version version;
    char etag[ETAG_TEXT_MAX + 1]; // what version.etag points to
    bool is_file;
};

static void step(struct cold *c);

static void destroy(struct cold *c)
{
    struct fs *fs = c->dir->fs;

    list_remove(&c->link);
    buf_free(&c->key);
    buf_free(&c->key_slash);
    dir_put(c->dir);
    free(c);
    fs_busy_end(fs);
}

// An entry of the directory's snapshot that was in doubt is no more.
static void correct_snapshot(struct cold *c)
{
    struct snapshot *s = c->dir->snap;
    uint32_t i;

    if (!s || !c->is_file ||
        snapshot_lookup(s, c->key.data + c->key.len - c->name_len, c->name_len, &i) != SNAP_THERE)
        return;
    if (s->entries[i].flags & SNAP_DOUBTFUL)
        snapshot_update(s, i, &c->version);
}

static void stop(struct cold *c)
{
    if (c->head_running)
        s3_head_cancel(&c->head);
    if (c->list_running)
        s3_list_cancel(&c->list);
}

static void answer(struct cold *c, int error, enum node_kind kind)
{
    list_remove(&c->link);
    if (error == 0 && kind == NODE_FILE)
        correct_snapshot(c);
    if (error)
        log_warning("fs", "looking up %s: %s", buf_str(&c->key),
                    error == c->list_error ? c->list.error_text : c->head.error_text);
    while (!list_empty(&c->waiters)) {
        struct cold_waiter *w = list_first(&c->waiters, struct cold_waiter, link);

        list_remove(&w->link);
        w->done(w, error, kind, &c->version);
    }
    stop(c);
    step(c);
}

static void take_version(struct cold *c, const struct s3_object_info *info)
{
    c->is_file = true;
    snprintf(c->etag, sizeof(c->etag), "%s", info->etag);
    fs_version_from_info(info, &c->version);
    if (c->version.etag.kind == ETAG_TEXT)
        c->version.etag.text = c->etag;
}

static void on_head(struct s3_head *h, int error, const struct s3_object_info *info)
{
    struct cold *c = container_of(h, struct cold, head);

    c->head_running = false;
    c->head_error = error;
    if (error == 0)
        take_version(c, info);
    step(c);
}

static int on_list_entry(struct s3_list *l, const struct s3_list_entry *e)
{
    struct cold *c = container_of(l, struct cold, list);

    if (!c->asked_exact) {
        if (e->key_len >= c->key_slash.len && !memcmp(e->key, c->key_slash.data, c->key_slash.len))
            c->is_dir = true;
    } else if (!e->is_prefix && e->key_len == c->key.len &&
               !memcmp(e->key, c->key.data, c->key.len)) {
        take_version(c, &e->info);
    }
    return 0;
}

static void on_list(struct s3_list *l, int error, const char *continuation)
{
    struct cold *c = container_of(l, struct cold, list);

    c->list_running = false;
    c->list_error = error;
    step(c);
}

static void start_list(struct cold *c, const struct buf *prefix)
{
    c->list = (struct s3_list){
        .prefix = prefix->data,
        .prefix_len = prefix->len,
        .max_keys = 1,
        .priority = HTTP_DEMAND,
        .entry = on_list_entry,
        .done = on_list,
    };
    c->list_running = true;
    s3_list_start(c->dir->fs->s3, &c->list);
}

static void decide(struct cold *c)
{
    bool list_refused = c->list_error == -EACCES;

    if (c->list_error && (!list_refused || c->asked_exact))
        answer(c, c->list_error, NODE_FREE);
    else if (c->is_file)
        answer(c, 0, NODE_FILE);
    else if (c->head_error == -ENOENT || c->asked_exact)
        answer(c, 0, NODE_FREE);
    else if (c->head_error == -EACCES && !list_refused) {
        c->asked_exact = true;
        start_list(c, &c->key);
    } else {
        answer(c, c->head_error, NODE_FREE);
    }
}

static void step(struct cold *c)
{
    if (list_empty(&c->link)) { // answered, or nobody waits any more
        if (!c->head_running && !c->list_running)
            destroy(c);
        return;
    }
    if (c->is_dir && !c->asked_exact && !c->list_running && !c->list_error)
        answer(c, 0, NODE_DIR);
    else if (!c->head_running && !c->list_running)
        decide(c);
}

static struct cold *find(struct dir *d, const char *name, size_t len)
{
    list_for_each (it, &d->colds) {
        struct cold *c = list_entry(it, struct cold, link);

        if (c->name_len == len && !memcmp(c->key.data + c->key.len - len, name, len))
            return c;
    }
    return NULL;
}

void cold_lookup(struct dir *d, const char *name, size_t len, struct cold_waiter *w)
{
    struct cold *c = find(d, name, len);

    if (c) {
        w->cold = c;
        list_push_back(&c->waiters, &w->link);
        return;
    }
    c = w->cold = xcalloc(1, sizeof(*c));
    c->dir = dir_get(d->fs, d->path, d->len);
    c->name_len = len;
    list_init(&c->waiters);
    list_push_back(&c->waiters, &w->link);
    list_push_back(&d->colds, &c->link);
    buf_add_str(&c->key, d->fs->o.prefix);
    buf_add(&c->key, d->path, d->len);
    buf_add(&c->key, name, len);
    buf_add(&c->key_slash, c->key.data, c->key.len);
    buf_add_str(&c->key_slash, "/");
    fs_busy_begin(d->fs);

    c->head = (struct s3_head){.key = c->key.data, .key_len = c->key.len, .done = on_head};
    c->head_running = true;
    s3_head_start(d->fs->s3, &c->head);
    start_list(c, &c->key_slash);
    dir_count_cold(d);
}

void cold_cancel(struct cold_waiter *w)
{
    struct cold *c = w->cold;

    list_remove(&w->link);
    if (!list_empty(&c->waiters))
        return;
    list_remove(&c->link);
    stop(c);
}
