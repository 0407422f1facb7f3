// SPDX-License-Identifier: Apache-2.0
// A cache on fake_s3, and reads whose bytes are checked.
#pragma once

#include "test.h"

#include "cache/cache.h"
#include "fake_s3.h"

#include <semaphore.h>

struct reading {
    struct cache_read r;
    sem_t done;
    struct loop *loop; // where done came
    int error;
    bool hold;  // release by reading_release only
    bool wrong; // bytes
};

extern struct cache *world;

void world_begin(uint64_t memory, unsigned data_loops);
void world_end(void); // all objects have been unreferenced
struct cache_object *world_object(const char *name, uint64_t size);

void reading_start(struct reading *x, struct cache_object *o, uint64_t offset, uint32_t len);
bool reading_is_done(struct reading *x, unsigned ms); // within so long
int reading_wait(struct reading *x);                  // its error; fails the test if it never ends
void reading_release(struct reading *x);
// Reads and checks; for when GETs are automatic or bytes are there.
int read_now(struct cache_object *o, uint64_t offset, uint32_t len, bool *ret_hit);

struct loading {
    struct cache_load l;
    sem_t done;
    int error;
};

void loading_start(struct loading *x, struct cache_object *o, bool background);
bool loading_is_done(struct loading *x, unsigned ms);
int loading_wait(struct loading *x);

// Until all messages sent so far by this thread have been worked off by the data loops, and those
// they sent each other.
void world_settle(void);
struct cache_stats world_stats(void);
