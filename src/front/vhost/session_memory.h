// SPDX-License-Identifier: Apache-2.0
// What of a session outlives a worker: a memfd that the supervisor holds too.
//
//   head       what INIT and HELLO agreed on, the session's key, windows of GPU memory
//   logs       of each queue (virtq.h)
//   holdings   nodes and handles (fuse/holdings.h), to the end, growing
#pragma once

#include "front/vhost/virtq.h"
#include "fuse/fuse_session.h"
#include "gdd/region.h"
#include "wire/ops.h"

#define SESSION_WINDOWS WINDOWS_MAX

struct session_head {
    uint64_t magic; // 0: new
    uint32_t version;
    uint32_t queues;
    struct fuse_negotiated negotiated;
    uint64_t unique_key; // fuse_session_config
    // ADD requests that were carried out; op 0: none. REMOVE: the window has gone, but the
    // descriptor that came for it is still shared.
    struct os2g_region_in windows[SESSION_WINDOWS];
};

struct session_memory {
    int fd; // its own
    struct session_head *head;
    struct virtq_log *logs; // [VHOST_QUEUES]
};

// fd becomes m's in any case. 0, -EINVAL (it holds something else) or -errno.
int session_memory_open(struct session_memory *m, int fd);
void session_memory_close(struct session_memory *m);
uint64_t session_memory_holdings_offset(void);
