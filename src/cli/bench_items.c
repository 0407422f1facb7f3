// SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include "base/rand.h"
#include "cli/daemon_fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_object(struct bench_items *items, const char *key, uint64_t size)
{
    // powers of two
    if ((items->n_objects & (items->n_objects - 1)) == 0)
        items->objects =
            xrealloc(items->objects, MAX(1, 2 * items->n_objects) * sizeof(*items->objects));
    items->objects[items->n_objects++] = (struct bench_object){.key = xstrdup(key), .size = size};
}

static int add_list(struct bench_items *items, const char *file, char **ret_error)
{
    FILE *f = strcmp(file, "-") ? fopen(file, "r") : stdin;
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int rc = 0;

    if (!f) {
        rc = -errno;
        *ret_error = xasprintf("%s: %s", file, strerror(errno));
        return rc;
    }
    while ((len = getline(&line, &room, f)) > 0) {
        if (line[len - 1] == '\n')
            line[--len] = 0;
        if (len)
            add_object(items, line, 0);
    }
    if (ferror(f)) {
        rc = -EIO;
        *ret_error = xasprintf("%s: can't be read", file);
    }
    free(line);
    if (f != stdin)
        fclose(f);
    return rc;
}

static int add_name(void *arg, const char *key, const struct os2g_stat *st)
{
    add_object(arg, key, st->size);
    return 0;
}

// --- one pass over them ---

static int open_objects(struct bench_items *items, struct os2g *c, char **ret_error)
{
    for (size_t i = 0; i < items->n_objects; i++) {
        struct bench_object *object = &items->objects[i];
        int rc = os2g_open(c, object->key, &object->file);

        if (rc < 0) {
            *ret_error = xasprintf("%s: %s", object->key, os2g_last_error());
            return rc;
        }
        object->size = os2g_file_size(object->file);
    }
    return 0;
}

static void cut(struct bench_items *items, const struct bench_options *o)
{
    size_t n = 0;

    for (size_t i = 0; i < items->n_objects; i++)
        n += o->op == OS2G_IO_FETCH
                 ? 1
                 : (size_t)((items->objects[i].size + o->block_size - 1) / o->block_size);
    items->items = xcalloc(MAX(1, n), sizeof(*items->items));
    for (size_t i = 0; i < items->n_objects; i++) {
        uint64_t size = items->objects[i].size;

        if (o->op == OS2G_IO_FETCH) {
            uint64_t room = size ? size : o->object_size;

            items->items[items->n++] = (struct bench_item){.object = i, .len = room};
            items->largest = MAX(items->largest, room);
            continue;
        }
        for (uint64_t at = 0; at < size; at += o->block_size)
            items->items[items->n++] = (struct bench_item){
                .object = i, .offset = at, .len = MIN(o->block_size, size - at)};
        items->largest = MAX(items->largest, o->in_place ? size : MIN(size, o->block_size));
    }
}

static void shuffle(struct bench_items *items)
{
    struct rand r;

    rand_seed(&r, 1);
    for (size_t i = items->n; i > 1; i--) {
        size_t j = rand_below(&r, i);
        struct bench_item swap = items->items[i - 1];

        items->items[i - 1] = items->items[j];
        items->items[j] = swap;
    }
}

int bench_items_make(struct bench_items *ret, struct os2g *c, const struct bench_options *o,
                     char **ret_error)
{
    int rc = 0;

    *ret = (struct bench_items){0};
    for (size_t i = 0; i < o->n_keys; i++)
        add_object(ret, o->keys[i], 0);
    if (o->list)
        rc = add_list(ret, o->list, ret_error);
    if (rc == 0 && o->below)
        rc = daemon_walk(c, o->below, add_name, ret, ret_error);
    if (rc == 0 && o->op == OS2G_IO_READ)
        rc = open_objects(ret, c, ret_error);
    if (rc == 0)
        cut(ret, o);
    if (rc == 0 && ret->n == 0) {
        rc = -ENOENT;
        *ret_error = xstrdup("there is nothing to read: name objects with --key, --keys or --list");
    }
    if (rc == 0 && o->shuffle)
        shuffle(ret);
    if (rc < 0) {
        bench_items_free(ret);
        *ret = (struct bench_items){0};
    }
    return rc;
}

void bench_items_free(struct bench_items *items)
{
    for (size_t i = 0; i < items->n_objects; i++) {
        os2g_file_close(items->objects[i].file);
        free(items->objects[i].key);
    }
    free(items->objects);
    free(items->items);
}
