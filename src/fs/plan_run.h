// SPDX-License-Identifier: Apache-2.0
// Carries out plans (prefetch/plan.h decides): finds the objects of their entries and has them
// fetched. An OPEN of a planned file finds its bytes in the cache.
#pragma once

#include "fs/file.h"
#include "prefetch/plan.h"

struct run_plan;

#define PLANS_MAX    64  // of one file system
#define PLANS_MEMORY GIB // of all of them

// window_bytes 0: half of the pool. -ENOSPC: there are too many, or they are too large.
int run_plan_new(struct run_plan **ret, struct fs *fs, uint64_t window_bytes);
// path: as a user writes it, below the mount; "./" and "/" in front of it are left out. One that
// no file can have counts as missing.
int run_plan_add(struct run_plan *rp, const char *path, size_t len);
void run_plan_commit(struct run_plan *rp);
bool run_plan_committed(const struct run_plan *rp);
void run_plan_free(struct run_plan *rp); // at any time; NULL is allowed
void run_plan_stats(const struct run_plan *rp, struct plan_stats *ret);

// f, the file at path, was opened: true if it is in a plan.
bool plan_uses_begin(struct file *f, const char *path, size_t len);
// Its last byte was read, or it was closed.
void plan_uses_end(struct file *f);

// --- control.c ---

void control_handle_free(struct fs *fs, uint32_t handle);
void control_handle_forget_private(struct fs *fs, uint32_t handle); // the table keeps the handle
