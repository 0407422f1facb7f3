// SPDX-License-Identifier: Apache-2.0
// Reading vhost-user messages (wire/vhost_user.h): bytes of a host in, a checked message out. Pure
// functions; what fits the state of the session is link.c's to know.
#pragma once

#include "base/base.h"
#include "wire/vhost_user.h"

#define VHOST_USER_FDS_MAX   VHOST_USER_TABLE_MAX // with one message
#define VHOST_USER_BYTES_MAX 1024 // of a payload, of requests that we do not know, too

struct vhost_user_message {
    uint32_t request;
    bool known; // else there is nothing but the request's number
    bool need_reply;
    unsigned n_fds; // as many as the request has
    union vhost_user_payload payload;
};

// 0: as many bytes as *ret_size follow; -EBADMSG with a sentence.
int vhost_user_read_header(const struct vhost_user_header *h, uint32_t *ret_size,
                           const char **ret_why);
// payload: h->size bytes, which may lie anywhere. -EBADMSG with a sentence: of another size, with
// another number of descriptors, or with values that make no sense whatever the session's state.
int vhost_user_read(const struct vhost_user_header *h, const void *payload, unsigned n_fds,
                    struct vhost_user_message *ret, const char **ret_why);
