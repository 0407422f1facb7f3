// SPDX-License-Identifier: Apache-2.0
#include "s3/refresh.h"

#include "base/clock.h"

#define FIRST_RETRY_NS   (500 * NS_PER_MS)
#define LONGEST_RETRY_NS (60 * NS_PER_S)
#define MOST_AHEAD_S     300.0
#define LEAST_LEFT_S     60

int64_t refresh_usable_until_s(int64_t now_s, int64_t expires_s)
{
    int64_t left = MAX(expires_s - now_s, 0);

    return expires_s - MIN(LEAST_LEFT_S, left / 5);
}

// A tenth of their life ahead, at most five minutes; for short-lived keys twice the part of it in
// which they are no longer handed out, so that the new ones are there before nobody has any.
uint64_t refresh_delay_ns(int64_t now_s, int64_t expires_s, double unit)
{
    // now_s began up to a second ago
    double left = (double)MAX(expires_s - now_s - 1, 0);
    double unusable = MIN((double)LEAST_LEFT_S, left / 5);
    double ahead = MIN(MAX(left / 10, 2 * unusable), MOST_AHEAD_S);

    ahead *= 1 - 0.25 * unit;
    return (uint64_t)((left - ahead) * (double)NS_PER_S);
}

uint64_t refresh_retry_ns(unsigned failures, double unit)
{
    uint64_t pause = LONGEST_RETRY_NS;

    if (failures >= 1 && failures <= 7)
        pause = MIN(FIRST_RETRY_NS << (failures - 1), LONGEST_RETRY_NS);
    return (uint64_t)((double)pause * (0.5 + 0.5 * unit));
}
