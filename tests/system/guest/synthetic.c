// SPDX-License-Identifier: Apache-2.0
// The bytes that synthetic objects must have (src/s3d/synthetic.h).
#include "guest.h"

#include <stdlib.h>
#include <string.h>

#define TABLE_BYTES 33554393u
#define TABLE_WORDS ((TABLE_BYTES + 7) / 8)

static const uint8_t *table(void)
{
    static uint64_t *words;

    if (words)
        return (const uint8_t *)words;
    words = malloc(TABLE_WORDS * 8);
    if (!words)
        abort();
    for (uint64_t i = 0; i < TABLE_WORDS; i++) {
        uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;

        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        words[i] = z ^ z >> 31;
    }
    return (const uint8_t *)words;
}

int64_t synthetic_check(uint64_t start, uint64_t offset, const void *data, size_t len)
{
    const uint8_t *p = data, *t = table();

    for (size_t done = 0; done < len;) {
        size_t at = (start + offset + done) % TABLE_BYTES, n = TABLE_BYTES - at;

        if (n > len - done)
            n = len - done;
        if (memcmp(p + done, t + at, n))
            for (size_t i = 0; i < n; i++)
                if (p[done + i] != t[at + i])
                    return (int64_t)(done + i);
        done += n;
    }
    return -1;
}
