// SPDX-License-Identifier: Apache-2.0
// The few objects that were waited for longest. An object comes in with what one opening of it has
// waited so far; as long as it is in, further waits are added. So a table of a few finds the
// outliers of millions, and the one large file that everybody waits for.
#pragma once

#include "base/base.h"

// Why a reader waited: each is something else to be changed.
enum stall_cause {
    STALL_LATENCY,     // the store: its first byte
    STALL_THROUGHPUT,  // the store, or the way to it: the bytes behind
    STALL_CONNECTIONS, // as many requests as are allowed were under way
    STALL_POOL,        // no memory
    STALL_PLAN_SHORT, // a plan named the object, but its window kept it from being asked for sooner
    STALL_NOT_PLANNED, // no plan named it, and nothing else foresaw it (in time)
    STALL_CAUSES,
};

#define STALL_OBJECTS 10

struct stall_object {
    uint64_t hash;
    char *key;
    size_t key_len;
    uint64_t waits, ns[STALL_CAUSES];
};

struct stall_objects {
    struct stall_object object[STALL_OBJECTS];
    unsigned n;
    uint64_t least_ns; // of them, once there are STALL_OBJECTS
};

static inline uint64_t stall_sum(const uint64_t ns[STALL_CAUSES])
{
    uint64_t sum = 0;

    for (int i = 0; i < STALL_CAUSES; i++)
        sum += ns[i];
    return sum;
}

// now: one more wait; all: with what this opening has waited before.
void stall_objects_add(struct stall_objects *o, const char *key, size_t len,
                       const uint64_t now[STALL_CAUSES], uint64_t waits,
                       const uint64_t all[STALL_CAUSES]);
void stall_objects_fini(struct stall_objects *o);
