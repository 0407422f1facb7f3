// SPDX-License-Identifier: Apache-2.0
// .os2g/gdd, opened: leases of GPU memory, reads into it and their ends (wire/gdd.h).
//
//   gdd_file.c    opening and closing, leases, who waits
//   gdd_submit.c  reads: each a request of our own to fs_op_read or fs_op_fetch
//   gdd_leases.c  what is kept for the next worker
#pragma once

#include "fs/gdd_leases.h"
#include "fs/impl.h"

#include "cache/dest.h"

struct gdd_file {
    struct fs *fs;
    struct list link; // in fs->gdd_files, also of one that was closed while reads are under way
    uint32_t handle;  // HANDLE_NONE: closed
    struct gdd_leases leases;
    struct list running, done; // struct gdd_read
    unsigned n_running, n_done;
    struct list reaps;   // struct waiting: REAPs
    struct list leaving; // struct waiting: UNLEASEs
};

// One entry of a SUBMIT.
struct gdd_read {
    struct fs_request req; // of our own
    struct gdd_file *file;
    struct list link;
    struct loop_msg msg;
    void (*landing_free)(struct cache_dest *d);
    uint64_t lease; // its offset
    uint64_t tag, size;
    int64_t result;
    char key[]; // with its zero
};

// --- gdd_file.c ---

void gdd_handle_free(struct fs *fs, uint32_t handle);
void gdd_handle_forget_private(struct fs *fs, uint32_t handle); // the table keeps the handle
void gdd_take_over(struct fs *fs, uint32_t handle);             // of the worker before

void gdd_ioctl(struct fs *fs, struct fs_request *req, uint32_t handle, uint32_t cmd, const void *in,
               size_t in_len, size_t out_size);
// A read has left f->running: who waits for that is answered. f may be freed.
void gdd_file_settle(struct gdd_file *f);

// --- gdd_submit.c ---

void gdd_submit(struct gdd_file *f, struct fs_request *req, const void *in, size_t len);
int gdd_cancel(struct gdd_file *f, uint64_t tag); // 0 or -ENOENT
// Nothing lands any more in this lease (NULL: any) once its reads have left f->running.
void gdd_cut(struct gdd_file *f, const struct gdd_lease *lease);
bool gdd_lands_in(const struct gdd_file *f, const struct gdd_lease *lease);
void gdd_read_free(struct gdd_read *r);
