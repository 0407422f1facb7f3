// SPDX-License-Identifier: Apache-2.0
// The supervisor: a small single-threaded process that has the privilege and little to do. It
// mounts, unmounts, holds the descriptors that must outlive a worker, and starts workers. It
// parses nothing that comes from a network, from the kernel's requests or from a worker; of hosts,
// vhost-user messages alone (front/vhost/vhost_user.h).
#pragma once

#include "daemon/export_options.h"

struct supervisor;

struct supervisor_config {
    const char *log_style; // for workers, see worker.h
    bool retry;            // an export that fails is tried again, and does not end the program
    uint64_t linger_ns;    // an export ends so long after its last host has gone; 0: it stays
    // It is mounted and listens (error NULL), or it failed and nothing does: reason is the errno of
    // that, or 0; first: nothing was said of this export before.
    void (*settled)(void *arg, const struct export_options *o, const char *error, int reason,
                    bool first);
    // SIGHUP, after which every worker is renewed. May be NULL.
    void (*reload)(void *arg, struct supervisor *s);
    void (*stopping)(void *arg);
    void *arg;
};

int supervisor_new(struct supervisor **ret, const struct supervisor_config *c); // 0 or -errno
// o becomes the supervisor's.
void supervisor_add(struct supervisor *s, struct export_options *o);
const struct export_options *supervisor_export(struct supervisor *s, size_t i); // NULL: no more
void supervisor_stop_export(struct supervisor *s, size_t i);
// Other options for the same mount; false: see supervised_set_options.
bool supervisor_replace(struct supervisor *s, size_t i, struct export_options *o);

// Runs program (argv, ends with NULL) as another child with less privilege, again when it dies.
// fd becomes its descriptor 3 (stays the caller's). For metrics.
void supervisor_add_helper(struct supervisor *s, char *const argv[], int fd);

// Until every export has ended, or SIGTERM or SIGINT. The exit status: 0, or 1 when an export
// failed.
int supervisor_run(struct supervisor *s);
void supervisor_free(struct supervisor *s);
