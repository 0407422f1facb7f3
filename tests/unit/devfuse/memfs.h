// SPDX-License-Identifier: Apache-2.0
// A file system in memory behind the wire, for tests and for measuring the wire alone:
//
//     /big           one file
//     /stuck         reads of it are never answered, but can be interrupted
//     /dir/f0 ...    small files
//
// Everything is computed from node numbers, so that a process that takes over from another needs
// no state.
#pragma once

#include "fs/fs.h"

struct memfs_options {
    uint64_t big_size;
    unsigned files;
    uint64_t file_size;
    bool direct_io;
    bool hold_reads;        // do not answer reads at all
    struct loop *data_loop; // answers the reads, or NULL: the namespace loop does
};

// struct fs is opaque to the wire; this one is ours.
struct fs *memfs_new(const struct memfs_options *o);
void memfs_free(struct fs *fs);
extern const struct fs_ops memfs_ops;

uint64_t memfs_reads(const struct fs *fs); // asked for so far, any thread

// What byte offset of any file holds.
unsigned char memfs_byte(uint64_t offset);
