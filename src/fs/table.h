// SPDX-License-Identifier: Apache-2.0
// Fixed-size records in a file (a memfd) that the next worker can map: they outlive a kill -9 as
// they are. Records never move, so pointers stay good while the table grows.
//
// How to write so that the next worker can use it: fill a record, then store its state with
// release order; to free it, store the state first. The kernel keeps a dead process's stores in
// the order they were made, so no other barrier is needed.
#pragma once

#include "base/base.h"

struct table {
    int fd;
    size_t record_size;
    uint32_t n;   // records there are, all zero where never used
    uint32_t max; // address space is set aside for so many
    char *base;
};

// fd: -1 for memory of our own, else it is duplicated. The records of a file that is not empty are
// there as before. 0 or -errno.
int table_open(struct table *t, int fd, const char *name, size_t record_size, uint32_t max);
void table_close(struct table *t); // zeroed is allowed
// More records; -ENOMEM when it cannot.
int table_grow(struct table *t);

static inline void *table_at(const struct table *t, uint32_t i)
{
    return t->base + (size_t)i * t->record_size;
}
