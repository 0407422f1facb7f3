// SPDX-License-Identifier: Apache-2.0
// s3/: operations on one bucket: signing, retries, redirects, resumed bodies, hedged small GETs,
// load control, listing. What the store says is turned into an errno at one place (error.h):
// ENOENT, EACCES, ESTALE (412 or another ETag), EIO after the retry time-out. Uses net/, loop/,
// base/.
//
// struct s3_bucket is shared by all loops; each loop has an s3_client of its own, and an
// operation lives on the loop of its client. Operations are embedded in the caller's structs,
// set up zeroed; their done fires exactly once, never from within start or cancel.
#pragma once

#include "base/counter.h"
#include "loop/loop.h"
#include "net/http_client.h"
#include "s3/credentials.h"
#include "s3/settings.h"

struct s3_bucket;
struct s3_client;

// Thread-safe state of a bucket: settings, learned region and redirect, clock offset, load
// control, credentials. settings are copied; provider stays the caller's and must outlive it.
int s3_bucket_new(struct s3_bucket **ret, const struct s3_settings *s,
                  struct credentials_provider *provider, char **ret_error);
void s3_bucket_free(struct s3_bucket *b); // after its clients
const struct s3_settings *s3_bucket_settings(const struct s3_bucket *b);

int s3_client_new(struct s3_client **ret, struct loop *l, struct s3_bucket *b);
void s3_client_free(struct s3_client *c); // on its loop; all operations have ended

enum s3_kind { S3_GET, S3_HEAD, S3_LIST, S3_KINDS };

struct s3_client_stats {
    struct counter requests[S3_KINDS]; // sent, retries and hedges included
    struct counter retries, resumed_bodies, hedges, hedges_won, redirects, throttled;
    struct counter errors[S3_KINDS]; // operations that ended with an error (not ENOENT/ESTALE)
    struct counter bytes_in;         // object bytes landed
    struct histogram first_byte[S3_KINDS]; // from sending to the first byte of the answer
};
const struct s3_client_stats *s3_client_stats(const struct s3_client *c);        // any thread
const struct http_client_stats *s3_client_http_stats(const struct s3_client *c); // any thread

// What is known of an object, from GET, HEAD or LIST. Strings end with zero, live during the
// call-back.
struct s3_object_info {
    uint64_t size;
    int64_t mtime_s;
    const char *etag;          // with its quotes as sent; "" if the store gives none
    const char *storage_class; // "" for STANDARD
    const char *content_type;  // GET and HEAD; "" in listings
    // GET and HEAD: user metadata, "x-amz-meta-" cut off
    const struct http_header *metadata;
    size_t n_metadata;
};

// A sentence for people about an operation that failed: store's code and message, what to do.
#define S3_ERROR_TEXT 320

// --- GET of a range ---

struct s3_get {
    // set by the caller, valid until done
    const char *key;
    size_t key_len;
    const char *if_match; // ETag as in s3_object_info; NULL or "": whatever is there
    uint64_t offset, len; // len > 0; UINT64_MAX: to the end (then no Range when offset == 0)
    enum http_priority priority;
    // A small GET (at most 1 MiB, or all of an object that is expected to be small) that may be
    // sent twice when its first byte is late. Only one of the two lands bytes.
    bool hedge;

    // The answer's head is good (status, ETag, Content-Range all as asked). Once per operation;
    // after a resume only the ETag is compared again. May be NULL. <0 ends the operation.
    int (*on_head)(struct s3_get *g, const struct s3_object_info *info, uint64_t body_len);
    // As in http_exchange: where the next bytes go / n have landed. Bytes are reported in order and
    // once, across retries; a retry goes on at the byte that was reached.
    int (*on_room)(struct s3_get *g, struct iovec *iov, int max);
    void (*on_landed)(struct s3_get *g, size_t n);
    // 0: all bytes have landed. Else -errno, with error_text for people. What on_head or on_room
    // gave comes out as it was; -EFAULT: the room was no memory.
    void (*done)(struct s3_get *g, int error);

    char error_text[S3_ERROR_TEXT];
    uint64_t landed; // bytes so far
    // When the first request for it was let go (before, it stood in line for one of the endpoint's
    // connections), and when the first good answer began; 0: not yet.
    uint64_t sent_ns, first_byte_ns;
    void *op; // private
};
void s3_get_start(struct s3_client *c, struct s3_get *g);
void s3_get_cancel(struct s3_get *g); // done(-ECANCELED) follows unless it had ended
void s3_get_resume(struct s3_get *g); // after on_room gave 0
void s3_get_raise(struct s3_get *g);  // background becomes demand

// --- HEAD ---

struct s3_head {
    const char *key;
    size_t key_len;
    // info is valid during the call, NULL on error.
    void (*done)(struct s3_head *h, int error, const struct s3_object_info *info);
    char error_text[S3_ERROR_TEXT];
    void *op;
};
void s3_head_start(struct s3_client *c, struct s3_head *h);
void s3_head_cancel(struct s3_head *h);

// --- LIST (ListObjectsV2), one page ---

// Keys in listings come decoded (encoding-type=url is used) and may hold any byte but zero.
struct s3_list_entry {
    const char *key; // whole key, or whole common prefix with its delimiter
    size_t key_len;
    bool is_prefix;
    struct s3_object_info info; // not for prefixes
};

struct s3_list {
    const char *prefix;
    size_t prefix_len;
    char delimiter;          // 0: none
    const char *start_after; // NULL: from the beginning
    size_t start_after_len;
    const char *continuation; // of the page before; NULL for the first
    unsigned max_keys;        // 0: the store's default (1000)
    enum http_priority priority;
    // In the order of the answer: objects and prefixes each sorted. <0 ends the operation. Called
    // only once the whole page has arrived well, so that a retry repeats no entry.
    int (*entry)(struct s3_list *l, const struct s3_list_entry *e);
    // continuation (valid during the call) is NULL when this was the last page.
    void (*done)(struct s3_list *l, int error, const char *continuation);
    char error_text[S3_ERROR_TEXT];
    void *op;
};
void s3_list_start(struct s3_client *c, struct s3_list *l);
void s3_list_cancel(struct s3_list *l);

// --- whole listings ---

// Pages through one prefix to its end; several may run at once on a client. Entries of objects and
// common prefixes come merged in byte order.
struct s3_list_all {
    const char *prefix;
    size_t prefix_len;
    char delimiter;
    enum http_priority priority;
    int (*entry)(struct s3_list_all *l, const struct s3_list_entry *e);
    void (*done)(struct s3_list_all *l, int error);
    char error_text[S3_ERROR_TEXT];
    void *op;
};
void s3_list_all_start(struct s3_client *c, struct s3_list_all *l);
void s3_list_all_cancel(struct s3_list_all *l);

// Checks that the bucket answers and what these credentials may do, for mount and doctor: one
// LIST with max-keys 1 under prefix; done(0), or -errno and a sentence saying what to do.
struct s3_probe {
    const char *prefix;
    void (*done)(struct s3_probe *p, int error);
    char error_text[S3_ERROR_TEXT];
    void *op;
};
void s3_probe_start(struct s3_client *c, struct s3_probe *p);
