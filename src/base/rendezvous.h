// SPDX-License-Identifier: Apache-2.0
// Where a daemon and those who look for it meet: the names of its sockets are made of whose it is
// and the place that it serves, so that the table of mounts is all that it takes to find them.
#pragma once

#include "base/base.h"

#include <sys/types.h>

// The directory of the sockets of a user's daemons: /run/os2g for root, else $XDG_RUNTIME_DIR/os2g
// (our own) or /run/user/UID/os2g, else /tmp/os2g-UID.
char *rendezvous_directory(uid_t owner);
// The control socket of the daemon that serves a place: the directory (absolute) where it has
// mounted, or, where there is no mount, the socket that it offers.
char *rendezvous_control(uid_t owner, const char *place);
// All control sockets of a user's daemons, by name; also of some that have ended. NULL at the end;
// each and the array are the caller's to free. NULL: the directory cannot be read.
char **rendezvous_controls(uid_t owner);
// The vhost-user socket of the daemon that has mounted at a directory, unless it was told another.
char *rendezvous_socket(uid_t owner, const char *directory);
