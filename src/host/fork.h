// SPDX-License-Identifier: Apache-2.0
// fork() and the library's locks: none of them is held by another thread at the moment of a fork,
// so what they protect is whole in the child, and the child may take them.
#pragma once

#include "base/list.h"

#include <pthread.h>

// Locks are taken in the order of their levels, in a fork as everywhere else; two of one level are
// never held together but in a fork.
enum fork_level {
    FORK_ENTER,     // a child that connects anew
    FORK_CLIENT,    // struct os2g: what is registered, files
    FORK_FILE,      // one open file
    FORK_STAGING,   // a staging area
    FORK_CONTROL,   // a transport's messages and memory
    FORK_TRANSPORT, // a transport's requests
    FORK_LEVELS,
};

struct fork_lock {
    pthread_mutex_t mutex;
    struct list link;
};

void fork_lock_init(struct fork_lock *l, enum fork_level level);
void fork_lock_fini(struct fork_lock *l);

// How many forks this process is away from where the library was first used: what was made at
// another number belongs to a parent.
unsigned fork_count(void);
