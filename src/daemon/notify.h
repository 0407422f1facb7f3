// SPDX-License-Identifier: Apache-2.0
// Telling systemd how a service fares (sd_notify(3)); nothing happens without $NOTIFY_SOCKET.
#pragma once

#include "base/base.h"

void notify(const char *state); // "READY=1\nSTATUS=…"
