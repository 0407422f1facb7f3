// SPDX-License-Identifier: Apache-2.0
// What the files of fuse/ share.
#pragma once

#include "fuse/fuse_session.h"

// Newer than the system's header. Both sides see it in flags2.
#ifndef FUSE_DIRECT_IO_ALLOW_MMAP
#define FUSE_DIRECT_IO_ALLOW_MMAP (1ULL << 36)
#endif

#define FUSE_NAME_MAX_BYTES 255

struct fuse_session {
    struct fuse_session_config config;
    struct fuse_negotiated negotiated;
    bool destroyed;
};

// --- reply.c ---

extern const struct fs_reply fuse_fs_reply;

// Each sends the answer and ends r.
void fuse_reply_error(struct fuse_request *r, int error); // 0 or -errno
void fuse_reply_bytes(struct fuse_request *r, const void *data, size_t len);
// The two halves of that.
int fuse_reply_send(struct fuse_request *r, const struct iovec *iov, int n); // as fuse_wire.send
void fuse_reply_end(struct fuse_request *r);

void fuse_attr_encode(struct fuse_attr *to, const struct fs_attr *a);
void fuse_entry_encode(struct fuse_entry_out *to, const struct fs_entry *e);

// --- dirents.c ---

void fuse_dirents_begin(struct fuse_request *r, uint32_t size);
bool fuse_dirents_add(struct fs_request *req, const char *name, size_t len, uint64_t cookie,
                      const struct fs_entry *e);
void fuse_dirents_end(struct fs_request *req);

// --- decode.c ---

// One kind of request. arg, len: the message behind its header.
struct fuse_op {
    void (*run)(struct fuse_request *r, const void *arg, size_t len);
    size_t arg_size; // a message with less is refused
    int error;       // the answer, where run is NULL
    bool any_user;   // sent in nobody's name in particular
    bool node;       // concerns a node, which the host must hold
};

const struct fuse_op *fuse_op_find(uint32_t opcode); // never NULL

// --- private.c: the operations of wire/ops.h ---

void fuse_hello(struct fuse_request *r, const void *arg, size_t len);
void fuse_fetch(struct fuse_request *r, const void *arg, size_t len);
void fuse_region(struct fuse_request *r, const void *arg, size_t len);
void fuse_reply_fetched(struct fs_request *req, int error, uint64_t size);

// --- hold.c: whether the host holds what it speaks of; all true for a host that is believed ---

bool fuse_holds_node(const struct fuse_session *s, uint64_t node);
bool fuse_holds_handle(const struct fuse_session *s, uint64_t handle, bool dir);
// The answer that is about to be sent gives it to the host. 0 or -ENOMEM.
int fuse_hold_node(struct fuse_session *s, uint64_t node);
int fuse_hold_handle(struct fuse_session *s, uint64_t handle, bool dir);
// That answer did not reach the host.
void fuse_unhold_node(struct fuse_session *s, uint64_t node);
void fuse_unhold_handle(struct fuse_session *s, uint64_t handle, bool dir);
// The host gives it back; how many references it had / whether it had it.
uint64_t fuse_drop_node(struct fuse_session *s, uint64_t node, uint64_t n);
bool fuse_drop_handle(struct fuse_session *s, uint64_t handle, bool dir);

// --- init.c ---

void fuse_init(struct fuse_request *r, const void *arg, size_t len);
