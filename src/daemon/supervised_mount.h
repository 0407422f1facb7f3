// SPDX-License-Identifier: Apache-2.0
// What supervised.c does with the file system. A directory may lie on, or be, a file system that
// does not answer: what could wait for one is done by a child.
#pragma once

#include "daemon/export_options.h"

#include <sys/types.h>

#define SUPERVISED_CHECK_NS (10 * NS_PER_S) // that the directory has to answer

// Whether the directory can be opened: a child, whose exit status is 0 or an errno. Its pid or
// -errno.
pid_t supervised_mount_check(const char *directory);
// What that means. status: of waitpid. What a dead daemon of ours has left there is unmounted. 0,
// or -errno with a sentence.
int supervised_mount_checked(const char *directory, int status, char **ret_error);
char *supervised_mount_hangs(const char *directory); // the sentence when it does not end

// /dev/fuse of the mount, or -errno with a sentence.
int supervised_mount_make(const struct export_options *o, char **ret_error);
// A child that raises the mount's read-ahead. Its pid or -1.
pid_t supervised_mount_raise_readahead(const char *directory);
// Unmounts; what is in use is detached, for so many seconds as is said in the log.
void supervised_mount_undo(const char *directory, unsigned seconds);
void supervised_mount_detach(const char *directory);
