// SPDX-License-Identifier: Apache-2.0
// Inside daemon/: sockets that have a place in the file system.
#pragma once

#include "base/base.h"

#include <sys/types.h>

struct listener {
    int fd; // nonblocking, or -1
    char *path;
    dev_t dev; // of the name that we made
    ino_t ino;
    char *alias; // or NULL
};

#define LISTENER_NONE ((struct listener){.fd = -1})

// Never exists with more rights than mode, nor under a name that somebody else uses: what a killed
// process has left is replaced, a socket that is listened at (-EADDRINUSE) and anything else
// (-EEXIST) is not. uid, gid: -1 leaves them. 0 or -errno.
int listener_open(struct listener *l, const char *path, mode_t mode, uid_t uid, gid_t gid);
// A symbolic link that leads to it as well, instead of one that a killed process has left; anything
// else there stays (-EEXIST). It goes when the listener's name does. 0 or -errno.
int listener_alias(struct listener *l, const char *alias);
int listener_clear_alias(const char *alias); // the link goes, if it is one; 0 or -errno
// Whether somebody listens at path.
bool listener_in_use(const char *path);
// Its name goes if it is still the one that was made here. Twice does no harm.
void listener_close(struct listener *l);
