// SPDX-License-Identifier: Apache-2.0
#include "fs/stall_objects.h"

#include "fs/hmap.h"

#include <string.h>

static struct stall_object *find(struct stall_objects *o, uint64_t hash, const char *key,
                                 size_t len)
{
    for (unsigned i = 0; i < o->n; i++) {
        struct stall_object *at = &o->object[i];

        if (at->hash == hash && at->key_len == len && !memcmp(at->key, key, len))
            return at;
    }
    return NULL;
}

static struct stall_object *least(struct stall_objects *o)
{
    struct stall_object *least = &o->object[0];

    for (unsigned i = 1; i < o->n; i++)
        if (stall_sum(o->object[i].ns) < stall_sum(least->ns))
            least = &o->object[i];
    return least;
}

// A free place, or that of the least.
static struct stall_object *place(struct stall_objects *o)
{
    struct stall_object *at;

    if (o->n < STALL_OBJECTS)
        return &o->object[o->n++];
    at = least(o);
    free(at->key);
    return at;
}

void stall_objects_add(struct stall_objects *o, const char *key, size_t len,
                       const uint64_t now[STALL_CAUSES], uint64_t waits,
                       const uint64_t all[STALL_CAUSES])
{
    uint64_t hash = fs_hash(key, len, 0), sum = stall_sum(all);
    struct stall_object *at = find(o, hash, key, len);

    if (at) {
        at->waits++;
        for (int i = 0; i < STALL_CAUSES; i++)
            at->ns[i] += now[i];
    } else if (o->n < STALL_OBJECTS || sum > o->least_ns) {
        at = place(o);
        *at = (struct stall_object){
            .hash = hash, .key = xmemdup(key, len), .key_len = len, .waits = waits};
        memcpy(at->ns, all, sizeof(at->ns));
    } else {
        return;
    }
    if (o->n == STALL_OBJECTS)
        o->least_ns = stall_sum(least(o)->ns);
}

void stall_objects_fini(struct stall_objects *o)
{
    for (unsigned i = 0; i < o->n; i++)
        free(o->object[i].key);
    *o = (struct stall_objects){0};
}
