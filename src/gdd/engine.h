// SPDX-License-Identifier: Apache-2.0
// The engine kind of landing: pages of the cache's arena are copied into GPU memory by a copy
// engine that a helper process drives, for CUDA's errors stick to a process. One helper per
// session that has such memory; it starts with the first and ends with the session. On another
// kind of device a DMA engine stands behind the same calls.
#pragma once

#include "cache/dest.h"

struct engine;
struct engine_memory;

struct engine_config {
    const char *program; // to run as the helper: os2gd itself
    int life_fd;  // held open by the helper, too, so that others see when both have ended; -1: none
    int arena_fd; // the cache's arena (memfd)
    void *arena;  // where it lies here
    uint64_t arena_len;
    // The helper has died (CUDA's error text, or "" for a signal): every put under way has ended
    // with -EIO, and so do new ones. Once, on the loop.
    void (*failed)(void *arg, const char *text);
    void *arg;
};

// Whether this machine has what the helper needs (an NVIDIA driver's device file, or
// OS2G_CUDA_LIBRARY is set): then the cache's arena had better be shared. Opens nothing.
bool engine_possible(void);

// On the loop l, as all here but engine_put. 0 or -errno.
int engine_new(struct engine **ret, struct loop *l, const struct engine_config *c);
void engine_free(struct engine *e); // every memory was closed; NULL is allowed

struct engine_open {
    int32_t device;
    uint8_t uuid[16];
    int fd;             // POSIX descriptor of cuMemCreate memory (the engine's on success), or -1
    uint8_t handle[64]; // else a CUipcMemHandle
    uint64_t handle_offset, size;
    // Once, on the loop: 0, or why it can't be reached (-ENODEV: no such GPU here, -EIO; text is
    // CUDA's). Not called when the memory is closed first. NULL is allowed.
    void (*opened)(void *arg, int error, const char *text);
    void *arg;
};
// *ret can be used at once; when opening it fails each put ends with -EIO and it is to be closed
// all the same. The other memory of the session is not touched by that.
int engine_memory_open(struct engine *e, struct engine_memory **ret, const struct engine_open *o);
// Nothing more lands in it when done is called, on the loop.
void engine_memory_close(struct engine_memory *m, void (*done)(void *arg), void *arg);

// Any loop. As cache_dest_ops.put, also -EIO; the pieces, at most 1024, lie in the arena.
int engine_put(struct engine_memory *m, uint64_t offset, const struct iovec *iov, int n,
               struct cache_put *p);

// The helper's main, as os2gd's hidden first argument.
#define ENGINE_ARGUMENT "--gpu-helper"
int engine_helper_main(int argc, char **argv);
