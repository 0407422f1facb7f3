// SPDX-License-Identifier: Apache-2.0
// An ordered map from keys to values, in the order of the keys' bytes: a skip list.
#pragma once

#include "base/base.h"
#include "base/rand.h"

#define KEYMAP_LEVELS 20

struct keymap_node {
    char *key;
    void *value;
    unsigned levels;
    struct keymap_node *next[];
};

struct keymap {
    struct keymap_node *first[KEYMAP_LEVELS];
    size_t len;
    struct rand rand;
};

void keymap_init(struct keymap *m);
void keymap_fini(struct keymap *m);                        // the values are the caller's business
void *keymap_get(const struct keymap *m, const char *key); // NULL when absent
// Puts a value that is not NULL; the one that it replaces, or NULL.
void *keymap_put(struct keymap *m, const char *key, void *value);
void *keymap_remove(struct keymap *m, const char *key); // its value, or NULL
// The first node with a key >= key (> key if after), or NULL; valid until the map changes.
struct keymap_node *keymap_seek(const struct keymap *m, const char *key, bool after);
static inline struct keymap_node *keymap_first(const struct keymap *m)
{
    return m->first[0];
}
