// SPDX-License-Identifier: Apache-2.0
// Inside the link: what its files share.
//
//   link.c          what becomes of each message; the worker's events and its death
//   link_io.c       bytes and descriptors in, one message at a time; replies out
//   link_memory.c   regions
//   link_rings.c    rings
//   foreign_fd.c    which of a host's descriptors can be trusted, and how to close the others
//
// A message that changes memory or stops a ring goes through three phases, each of which may be
// empty; the next one begins when the worker has done what the one before asked for. Rings whose
// memory goes are stopped first and go on when it is there again, which is what QEMU does to a
// running device when it cuts its memory into other regions.
//
//   IDLE ──message──► STOPPING ────────► REMOVING ────────► ADDING ──────► reply, rings start ►
//   IDLE
//                     QUEUE_STOP each    REGION_REMOVE each  REGION_ADD each
//
// A worker's death is the end of the last two; a stop is said again to the next worker, which alone
// can say the ring's base.
#pragma once

#include "base/base.h"
#include "front/vhost/link.h"
#include "front/vhost/vhost_user.h"
#include "gdd/region.h"

struct link_region {
    struct vhost_user_region is;
    int fd;
    bool going;        // to be removed, by the message that is carried out
    bool coming;       // to be added
    uint64_t sent_seq; // of the command that the worker has not done yet, or 0
};

struct link_ring {
    int kick_fd, call_fd; // or -1
    uint32_t size, base;
    uint64_t desc, avail, used;
    bool has_size, has_base, has_addr;
    bool enabled;
    bool running;      // the worker has been told, or the next one will be
    uint32_t start;    // number of this start
    bool told;         // some worker has been, of this start: there may be answers
    bool stopping;     // by the message that is carried out
    bool paused;       // its memory went while it ran
    uint64_t stop_seq; // of the command that the worker has not done yet, or 0
};

enum link_phase { LINK_IDLE, LINK_STOPPING, LINK_REMOVING, LINK_ADDING };

// What has come of a message, and what has to go of a reply.
struct link_io {
    struct vhost_user_header header;
    uint8_t payload[VHOST_USER_BYTES_MAX];
    size_t len; // of both
    int fds[VHOST_USER_FDS_MAX];
    unsigned n_fds;

    uint8_t out[sizeof(struct vhost_user_header) + sizeof(union vhost_user_payload)];
    size_t out_len, out_sent;
};

struct vhost_link {
    struct vhost_link_config config;
    uint8_t tag[36];
    uint64_t since_s;
    uint64_t last_seq;
    uint32_t last_start;

    uint64_t features, protocol_features;
    bool has_features;
    struct link_region regions[REGIONS_MAX];
    unsigned n_regions;
    struct link_ring rings[VHOST_QUEUES];

    enum link_phase phase;
    struct vhost_user_message message;   // that is carried out
    int message_fds[VHOST_USER_FDS_MAX]; // its descriptors; -1 where one was taken

    struct link_io io;
};

// Ends the session: -EPROTO with a sentence.
int link_broken(char **ret_why, const char *fmt, ...) PRINTF_LIKE(2, 3);
void link_close_fd(int *fd); // of the host
// To the worker. The command's number, or 0 when there is no worker.
uint64_t link_send(struct vhost_link *l, struct vhost_command *c, int fd);

// --- link_io.c ---

// 1: a message is in l->message, its descriptors in l->message_fds; 0: not all of it yet; <0 as
// vhost_link_ready.
int link_io_receive(struct vhost_link *l, char **ret_why);
// Replies to the message; goes out now or by link_io_flush. 0, or <0 as vhost_link_ready.
int link_io_reply(struct vhost_link *l, const void *payload, uint32_t size);
int link_io_flush(struct vhost_link *l);
// The message's descriptors that nobody has taken.
void link_io_drop_fds(struct vhost_link *l);
int link_io_take_fd(struct vhost_link *l, unsigned i);

// --- link_memory.c ---

// What the message asks for: marks regions as coming and going. 0; -EPERM with a sentence: it is
// refused and nothing has changed.
int link_memory_add(struct vhost_link *l, const char **ret_why);
int link_memory_remove(struct vhost_link *l, const char **ret_why);
int link_memory_replace(struct vhost_link *l, const char **ret_why);
void link_memory_send_going(struct vhost_link *l);
void link_memory_drop_going(struct vhost_link *l); // they have gone
void link_memory_send_coming(struct vhost_link *l);
void link_memory_done(struct vhost_link *l, uint64_t seq);
bool link_memory_waits(const struct vhost_link *l);
void link_memory_worker_died(struct vhost_link *l);
void link_memory_resume(struct vhost_link *l);
void link_memory_close(struct vhost_link *l);
// Whether len bytes at a user address lie in one region that stays.
bool link_memory_holds(const struct vhost_link *l, uint64_t user_addr, uint64_t len);

// --- link_rings.c ---

int link_rings_set(struct vhost_link *l, char **ret_why); // NUM, ADDR, BASE, KICK, CALL, ERR
void link_rings_enable(struct vhost_link *l, unsigned i, bool enable);
void link_rings_stop(struct vhost_link *l, unsigned i); // marks it
void link_rings_rest(struct vhost_link *l, unsigned i); // has stopped: a new kick starts it
void link_rings_stop_homeless(struct vhost_link *l);    // marks those whose memory goes
void link_rings_send_stopping(struct vhost_link *l);
bool link_rings_stop_waits(const struct vhost_link *l);
void link_rings_done(struct vhost_link *l, uint64_t seq, uint64_t value);
int link_rings_start(struct vhost_link *l, char **ret_why); // all that can
bool link_rings_any_running(const struct vhost_link *l);
void link_rings_worker_died(struct vhost_link *l);
void link_rings_resume(struct vhost_link *l);
void link_rings_close(struct vhost_link *l);
