// SPDX-License-Identifier: Apache-2.0
// One export under the supervisor's care, with a mount, a socket or both: its descriptors, its
// worker, what happens when that dies. For supervisor.c alone. Nothing here blocks for longer than
// mount(8) does.
//
//             ┌──────────── the worker died, or the operator wants a new one ─────────┐
//             ▼                                                                       │
//   PREPARING (worker sets up, store answers) ──READY──► offered ──► SERVING ─────────┤
//       │ FAILED, death                                  │           │                │
//       ▼                                                │ stop      │ stop         WAITING
//     FAILED (tried again later, if the                  ▼           ▼              (a moment,
//             supervisor's configuration says so)     STOPPING ──GONE, time──► ENDED  if it died
//             often)
#pragma once

#include "daemon/channel.h"
#include "daemon/export_options.h"
#include "daemon/lasting.h"
#include "daemon/spawn.h"
#include "daemon/supervised_vhost.h"

#include <poll.h>
#include <sys/types.h>

enum supervised_state {
    SUPERVISED_PREPARING, // the directory is looked at, the first worker sets up; nothing is
                          // offered
    SUPERVISED_SERVING,   // mounted, listening, with a worker
    SUPERVISED_WAITING,   // the same, and the next worker starts at due_ns
    SUPERVISED_STOPPING,  // unmounted, open files may be left; ends at due_ns at the latest
    SUPERVISED_FAILED,    // nothing offered; why is in error
    SUPERVISED_ENDED,     // nothing left
};

struct supervised {
    struct export_options *options; // owned
    struct program *program;
    const char *log_style;

    enum supervised_state state;
    uint64_t due_ns; // when supervised_time has something to do; UINT64_MAX: never
    char *error;     // why it failed
    int reason;      // the same as an errno, or 0

    int channel; // to the worker, or -1
    pid_t worker;
    int life_fd; // its end says that neither the worker nor a helper of its is left; or -1
    // The worker has ended so (as of waitpid), and what it leaves behind is waited for.
    bool ebbing;
    int ebbing_status;
    uint64_t ebbing_due_ns;
    bool dropped;          // the worker is of no use, and has been killed: its end will come
    bool offered;          // it is mounted, or there is no mount and it listens
    bool served;           // some worker has answered since, and all is as it shall be
    bool answering;        // this worker does
    uint64_t answering_ns; // since when
    uint64_t workers;      // started so far
    unsigned barren;       // deaths in a row before SERVING
    unsigned hasty;        // deaths in a row soon after it
    bool renewing;         // the worker's end is ours

    int fuse_fd; // /dev/fuse of the mount, or -1
    struct lasting lasting;
    struct supervised_vhost vhost;
    uint64_t linger_ns; // stops so long after the last host has gone; 0: never

    pid_t broker; // or 0
    uint64_t broker_due_ns;
    pid_t helper;  // sets the mount's read-ahead; or 0
    pid_t checker; // looks at the directory; or 0. May outlive what it was for
    bool checking;
    uint64_t check_due_ns;
};

// options become s's. Starts at once; look at state afterwards.
void supervised_start(struct supervised *s, struct export_options *options, struct program *program,
                      const char *log_style, uint64_t linger_ns);
void supervised_restart(struct supervised *s); // from FAILED
void supervised_free(struct supervised *s);    // FAILED or ENDED

// What is to be polled: fills p (room for supervised_poll_count); then what came of it.
size_t supervised_poll_count(const struct supervised *s);
void supervised_poll_fill(const struct supervised *s, struct pollfd *p);
void supervised_poll_done(struct supervised *s, const struct pollfd *p);
bool supervised_is_broker(const struct supervised *s, pid_t pid);
bool supervised_child(struct supervised *s, pid_t pid, int status); // reaped; was it ours?
void supervised_time(struct supervised *s, uint64_t now_ns);
uint64_t supervised_due_ns(const struct supervised *s);

// The same mount with other options (which become s's), from the next worker on. false: it is
// another bucket or place, or takes another mount; o stays the caller's.
bool supervised_set_options(struct supervised *s, struct export_options *o);
void supervised_renew(struct supervised *s); // a new worker (of a new version, perhaps)
void supervised_stop(struct supervised *s);  // unmount; a second call does not wait
