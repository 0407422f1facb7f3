// SPDX-License-Identifier: Apache-2.0
// Where bytes of a read go when they shall end in a host's memory: made by a wire (gdd/), used by
// cache/ and fs/. One writer at a time. Bytes that are there are never read back: the host can
// change them.
#pragma once

#include "loop/loop.h"

#include <stdatomic.h>
#include <sys/uio.h>

struct cache_dest;

// A copy under way; embedded.
struct cache_put {
    // On the loop that called put; once; only after -EINPROGRESS.
    void (*done)(struct cache_put *p, int error);
    // for the engine
    struct loop *loop;
    struct loop_msg msg;
    void *engine;
    int error;
};

struct cache_dest_ops {
    // Copies the pieces to bytes [at, at + their length) of d. On any loop. 0; -EINPROGRESS: done
    // follows, and the pieces stay valid until then (an engine copies); -ECANCELED: d was cut
    // off; -EFAULT: the memory is gone.
    int (*put)(struct cache_dest *d, uint64_t at, const struct iovec *iov, int n,
               struct cache_put *p);
};

struct cache_dest {
    const struct cache_dest_ops *ops;
    uint64_t len;
    // Bodies may be received straight into iov (mapped, and sealed against shrinking): the n
    // pieces are the len bytes in order. Else only put is allowed.
    bool direct;
    const struct iovec *iov;
    int n_iov; // 0: an engine's, which takes nothing but pages of the cache; else put copies at
               // once
    // Set by the wire, on any thread: no byte may be written any more, whatever is under way ends
    // with -ECANCELED. Who writes looks at it first, on the loop where it writes; after a
    // cache_fence nobody does who had not seen it.
    atomic_bool cut;
};
