// SPDX-License-Identifier: Apache-2.0
// A host's eventfds, used so that the host cannot make us wait. It shares the open file with us: it
// may take O_NONBLOCK back at any moment and fill or empty the counter, and an ordinary read or
// write then waits until it pleases.
#pragma once

#include "base/base.h"

// Adds one; a counter that is full stays so. Any thread. 0; -EINVAL: no eventfd; or -errno.
int vhost_eventfd_signal(int fd);
// Takes what is there, if anything. false: no eventfd.
bool vhost_eventfd_take(int fd);
