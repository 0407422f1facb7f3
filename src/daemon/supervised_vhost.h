// SPDX-License-Identifier: Apache-2.0
// The hosts of one export: the socket where they connect, and a link (front/vhost/link.h) for each.
// For supervised.c.
//
// Workers come and go below: one that serves is told each session anew, as fast as it reads; until
// then, and while there is none, links go on without.
#pragma once

#include "daemon/channel.h"
#include "daemon/export_options.h"
#include "daemon/listen.h"

#include <poll.h>

struct supervised_vhost {
    const struct export_options *options; // the export's at the moment
    struct listener listener;
    uint64_t deaf_until_ns; // accept has failed
    struct list sessions;
    unsigned n_sessions;
    struct list leaving; // sessions that have ended, until the worker is done with them
    unsigned n_leaving;
    uint32_t last_session;
    uint64_t idle_since_ns; // since when there is none

    int channel; // to a worker that serves, or -1; not ours
    struct channel_queue queue;
    bool broken; // the channel: that worker is of no use
};

void supervised_vhost_init(struct supervised_vhost *v);
// Whether an export that is only a socket can have it: to be asked before anything is made that is
// called by it. 0, or -EADDRINUSE with a sentence.
int supervised_vhost_free_place(const struct export_options *o, char **ret_error);
// Listens as the options say, if they do. 0, or -errno with a sentence.
int supervised_vhost_open(struct supervised_vhost *v, const struct export_options *o,
                          char **ret_error);
// Ends all sessions and stops listening; what a worker has to do for them, it goes on with.
void supervised_vhost_stop(struct supervised_vhost *v);
void supervised_vhost_close(
    struct supervised_vhost *v); // the same, and there is no worker any more

// A worker serves; it has died.
void supervised_vhost_worker(struct supervised_vhost *v, int channel);
void supervised_vhost_worker_died(struct supervised_vhost *v);
// What it says.
void supervised_vhost_event(struct supervised_vhost *v, const struct vhost_event *e);
// Whether something waits to be sent to it; the channel can be written to.
bool supervised_vhost_waits(const struct supervised_vhost *v);
void supervised_vhost_flush(struct supervised_vhost *v);

// What is to be polled: fills p (room for supervised_vhost_poll_count), and looks at what came.
size_t supervised_vhost_poll_count(const struct supervised_vhost *v);
void supervised_vhost_poll_fill(const struct supervised_vhost *v, struct pollfd *p);
void supervised_vhost_poll_done(struct supervised_vhost *v, const struct pollfd *p);
uint64_t supervised_vhost_due_ns(const struct supervised_vhost *v);
void supervised_vhost_time(struct supervised_vhost *v, uint64_t now_ns);
