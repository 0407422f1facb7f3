// SPDX-License-Identifier: Apache-2.0
#include "s3d/keymap.h"

#include <stdlib.h>
#include <string.h>

void keymap_init(struct keymap *m)
{
    *m = (struct keymap){0};
    rand_seed(&m->rand, 1);
}

static void node_free(struct keymap_node *n)
{
    free(n->key);
    free(n);
}

void keymap_fini(struct keymap *m)
{
    struct keymap_node *n = m->first[0], *next;

    for (; n; n = next) {
        next = n->next[0];
        node_free(n);
    }
    *m = (struct keymap){0};
}

// For each level the link that leads to the first node with a key >= key (> key if after).
static void find_links(const struct keymap *m, const char *key, bool after,
                       struct keymap_node **links[static KEYMAP_LEVELS])
{
    struct keymap_node **level = (struct keymap_node **)m->first;

    for (unsigned i = KEYMAP_LEVELS; i-- > 0;) {
        struct keymap_node *n;

        while ((n = level[i])) {
            int order = strcmp(n->key, key);

            if (order > 0 || (order == 0 && !after))
                break;
            level = n->next;
        }
        links[i] = &level[i];
    }
}

struct keymap_node *keymap_seek(const struct keymap *m, const char *key, bool after)
{
    struct keymap_node **links[KEYMAP_LEVELS];

    find_links(m, key, after, links);
    return *links[0];
}

void *keymap_get(const struct keymap *m, const char *key)
{
    struct keymap_node *n = keymap_seek(m, key, false);

    return n && !strcmp(n->key, key) ? n->value : NULL;
}

void *keymap_put(struct keymap *m, const char *key, void *value)
{
    struct keymap_node **links[KEYMAP_LEVELS], *n;
    unsigned levels = 1;

    find_links(m, key, false, links);
    n = *links[0];
    if (n && !strcmp(n->key, key)) {
        void *old = n->value;

        n->value = value;
        return old;
    }
    while (levels < KEYMAP_LEVELS && rand_below(&m->rand, 4) == 0)
        levels++;
    n = xmalloc(sizeof(*n) + levels * sizeof(struct keymap_node *));
    n->key = xstrdup(key);
    n->value = value;
    n->levels = levels;
    for (unsigned i = 0; i < levels; i++) {
        n->next[i] = *links[i];
        *links[i] = n;
    }
    m->len++;
    return NULL;
}

void *keymap_remove(struct keymap *m, const char *key)
{
    struct keymap_node **links[KEYMAP_LEVELS], *n;
    void *value;

    find_links(m, key, false, links);
    n = *links[0];
    if (!n || strcmp(n->key, key) != 0)
        return NULL;
    for (unsigned i = 0; i < n->levels; i++)
        *links[i] = n->next[i];
    value = n->value;
    node_free(n);
    m->len--;
    return value;
}
