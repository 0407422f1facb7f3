// SPDX-License-Identifier: Apache-2.0
#include "s3d/store.h"

#include "base/clock.h"
#include "base/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool bucket_name_is_valid(const char *name)
{
    size_t n = strlen(name);

    return n >= 3 && n <= 63 && name[0] != '.' && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == n;
}

void bucket_init(struct bucket *b, const struct bucket_ops *ops, const char *name)
{
    b->refs = 1;
    b->ops = ops;
    b->name = xstrdup(name);
    b->created_s = clock_wall_s();
}

void bucket_fini(struct bucket *b)
{
    free(b->name);
}

void bucket_unref(struct bucket *b)
{
    if (b && atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1)
        b->ops->free(b);
}

static struct bucket *bucket_ref(struct bucket *b)
{
    if (b)
        atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

static void open_directories(struct store *s)
{
    int fd = openat(s->data_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (bucket_name_is_valid(e->d_name))
            bucket_unref(store_find(s, e->d_name));
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
}

int store_init(struct store *s, const char *data_path)
{
    *s = (struct store){.data_fd = -1};
    keymap_init(&s->buckets);
    pthread_rwlock_init(&s->lock, NULL);
    if (!data_path)
        return 0;
    s->data_fd = open(data_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->data_fd < 0)
        return -errno;
    s->data_path = xstrdup(data_path);
    open_directories(s);
    return 0;
}

void store_fini(struct store *s)
{
    for (struct keymap_node *n = keymap_first(&s->buckets); n; n = n->next[0])
        bucket_unref(n->value);
    keymap_fini(&s->buckets);
    pthread_rwlock_destroy(&s->lock);
    free(s->data_path);
    if (s->data_fd >= 0)
        close(s->data_fd);
}

int store_add(struct store *s, struct bucket *b)
{
    int rc = 0;

    pthread_rwlock_wrlock(&s->lock);
    if (keymap_get(&s->buckets, b->name))
        rc = -EEXIST;
    else
        keymap_put(&s->buckets, b->name, b);
    pthread_rwlock_unlock(&s->lock);
    if (rc < 0)
        bucket_unref(b);
    return rc;
}

static struct bucket *find_known(struct store *s, const char *name)
{
    struct bucket *b;

    pthread_rwlock_rdlock(&s->lock);
    b = bucket_ref(keymap_get(&s->buckets, name));
    pthread_rwlock_unlock(&s->lock);
    return b;
}

struct bucket *store_find(struct store *s, const char *name)
{
    struct bucket *b = find_known(s, name);

    // somebody may have made a directory since
    if (b || s->data_fd < 0 || !bucket_name_is_valid(name) ||
        store_dir_open(&b, s->data_fd, s->data_path, name, false) < 0)
        return b;
    store_add(s, b);
    return find_known(s, name);
}

int store_create(struct store *s, const char *name)
{
    struct family_set none = {0};
    struct bucket *b = store_find(s, name);
    int rc;

    if (b) {
        bucket_unref(b);
        return -EEXIST;
    }
    if (s->data_fd < 0)
        return store_add(s, store_mem_new(name, &none));
    rc = store_dir_open(&b, s->data_fd, s->data_path, name, true);
    return rc < 0 ? rc : store_add(s, b);
}

static bool is_empty(struct bucket *b)
{
    struct cursor *c = b->ops->list_begin(b);
    struct listed *first = xmalloc(sizeof(*first));
    int rc = b->ops->list_next(c, "", false, first);

    b->ops->list_end(c);
    free(first);
    return rc == -ENOENT;
}

int store_delete(struct store *s, const char *name)
{
    struct bucket *b = store_find(s, name);
    int rc;

    if (!b)
        return -ENOENT;
    rc = is_empty(b) ? 0 : -ENOTEMPTY;
    if (rc == 0 && s->data_fd >= 0)
        rc = store_dir_delete(s->data_fd, name);
    if (rc == 0) {
        struct bucket *known;

        pthread_rwlock_wrlock(&s->lock);
        known = keymap_remove(&s->buckets, name);
        pthread_rwlock_unlock(&s->lock);
        bucket_unref(known);
    }
    bucket_unref(b);
    return rc;
}

void store_each(struct store *s, void (*fn)(struct bucket *b, void *arg), void *arg)
{
    pthread_rwlock_rdlock(&s->lock);
    for (struct keymap_node *n = keymap_first(&s->buckets); n; n = n->next[0])
        fn(n->value, arg);
    pthread_rwlock_unlock(&s->lock);
}
