// SPDX-License-Identifier: Apache-2.0
#include "s3d/dir_walk.h"

#include "base/text.h"
#include "s3d/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_add(struct dir_names *n, char *item)
{
    if (n->len == n->room) {
        n->room = MAX(2 * n->room, 16);
        n->items = xrealloc(n->items, n->room * sizeof(n->items[0]));
    }
    n->items[n->len++] = item;
}

static void names_free(struct dir_names *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->len; i++)
        free(n->items[i]);
    free(n->items);
    free(n->path);
    free(n);
}

static DIR *open_dir(int fd, const char *path)
{
    int dir_fd = openat(fd, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = dir_fd < 0 ? NULL : fdopendir(dir_fd);

    if (!d && dir_fd >= 0)
        close(dir_fd);
    return d;
}

static bool is_directory(DIR *d, const struct dirent *e)
{
    struct stat st;

    if (e->d_type == DT_DIR || e->d_type == DT_REG)
        return e->d_type == DT_DIR;
    return fstatat(dirfd(d), e->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

static void names_sort(struct dir_names *n)
{
    if (n->len)
        qsort(n->items, n->len, sizeof(n->items[0]), by_bytes);
}

static void note_time(struct dir_names *n, int dir_fd)
{
    struct timespec now;
    struct stat st = {0};

    // the kernel's stamps are some milliseconds apart: two changes may have the same one
    fstat(dir_fd, &st);
    clock_gettime(CLOCK_REALTIME, &now);
    n->mtime = st.st_mtim;
    n->is_settled = now.tv_sec > st.st_mtim.tv_sec + 1;
}

static struct dir_names *names_read(int fd, const char *path)
{
    struct dir_names *n = xcalloc(1, sizeof(*n));
    DIR *d = open_dir(fd, path);
    struct dirent *e;

    n->path = xstrdup(path);
    if (!d)
        return n;
    note_time(n, dirfd(d));
    while ((e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
            (!*path && !strcmp(e->d_name, DIR_PRIVATE)))
            continue;
        names_add(n, xasprintf("%s%s", e->d_name, is_directory(d, e) ? "/" : ""));
    }
    closedir(d);
    names_sort(n);
    return n;
}

static bool names_are_current(const struct dir_names *n, const struct dir_walk *w)
{
    struct stat st;

    if (n->walk == w->walk)
        return true;
    return n->is_settled && fstatat(w->fd, *n->path ? n->path : ".", &st, 0) == 0 &&
           st.st_mtim.tv_sec == n->mtime.tv_sec && st.st_mtim.tv_nsec == n->mtime.tv_nsec;
}

static size_t lower_bound(const struct dir_names *n, const char *key)
{
    size_t low = 0, high = n->len;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (strcmp(n->items[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct dir_names *level_at(struct dir_walk *w, size_t depth, const char *path)
{
    struct dir_names *names;

    if (depth == w->n_levels) {
        w->levels = xrealloc(w->levels, ++w->n_levels * sizeof(struct dir_names *));
        w->levels[depth] = NULL;
    }
    names = w->levels[depth];
    if (!names || strcmp(names->path, path) != 0 || !names_are_current(names, w)) {
        names_free(names);
        names = w->levels[depth] = names_read(w->fd, path);
    }
    names->walk = w->walk;
    return names;
}

// The first key in the directory path (which may have keys behind key) that is behind key.
static bool find(struct dir_walk *w, size_t depth, const char *path, const char *key, bool after,
                 char *out)
{
    const struct dir_names *names = level_at(w, depth, path);
    const char *tail = text_starts_with(key, path) ? key + strlen(path) : "";
    size_t i = lower_bound(names, tail);

    // a directory that key lies in sorts before what is left of key
    if (i > 0 && text_ends_with(names->items[i - 1], "/") &&
        text_starts_with(tail, names->items[i - 1]))
        i--;
    for (; i < names->len; i++) {
        const char *item = names->items[i];
        char full[KEY_MAX_BYTES + 1];
        int order, len = snprintf(full, sizeof(full), "%s%s", path, item);

        if (len > KEY_MAX_BYTES)
            continue;
        if (full[len - 1] == '/') {
            if (find(w, depth + 1, full, key, after, out))
                return true;
            continue;
        }
        order = strcmp(full, key);
        if (order > 0 || (order == 0 && !after)) {
            memcpy(out, full, (size_t)len + 1);
            return true;
        }
    }
    return false;
}

// --- escaped keys ---

static void read_escaped(struct dir_names *n, int fd, const char *path, const char *so_far)
{
    DIR *d = open_dir(fd, path);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        size_t len = strlen(e->d_name);
        char *encoded = xasprintf("%s%.*s", so_far, (int)len - 1, e->d_name);

        if (text_ends_with(e->d_name, "+") && strlen(encoded) < 3 * KEY_MAX_BYTES) {
            char *below = xasprintf("%s/%s", path, e->d_name);

            read_escaped(n, fd, below, encoded);
            free(below);
        } else if (text_ends_with(e->d_name, "=")) {
            struct buf key = {0};

            if (text_percent_decode(&key, encoded, strlen(encoded)) == 0 &&
                key.len <= KEY_MAX_BYTES && key.len && !memchr(key.data, 0, key.len))
                names_add(n, buf_steal(&key));
            buf_free(&key);
        }
        free(encoded);
    }
    if (d)
        closedir(d);
}

void dir_walk_init(struct dir_walk *w, int bucket_fd)
{
    *w = (struct dir_walk){.fd = bucket_fd};
}

void dir_walk_begin(struct dir_walk *w)
{
    w->walk++;
    names_free(w->escaped);
    w->escaped = xcalloc(1, sizeof(*w->escaped));
    read_escaped(w->escaped, w->fd, DIR_KEYS, "");
    names_sort(w->escaped);
}

void dir_walk_fini(struct dir_walk *w)
{
    for (size_t i = 0; i < w->n_levels; i++)
        names_free(w->levels[i]);
    free(w->levels);
    names_free(w->escaped);
}

int dir_walk_next(struct dir_walk *w, const char *key, bool after, char *out)
{
    bool found = find(w, 0, "", key, after, out);
    size_t i = lower_bound(w->escaped, key);
    const char *escaped;

    if (after && i < w->escaped->len && !strcmp(w->escaped->items[i], key))
        i++;
    escaped = i < w->escaped->len ? w->escaped->items[i] : NULL;
    if (escaped && (!found || strcmp(escaped, out) <= 0)) {
        memcpy(out, escaped, strlen(escaped) + 1);
        return 0;
    }
    return found ? 0 : -ENOENT;
}
