// SPDX-License-Identifier: Apache-2.0
// Buckets and what is in them. A bucket is a directory (store_dir.c), or lives in memory over
// synthetic families (store_mem.c). Any thread may call; calls may touch files, but never wait for
// anything else.
#pragma once

#include "s3d/family.h"
#include "s3d/keymap.h"
#include "s3d/object.h"

#include <pthread.h>

#define KEY_MAX_BYTES 1024

struct listed {
    char key[KEY_MAX_BYTES + 1];
    uint64_t size;
    int64_t mtime_s;
    char etag[48];
    char storage_class[32];
};

struct bucket;

// What a walk over a bucket's keys keeps between its steps; each kind of bucket embeds it.
struct cursor {
    struct bucket *bucket;
};

struct bucket_ops {
    // -ENOENT when there is none. with_bytes: blob is filled in, too.
    int (*get)(struct bucket *b, const char *key, bool with_bytes, struct object *ret);
    // Stores o's bytes and meta with its ETag; the time is the bucket's. -EEXIST if must_be_new
    // and there is one.
    int (*put)(struct bucket *b, const char *key, const struct object *o, bool must_be_new);
    int (*remove)(struct bucket *b, const char *key); // -ENOENT when there was none
    // Makes a new version of a synthetic object; -ENOENT, or -ENOTSUP if it isn't synthetic.
    int (*touch)(struct bucket *b, const char *key, uint64_t *ret_generation);
    // Where the bytes of an upload to this bucket go.
    int (*blob_new)(struct bucket *b, struct blob **ret);
    struct cursor *(*list_begin)(struct bucket *b);
    // The first key >= key (> key if after); -ENOENT at the end.
    int (*list_next)(struct cursor *c, const char *key, bool after, struct listed *ret);
    void (*list_end)(struct cursor *c);
    void (*free)(struct bucket *b);
};

struct bucket {
    atomic_uint refs;
    const struct bucket_ops *ops;
    char *name;
    int64_t created_s;
    atomic_bool requester_pays;
};

struct store {
    int data_fd; // of --data, or -1
    char *data_path;
    pthread_rwlock_t lock;
    struct keymap buckets; // under lock
};

int store_init(struct store *s, const char *data_path); // data_path may be NULL; 0 or -errno
void store_fini(struct store *s);

// With a reference, which bucket_unref gives back; NULL when there is none.
struct bucket *store_find(struct store *s, const char *name);
// A directory if there is --data, else in memory. -EEXIST.
int store_create(struct store *s, const char *name);
// Only when empty: -ENOTEMPTY. -ENOENT.
int store_delete(struct store *s, const char *name);
// Adds b, whose reference it takes. -EEXIST: b is gone.
int store_add(struct store *s, struct bucket *b);
// Calls fn for each bucket in the order of their names.
void store_each(struct store *s, void (*fn)(struct bucket *b, void *arg), void *arg);

void bucket_init(struct bucket *b, const struct bucket_ops *ops, const char *name);
void bucket_fini(struct bucket *b);
void bucket_unref(struct bucket *b); // NULL is allowed

// families is moved from; an empty set makes a bucket that is empty at first.
struct bucket *store_mem_new(const char *name, struct family_set *families);
// The directory name in data_fd, created if asked for. 0 or -errno.
int store_dir_open(struct bucket **ret, int data_fd, const char *data_path, const char *name,
                   bool create);
// Removes the emptied directory.
int store_dir_delete(int data_fd, const char *name);
// Names that S3 allows: 3 to 63 of a-z, 0-9, '.' and '-'.
bool bucket_name_is_valid(const char *name);
