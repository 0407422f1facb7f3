// SPDX-License-Identifier: Apache-2.0
// Inside the vhost transport (vhost.c: requests; vhost_wait.c: who collects; vhost_connect.c:
// sessions that come and go; vhost_memory.c: what lands where).
//
// A request is in one place at a time:
//
//     submit ──► unsent ──► a slot, with the device ──► ended (a list of the collecting thread)
//      post ──► posted ────────────────────────────────►  ▲
//                 ▲ cut, cancelled, session lost          │
//                 ├───────── unsent, slot                 │
//     another session: unsent ──► renewals ──► unsent ────┘
//
// The state of the connection; only the thread that leads (vhost_wait.c) leaves DOWN:
//
//     UP ──lost──► DOWN ──attempt──► UP
//                    └── time is over ──► GONE ──a request──► DOWN (for one attempt)
//
// control.lock is held while a message is exchanged on the socket and while a session is made;
// locked.lock for moments. Neither while done, renew or event run.
#pragma once

#include "base/clock.h"
#include "host/fork.h"
#include "host/transport_kind.h"
#include "host/vhost_session.h"

#include <stdatomic.h>

#define BACKOFF_MIN_NS (20 * NS_PER_MS)
#define BACKOFF_MAX_NS (500 * NS_PER_MS)

enum vhost_state { VHOST_GONE, VHOST_DOWN, VHOST_UP };

enum vhost_place { // values of transport_request.slot besides a slot's number
    PLACE_UNSENT = -1,
    PLACE_RENEWAL = -2,
    PLACE_RENEWING = -3, // by a thread that collects
    PLACE_ENDED = -4,    // posted, or beyond
};

struct vhost_slot {
    struct transport_request *request; // NULL: nobody waits for it any more
    bool busy;                         // the device has it
    uint64_t unique;
    uint32_t out_len;
    uint64_t data_len;
};

// A thread in vhost_wait or in a submission that waits.
struct waiter {
    struct list link;
    const _Atomic uint32_t *flag;    // NULL: waits for room
    const _Atomic uint32_t *missing; // as of transport_wait_many, or NULL
    pthread_cond_t cond;
    bool asleep; // in poll(), leading
};

struct forget {
    uint64_t node, n;
};

struct vhost {
    struct transport base;
    char *path;
    unsigned depth;
    uint64_t timeout_ns;
    int (*start)(void *arg, int *ret_socket);
    void *start_arg;
    void (*event)(void *arg, enum os2g_event event, const char *text);
    void *event_arg;
    struct source asked;
    unsigned forks; // fork_count() of the process that the session serves
    int call_fd;    // the device's signals, of every session
    int leader_fd;  // wakes the one that leads

    struct {
        struct fork_lock lock; // FORK_CONTROL
        struct list memories;  // struct transport_memory
        uint64_t next_address;
    } control;

    struct {
        struct fork_lock lock; // FORK_TRANSPORT
        enum vhost_state state;
        struct vhost_session *session; // changes under control.lock, too; used for rings when UP
        unsigned generation;
        struct vhost_slot *slots;
        unsigned *free_small, *free_large, n_free_small, n_free_large; // stacks
        struct list unsent, posted, renewals;
        unsigned n_active; // submitted and not ended
        uint64_t next_unique;
        struct forget *forgets; // not sent yet
        size_t n_forgets, size_forgets;
        bool forget_busy[SESSION_FORGETS];

        struct list waiters;
        struct waiter *leader;
        unsigned n_room_waiters;
        unsigned gathers; // ends that the leader's sleep is worth

        uint64_t retry_ns, give_up_ns, backoff_ns;
        bool answered;         // something, since the session before
        const char *lost_why;  // the event is due
        bool back;             // the event is due
        bool start_failed;     // since the session was lost
        char start_error[160]; // why another cannot be started; not "": the event is due

        // for transport_event_fd
        int epoll_fd, post_fd, timer_fd; // -1: nobody asked
        uint64_t requests, bytes, errors, reconnects;
    } locked;
};

struct transport_memory {
    struct list link; // control.memories
    uint64_t address, size;
    int fd; // -1: none
    uint64_t fd_offset;
    bool cuda;
    int device;
    uint8_t handle[64], uuid[16];
    uint64_t handle_offset;
    _Atomic bool cut; // set under locked.lock
};

// --- vhost.c; locked.lock is held ---

extern const struct transport_kind vhost_kind;

// Gives what can be given to the device.
void vhost_send_locked(struct vhost *v);
void vhost_kick_locked(struct vhost *v); // unless this thread has plugged
// Takes what the device has answered and what was posted, onto ended; what is to be renewed, onto
// renewals.
void vhost_collect_locked(struct vhost *v, struct list *ended, struct list *renewals);
// Calls done and renew for them; locked.lock is not held. How many.
unsigned vhost_run(struct vhost *v, struct list *ended, struct list *renewals);
void vhost_post_locked(struct vhost *v, struct transport_request *r, int error);

// --- vhost_wait.c ---

int vhost_wait(struct transport *t, const _Atomic uint32_t *flag, const _Atomic uint32_t *missing,
               uint64_t deadline_ns);
int vhost_wait_room_locked(struct vhost *v, uint64_t deadline_ns);
void vhost_flag(struct transport *t, _Atomic uint32_t *flag);
unsigned vhost_poll(struct transport *t);
int vhost_event_fd(struct transport *t);
void vhost_event_fd_close(struct vhost *v);
int vhost_watch_socket_locked(struct vhost *v);    // of a new session; 0 or -errno
void vhost_unwatch_socket_locked(struct vhost *v); // of one that has ended
void vhost_timer_locked(struct vhost *v);          // retry_ns has changed
void vhost_wake_locked(struct vhost *v);           // somebody, to collect
void vhost_wake_room_locked(struct vhost *v);

// --- vhost_connect.c ---

void vhost_free(struct transport *t);
// The session has ended; locked.lock is held.
void vhost_lost_locked(struct vhost *v, const char *why);
// Calls event for what has happened; no lock is held.
void vhost_tell(struct vhost *v);

// One attempt, if it is time for one; else w, which leads, sleeps until then or the deadline (NULL:
// does not). State is DOWN; locked.lock is held, and given back meanwhile.
void vhost_reconnect_locked(struct vhost *v, struct waiter *w, uint64_t deadline_ns);
int vhost_after_fork(struct transport *t);

// --- vhost_memory.c ---

int vhost_memory_add(struct transport *t, struct transport_memory **ret, void *base, uint64_t size,
                     int fd, uint64_t fd_offset);
int vhost_memory_add_cuda(struct transport *t, struct transport_memory **ret, int device,
                          const uint8_t uuid[16], int fd, const void *handle,
                          uint64_t handle_offset, uint64_t size);
void vhost_memory_forget_cuda(struct vhost *v); // no session hears of it any more
void vhost_memory_cut(struct transport *t, struct transport_memory *m);
void vhost_memory_remove(struct transport *t, struct transport_memory *m);
// Tells a new session of all of it, before anything else uses that. control.lock is held.
int vhost_memory_tell_all(struct vhost *v, struct vhost_session *s, uint64_t deadline_ns);
