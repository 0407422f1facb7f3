// SPDX-License-Identifier: Apache-2.0
// A split virtqueue, the device's side (virtio 1.2, 2.7), with a log of the requests in progress
// that outlives the worker. Everything that comes out of the ring has been copied and checked.
//
// Replies go out of order, so used->idx alone does not say what is done. The log (as vhost-user's
// inflight region for split rings has it, in memory of our own since QEMU's vhost-user-fs offers
// none):
//
//   pop:  log[head].busy = 1, counter            push: last_head = head; used ring entry;
//                                                      used->idx; log[head].busy = 0; log.used_idx
//
// A new worker finds the busy heads, less the last_head of a push that died between used->idx and
// the rest, and takes them first, oldest first.
#pragma once

#include "front/vhost/command.h"
#include "gdd/region.h"

#include <pthread.h>

struct virtq_log_entry {
    uint64_t counter; // order of taking
    uint32_t busy;
    uint32_t pad;
};

struct virtq_log {
    uint32_t size; // 0: empty, not used yet
    uint16_t used_idx, last_head;
    uint64_t counter;
    uint32_t stopped_base; // what QUEUE_STOP answered, plus one; 0: it runs
    uint32_t start;        // of which QUEUE_START it is
    struct virtq_log_entry entry[VHOST_RING_MAX];
};

struct virtq {
    uint32_t size;
    uint64_t features;
    const struct region_map *map;
    struct virtq_log *log;
    void *desc, *avail, *used; // in the host's memory: only under a guard
    uint64_t regions[3];       // where these lie
    uint16_t last_avail, seen_avail;
    bool asks_kicks;
    atomic_uint in_progress; // taken, or pending, and not answered
    int kick_fd;
    uint16_t *pending; // heads to be carried out again
    unsigned n_pending;

    // Pushing comes from any loop.
    struct {
        pthread_mutex_t mutex;
        int call_fd; // or -1
        uint16_t used_idx, signalled_idx;
        bool signalled_valid;
    } locked;
};

// log: zeroed, or of before. If it is of this very start (a worker has died, whether or not it had
// stopped the queue), or the ring goes on at the base that it was stopped at with as many requests
// unanswered as the log holds, those are pending. Else the log is emptied. kick_fd becomes q's on
// success. 0; -EINVAL (size, alignment, a part of the ring in no region); -EFAULT; -EBADMSG (the
// ring's used index is not what the log says).
int virtq_start(struct virtq *q, const struct region_map *map, struct virtq_log *log,
                const struct vhost_command *start, int kick_fd);
// Nobody pushes any more, nor watches kick_fd, which is closed. Returns the base. Requests in
// progress stay in the log.
uint32_t virtq_stop(struct virtq *q);
// After virtq_start; call_fd (or -1) becomes q's, on failure too. It is signalled at once: what was
// pushed before, by another worker too, may not have been. 0; -EINVAL: no eventfd.
int virtq_set_call(struct virtq *q, int call_fd);
// kick_fd is readable: takes the kick; never blocks, whatever the host does with its descriptor.
// false: it is no eventfd, and the session is to end.
bool virtq_kicked(struct virtq *q);
// The ring lies in this region: it must not go away while the queue runs.
bool virtq_touches(const struct virtq *q, uint64_t region_id);

// One request: the pieces of its descriptors, device-readable ones first.
struct virtq_chain {
    uint16_t head;
    bool replayed; // taken by a worker before this one
    // Of what is device-writable something is not shared: pieces without base and id. Whether that
    // is bad is for the caller to say.
    bool nowhere;
    unsigned n_in, n_out;
    uint64_t in_len, out_len;    // of each kind
    unsigned max;                // room in pieces: VHOST_RING_MAX, and a few for split ones
    struct region_piece *pieces; // [n_in + n_out], caller's memory
};

// On the namespace loop. 1: a chain; 0: none (then notifications were turned on, and it was looked
// again); -EBADMSG and the like: the ring is bad (*ret_why: static text), the session is to end. A
// chain has at most VHOST_RING_MAX descriptors, indirect ones included, none of them empty. A
// descriptor that crosses from one region into the next becomes two pieces.
int virtq_pop(struct virtq *q, struct virtq_chain *ret, const char **ret_why);
// The answer has been written: len bytes of device-writable memory. Any loop. 0 or -EFAULT. Signals
// as EVENT_IDX or NO_INTERRUPT says.
int virtq_push(struct virtq *q, uint16_t head, uint32_t len);
