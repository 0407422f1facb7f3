// SPDX-License-Identifier: Apache-2.0
// GPU memory as a destination. Two ways: the daemon opens it and bytes land in it (landing); or
// they land in a pinned ring of host memory, and this process has the GPU copy them from there.
// OS2G_CUDA=open or pull asks for one of them; else the first is tried, and OS2G_EVENT_FALLBACK
// says why it cannot be.
//
//   cuda_buffer.c    allocating and registering
//   cuda_pull.c      the ring, and copies out of it
//   cuda_stream.c    os2g_read_async: reads in the order of a CUDA stream
#pragma once

#include "cuda/cuda.h"
#include "host/buffer.h"

// As os2g_buffer_alloc, after client_enter.
int cuda_buffer_alloc(struct os2g *c, struct os2g_buffer **ret, size_t size, int device);

// Whether p is a GPU's memory; false where nothing in this process has loaded CUDA.
bool cuda_is_memory(const void *p);
// As os2g_buffer_register_cuda, after client_enter; registered: for os2g_buf_deregister.
int cuda_buffer_register(struct os2g *c, struct os2g_buffer **ret, void *p, size_t size,
                         bool registered);

// For os2g_close, when every buffer has been freed; NULL is allowed. The first waits for reads in
// the order of a stream (which has to get there by itself); what is under way must have ended
// before the second.
void client_cuda_end(struct client_cuda *cuda);
void client_cuda_free(struct client_cuda *cuda);
