// SPDX-License-Identifier: Apache-2.0
// What the cuda_*.c files share.
#pragma once

#include "host/cuda_client.h"
#include "host/staging.h"

struct cuda_pull;
struct cuda_streams;

// Of a connection, from its first GPU buffer on.
struct client_cuda {
    struct os2g *client;
    const struct cuda_driver *d;
    unsigned forks;               // fork_count() of the process that may call the driver
    struct cuda_pull *pull;       // cuda_pull.c
    struct cuda_streams *streams; // cuda_stream.c
    // GPU buffers: what is pinned for streams goes with the last, while its context is there.
    _Atomic unsigned buffers;
};

// The one of c, made by the first call. -ENODEV: there is no driver.
int client_cuda_get(struct os2g *c, struct client_cuda **ret);

// A sentence for what the driver has answered; returns error.
int cuda_fail(const struct client_cuda *cuda, int error, const char *what, CUresult r);

// --- cuda_pull.c ---

void cuda_pull_new(struct client_cuda *cuda);
void cuda_pull_free(struct client_cuda *cuda);
// For a buffer that nothing lands in: the ring that its bytes come through, made for the first.
int cuda_pull_staging(struct client_cuda *cuda, CUcontext context, struct staging **ret);
// Such a buffer is no more; the ring goes with the last. A context is current.
void cuda_pull_staging_put(struct client_cuda *cuda);

// What a context's copies need; shared by the buffers in it.
struct cuda_lanes;
struct cuda_lanes *cuda_lanes_get(struct client_cuda *cuda, CUcontext context);
void cuda_lanes_put(struct client_cuda *cuda, struct cuda_lanes *l); // NULL is allowed
// Copies and waits for the end of it. Any thread, several at once.
CUresult cuda_lanes_copy(struct client_cuda *cuda, struct cuda_lanes *l, CUdeviceptr to,
                         const void *from, size_t len);
// The priority of the streams on which copies are made, which no stream of the caller's must have
// that waits for them; false: the context has only one.
bool cuda_lanes_priority(const struct client_cuda *cuda, const struct cuda_lanes *l, int *ret);

// --- cuda_stream.c ---

void cuda_streams_new(struct client_cuda *cuda);
void cuda_streams_end(struct client_cuda *cuda);
void cuda_streams_free(struct client_cuda *cuda);
// What is pinned, if no read is pending. A context is current.
void cuda_streams_unpin(struct client_cuda *cuda);

// --- cuda_buffer.c ---

// The context of a GPU buffer, current or not.
CUcontext cuda_buffer_context(const struct os2g_buffer *b);
struct cuda_lanes *cuda_buffer_lanes(const struct os2g_buffer *b); // NULL: bytes land in it
