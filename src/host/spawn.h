// SPDX-License-Identifier: Apache-2.0
// A daemon started out of somebody else's process: it inherits no descriptor, is nobody's child,
// and is in a session of its own.
#pragma once

#include "base/base.h"

// Where the daemon writes one line: "ready" when it serves, or a sentence that says what is wrong,
// which "error ERRNO " may precede.
#define SPAWN_READY_FD 3

// argv[0]: a path, or a name that is looked up in PATH. Its standard error goes to a file without a
// name, /proc/PID/fd/2: it can be told where to log. 0; or -errno, and *ret_error, a sentence (free
// it): -ENOENT: there is no such program; -ETIMEDOUT; what the daemon says,
// -EIO if that is only a sentence.
int spawn_daemon(char *const *argv, uint64_t deadline_ns, char **ret_error);
