// SPDX-License-Identifier: Apache-2.0
// The distinct keys of a plan, stored small: directories once, of a key its last component. Only
// for plan.c.
#pragma once

#include "base/buf.h"

#define PLAN_NO_ITEM UINT32_MAX

struct plan_item {
    uint32_t name;     // where in text
    uint32_t dir : 31; // which of dirs
    uint32_t seen : 1; // for plan.c: an entry of it was consumed
    uint32_t tail;     // for plan.c: its last entry
};

struct plan_table {
    uint32_t *slots; // number + 1, 0: free
    uint32_t size;   // a power of two, or 0
};

struct plan_names {
    char *text; // components one after the other, each ended by a zero byte
    size_t text_len, text_size;
    struct plan_item *items;
    uint32_t n_items, items_size;
    uint32_t *dirs; // where in text; with the '/' at their end, "" for none
    uint32_t n_dirs, dirs_size;
    uint32_t last_dir; // of the latest addition: orders often stay in one directory
    struct plan_table item_table, dir_table;
};

void plan_names_fini(struct plan_names *n);
// Finds or adds. -ENOMEM. *ret_new: tail is not set yet.
int plan_names_add(struct plan_names *n, const char *key, size_t len, uint32_t *ret_item,
                   bool *ret_new);
uint32_t plan_names_find(const struct plan_names *n, const char *key, size_t len);
void plan_names_key(const struct plan_names *n, uint32_t item, struct buf *out); // replaces out
size_t plan_names_memory(const struct plan_names *n);

// Grows an array to hold at least one more than len elements of item_size; -ENOMEM leaves it as it
// was.
int plan_grow(void **array, uint32_t *size, uint32_t len, size_t item_size);
