// SPDX-License-Identifier: Apache-2.0
// A file system in memory behind the wire, for tests and for measuring the wire alone:
//
//     /big           one file
//     /stuck         reads of it are never answered, but can be interrupted
//     /dir/f0 ...    small files
//
// Everything is computed from node numbers, so that a process that takes over from another needs
// no state; what hosts hold is only counted.
#pragma once

#include "fs/fs.h"

struct memfs_options {
    uint64_t big_size;
    unsigned files;
    uint64_t file_size;
    bool direct_io;
    bool hold_reads;        // answer reads only when memfs_answer_held is called
    struct loop *data_loop; // answers the reads, or NULL: the namespace loop does
};

// struct fs is opaque to the wire; this one is ours.
struct fs *memfs_new(const struct memfs_options *o);
void memfs_free(struct fs *fs);
extern const struct fs_ops memfs_ops;

// Where the bytes of all files lie, for an engine that copies from there.
void memfs_memory(int *ret_fd, void **ret_base, uint64_t *ret_len);

void memfs_answer_held(struct fs *fs); // on the namespace loop; later reads are not held

uint64_t memfs_reads(const struct fs *fs); // asked for so far, any thread
// Held by hosts. Any thread.
int64_t memfs_references(const struct fs *fs);
int64_t memfs_handles(const struct fs *fs);

// Whether [p, p+len) is what any file holds from offset on.
bool memfs_equal(const void *p, uint64_t offset, size_t len);
