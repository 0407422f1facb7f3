// SPDX-License-Identifier: Apache-2.0
#include "s3d/dir_walk.h"

#include "base/text.h"
#include "s3d/store.h"

#include <dirent.h>
#include <fcntl.h>
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
    if ((n->len & (n->len - 1)) == 0)
        n->items = xrealloc(n->items, MAX(2 * n->len, 16) * sizeof(n->items[0]));
    n->items[n->len++] = item;
}

static void names_fini(struct dir_names *n)
{
    for (size_t i = 0; i < n->len; i++)
        free(n->items[i]);
    free(n->items);
    free(n->path);
    *n = (struct dir_names){0};
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

static void names_read(struct dir_names *n, int fd, const char *path)
{
    DIR *d = open_dir(fd, path);
    struct dirent *e;

    names_fini(n);
    n->path = xstrdup(path);
    while (d && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
            (!*path && !strcmp(e->d_name, DIR_PRIVATE)))
            continue;
        names_add(n, xasprintf("%s%s", e->d_name, is_directory(d, e) ? "/" : ""));
    }
    if (d)
        closedir(d);
    if (n->len)
        qsort(n->items, n->len, sizeof(n->items[0]), by_bytes);
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

static struct dir_names *level_at(struct dir_walk *w, size_t depth, const char *path)
{
    if (depth == w->n_levels) {
        w->levels = xrealloc(w->levels, ++w->n_levels * sizeof(w->levels[0]));
        w->levels[depth] = (struct dir_names){0};
    }
    if (!w->levels[depth].path || strcmp(w->levels[depth].path, path))
        names_read(&w->levels[depth], w->fd, path);
    return &w->levels[depth];
}

// The first key in the directory path (which may have keys behind key) that is behind key.
static bool find(struct dir_walk *w, size_t depth, const char *path, const char *key, bool after,
                 char *out)
{
    struct dir_names *names = level_at(w, depth, path);
    const char *tail = text_starts_with(key, path) ? key + strlen(path) : "";
    size_t i = lower_bound(names, tail);

    // a directory that key lies in sorts before what is left of key
    if (i > 0 && text_ends_with(names->items[i - 1], "/") &&
        text_starts_with(tail, names->items[i - 1]))
        i--;
    for (; i < w->levels[depth].len; i++) {
        const char *item = w->levels[depth].items[i];
        size_t len = strlen(path) + strlen(item);
        char full[KEY_MAX_BYTES + 1];
        int order;

        if (len > KEY_MAX_BYTES)
            continue;
        memcpy(full, path, strlen(path));
        memcpy(full + strlen(path), item, strlen(item) + 1);
        if (full[len - 1] == '/') {
            if (find(w, depth + 1, full, key, after, out))
                return true;
            continue;
        }
        order = strcmp(full, key);
        if (order > 0 || (order == 0 && !after)) {
            memcpy(out, full, len + 1);
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
    read_escaped(&w->escaped, bucket_fd, DIR_KEYS, "");
    if (w->escaped.len)
        qsort(w->escaped.items, w->escaped.len, sizeof(w->escaped.items[0]), by_bytes);
}

void dir_walk_fini(struct dir_walk *w)
{
    for (size_t i = 0; i < w->n_levels; i++)
        names_fini(&w->levels[i]);
    free(w->levels);
    names_fini(&w->escaped);
}

int dir_walk_next(struct dir_walk *w, const char *key, bool after, char *out)
{
    bool found = find(w, 0, "", key, after, out);
    size_t i = lower_bound(&w->escaped, key);

    if (after && i < w->escaped.len && !strcmp(w->escaped.items[i], key))
        i++;
    if (i < w->escaped.len && (!found || strcmp(w->escaped.items[i], out) <= 0)) {
        memcpy(out, w->escaped.items[i], strlen(w->escaped.items[i]) + 1);
        return 0;
    }
    return found ? 0 : -ENOENT;
}
