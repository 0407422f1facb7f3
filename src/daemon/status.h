// SPDX-License-Identifier: Apache-2.0
// All counters of an export as JSON.
#pragma once

#include "daemon/export.h"

#include <jansson.h>

// A new object; times in seconds, sizes in bytes. On the export's loop.
json_t *status_collect(const struct export *e, uint64_t restarts, uint64_t started_ns);
