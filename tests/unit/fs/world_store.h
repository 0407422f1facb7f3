// SPDX-License-Identifier: Apache-2.0
// The doubles of s3_* and cache_*; for world.c only.
#pragma once

#include "base/base.h"

void store_clear(void);
bool world_store_busy(void); // operations are under way and not held up
