// SPDX-License-Identifier: Apache-2.0
// Key pairs: those given by options, which last, and those issued, which expire.
#pragma once

#include "base/base.h"
#include "s3d/keymap.h"

#include <pthread.h>
#include <stdatomic.h>

struct credential {
    char *access, *secret;
    char *token;               // of issued ones, else NULL
    _Atomic int64_t expires_s; // of issued ones, else INT64_MAX
    unsigned rights;           // RIGHT_*
    char *prefix;              // "BUCKET/KEY-PREFIX" that it is limited to; "" for all
};

struct credential_table {
    pthread_rwlock_t lock;
    struct keymap by_access; // under lock; entries are never removed
    uint64_t n_issued;
};

void credential_table_init(struct credential_table *t);
void credential_table_fini(struct credential_table *t);
// -EEXIST
int credential_table_add(struct credential_table *t, const char *access, const char *secret,
                         unsigned rights, const char *prefix);
// Lines "ACCESS SECRET [rights=get,list,put,delete] [prefix=BUCKET/PREFIX]", '#' begins a comment.
// 0 or -errno, with a message in *ret_why for -EINVAL.
int credential_table_load(struct credential_table *t, const char *path, char **ret_why);
// The pointer stays valid as long as the table; NULL when there is none.
const struct credential *credential_table_find(struct credential_table *t, const char *access);
// A new temporary one with all rights. NULL when too many are out.
const struct credential *credential_table_issue(struct credential_table *t, int64_t expires_s);
// Ends all issued ones at once; how many were still valid at now_s.
unsigned credential_table_expire_all(struct credential_table *t, int64_t now_s);
