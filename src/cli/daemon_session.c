// SPDX-License-Identifier: Apache-2.0
#include "cli/daemon_fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- the connection ---

int daemon_open(struct session *s, const struct export_options *o, const char *key,
                char **ret_error)
{
    const char *socket = getenv("OS2G_SOCKET");
    struct os2g_options options = {.size = sizeof(options), .no_start = true};
    char *where;
    int rc;

    *s = (struct session){0};
    if (!socket || !*socket || o->given.len || !session_is_path(key))
        return 0;
    where = xasprintf("s3://%s/", o->s3.bucket);
    rc = os2g_connect(&s->daemon, where, &options);
    free(where);
    if (rc == 0)
        return 1;
    *ret_error = xasprintf("OS2G_SOCKET=%s: %s", socket, os2g_last_error());
    return rc;
}

void daemon_close(struct session *s)
{
    os2g_close(s->daemon);
    s->daemon = NULL;
}

// --- one object ---

static struct s3_object_info info_of(const struct os2g_stat *st)
{
    return (struct s3_object_info){.size = st->size,
                                   .mtime_s = st->mtime_s,
                                   .etag = st->etag,
                                   .storage_class = "",
                                   .content_type = ""};
}

int daemon_head(struct session *s, const char *key,
                void (*fn)(void *arg, const struct s3_object_info *info), void *arg, char *text)
{
    struct os2g_stat st;
    struct s3_object_info info;
    int rc = os2g_stat(s->daemon, key, &st);

    if (rc == 0 && st.directory)
        rc = -EISDIR;
    if (rc < 0) {
        snprintf(text, S3_ERROR_TEXT, "%s",
                 rc == -EISDIR ? "this is a directory" : os2g_last_error());
        return rc;
    }
    info = info_of(&st);
    if (fn)
        fn(arg, &info);
    return 0;
}

// --- all below a directory: its files now, its directories one after the other ---

struct walk {
    char **directories; // "" or "a/b"; those that were found, in that order
    size_t n, next;
    const char *path; // being listed
    int (*fn)(void *arg, const char *key, const struct os2g_stat *st);
    void *arg;
};

static void walk_add(struct walk *w, char *path)
{
    if ((w->n & (w->n - 1)) == 0) // a power of two, or none
        w->directories = xrealloc(w->directories, MAX(1, 2 * w->n) * sizeof(*w->directories));
    w->directories[w->n++] = path;
}

static int walk_name(void *arg, const char *name, const struct os2g_stat *st)
{
    struct walk *w = arg;
    char *path = *w->path ? xasprintf("%s/%s", w->path, name) : xstrdup(name);
    int rc;

    if (st->directory) {
        walk_add(w, path);
        return 0;
    }
    rc = w->fn(w->arg, path, st);
    free(path);
    return rc;
}

int daemon_walk(struct os2g *c, const char *path,
                int (*fn)(void *arg, const char *key, const struct os2g_stat *st), void *arg,
                char **ret_error)
{
    struct walk w = {.fn = fn, .arg = arg};
    size_t from = strspn(path, "/"), len = strlen(path + from);
    int rc = 0;

    while (len && path[from + len - 1] == '/')
        len--;
    walk_add(&w, xstrndup(path + from, len));
    while (rc == 0 && w.next < w.n) {
        w.path = w.directories[w.next++];
        rc = os2g_list(c, w.path, walk_name, &w);
        if (rc < 0)
            *ret_error = xasprintf("/%s: %s", w.path, os2g_last_error());
    }
    while (w.n)
        free(w.directories[--w.n]);
    free(w.directories);
    return rc;
}

struct listing {
    int (*fn)(void *arg, const struct s3_list_entry *e);
    void *arg;
};

static int list_name(void *arg, const char *key, const struct os2g_stat *st)
{
    struct listing *l = arg;
    struct s3_list_entry e = {.key = key, .key_len = strlen(key), .info = info_of(st)};

    return l->fn(l->arg, &e);
}

int daemon_list(struct session *s, const char *prefix,
                int (*fn)(void *arg, const struct s3_list_entry *e), void *arg, char *text)
{
    struct listing l = {fn, arg};
    char *error = NULL;
    int rc = daemon_walk(s->daemon, prefix, list_name, &l, &error);

    snprintf(text, S3_ERROR_TEXT, "%s", error ? error : "");
    free(error);
    // a prefix without objects is no error, here as at the store
    return rc == -ENOENT ? 0 : rc;
}
