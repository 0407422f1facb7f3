// SPDX-License-Identifier: Apache-2.0
// An os2gd of this user's own, for a bucket that no daemon was named for: started by the first
// process that wants it, shared by all that want the same with the same rights, ends by itself
// after the last has gone.
#pragma once

#include "host/client.h"

struct private_daemon;

// source: "s3://bucket/prefix". What o has for it is copied. -ENOENT with o->no_start is said by
// private_daemon_start only: one may be there.
int private_daemon_new(struct private_daemon **ret, const char *source,
                       const struct os2g_options *o);
void private_daemon_free(struct private_daemon *d); // ends nothing; NULL is allowed
const char *private_daemon_socket(const struct private_daemon *d);
// As start of struct transport_vhost_config; arg: the private_daemon. Waits until it serves; of
// many at once one starts it.
int private_daemon_start(void *arg, int *ret_socket);
