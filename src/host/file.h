// SPDX-License-Identifier: Apache-2.0
// Open files. Nodes and handles are a session's; a file is opened again by its path in the next
// one, and is stale unless it is the same version.
#pragma once

#include "host/client.h"

struct os2g_file {
    struct os2g *client;
    char *path;
    bool control; // the daemon's, and no object
    uint64_t size;
    int64_t mtime_s;
    char etag[128]; // "" if not known
    _Atomic unsigned refs;

    struct {
        struct fork_lock lock; // FORK_FILE
        unsigned generation;   // of node and handle
        uint64_t node, handle;
        unsigned forks; // fork_count() of the process whose session it is
    } locked;
};

void file_ref(struct os2g_file *f);
void file_unref(struct os2g_file *f); // the last one gives the handle back
// What a READ is sent with, and of which session it is.
void file_handle(struct os2g_file *f, unsigned *ret_generation, uint64_t *ret_node,
                 uint64_t *ret_handle);
struct destination;
// os2g_read to a destination that was found, which is taken over.
ssize_t file_read(struct os2g_file *f, const struct destination *to, size_t size,
                  off_t file_offset);
// Sees that f is open in the present session; waits. 0; -ESTALE: another version; -errno.
int file_renew(struct os2g_file *f);
