// SPDX-License-Identifier: Apache-2.0
// Asking the daemon that serves a mount: which its control socket is, and one question.
// Blocking; for command-line programs and the metrics process.
#pragma once

#include "base/base.h"

#include <jansson.h>
#include <sys/types.h>

// The socket for a file or directory anywhere in a mount of ours (any user's), or for the
// vhost-user socket of an export without a mount. -ENOENT and a sentence when it is neither.
int control_find(const char *path, char **ret_socket, char **ret_error);
// The sentence for a path that is in no mount of ours; the caller's to free.
char *control_no_mount(const char *path);

// request: "status". *ret is a new object (json_decref). -ENOENT or -ECONNREFUSED: no daemon;
// -EACCES: not allowed; -ETIMEDOUT; -EBADMSG; each with a sentence in *ret_error.
int control_request(const char *socket_path, const char *request, unsigned timeout_ms, json_t **ret,
                    char **ret_error);

// Waits until the daemon's socket has gone, that is, until it has let go of the mount. 0 or
// -ETIMEDOUT.
int control_wait_gone(const char *socket_path, unsigned timeout_ms);
