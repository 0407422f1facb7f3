// SPDX-License-Identifier: Apache-2.0
// loop/: event-loop threads on libuv. Everything above that waits for anything runs on one.
//
// An object belongs to one loop, whose thread alone touches it; loops share nothing and send each
// other messages. All structs here are embedded in their users' structs, so that waiting,
// posting and timing never allocate. Uses base/ only.
#pragma once

#include "base/base.h"
#include "base/list.h"

#include <uv.h>

struct loop;

// A message belongs to its sender until posted, and to the receiver from when its fn is called.
struct loop_msg {
    struct loop_msg *next;
    void (*fn)(struct loop_msg *msg);
};

// Starts a thread (name: up to 15 characters) that runs until loop_stop. 0 or -errno.
int loop_start(struct loop **ret, const char *name);
// For a program whose main thread is the loop: nothing runs until loop_run.
int loop_new(struct loop **ret, const char *name);
void loop_run(struct loop *l);  // returns after loop_quit
void loop_quit(struct loop *l); // any thread

// Ends the thread, if it has one, after the messages already posted, and frees the loop; all
// loop_ios must have been freed. Not from the loop's own thread. NULL is allowed.
void loop_stop(struct loop *l);

struct loop *loop_self(void); // the loop whose thread this is, or NULL
uv_loop_t *loop_uv(struct loop *l);

// Any thread. fn runs on l, never within this call, in the order of posting by one thread.
void loop_post(struct loop *l, struct loop_msg *msg, void (*fn)(struct loop_msg *msg));

// Runs fn on l and waits until it has returned. From any other thread than l's.
void loop_call(struct loop *l, void (*fn)(void *arg), void *arg);

// --- timers: on the owning loop's thread only ---

struct loop_timer {
    struct loop *loop;
    uint64_t due_ns;
    size_t slot; // place in the heap plus one, 0 while stopped
    void (*fn)(struct loop_timer *t);
};

void loop_timer_init(struct loop_timer *t, struct loop *l, void (*fn)(struct loop_timer *t));
// (Re)starts it; fires once.
void loop_timer_start_ns(struct loop_timer *t, uint64_t delay_ns);
// Stopped or never started alike; t may be freed right after.
void loop_timer_stop(struct loop_timer *t);
static inline bool loop_timer_active(const struct loop_timer *t)
{
    return t->slot != 0;
}

// --- file descriptors: on the owning loop's thread only ---

enum { LOOP_READ = 1, LOOP_WRITE = 2 };

struct loop_io;

// Watches fd (a socket, pipe or character device; not owned). fn gets the events that are ready;
// an error or hang-up shows as every event that was asked for. 0 or -errno.
int loop_io_new(struct loop_io **ret, struct loop *l, int fd,
                void (*fn)(struct loop_io *io, unsigned events, void *arg), void *arg);
void loop_io_want(struct loop_io *io, unsigned events); // level-triggered; 0 pauses
// No call-back comes afterwards; fd may be closed right after. NULL is allowed.
void loop_io_free(struct loop_io *io);
