// SPDX-License-Identifier: Apache-2.0
// Inside the transport of a guest: requests are carried out by system calls on the mount, but for
// reads into leased pieces of the BAR, which go through its .os2g/gdd (wire/gdd.h).
//
//   guest.c        requests, threads, one's life
//   guest_wait.c   ends, who collects
//   guest_files.c  names, open files, reads into host memory
//   guest_gdd.c    leases, reads into them
//
// A request is in one place at a time:
//
//     submit ──► queue ──► a thread of ours ──────────────► ended ──► done, by who collects
//        └─────► a slot of .os2g/gdd ──► the reaper ────────► ▲
//      post ──────────────────────────────────────────────────┘
//     another process's: renewals ──► queue or slot, by who collects
//
// System calls block, so there are threads: a few that carry out, and the reaper. They hold no
// lock while they do, and a child of fork() begins without them.
#pragma once

#include "base/clock.h"
#include "host/fork.h"
#include "host/transport_kind.h"
#include "wire/gdd.h"

#include <dirent.h>
#include <stdatomic.h>

#define GUEST_THREADS 4

enum guest_place { // values of transport_request.slot besides a slot's number
    GUEST_QUEUED = -1,
    GUEST_RUNNING = -2,
    GUEST_ENDED = -3,
    GUEST_RENEWAL = -4,
};

struct guest_node {
    char *path; // below the mount, "" for the root; NULL: not in use
    uint64_t refs;
};

struct guest_file {
    int fd; // -1: not in use
    DIR *dir;
    uint64_t id; // as .os2g/gdd calls it; 0: not asked yet
};

struct guest_slot {
    struct transport_request *request; // NULL: free
    uint64_t epoch;                    // of the worker that took it; 0: none has yet
    uint64_t serial;                   // tells it from a later one in the same slot
};

struct guest {
    struct transport base;
    char *directory;
    unsigned depth;
    uint64_t timeout_ns;
    unsigned forks; // fork_count() of the process that the threads are in

    struct {
        struct fork_lock lock; // FORK_CONTROL
        int gdd_fd;            // -1: not opened yet
        void *bar;             // mapped once; NULL
        uint64_t bar_size;
    } control;

    struct {
        struct fork_lock lock; // FORK_TRANSPORT
        pthread_cond_t work, reap, ended, left;
        struct list queue, done, renewals;
        unsigned n_active, n_threads, n_idle;
        bool reaper, stopping;
        int event_fd; // -1: nobody asked
        unsigned generation;

        struct guest_node *nodes; // by number - 2
        size_t n_nodes;
        struct guest_file *files; // by handle
        size_t n_files;
        struct guest_slot *slots; // depth
        uint64_t epoch;           // that REAP has told last
        uint64_t requests, bytes, errors;
    } locked;
};

struct transport_memory {
    char *base; // here
    uint64_t size;
    bool bar;
    uint64_t place;   // of a lease
    unsigned forks;   // fork_count() when it was made
    unsigned running; // threads that read into it; under locked.lock
    _Atomic bool cut;
};

static inline struct guest *guest_of(struct transport *t)
{
    return container_of(t, struct guest, base);
}

// --- guest.c ---

// On its way, as far as it can go; it has a place among the active ones.
void guest_start(struct guest *g, struct transport_request *r);
// What stands in r->in, as one message: at most TRANSPORT_IN_MAX bytes.
size_t guest_message(const struct transport_request *r, void *to);

// --- guest_wait.c ---

// r has ended; whoever collects tells.
void guest_end_locked(struct guest *g, struct transport_request *r, int error, uint32_t out_got,
                      uint64_t data_got);
void guest_wake_locked(struct guest *g); // those who collect: there is something
// For a wait on a condition: no longer than it can be said.
struct timespec guest_until(uint64_t deadline_ns);
void guest_post(struct transport *t, struct transport_request *r);
int guest_wait(struct transport *t, const _Atomic uint32_t *flag, const _Atomic uint32_t *missing,
               uint64_t deadline_ns);
void guest_flag(struct transport *t, _Atomic uint32_t *flag);
unsigned guest_poll(struct transport *t);
int guest_event_fd(struct transport *t);

// --- guest_files.c ---

// Carries it out, on a thread of ours, no lock held. 0 or -errno.
int guest_carry_out(struct guest *g, struct transport_request *r, uint32_t *ret_out,
                    uint64_t *ret_data);
void guest_forget(struct transport *t, unsigned generation, uint64_t node, uint64_t n);
// What .os2g/gdd calls the open file. 0 or -errno.
int guest_file_id(struct guest *g, uint64_t handle, uint64_t *ret);
void guest_files_close(struct guest *g);

// --- guest_gdd.c ---

int guest_gdd_open(struct guest *g); // if it can be: 0 or -errno, with a sentence
// A read or fetch into a lease.
void guest_gdd_submit(struct guest *g, struct transport_request *r);
// What the request in a slot is called there; nothing, when it has ended.
uint64_t guest_gdd_tag_locked(const struct guest *g, int slot);
void guest_gdd_cancel(struct guest *g, uint64_t tag);
void *guest_reaper(void *g);
int guest_memory_lease(struct transport *t, struct transport_memory **ret, void **ret_base,
                       uint64_t size);
void guest_memory_cut(struct transport *t, struct transport_memory *m);
