// SPDX-License-Identifier: Apache-2.0
// Giving up rights, for good, before anything from outside is looked at.
#pragma once

#include "base/base.h"

#include <sys/types.h>

// Whom a worker of root becomes: the user os2g if there is one, else nobody. Not root: who we are.
void privilege_worker_ids(uid_t *ret_uid, gid_t *ret_gid);

// In a single-threaded process: becomes that user when root, empties every capability set,
// forbids gaining rights by exec, and core dumps (they would hold keys). 0 or -errno.
int privilege_drop(uid_t uid, gid_t gid);
