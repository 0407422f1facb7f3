// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "events.h"

// os2g_connect with events. It may start a daemon, and wait long for it, with locks that nobody may
// hold who waits for the GIL; so a thread of its own does it, and this one sees to signals. -1 with
// an exception.
int connect_wait(struct os2g **ret, struct events **ret_events, PyObject *where,
                 const struct os2g_options *o);
