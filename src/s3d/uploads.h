// SPDX-License-Identifier: Apache-2.0
// Multipart uploads under way. They live in memory and end with the server.
#pragma once

#include "s3d/keymap.h"
#include "s3d/object.h"

#include <pthread.h>

#define UPLOAD_MAX_PARTS 10000

struct upload_part {
    unsigned number;
    int64_t mtime_s;
    uint8_t md5[16];
    struct blob *blob;
};

struct upload {
    char *id, *bucket, *key;
    int64_t created_s;
    struct meta *meta;
    struct upload_part *parts; // sorted by number
    size_t n_parts;
};

struct upload_table {
    pthread_mutex_t lock;
    struct keymap by_id; // under lock
    uint64_t next_id;
};

void upload_table_init(struct upload_table *t);
void upload_table_fini(struct upload_table *t);

// Its id, which the caller frees. meta: a reference is taken.
char *upload_create(struct upload_table *t, const char *bucket, const char *key, struct meta *meta);
// Takes a reference to blob; replaces a part of the same number. -ENOENT when there is no upload.
int upload_put_part(struct upload_table *t, const char *id, const char *bucket, const char *key,
                    unsigned number, const uint8_t md5[static 16], struct blob *blob);
// Takes it out of the table; the caller ends it with upload_free. NULL when there is none.
struct upload *upload_take(struct upload_table *t, const char *id, const char *bucket,
                           const char *key);
// Back it goes, after a completion that failed.
void upload_give_back(struct upload_table *t, struct upload *u);
void upload_free(struct upload *u);
const struct upload_part *upload_find_part(const struct upload *u, unsigned number);
// Calls fn, under the lock, for this upload; false when there is none.
bool upload_visit(struct upload_table *t, const char *id, const char *bucket, const char *key,
                  void (*fn)(const struct upload *u, void *arg), void *arg);
// Calls fn, under the lock, for each upload of the bucket in the order of their ids.
void upload_each(struct upload_table *t, const char *bucket,
                 void (*fn)(const struct upload *u, void *arg), void *arg);
