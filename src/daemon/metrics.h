// SPDX-License-Identifier: Apache-2.0
// Prometheus' view of all exports of an os2gd: a process of its own, without privilege, that asks
// the workers' control sockets whenever it is scraped. HTTP is read by nobody who could mount.
#pragma once

#include "base/buf.h"

#include <jansson.h>
#include <sys/types.h>

#define METRICS_ARGUMENT "--metrics"
#define METRICS_FD       3 // listening

// where: "127.0.0.1:9464", "[::1]:9464" or "unix:/path". A listening socket or -errno with a
// sentence. Only loopback addresses: counters are nobody else's business.
int metrics_listen(const char *where, char **ret_error);

// argv[2], argv[3]: user and group to become; then NAME SOCKET, for each export. Does not return.
int metrics_main(int argc, char **argv);

struct metrics_export {
    const char *name;
    json_t *status; // as of the control socket; NULL: it does not answer
};

// The text exposition format, version 0.0.4.
void metrics_format(struct buf *out, const struct metrics_export *exports, size_t n);
