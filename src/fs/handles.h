// SPDX-License-Identifier: Apache-2.0
// Open files and directories, in a table that outlives the worker, so that what a program had
// open stays open. An id is made as a node's is: generation << 32 | slot. The handle's other half
// (what is being read, and how) is private memory of open.c and readdir.c, found by the slot and
// made again when it is missing. On the namespace loop only.
#pragma once

#include "base/base.h"

struct handles;

#define HANDLE_NONE 0

enum handle_kind {
    HANDLE_FREE,
    HANDLE_FILE,
    HANDLE_DIR,
    HANDLE_CONTROL,
    HANDLE_GDD,
    HANDLE_STALLS,
    HANDLE_KINDS,
};

int handles_open(struct handles **ret, int fd);
void handles_close(struct handles *h); // NULL is allowed

// unique: of the request that opened it. -ENOMEM.
int handles_new(struct handles *h, enum handle_kind kind, uint64_t node, uint64_t unique,
                uint32_t *ret_slot);
void handles_free(struct handles *h, uint32_t slot);
// The one that this request made before the worker died, or HANDLE_NONE. Slow.
uint32_t handles_find_unique(const struct handles *h, enum handle_kind kind, uint64_t node,
                             uint64_t unique);

uint32_t handles_slot(const struct handles *h, uint64_t id, enum handle_kind kind);
uint64_t handles_id(const struct handles *h, uint32_t slot);
uint64_t handles_node(const struct handles *h, uint32_t slot);
enum handle_kind handles_kind(const struct handles *h, uint32_t slot);
uint64_t handles_count(const struct handles *h);
// The first handle from slot on, HANDLE_NONE when there is none.
uint32_t handles_next(const struct handles *h, uint32_t slot);

// Where a directory's reading has come to: the cookie last given out and the entry's key below the
// directory ("name" or "name/").
void handles_set_place(struct handles *h, uint32_t slot, uint64_t cookie, const char *key,
                       size_t len);
// Its length; 0 when none has been set. out: 257 bytes.
size_t handles_place(const struct handles *h, uint32_t slot, uint64_t *ret_cookie, char *out);

// The same memory of a handle that has no place to remember: its user's, zeroed when the handle is
// made, and found again by the next worker.
#define HANDLE_ROOM 256
void *handles_room(const struct handles *h, uint32_t slot);

// What open.c and readdir.c keep with it; NULL in a handle from before a crash.
void *handles_private(const struct handles *h, uint32_t slot);
void handles_set_private(struct handles *h, uint32_t slot, void *p);
