// SPDX-License-Identifier: Apache-2.0
// Monotonic time for intervals, wall-clock time for protocols.
#pragma once

#include "base/base.h"

#include <time.h>

#define NS_PER_MS ((uint64_t)1000000)
#define NS_PER_S  ((uint64_t)1000000000)

uint64_t clock_monotonic_ns(void);
int64_t clock_wall_s(void); // seconds since 1970

// Each parses the whole string; 0 and *ret_s (seconds since 1970, UTC), or -EINVAL.
int clock_parse_http_date(const char *s, int64_t *ret_s); // RFC 9110 §5.6.7, IMF-fixdate
int clock_parse_iso8601(const char *s, int64_t *ret_s);   // 2026-11-29T18:29:03[.123]Z

void clock_format_http_date(int64_t s, char out[static 30]);
void clock_format_amz_date(int64_t s, char out[static 17]); // 20261129T182903Z
void clock_format_iso8601(int64_t s, char out[static 25]);  // 2026-11-29T18:29:03.000Z
