// SPDX-License-Identifier: Apache-2.0
#include "base/rand.h"

#include "base/clock.h"

#include <sys/random.h>

void rand_seed(struct rand *r, uint64_t seed)
{
    // splitmix64 spreads a small seed over the whole state
    for (int i = 0; i < 4; i++) {
        uint64_t z = (seed += 0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        r->s[i] = z ^ (z >> 31);
    }
}

void rand_seed_from_system(struct rand *r)
{
    uint64_t seed;

    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
        seed = clock_monotonic_ns();
    rand_seed(r, seed);
}

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

uint64_t rand_u64(struct rand *r)
{
    uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t rand_below(struct rand *r, uint64_t n)
{
    return (uint64_t)((unsigned __int128)rand_u64(r) * n >> 64);
}

double rand_unit(struct rand *r)
{
    return (double)(rand_u64(r) >> 11) * 0x1p-53;
}
