// SPDX-License-Identifier: Apache-2.0
// Starting a worker: this program once more, with the descriptors of worker.h.
#pragma once

#include "base/base.h"

#include <sys/types.h>

// The program's file, held open, so that a worker can be started again although a newer version
// has taken its place.
struct program {
    int fd;
    int previous_fd; // the version before program_reopen, or -1
    char *path;
};

int program_open(struct program *p); // 0 or -errno
void program_close(struct program *p);
// What lies at the program's path now is what is started from now on. 0 or -errno (all as before).
int program_reopen(struct program *p);
// Back to the version before, if there is one; whether there was.
bool program_revert(struct program *p);

// argv: of the child, ends with NULL. fds: become 3, 4, … in the child (where one is -1
// there is none); all others but 0 to 2 are closed. A child made by a single-threaded process.
// Returns the pid or -errno.
pid_t spawn(const struct program *p, char *const argv[], const int *fds, size_t n_fds);
