// SPDX-License-Identifier: Apache-2.0
// Inside cli/: os2g bench, libos2g measured. bench.c has its options and its course; bench_items.c
// what is read; bench_work.c reads it; bench_cpu.c and bench_report.c say what it took.
#pragma once

#include "base/counter.h"

#include <os2g/os2g.h>

struct bench_options {
    const char *where;
    const char *export_options; // "name=value,…" for a daemon that is started; NULL: none
    const char **keys;
    size_t n_keys;
    const char *below; // keys: all below this directory; NULL: none
    const char *list;  // a file with a key a line; NULL: none
    enum os2g_io_kind op;
    enum os2g_memory memory;
    bool plain; // malloc memory: through the bounce buffer
    uint64_t object_size, block_size, threads, depth, device, reap, loops, operations, warm_up,
        device_pid;
    uint64_t duration_ns; // 0: operations, or (0) loops
    bool in_place;        // READ: each block to its place in a buffer of the object's size
    bool shuffle, plan, verify, json, quiet;
};

// --- what is read ---

// One operation: a whole object, or a block of one.
struct bench_item {
    size_t object;
    uint64_t offset, len;
    _Atomic uint64_t digest; // verify: of its bytes when first read; 0: not read yet
};

struct bench_object {
    char *key;
    uint64_t size; // READ: learned at the beginning
    struct os2g_file *file;
};

struct bench_items {
    struct bench_object *objects;
    size_t n_objects;
    struct bench_item *items; // one pass
    size_t n;
    uint64_t largest; // room that the largest needs
};

// Opens the objects for READ. 0, or -errno with a sentence.
int bench_items_make(struct bench_items *ret, struct os2g *c, const struct bench_options *o,
                     char **ret_error);
void bench_items_free(struct bench_items *items);

// --- CPU ---

// The daemon's process: told, or found by the socket or mount that where names; 0: its CPU cannot
// be known.
uint64_t bench_device_pid(const struct bench_options *o);
// Seconds that a process and all below it have run.
double bench_cpu_of(uint64_t pid);
double bench_cpu_self(void);

// --- reading ---

struct bench_result {
    uint64_t ops, bytes, errors, mismatches;
    double seconds, host_cpu_s;
    double device_cpu_s; // < 0: not known
    struct histogram latency;
    uint64_t latency_max_ns;
    char first_error[256];
    struct os2g_stats stats;
    struct os2g_plan_status plan;
};

// 0, or -errno with a sentence: nothing could be measured. Errors of operations are counted.
int bench_work(struct os2g *c, const struct bench_options *o, struct bench_items *items,
               struct bench_result *ret, char **ret_error);

void bench_report(const struct bench_options *o, const struct bench_result *r);
