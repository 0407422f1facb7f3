// SPDX-License-Identifier: Apache-2.0
// Carries out plans (prefetch/plan.h decides): finds the objects of their entries and has them
// fetched. An OPEN of a planned file finds its bytes in the cache.
#pragma once

#include "fs/file.h"
#include "prefetch/plan.h"

struct run_plan;

#define PLANS_MAX    64  // of one file system
#define PLANS_MEMORY GIB // of all of them

// window_bytes 0: what readers turn out to need, up to half of the pool. owner: the process that
// declares it, for the stall report. keeps_pages: its host does (fs.h), and what it has is not
// fetched. -ENOSPC: there are too many, or they are too large.
int run_plan_new(struct run_plan **ret, struct fs *fs, uint64_t window_bytes, uint64_t owner,
                 bool keeps_pages);
// path: as a user writes it, below the mount; "./" and "/" in front of it are left out. One that
// no file can have counts as missing.
int run_plan_add(struct run_plan *rp, const char *path, size_t len);
void run_plan_commit(struct run_plan *rp);
bool run_plan_committed(const struct run_plan *rp);
void run_plan_free(struct run_plan *rp); // at any time; NULL is allowed
void run_plan_stats(const struct run_plan *rp, struct plan_stats *ret);

// The file at path was opened, or is fetched: true if it is in a plan. uses: its entries, until
// plan_uses_end: its last byte was read, or it was closed. lead: of the plan that has done most.
bool plan_uses_begin(struct fs *fs, struct list *uses, const char *path, size_t len,
                     enum plan_lead *ret_lead);
void plan_uses_end(struct list *uses);
// It was not read: the entries wait for another reader.
void plan_uses_cancel(struct list *uses);
// The host has let go of pages: what plans have left to it is fetched.
void plans_doubt_host(struct fs *fs);
// The object that was fetched, or is being fetched, for one of these entries; NULL: none.
struct object *plan_uses_object(const struct list *uses);

// --- control.c ---

void control_handle_free(struct fs *fs, uint32_t handle);
void control_handle_forget_private(struct fs *fs, uint32_t handle); // the table keeps the handle
