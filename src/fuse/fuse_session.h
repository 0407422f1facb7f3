// SPDX-License-Identifier: Apache-2.0
// fuse/: the FUSE language (<linux/fuse.h>): requests decoded and checked, answers encoded. No
// I/O: a wire gives bytes in and takes iovecs out. Every wire speaks through it. Uses fs/'s ops
// table and base/.
#pragma once

#include "fs/fs.h"

#include <linux/fuse.h>

struct fuse_session;
struct fuse_request;

// What the wire does.
struct fuse_wire {
    // Sends the answer (fuse_out_header first) of r. Called once per request that wants one, on
    // any loop; the iovecs are the caller's again when it returns. 0, or -ENOENT when the host no
    // longer waits for it (interrupted), or another -errno.
    int (*send)(struct fuse_request *r, const struct iovec *iov, int n);
    // r has ended (after send, or without one for FORGET); its bytes are not needed any more. Any loop.
    void (*finished)(struct fuse_request *r);
};

struct fuse_session_config {
    const struct fuse_wire *wire;
    struct fs *fs;
    uint32_t max_read; // largest READ, and with it max_pages: 1 MiB
    uint32_t max_readahead;
    uint16_t max_background, congestion_threshold;
    bool writable_ok; // always false today
};

// What INIT agreed on; kept by the wire across a crash of the worker (there is no second INIT).
struct fuse_negotiated {
    uint32_t minor; // 0: no INIT yet
    uint32_t flags, max_readahead, max_write;
};

int fuse_session_new(struct fuse_session **ret, const struct fuse_session_config *c,
                     const struct fuse_negotiated *resumed); // NULL or all zero: wait for INIT
void fuse_session_free(struct fuse_session *s);
const struct fuse_negotiated *fuse_session_negotiated(const struct fuse_session *s);
bool fuse_session_destroyed(const struct fuse_session *s); // DESTROY has come

// Embedded in the wire's slot.
struct fuse_request {
    struct fs_request fs; // first
    struct fuse_session *session;
    const void *in; // the whole message, private to the device side (not shared with the host)
    size_t in_len;
    struct list link; // of the session's requests in progress, on the namespace loop
    // for encoding
    uint32_t opcode;
    uint32_t max_out;
    uint64_t nodeid;
    void *scratch;
    size_t scratch_len;
};

// On the namespace loop. bytes [in, in+len) stay valid and unchanged until wire->finished.
// A message that is no FUSE request at all: -EBADMSG, and nothing else happens (a wire ends the
// session, or logs). replayed: after a crash.
int fuse_session_dispatch(struct fuse_session *s, struct fuse_request *r, const void *in,
                          size_t len, bool replayed);
