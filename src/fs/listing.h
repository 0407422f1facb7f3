// SPDX-License-Identifier: Apache-2.0
// Fetches the listing of a directory page by page into a snapshot.
#pragma once

#include "fs/impl.h"

struct listing {
    struct fs *fs;
    struct snapshot *into; // the owner's
    enum http_priority priority;
    // A page is in the snapshot (error 0), or there will be none. Then the owner asks for the next
    // one or frees the listing. last: there is no next one.
    void (*page)(struct listing *l, int error, bool last);
    void *arg;

    // private
    struct s3_list op;
    char *prefix;                // as the store has it
    size_t prefix_len, path_len; // path: behind the export's prefix
    char *start_after, *continuation;
    bool running, abandoned;
};

// path: of the directory, "a/b/". after: the key in it to begin behind ("name" or "name/"), or
// NULL. Nothing is asked for yet.
struct listing *listing_new(struct fs *fs, const char *path, size_t len, const char *after,
                            size_t after_len, struct snapshot *into);
void listing_next(struct listing *l);
// At any time; a page under way is cancelled and not heard of. NULL is allowed.
void listing_free(struct listing *l);
const char *listing_error(const struct listing *l); // for people
