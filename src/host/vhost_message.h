// SPDX-License-Identifier: Apache-2.0
// Messages of vhost-user, the front-end's side: one at a time, each answered.
#pragma once

#include "base/base.h"
#include "wire/vhost_user.h"

// Asks for a number. 0; -EPIPE: the daemon has gone; -ETIMEDOUT; -EBADMSG: it does not
// speak vhost-user; -errno.
int message_get(int socket, uint32_t request, uint64_t *ret, uint64_t deadline_ns);
// Says something. with_reply: waits for its acknowledgement (REPLY_ACK has been agreed on); a
// refusal is -EREMOTEIO. fd: goes along, or -1.
int message_set(int socket, uint32_t request, const void *payload, uint32_t size, int fd,
                bool with_reply, uint64_t deadline_ns);
