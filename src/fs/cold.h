// SPDX-License-Identifier: Apache-2.0
// What a name is, asked of the store without listing its directory: HEAD of the key beside LIST
// of key + "/" with one key, at the same time.
#pragma once

#include "fs/dirs.h"

struct cold;

struct cold_waiter {
    struct list link;
    // error 0: kind is NODE_FILE (with its version, valid during the call), NODE_DIR, or
    // NODE_FREE when there is no such name.
    void (*done)(struct cold_waiter *w, int error, enum node_kind kind,
                 const struct node_version *v);
    struct cold *cold; // private
};

// Never calls done within. Who asks for the same name shares the requests.
void cold_lookup(struct dir *d, const char *name, size_t len, struct cold_waiter *w);
// done does not come. The requests end when nobody waits for them.
void cold_cancel(struct cold_waiter *w);
