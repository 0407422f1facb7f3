// SPDX-License-Identifier: Apache-2.0
// Object versions in use, so that everybody who reads one shares its bytes in the cache. Some that
// nobody uses any more are kept too: the cache drops the pages of what nobody refers to.
#pragma once

#include "fs/impl.h"

struct object {
    struct hmap_link link;
    struct cache_object *cache;
    unsigned users;
    bool listed;      // in fs->objects
    struct list idle; // in fs->idle_objects
};

// path: below the export. A reference is taken. size > 0.
struct object *object_get(struct fs *fs, const char *path, size_t len,
                          const struct node_version *v);
// As object_get, but NULL unless it is in use, or was not long ago.
struct object *object_peek(struct fs *fs, const char *path, size_t len,
                           const struct node_version *v);
struct object *object_ref(struct fs *fs, struct object *o);
void object_put(struct fs *fs, struct object *o);
void objects_fini(struct fs *fs); // nobody uses one
