// SPDX-License-Identifier: Apache-2.0
// A client of s3/ on a loop of its own, and calls to it that wait: for component tests against
// os2g-s3d, whose bytes can be checked.
#pragma once

#include "s3/s3.h"
#include "s3d/synthetic.h"
#include "s3d_process.h"

struct s3_fixture {
    struct s3d_process server;
    struct s3d_table table;
    struct loop *loop;
    struct credentials_provider *provider;
    struct s3_bucket *bucket;
    struct s3_client *client;
};

#define FIXTURE_BUCKET "bucket"
#define FIXTURE_KEYS                                                                               \
    FIXTURE_BUCKET ": big 64M; small/%03d 100K x 500; tiny/%03d 1K x 500; empty 0; "               \
                   "dir%d/f%04d 17 x 3 x 1100"

// A server with the synthetic bucket above and these further arguments (NULL: none), and a client
// of it with these settings, in which NULL strings are filled in.
void s3_fixture_start(struct s3_fixture *f, struct s3_settings s, const char *const *args);
void s3_fixture_stop(struct s3_fixture *f);
// The client alone, anew.
void s3_fixture_reconnect(struct s3_fixture *f, struct s3_settings s);

// --- GET ---

struct s3_fixture_get {
    struct s3_get get; // key, range and so on by the test
    uint8_t *data;     // what landed
    size_t room;
    struct s3_object_info info; // strings are not kept, but:
    char etag[64], content_type[64];
    uint64_t body_len;
    unsigned heads, dones;
    int error;
    void (*ended)(struct s3_fixture_get *g); // NULL, or called on the loop
    uint64_t ended_ns;                       // for its use
    struct s3_fixture_batch *batch;
};

struct s3_fixture_get *s3_fixture_get_new(const char *key, uint64_t offset, uint64_t len);
void s3_fixture_get_free(struct s3_fixture_get *g);
// Runs n of them at the same time and waits for all.
void s3_fixture_get_all(struct s3_fixture *f, struct s3_fixture_get **gets, size_t n);
// Runs one and waits; the error.
int s3_fixture_get_run(struct s3_fixture *f, struct s3_fixture_get *g);
// All that was asked for (of an object of this size) has landed and every byte is right.
bool s3_fixture_get_is_right(struct s3_fixture *f, const struct s3_fixture_get *g, uint64_t size);

// Runs fn(arg) on the loop.
void s3_fixture_call(struct s3_fixture *f, void (*fn)(void *arg), void *arg);

// Sum over the client's counters; by name, so that tests read well.
#define s3_fixture_stat(f, name) counter_read(&s3_client_stats((f)->client)->name)
