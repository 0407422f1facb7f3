// SPDX-License-Identifier: Apache-2.0
// The pairs of a query string, decoded.
#pragma once

#include "base/buf.h"

#define QUERY_MAX_PAIRS 64

struct query {
    struct buf text;
    struct query_pair {
        const char *name, *value; // value: "" when there is no '='
    } pairs[QUERY_MAX_PAIRS];
    unsigned n;
};

// Replaces what q held. plus_is_space: as forms are encoded. -EINVAL on a broken escape, a zero
// byte or too many pairs.
int query_parse(struct query *q, const char *raw, bool plus_is_space);
void query_fini(struct query *q);
const char *query_get(const struct query *q, const char *name); // NULL when absent
