// SPDX-License-Identifier: Apache-2.0
// What `os2g status` shows of the stall report (fs/stalls.h).
#pragma once

#include <jansson.h>

// status: as of the control socket.
void status_show_stalls(const json_t *status);
