// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

uint64_t clock_monotonic_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

int64_t clock_wall_s(void)
{
    return (int64_t)time(NULL);
}

static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};

static int to_seconds(struct tm *tm, int64_t *ret_s)
{
    if (tm->tm_mon < 0 || tm->tm_mon > 11 || tm->tm_mday < 1 || tm->tm_mday > 31 ||
        tm->tm_hour > 23 || tm->tm_min > 59 || tm->tm_sec > 60)
        return -EINVAL;
    *ret_s = (int64_t)timegm(tm);
    return 0;
}

int clock_parse_http_date(const char *s, int64_t *ret_s)
{
    struct tm tm = {.tm_mon = -1};
    char month[4];
    int end = 0, year;

    // strptime would follow the locale's month names
    if (sscanf(s, "%*3[A-Za-z], %2d %3s %4d %2d:%2d:%2d GMT%n", &tm.tm_mday, month, &year,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &end) != 6 ||
        end == 0 || s[end])
        return -EINVAL;
    for (int i = 0; i < 12; i++)
        if (!strcmp(month, months[i]))
            tm.tm_mon = i;
    tm.tm_year = year - 1900;
    return to_seconds(&tm, ret_s);
}

int clock_parse_iso8601(const char *s, int64_t *ret_s)
{
    struct tm tm = {0};
    int end = 0, year, mon;

    if (sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d%n", &year, &mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
               &tm.tm_sec, &end) != 6)
        return -EINVAL;
    s += end;
    if (*s == '.')
        s += 1 + strspn(s + 1, "0123456789");
    if (strcmp(s, "Z") && strcmp(s, "+00:00"))
        return -EINVAL;
    tm.tm_year = year - 1900;
    tm.tm_mon = mon - 1;
    return to_seconds(&tm, ret_s);
}

void clock_format_http_date(int64_t s, char out[static 30])
{
    time_t t = (time_t)s;
    struct tm tm;
    char text[64];

    gmtime_r(&t, &tm);
    snprintf(text, sizeof(text), "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday], tm.tm_mday,
             months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
    memcpy(out, text, 29);
    out[29] = 0;
}

void clock_format_amz_date(int64_t s, char out[static 17])
{
    time_t t = (time_t)s;
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(out, 17, "%Y%m%dT%H%M%SZ", &tm);
}

void clock_format_iso8601(int64_t s, char out[static 25])
{
    time_t t = (time_t)s;
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(out, 25, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
}
