// SPDX-License-Identifier: Apache-2.0
// What has happened, by kind. Each worker has its own; GET /_s3d/counters adds them up.
#pragma once

#include "base/counter.h"
#include "s3d/faults.h"
#include "s3d/ops.h"

struct counters {
    struct counter ops[OP_COUNT];
    struct counter statuses[600];
    struct counter faults[FAULT_COUNT];
    struct counter connections; // accepted
    struct counter head_bytes_out, body_bytes_out, body_bytes_in;
    struct counter object_bytes_out; // of body_bytes_out, those of objects
    struct counter broken;           // connections that ended in the middle of an exchange
};

struct counters_sum {
    uint64_t ops[OP_COUNT], statuses[600], faults[FAULT_COUNT];
    uint64_t connections, head_bytes_out, body_bytes_out, body_bytes_in, object_bytes_out, broken;
};

void counters_add_to(const struct counters *c, struct counters_sum *sum);
// sum -= base, field by field.
void counters_subtract(struct counters_sum *sum, const struct counters_sum *base);
