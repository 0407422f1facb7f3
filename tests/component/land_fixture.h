// SPDX-License-Identifier: Apache-2.0
// A cache on a real client against os2g-s3d, and landings that wait.
#pragma once

#include "test.h"

#include "base/clock.h"
#include "cache/cache.h"
#include "host_memory.h"
#include "s3_fixture.h"

#include <semaphore.h>

#define LAND_BUCKET "land"
#define LAND_KEYS                                                                                  \
    LAND_BUCKET ": big 40M; mid 12M; small 100K; page 4K; one 1; empty 0; s%02d 100K x 32; "       \
                "m%02d 12M x 32"
#define BIG (40 * MIB)

extern struct s3_fixture fixture;
extern struct cache *cache;

int land_fixture_start(void **state); // group
int land_fixture_stop(void **state);
void land_begin(uint64_t memory, unsigned data_loops, const char *faults);
void land_end(void);

struct cache_stats land_stats(void);
uint64_t land_gets(void); // that the store was asked for

struct object {
    struct cache_object *cache;
    struct s3d_name name;
};
void object_open(struct object *o, const char *key, uint64_t size);
void object_close(struct object *o);

struct landing {
    struct cache_land land;
    sem_t done;
    int error;
};
void landing_start(struct landing *x, struct object *o, uint64_t offset, uint32_t len,
                   struct host_memory *m, uint64_t at);
bool landing_is_done(struct landing *x, unsigned ms); // within so long
int landing_wait(struct landing *x);
int land_now(struct object *o, uint64_t offset, uint32_t len, struct host_memory *m, uint64_t at);
bool landed_right(struct object *o, uint64_t offset, uint64_t len, const struct host_memory *m,
                  uint64_t at);

// Reads into the cache's pages and checks.
struct reading {
    struct cache_read read;
    struct object *object;
    sem_t done;
    int error;
    bool wrong;
};
void reading_start(struct reading *x, struct object *o, uint64_t offset, uint32_t len);
int reading_wait(struct reading *x); // -EBADMSG: bytes were wrong
int read_now(struct object *o, uint64_t offset, uint32_t len);

struct fetch {
    struct cache_fetch fetch;
    sem_t done;
    int error;
};
void fetch_start(struct fetch *x, const char *key, struct host_memory *m);
int fetch_wait(struct fetch *x);
int fetch_now(struct fetch *x, const char *key, struct host_memory *m);

void fence_now(void); // from the test's thread
