// SPDX-License-Identifier: Apache-2.0
// How much of what a strategy would like to run ahead is left under pressure of the pool.
#pragma once

#include "base/base.h"

// The whole below 75; then halved, and halved again for every 8 more.
static inline uint64_t pressure_shrink(uint64_t amount, unsigned pressure)
{
    return pressure < 75 ? amount : amount >> (1 + (pressure - 75) / 8);
}
