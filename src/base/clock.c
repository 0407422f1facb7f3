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
    if (tm->tm_year < -1900 || tm->tm_mon < 0 || tm->tm_mon > 11 || tm->tm_mday < 1 ||
        tm->tm_mday > 31 || tm->tm_hour < 0 || tm->tm_hour > 23 || tm->tm_min < 0 ||
        tm->tm_min > 59 || tm->tm_sec < 0 || tm->tm_sec > 60)
        return -EINVAL;
    *ret_s = (int64_t)timegm(tm);
    return 0;
}

// n decimal digits; -1 if one is none.
static int digits(const char *s, int n)
{
    int v = 0;

    for (int i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -1;
        v = v * 10 + s[i] - '0';
    }
    return v;
}

// Whether s has form's characters wherever form has none of 0, A and a.
static bool has_form(const char *s, const char *form)
{
    for (; *form; form++, s++)
        if (!*s || (!strchr("0Aa", *form) && *s != *form))
            return false;
    return true;
}

// By hand: strptime would follow the locale's month names, and every answer of a store has a date.
int clock_parse_http_date(const char *s, int64_t *ret_s)
{
    static const char form[] = "Aaa, 00 Aaa 0000 00:00:00 GMT";
    struct tm tm = {.tm_mon = -1};

    if (!has_form(s, form) || s[sizeof(form) - 1])
        return -EINVAL;
    for (int i = 0; i < 12; i++)
        if (!memcmp(s + 8, months[i], 3))
            tm.tm_mon = i;
    tm.tm_mday = digits(s + 5, 2);
    tm.tm_year = digits(s + 12, 4) - 1900;
    tm.tm_hour = digits(s + 17, 2);
    tm.tm_min = digits(s + 20, 2);
    tm.tm_sec = digits(s + 23, 2);
    return to_seconds(&tm, ret_s);
}

int clock_parse_iso8601(const char *s, int64_t *ret_s)
{
    static const char form[] = "0000-00-00T00:00:00";
    struct tm tm = {0};

    if (!has_form(s, form))
        return -EINVAL;
    tm.tm_year = digits(s, 4) - 1900;
    tm.tm_mon = digits(s + 5, 2) - 1;
    tm.tm_mday = digits(s + 8, 2);
    tm.tm_hour = digits(s + 11, 2);
    tm.tm_min = digits(s + 14, 2);
    tm.tm_sec = digits(s + 17, 2);
    s += sizeof(form) - 1;
    if (*s == '.')
        s += 1 + strspn(s + 1, "0123456789");
    if (strcmp(s, "Z") != 0 && strcmp(s, "+00:00") != 0)
        return -EINVAL;
    return to_seconds(&tm, ret_s);
}

void clock_format_http_date(int64_t s, char out[static 30])
{
    time_t t = (time_t)s;
    struct tm tm;
    char text[64];

    gmtime_r(&t, &tm);
    snprintf(text, sizeof(text), "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday],
             tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
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
