// SPDX-License-Identifier: Apache-2.0
// The supervisor's half of getting credentials: a short-lived child with the rights of who
// started us reads files, environment and credential_process and writes what it found to a pipe
// whose other end the worker gets. The supervisor never looks at it.
#pragma once

#include "daemon/export_options.h"

#include <sys/types.h>

// Starts the child, in a process group of its own; it ends by itself within BROKER_TIMEOUT_S, and
// what is left of its group is the caller's to kill. *ret_pipe (close-on-exec) becomes the
// caller's. Returns its pid, or -errno.
//
// What comes out of the pipe until its end: '+' and JSON for credentials_provider, or '-' and a
// sentence; nothing when the child died.
pid_t broker_start(const struct export_options *o, int *ret_pipe);

#define BROKER_TIMEOUT_S 60
#define BROKER_MAX_BYTES (1u << 20)
