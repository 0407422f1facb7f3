// SPDX-License-Identifier: Apache-2.0
// The keys of a directory bucket in the order of their bytes. A directory sorts as its name with
// '/' behind it, so that "a.txt" comes before "a/x". What was read of the directories on the way is
// kept, also for the next walk: a listing that comes page by page reads a large directory once.
#pragma once

#include "base/base.h"

#include <time.h>

#define DIR_PRIVATE ".os2g-s3d"
#define DIR_KEYS    DIR_PRIVATE "/keys"
#define DIR_PIECE   200 // characters of an escaped key in one file name

struct dir_names {
    char *path;   // "" or "a/b/"
    char **items; // sorted; directories end in '/'
    size_t len, room;
    struct timespec mtime; // of the directory when it was read
    bool is_settled;       // it had not just changed then: another change would show in mtime
    uint64_t walk;         // that has checked it
};

struct dir_walk {
    int fd;
    uint64_t walk;             // number
    struct dir_names **levels; // of the directories on the way to the current key
    size_t n_levels;
    struct dir_names *escaped; // the keys below DIR_KEYS, decoded
};

void dir_walk_init(struct dir_walk *w, int bucket_fd);
void dir_walk_begin(struct dir_walk *w); // a new walk: looks at each directory again
void dir_walk_fini(struct dir_walk *w);
// The first key >= key (> key if after) into out, which has room for KEY_MAX_BYTES + 1; -ENOENT at
// the end. The caller checks that there is an object of that name.
int dir_walk_next(struct dir_walk *w, const char *key, bool after, char *out);
