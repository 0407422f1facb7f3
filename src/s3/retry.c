// SPDX-License-Identifier: Apache-2.0
#include "s3/retry.h"

#include "base/clock.h"

#define FIRST_WAIT_NS           (25 * NS_PER_MS)
#define FIRST_WAIT_THROTTLED_NS (100 * NS_PER_MS)
#define LONGEST_WAIT_NS         (5 * NS_PER_S)

// Region, endpoint, clock and credentials can each be wrong once, and one of them twice.
#define MAX_LEARNED 5

void retry_init(struct retry *r, uint64_t timeout_ns)
{
    *r = (struct retry){.timeout_ns = timeout_ns};
}

uint64_t retry_failed(struct retry *r, enum s3_class class, uint64_t asked_ns, uint64_t since_ns,
                      uint64_t now_ns, struct rand *rand)
{
    uint64_t wait, deadline;

    if (class == S3_LEARNED)
        return r->learned++ < MAX_LEARNED ? 0 : RETRY_STOP;
    if (class != S3_RETRY && class != S3_THROTTLED)
        return RETRY_STOP;

    if (r->failures == 0)
        r->since_ns = since_ns;
    deadline = r->since_ns + r->timeout_ns;
    if (now_ns >= deadline)
        return RETRY_STOP;

    wait = class == S3_THROTTLED ? FIRST_WAIT_THROTTLED_NS : FIRST_WAIT_NS;
    wait = MIN(wait << MIN(r->failures, 16u), LONGEST_WAIT_NS);
    r->failures++;
    // all who were told the same do not come back together
    wait = rand_below(rand, wait + 1) + MIN(asked_ns, RETRY_ASKED_MAX_NS);
    // the last attempt is made when the time is up, not some time before
    return MIN(wait, deadline - now_ns);
}

uint64_t retry_patience_ns(const struct retry *r, uint64_t now_ns)
{
    uint64_t deadline = (r->failures ? r->since_ns : now_ns) + r->timeout_ns;

    return MAX(deadline > now_ns ? deadline - now_ns : 0, NS_PER_S);
}
