// SPDX-License-Identifier: Apache-2.0
// A double of the CUDA driver, as far as OS2G calls it (cuda/cuda.h), for machines without a GPU:
// build/tests/double/libcuda-double.so, named by OS2G_CUDA_LIBRARY.
//
// Device memory is host memory that only the double can touch: a device pointer names a range
// without rights, the bytes lie in a second mapping. It can be exported as a descriptor or as an
// IPC handle and be opened in another process. Each stream is a thread that takes its operations
// in order, so copies go on after the call, and read their source when they are carried out
// (unless it is not registered: then it is copied at once, and counted).
//
// What the real driver refuses is refused with its code. What it leaves undefined (memory unmapped
// or unregistered under a copy) ends the process with a message. Errors stick to the process as
// the real ones do, and a child forked from a process that has used it gets nothing.
//
//   OS2G_CUDA_DOUBLE_FAIL      NAME:N[:CODE],…: the Nth call of NAME ("copy": the Nth copy, when it
//                              is carried out) fails with CODE (700)
//   OS2G_CUDA_DOUBLE_DELAY_US  each copy takes so long
//   OS2G_CUDA_DOUBLE_DEVICES   how many there are (1); CUDA_VISIBLE_DEVICES renumbers them
//   OS2G_CUDA_DOUBLE_WITHOUT   "fd": devices that cannot export descriptors
//
// Not modelled: kernels, managed memory, the legacy default stream's waiting for others.
#pragma once

#include "base/list.h"
#include "cuda/cuda.h"

#include <pthread.h>
#include <stdatomic.h>

#define EXPORT                            __attribute__((visibility("default")))
#define DECLARE(name, symbol, parameters) EXPORT CUresult symbol parameters;
CUDA_CALLS(DECLARE)
CUDA_OPTIONAL_CALLS(DECLARE)
#undef DECLARE

// For tests in the same process: as OS2G_CUDA_DOUBLE_FAIL, "" for none; also forgets a sticky
// error.
EXPORT void cuda_double_fail(const char *spec);
// "pageable": copies from memory that was not registered; "copy": all; "allocated": bytes now;
// "registered": ranges now.
EXPORT uint64_t cuda_double_count(const char *what);

#define DEVICES_MAX 4

struct CUctx_st {
    int device;
    unsigned refs;
    CUstream null_stream;
    struct list streams;
};

// One lock for all tables, one condition for whatever ends.
extern pthread_mutex_t double_mutex;
extern pthread_cond_t double_cond;

// Each call begins with it: the error that it is to return at once, or 0 with the lock held.
// ret_context: the current context, for calls that need one, or NULL.
CUresult double_enter(const char *name, struct CUctx_st **ret_context);
CUresult double_leave(CUresult r); // gives the lock back

// True when this operation is one that OS2G_CUDA_DOUBLE_FAIL names. Locked.
bool double_must_fail(const char *name, CUresult *ret);
void double_stick(CUresult r);
CUresult double_sticky(void);
_Noreturn void double_undefined(const char *what);
unsigned double_delay_us(void);
bool double_without(const char *what);
bool double_device_valid(int device);
// Stands around a host function's run: CUDA calls within are refused.
void double_host_function(CUhostFn fn, void *arg);

// --- memory.c ---

struct memory {
    struct list link;
    enum { MEMORY_ALLOC, MEMORY_MAPPED, MEMORY_IPC } kind;
    CUdeviceptr base;
    size_t size;
    uint8_t *bytes;
    int fd;
    int device;
    struct CUctx_st *context; // of an allocation
    bool accessible;
    unsigned in_flight; // copies
    struct physical *physical;
    uint64_t number; // in an IPC handle of it, once one was asked for
    unsigned opens;  // of such a handle
    char *path;      // the name it has while it is exported
};

struct host_range {
    struct list link;
    uint8_t *base;
    size_t size;
    unsigned in_flight;
};

// Locked. NULL: no such memory, or not all of it.
struct memory *memory_find(CUdeviceptr p, size_t len);
struct host_range *host_find(const void *p, size_t len);
uint64_t memory_allocated(void);
uint64_t host_ranges(void);

// --- stream.c ---

// Puts a copy or a fill on the stream and waits for its end. Locked; the lock is let go meanwhile.
CUresult stream_run(struct CUctx_st *c, void *to, const void *from, size_t len, struct memory *m);
void stream_close_all(struct CUctx_st *c); // locked
uint64_t stream_copies(bool pageable);
