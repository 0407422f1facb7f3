// SPDX-License-Identifier: Apache-2.0
// Inside s3/: what all loops share about a bucket. Any thread may call these; each takes the
// bucket's lock for a moment at most.
#pragma once

#include "s3/load.h"
#include "s3/s3.h"

// Where requests go. Immutable and counted, for requests in flight point into it.
struct s3_target {
    atomic_int refs;
    struct s3_endpoint endpoint;
    char region[64];
};

struct s3_target *s3_target_ref(struct s3_target *t);
void s3_target_unref(struct s3_target *t); // NULL is allowed
// Where an answer's Location (an absolute URL) or Endpoint (a host name) points, for a request for
// path (percent-encoded, behind the base path) that was sent to from. NULL when it makes no sense,
// or would leave TLS.
struct s3_target *s3_target_from_location(const struct s3_target *from, const char *location,
                                          const char *path);
struct s3_target *s3_target_from_endpoint(const struct s3_target *from, const char *host,
                                          const char *bucket);

// Each client holds a reference, so that a freed one may still be on its way out of the line.
void s3_bucket_ref(struct s3_bucket *b);
void s3_bucket_unref(struct s3_bucket *b);

struct credentials_provider *s3_bucket_credentials(struct s3_bucket *b);

// Changes whenever the target does: a cheap look before asking for it.
unsigned s3_bucket_generation(const struct s3_bucket *b);
struct s3_target *s3_bucket_target(struct s3_bucket *b, unsigned *ret_generation);
// The store says that the bucket is in region, to a request that had gone to from. True when the
// next request will go somewhere else than to from.
bool s3_bucket_learn_region(struct s3_bucket *b, const struct s3_target *from, const char *region);
void s3_bucket_learn_target(struct s3_bucket *b, struct s3_target *t);

// What the store's clock is ahead of ours, as far as it has told us.
int64_t s3_bucket_clock_offset_s(const struct s3_bucket *b);
// The store's time is server_s, it says to a request that was signed with that offset. True when
// the next request will be signed with another one.
bool s3_bucket_learn_time(struct s3_bucket *b, int64_t server_s, int64_t used_offset_s);

// --- load control, shared by the loops ---

// A loop's place in the line for requests that wait until others have left.
struct s3_bucket_waiter {
    struct s3_bucket *bucket;
    struct loop *loop;
    void (*wake)(struct s3_bucket_waiter *w); // on its loop
    struct loop_msg msg;
    // under the bucket's lock: it stands in line, or a message is on its way, never both
    struct list link;
    bool posted;
};

void s3_bucket_waiter_init(struct s3_bucket_waiter *w, struct s3_bucket *b, struct loop *l,
                           void (*wake)(struct s3_bucket_waiter *w));
// Leaves the line. False: a call of wake is on its way, and w must live until then.
bool s3_bucket_waiter_leave(struct s3_bucket_waiter *w);

// As load_enter; on LOAD_FULL w stands in line.
uint64_t s3_bucket_enter(struct s3_bucket *b, struct s3_bucket_waiter *w, bool demand);
// Ends what enter began, and wakes whoever is next in line. True when that is self, who is left to
// wake himself.
bool s3_bucket_leave(struct s3_bucket *b, struct s3_bucket_waiter *self, enum load_answer a,
                     uint64_t sent_ns);
// w has nothing to send (any more): wakes the next in line if there is room.
void s3_bucket_pass(struct s3_bucket *b);

// As in load.h; both do nothing when no limit is set.
uint64_t s3_bucket_bytes_wait(struct s3_bucket *b, bool demand);
void s3_bucket_bytes_take(struct s3_bucket *b, uint64_t n);
