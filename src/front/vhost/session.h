// SPDX-License-Identifier: Apache-2.0
// What the files of the worker's half share. One session is one host.
//
//   vhost.c           sessions by number, statistics
//   session.c         a session's life; its commands, one after the other
//   session_memory.c  what of it outlives a worker
//   queue.c           rings: chains in
//   request.c         requests in progress: messages in, answers out
//   fence.c           memory that goes away under requests in progress
//   gpu.c             the guest's GPU memory, as fs/ leases it
//   window.c          REGION: GPU memory that a helper process opens
//
// On the namespace loop, but for what says otherwise.
#pragma once

#include "base/list.h"
#include "cache/cache.h"
#include "front/vhost/session_memory.h"
#include "front/vhost/vhost.h"
#include "front/vhost/virtq.h"
#include "fuse/fuse_session.h"
#include "gdd/landing.h"
#include "gdd/lease.h"

#include <stdatomic.h>

struct session;

// A chain's pieces: its descriptors, and a few that cross from one region into the next.
#define VHOST_PIECES_MAX (VHOST_RING_MAX + 64)

struct vhost {
    struct vhost_config config;
    struct loop *loop;
    struct list sessions;
    struct region_piece *pieces; // of the chain that is being taken

    _Atomic uint64_t n_sessions, requests, read_bytes, fetches, cut_off, bad;
    _Atomic uint64_t landed_direct, landed_copied, landed_engine;
};

struct queue {
    struct session *session;
    unsigned index;
    struct virtq q;
    bool running;
    bool stopping; // its fence is under way
    struct loop_io *kick;
    struct loop_msg turn;
    bool turn_posted;
};

// What becomes of a request's answer. It only ever gets worse; set on the namespace loop, read by
// whoever answers, and after a fence nobody answers who had read something better.
enum fate {
    FATE_ANSWER,
    FATE_CUT,      // some of its memory has gone: an error
    FATE_MUTE,     // that of its header too: no byte, but the host gets the descriptors back
    FATE_DETACHED, // its queue has stopped: nothing; it stays in the log
};

// For each of these memory is kept from one request to the next, so that requests of the usual
// sizes allocate nothing.
#define MESSAGE_USUAL ((size_t)1280) // FETCH with the longest key
// The largest is an ioctl's: 40 + 32 + 16,383 bytes.
#define MESSAGE_MAX (20 * 1024)

struct request {
    struct fuse_request fuse; // first
    struct session *session;
    struct queue *queue;
    struct list link;     // in session->in_progress
    struct request *next; // in free or freed
    struct loop_msg home; // the session has ended
    uint16_t head;
    _Atomic(enum fate) fate;
    enum { UNDECIDED, PUSH, DROP } outcome;
    uint32_t used; // bytes written, with PUSH
    bool cancelled;

    struct region_piece *out; // device-writable memory
    unsigned n_out, out_room;
    uint64_t out_len;
    struct landing landing; // of a READ or FETCH: what of out lies behind its headers
    struct iovec *iov;      // [out_room], the landing's
    unsigned char *large;   // a message beyond the usual size
    _Alignas(8) unsigned char message[MESSAGE_USUAL];
};

struct waiting_command {
    struct list link;
    struct vhost_command command;
    int fd;
};

struct window {
    struct session *session;
    struct os2g_region_in *in;    // in the session's memory; op 0: not in use
    struct engine_memory *memory; // NULL: its descriptor has not come yet
    uint64_t region;              // while it is there
    bool opened;                  // with this error
    int error;
    bool closing;
    struct fuse_request *waiting;  // a WAIT
    struct fuse_request *removing; // a REMOVE
    void (*removed)(struct session *s);
    struct cache_fence fence;
};

struct session {
    struct list link;
    struct vhost *vhost;
    uint32_t number;
    uint32_t peer_uid, peer_pid;
    unsigned ways_logged; // bits
    struct session_memory memory;
    struct fuse_holdings *holdings;
    struct fuse_session *fuse;
    struct region_map *map;
    struct leases *leases; // in map
    struct fs_gpu gpu;
    struct queue queues[VHOST_QUEUES];
    struct engine *engine; // from its first window on
    struct window windows[SESSION_WINDOWS];

    // commands
    struct list waiting; // behind the one that a fence holds up
    bool busy;
    struct vhost_command current;
    struct cache_fence fence;
    uint64_t removing; // region

    // requests
    struct list in_progress;
    struct request *free;
    _Atomic(struct request *) freed; // by any loop, not yet taken out of in_progress
    size_t bytes;                    // of private memory that requests take

    // The first to break a rule, on any loop, fills in text.
    struct {
        atomic_bool is;
        bool reported;
        char text[160];
        struct loop_msg msg;
    } bad;

    // The host has gone; from now on requests that end are posted home. Freed when all are.
    atomic_bool ending;
    bool fenced, gone; // gone: nothing touches its memory any more
    struct loop_msg give_back;
    bool giving_back;
};

// --- session.c ---

struct session *session_new(struct vhost *v, const struct vhost_command *c, int memory_fd);
// In order. fd (or -1) becomes the session's.
void session_command(struct session *s, const struct vhost_command *c, int fd);
// Any loop: the host has broken the rules, or its memory is gone.
void session_bad(struct session *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
static inline bool session_is_bad(struct session *s)
{
    return atomic_load_explicit(&s->bad.is, memory_order_relaxed);
}
// One of the windows of a session that has ended is closed.
void session_window_ended(struct session *s);
// Frees it if it has ended and nothing of it is under way any more.
void session_end_if_idle(struct session *s);

// --- queue.c ---

int queue_start(struct queue *q, const struct vhost_command *c, int kick_fd);
void queue_set_call(struct queue *q, int call_fd);
void queue_pause(struct queue *q);    // nothing is taken from it any more
uint32_t queue_stop(struct queue *q); // after queue_pause and a fence

// --- request.c ---

extern const struct fuse_wire session_wire;

// One chain becomes a request and is carried out.
void request_take(struct queue *q, const struct virtq_chain *c);
// Those that other loops have ended leave in_progress.
void requests_collect(struct session *s);
void requests_free(struct session *s); // none is in progress

// --- window.c ---

void window_request(struct fuse_request *r, const struct os2g_region_in *in);
void windows_resume(struct session *s); // those that the worker before had
// The descriptor of a window has come; it becomes the window's. false: there is no such window.
bool window_take_fd(struct session *s, const struct region_info *info, int fd);
// The descriptor of a window goes, and the window with it if it is still there. 0; -EINPROGRESS:
// removed is called when that is done; -ENOENT: there is no such window.
int window_drop_fd(struct session *s, const struct region_info *info,
                   void (*removed)(struct session *s));
void windows_end(struct session *s); // after a fence
bool windows_ended(const struct session *s);

// --- gpu.c ---

void session_gpu_init(struct session *s);

// --- fence.c ---

// Requests in progress whose memory lies in this region, or all of this queue, do not write any
// more once a fence that starts after this is done, and end soon.
void cut_off_region(struct session *s, uint64_t region);
void cut_off_queue(struct queue *q);
