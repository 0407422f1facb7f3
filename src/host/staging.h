// SPDX-License-Identifier: Apache-2.0
// Memory that bytes land in on their way to somewhere else: the bounce buffer for malloc memory,
// and a pinned ring for a GPU. Handed out in contiguous chunks; taking one never waits.
#pragma once

#include "host/client.h"

struct staging;

// size: rounded up to 64 KiB units. 0 or -errno.
int staging_new(struct staging **ret, struct os2g *c, uint64_t size);
// No chunk is out. NULL is allowed.
void staging_free(struct staging *s);
void staging_cut(struct staging *s); // nothing can land in it any more (transport_memory_cut)
void *staging_base(const struct staging *s); // mapped here, shared with the device
uint64_t staging_size(const struct staging *s);

struct staging_chunk {
    struct staging *staging; // NULL: none
    void *base;
    uint64_t len;
    struct transport_memory *memory; // for a request, with offset
    uint64_t offset;
};
// -EAGAIN: not now. -E2BIG: never.
int staging_take(struct staging *s, uint64_t len, struct staging_chunk *ret);
void staging_give(struct staging_chunk *chunk); // any thread; nothing when there is none
