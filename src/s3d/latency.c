// SPDX-License-Identifier: Apache-2.0
#include "s3d/latency.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int parse_tail(struct latency *l, char *text)
{
    char *equals = strchr(text, '='), *end;
    double percent;

    if (text[0] != 'p' || !equals)
        return -EINVAL;
    *equals = 0;
    percent = strtod(text + 1, &end);
    if (*end || !(percent > 0 && percent < 100))
        return -EINVAL;
    l->kind = LATENCY_TAIL;
    l->tail = 1 - percent / 100;
    return text_parse_duration(equals + 1, &l->b_ns);
}

static int parse(struct latency *l, char *text)
{
    char *second, *end;

    if (text_starts_with(text, "uniform:") && (second = strchr(text, '-'))) {
        *second++ = 0;
        l->kind = LATENCY_UNIFORM;
        if (text_parse_duration(text + 8, &l->a_ns) < 0 ||
            text_parse_duration(second, &l->b_ns) < 0 || l->a_ns > l->b_ns)
            return -EINVAL;
        return 0;
    }
    if (text_starts_with(text, "lognormal:") && (second = strchr(text, ','))) {
        *second++ = 0;
        l->kind = LATENCY_LOGNORMAL;
        l->sigma = strtod(second, &end);
        if (end == second || *end || !(l->sigma >= 0 && l->sigma <= 5))
            return -EINVAL;
        return text_parse_duration(text + 10, &l->a_ns);
    }
    second = strchr(text, ',');
    if (second) {
        *second++ = 0;
        if (parse_tail(l, second) < 0)
            return -EINVAL;
    }
    return text_parse_duration(text, &l->a_ns);
}

int latency_parse(struct latency *l, const char *spec)
{
    struct latency parsed = {0};
    char *copy = xstrdup(spec);
    int rc = parse(&parsed, copy);

    free(copy);
    if (rc < 0)
        return -EINVAL;
    *l = parsed;
    return 0;
}

uint64_t latency_draw_ns(const struct latency *l, struct rand *r)
{
    double u, v;

    switch (l->kind) {
    case LATENCY_UNIFORM:
        return l->a_ns + rand_below(r, l->b_ns - l->a_ns + 1);
    case LATENCY_LOGNORMAL:
        u = 1 - rand_unit(r);
        v = rand_unit(r);
        return (uint64_t)((double)l->a_ns * exp(l->sigma * sqrt(-2 * log(u)) * cos(2 * M_PI * v)));
    case LATENCY_TAIL:
        return rand_unit(r) < l->tail ? l->b_ns : l->a_ns;
    default:
        return l->a_ns;
    }
}
