// SPDX-License-Identifier: Apache-2.0
// host/: libos2g. Uses wire/, cuda/ and base/ only, no loop: it works on its callers' threads.
//
//   file.c, fetch.c, batch.c, plan.c, …   the public calls (include/os2g/os2g.h)
//   client.h                              a connection, what every call does first, its errors
//   io.h, call.h                          one read or fetch; one question, waited for
//   buffer.c, staging.c, cuda_*.c         memory: where a destination lies
//   transport.h                           this: requests to the device and their completions
//   vhost_*.c | guest.c                   its two kinds: a socket, or a mount's .os2g/gdd
//                                         (transport_kind.h)
//
// A request is a FUSE message (or one of wire/ops.h) with a destination for its data. Its end is
// reported once, by a call of done on whichever thread is collecting completions: one that waits
// (transport_wait), or one that polls. Requests that were under way when the daemon went away are
// sent again to the next one when they may be (READ of a reopened file, FETCH, LOOKUP …): the
// transport does that itself for requests marked again; others end with -ENOTCONN. Numbers of nodes
// and handles are worth nothing in a later session: requests that name some have renew.
#pragma once

#include "base/base.h"
#include "base/list.h"
#include "host/source.h"

#include <os2g/os2g.h>
#include <sys/uio.h>

struct transport;

// A piece of memory that the device can write; where requests' data may go.
struct transport_memory;

struct transport_request {
    // set by the caller; all stays valid until done
    uint32_t opcode; // FUSE_ or OS2G_OP_
    uint64_t nodeid;
    struct iovec in[3]; // what follows fuse_in_header
    unsigned n_in;
    void *out; // what follows fuse_out_header, before the data (fuse_open_out, os2g_fetch_out …)
    uint32_t out_len;
    bool out_variable;                // the answer may be shorter (READDIR, IOCTL)
    struct transport_memory *memory;  // READ, FETCH: where data lands, or NULL
    uint64_t memory_offset, data_len; // at most TRANSPORT_DATA_MAX
    bool again;                       // may be carried out a second time
    // Of the session whose nodes or handles this names (transport_generation); 0: none but the
    // root, right in any. In another session r ends with -ENOTCONN, unless there is renew: called
    // on a thread that collects, where it may make requests and wait for them, it puts right what
    // in says, and generation; 0, or what r ends with.
    unsigned generation;
    int (*renew)(struct transport_request *r);
    // error: 0 or -errno of the answer, -ECANCELED, -ETIMEDOUT never comes from here. out_got:
    // bytes of out; data_got: bytes that have landed.
    void (*done)(struct transport_request *r, int error, uint32_t out_got, uint64_t data_got);

    // private
    struct list link;
    uint64_t unique;
    int slot;
    bool cancelled;
    int error; // set before transport_post, as the next two
    uint32_t out_got;
    uint64_t data_got;
};

#define TRANSPORT_DATA_MAX (4 * GIB - 2 * MIB)
#define TRANSPORT_IN_MAX   (20 * KIB) // of a request's in, together
#define TRANSPORT_OUT_MAX  (64 * KIB)

// --- making one (connect.c) ---

// path: of a socket. INIT and HELLO are done when it returns. o: filled in (client.h); o->event as
// in os2g_options. start: called when nobody listens there, to see that there is a daemon: 0 and a
// nonblocking connection to it (or, of one that another has started, unix_connect's error), or
// -errno with a sentence: none can be started; NULL: nothing is to be started.
struct transport_vhost_config {
    const char *path;
    const struct os2g_options *o;
    int (*start)(void *arg, int *ret_socket);
    void *arg;
    // What whoever listens there is to serve, or more; -EINVAL with a sentence if it does not. url
    // NULL: anything. A daemon that does not say is believed.
    struct source asked;
};
int transport_vhost_new(struct transport **ret, const struct transport_vhost_config *c);
// directory: a mount in a guest.
int transport_guest_new(struct transport **ret, const char *directory,
                        const struct os2g_options *o);
// Ends the session, and with it what is under way: done is called for all of it. All memory was
// released. In a child of the process that t serves nothing is said and nothing called. NULL is
// allowed.
void transport_free(struct transport *t);

// --- requests; any thread ---

// Submits; waits for a free slot, up to the time-out: -ETIMEDOUT or -ENOTCONN, or, when nonblock,
// -EAGAIN; then done is not called. Anything else that goes wrong is reported by done, which is
// never called inside. While there is no session requests wait for the next.
int transport_submit(struct transport *t, struct transport_request *r, bool nonblock);
// Ends r, which was not submitted, as if the device had: whoever collects next calls
// done(r, r->error, r->out_got, r->data_got).
void transport_post(struct transport *t, struct transport_request *r);
// Submissions between these two reach the device with one kick. Per thread.
void transport_plug(struct transport *t);
void transport_unplug(struct transport *t);
// Asks the device to give it up; done follows in any case. Nothing, when r has ended already (its
// memory must be there still).
void transport_cancel(struct transport *t, struct transport_request *r);
// Gives n references to a node back (of the present session). Never waits.
void transport_forget(struct transport *t, unsigned generation, uint64_t nodeid, uint64_t n);
// Collects completions until *flag is set (by a done, with transport_flag), or the time is over:
// -ETIMEDOUT, or -ENOTCONN if there is no session then. deadline_ns: CLOCK_MONOTONIC, UINT64_MAX:
// none. Any number of threads at once: one collects, the others sleep and one of them takes over.
int transport_wait(struct transport *t, const _Atomic uint32_t *flag, uint64_t deadline_ns);
// The same for a flag that only several ends set: at least *missing of them, which may change at
// any time, have not come. They are gathered: one wake-up for many, a little later.
int transport_wait_many(struct transport *t, const _Atomic uint32_t *flag,
                        const _Atomic uint32_t *missing, uint64_t deadline_ns);
void transport_flag(struct transport *t, _Atomic uint32_t *flag); // sets it and wakes its waiter
// Before the first submission: room(arg) is called after ends, on whichever thread collects, when
// what was refused with -EAGAIN may find a slot.
void transport_on_room(struct transport *t, void (*room)(void *arg), void *arg);
// Collects what is there and returns at once; how many.
unsigned transport_poll(struct transport *t);
// Readable when transport_poll may have something to do. For os2g_batch_eventfd.
int transport_event_fd(struct transport *t);
// The number of the present session, or of the next one when there is none: a change tells files to
// open anew. Never 0.
unsigned transport_generation(struct transport *t);
uint32_t transport_max_read(const struct transport *t);
// What every key and path is to have in front: "" or "a/b/", the same in every session.
const char *transport_below(const struct transport *t);
void transport_stats(struct transport *t, struct os2g_stats *ret); // what it knows of

// --- memory; any thread ---

// fd (kept a copy of) at fd_offset, mapped here at base. Told to every daemon to come.
int transport_memory_add(struct transport *t, struct transport_memory **ret, void *base,
                         uint64_t size, int fd, uint64_t fd_offset);
// CUDA memory that the daemon opens: by descriptor (fd >= 0) or IPC handle (64 bytes).
int transport_memory_add_cuda(struct transport *t, struct transport_memory **ret, int device,
                              const uint8_t uuid[16], int fd, const void *handle,
                              uint64_t handle_offset, uint64_t size);
// A lease of the BAR; guest only. *ret_base: where it is mapped.
int transport_memory_lease(struct transport *t, struct transport_memory **ret, void **ret_base,
                           uint64_t size);
// When it returns nothing can land there any more; requests that name it end with -ECANCELED, those
// to come, too.
void transport_memory_cut(struct transport *t, struct transport_memory *m);
// Cuts it off, unless that has been done, and frees m.
void transport_memory_remove(struct transport *t, struct transport_memory *m);

// --- fork ---

// In a child that was forked after t was made: drops what is the parent's (descriptors are closed,
// nothing is sent) and connects anew, memory included. Called by each public call when the process
// has changed. 0 or -errno.
int transport_after_fork(struct transport *t);
