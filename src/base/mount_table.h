// SPDX-License-Identifier: Apache-2.0
// What is mounted, and which of it is ours, from /proc/self/mountinfo (proc(5)).
#pragma once

#include "base/base.h"

#include <sys/types.h>

struct mount_entry {
    char *directory; // unescaped
    char *source;    // "s3://bucket/prefix"
    uid_t owner;     // whose daemon serves it
    bool ours;       // else it is some other file system, and owner means nothing
};

struct mount_table {
    struct mount_entry *entries; // in the order of mounting
    size_t n;
};

int mount_table_read(struct mount_table *ret); // 0 or -errno
void mount_table_free(struct mount_table *t);
// Takes text as it stands in mountinfo; for tests.
void mount_table_parse(struct mount_table *ret, const char *text);

// The one of ours that path lies in (the longest directory that holds it), or NULL. path is
// absolute.
const struct mount_entry *mount_table_find(const struct mount_table *t, const char *path);
// The one of ours that is mounted just there, or NULL.
const struct mount_entry *mount_table_at(const struct mount_table *t, const char *directory);
// The topmost just there, whosever it is, or NULL.
const struct mount_entry *mount_table_top(const struct mount_table *t, const char *directory);

// An absolute path without symbolic links, as realpath, but also for a directory whose daemon has
// died (where looking fails). The caller frees it; NULL with errno.
char *mount_table_absolute(const char *directory);
