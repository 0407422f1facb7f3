// SPDX-License-Identifier: Apache-2.0
// When keys are fetched anew and until when they are handed out. Pure functions of times; wall
// clock, in seconds. Used within s3/ only.
#pragma once

#include "base/base.h"

// Keys got at now_s that expire at expires_s are handed out until this: a minute before, or a fifth
// of what they have left if that is less.
int64_t refresh_usable_until_s(int64_t now_s, int64_t expires_s);

// How long after now_s to fetch their successors. unit: random in [0, 1), so that many machines
// do not ask at once.
uint64_t refresh_delay_ns(int64_t now_s, int64_t expires_s, double unit);

// The pause after a failure, the n-th in a row (from 1).
uint64_t refresh_retry_ns(unsigned failures, double unit);
