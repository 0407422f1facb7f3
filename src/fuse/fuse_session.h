// SPDX-License-Identifier: Apache-2.0
// fuse/: the FUSE language (<linux/fuse.h>): requests decoded and checked, answers encoded. No
// I/O: a wire gives bytes in and takes iovecs out. Every wire speaks through it. Uses fs/'s ops
// table, wire/, the length of a cache/dest.h and base/.
#pragma once

#include "fs/fs.h"

#include <linux/fuse.h>

struct fuse_session;
struct fuse_request;

struct fuse_holdings;
struct os2g_region_in;

// What the wire does.
struct fuse_wire {
    // Sends the answer (fuse_out_header first) of r. Called once per request that wants one, on
    // any loop; the iovecs are the caller's again when it returns. The header's len may count more
    // than they hold: those bytes lie in r->fs.dest already. 0, or -ENOENT when the host no
    // longer waits for it (interrupted), or another -errno.
    int (*send)(struct fuse_request *r, const struct iovec *iov, int n);
    // r has ended (after send, or without one for FORGET); its bytes are not needed any more. Any
    // loop.
    void (*finished)(struct fuse_request *r);
    // The request in progress with this number, or NULL. On the namespace loop. NULL for a wire
    // on which nothing can be interrupted.
    struct fuse_request *(*find)(void *arg, uint64_t unique);
    // HELLO was agreed on; kept by the wire as what INIT agreed on is. NULL: a wire without the
    // operations of wire/ops.h (-ENOSYS).
    void (*hello)(void *arg);
    // A REGION request, answered, now or later, by fuse_session_answer.
    void (*region)(struct fuse_request *r, const struct os2g_region_in *in);
};

struct fuse_session_config {
    const struct fuse_wire *wire;
    void *wire_arg;
    const struct fs_ops *ops;
    struct fs *fs;
    uint32_t max_read; // largest READ, and with it max_pages; a multiple of 4 KiB
    uint32_t max_readahead;
    uint16_t max_background;
    bool deny_others; // all but root and owner_uid get EACCES (the mount option allow_root)
    uint32_t owner_uid;
    // After HELLO: READs may be so large, and requests carry this identity, whatever they claim.
    uint32_t max_read_landing;
    uint32_t peer_uid, peer_gid, peer_pid;
    // What this host holds of nodes and handles (holdings.h): it can give back no others. NULL
    // for the local kernel, which is believed. Not owned.
    struct fuse_holdings *holdings;
    // Hosts number their requests alike: so that two of them are never taken for one, fs/ sees the
    // numbers of this host mixed with this, which no host knows. 0: as they are.
    uint64_t unique_key;
    struct fs_gpu *gpu;            // what its requests may lease; NULL: nothing. Not owned.
    const char *source, *endpoint; // what HELLO tells (wire/ops.h); NULL: nothing. Not owned.
};

// What INIT agreed on; kept by the wire across a crash of the worker (there is no second INIT).
struct fuse_negotiated {
    uint32_t minor; // 0: no INIT yet
    uint32_t max_readahead;
    uint32_t max_write;
    uint32_t max_read;
    uint64_t flags; // flags2 in the upper half
    uint32_t hello; // version of wire/ops.h; 0: no HELLO
    uint32_t pad;
};
_Static_assert(sizeof(struct fuse_negotiated) == 32, "kept in memory that outlives a worker");

// Any thread. resumed: NULL or all zero: wait for INIT.
struct fuse_session *fuse_session_new(const struct fuse_session_config *c,
                                      const struct fuse_negotiated *resumed);
// On the namespace loop, once every request has been answered. NULL is allowed.
void fuse_session_free(struct fuse_session *s);
// Settled before the answer to INIT is sent.
const struct fuse_negotiated *fuse_session_negotiated(const struct fuse_session *s);
bool fuse_session_destroyed(const struct fuse_session *s); // DESTROY has come, and no INIT since
// Gives back to fs/ what the host holds, at most max things: it has gone. True: that was all. On
// the namespace loop.
bool fuse_session_give_back(struct fuse_session *s, uint64_t max);

// Embedded in the wire's slot; filled by fuse_session_dispatch.
struct fuse_request {
    struct fs_request fs; // first
    struct fuse_session *session;
    uint64_t unique; // the host's number for it
    uint64_t nodeid;
    uint32_t opcode;
    uint32_t max_out; // room for the answer behind its header, as the request says
    char *dirents;    // readdir: max_out bytes
    uint32_t dirents_len;
};

// On the namespace loop. [in, in+len): the whole message, aligned to 8 bytes, private to the
// device side (not shared with the host), unchanged until wire->finished. 0: r will be finished,
// or is already. A message that is no FUSE request at all: -EBADMSG, and nothing else happens (a
// wire ends the session, or logs).
struct fuse_arrival {
    bool replayed; // a worker before this one may have carried it out
    // Where the data of a READ or FETCH goes (cache/dest.h), valid until finished; NULL for a wire
    // whose answers carry it.
    struct cache_dest *dest;
};
int fuse_session_dispatch(struct fuse_session *s, struct fuse_request *r, const void *in,
                          size_t len, const struct fuse_arrival *arrival);
// How many bytes of the answer to this message (len bytes, at least a header) come before its
// data; 0: it is no READ or FETCH.
size_t fuse_session_data_offset(const void *in, size_t len);
// The answer to a REGION request: 0 or -errno.
void fuse_session_answer(struct fuse_request *r, int error);
