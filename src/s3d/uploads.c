// SPDX-License-Identifier: Apache-2.0
#include "s3d/uploads.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

void upload_table_init(struct upload_table *t)
{
    *t = (struct upload_table){0};
    pthread_mutex_init(&t->lock, NULL);
    keymap_init(&t->by_id);
}

void upload_table_fini(struct upload_table *t)
{
    for (struct keymap_node *n = keymap_first(&t->by_id); n; n = n->next[0])
        upload_free(n->value);
    keymap_fini(&t->by_id);
    pthread_mutex_destroy(&t->lock);
}

void upload_free(struct upload *u)
{
    if (!u)
        return;
    for (size_t i = 0; i < u->n_parts; i++)
        blob_unref(u->parts[i].blob);
    free(u->parts);
    meta_unref(u->meta);
    free(u->id);
    free(u->bucket);
    free(u->key);
    free(u);
}

char *upload_create(struct upload_table *t, const char *bucket, const char *key, struct meta *meta)
{
    struct upload *u = xcalloc(1, sizeof(*u));
    char *id;

    u->bucket = xstrdup(bucket);
    u->key = xstrdup(key);
    u->created_s = clock_wall_s();
    u->meta = meta_ref(meta);
    pthread_mutex_lock(&t->lock);
    u->id = xasprintf("%016llx-%08llx", (unsigned long long)clock_monotonic_ns(),
                      (unsigned long long)++t->next_id);
    id = xstrdup(u->id);
    keymap_put(&t->by_id, u->id, u);
    pthread_mutex_unlock(&t->lock);
    return id;
}

static struct upload *find_locked(struct upload_table *t, const char *id, const char *bucket,
                                  const char *key)
{
    struct upload *u = keymap_get(&t->by_id, id);

    return u && !strcmp(u->bucket, bucket) && !strcmp(u->key, key) ? u : NULL;
}

bool upload_visit(struct upload_table *t, const char *id, const char *bucket, const char *key,
                  void (*fn)(const struct upload *u, void *arg), void *arg)
{
    struct upload *u;

    pthread_mutex_lock(&t->lock);
    u = find_locked(t, id, bucket, key);
    if (u)
        fn(u, arg);
    pthread_mutex_unlock(&t->lock);
    return u;
}

static size_t part_place(const struct upload *u, unsigned number)
{
    size_t low = 0, high = u->n_parts;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (u->parts[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void put_part(struct upload *u, struct upload_part part)
{
    size_t i = part_place(u, part.number);

    if (i < u->n_parts && u->parts[i].number == part.number) {
        blob_unref(u->parts[i].blob);
    } else {
        u->parts = xrealloc(u->parts, (u->n_parts + 1) * sizeof(u->parts[0]));
        memmove(&u->parts[i + 1], &u->parts[i], (u->n_parts - i) * sizeof(u->parts[0]));
        u->n_parts++;
    }
    u->parts[i] = part;
}

int upload_put_part(struct upload_table *t, const char *id, const char *bucket, const char *key,
                    unsigned number, const uint8_t md5[static 16], struct blob *blob)
{
    struct upload_part part = {.number = number, .mtime_s = clock_wall_s(), .blob = blob};
    struct upload *u;

    memcpy(part.md5, md5, sizeof(part.md5));
    pthread_mutex_lock(&t->lock);
    u = find_locked(t, id, bucket, key);
    if (u) {
        blob_ref(blob);
        put_part(u, part);
    }
    pthread_mutex_unlock(&t->lock);
    return u ? 0 : -ENOENT;
}

struct upload *upload_take(struct upload_table *t, const char *id, const char *bucket,
                           const char *key)
{
    struct upload *u;

    pthread_mutex_lock(&t->lock);
    u = find_locked(t, id, bucket, key);
    if (u)
        keymap_remove(&t->by_id, id);
    pthread_mutex_unlock(&t->lock);
    return u;
}

void upload_give_back(struct upload_table *t, struct upload *u)
{
    pthread_mutex_lock(&t->lock);
    keymap_put(&t->by_id, u->id, u);
    pthread_mutex_unlock(&t->lock);
}

const struct upload_part *upload_find_part(const struct upload *u, unsigned number)
{
    size_t i = part_place(u, number);

    return i < u->n_parts && u->parts[i].number == number ? &u->parts[i] : NULL;
}

void upload_each(struct upload_table *t, const char *bucket,
                 void (*fn)(const struct upload *u, void *arg), void *arg)
{
    pthread_mutex_lock(&t->lock);
    for (struct keymap_node *n = keymap_first(&t->by_id); n; n = n->next[0])
        if (!strcmp(((struct upload *)n->value)->bucket, bucket))
            fn(n->value, arg);
    pthread_mutex_unlock(&t->lock);
}
