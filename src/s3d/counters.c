// SPDX-License-Identifier: Apache-2.0
#include "s3d/counters.h"

// One line for each counter, so that adding and subtracting cannot forget one.
#define EACH(X)                                                                                    \
    for (int i = 0; i < OP_COUNT; i++)                                                             \
        X(ops[i]);                                                                                 \
    for (int i = 0; i < 600; i++)                                                                  \
        X(statuses[i]);                                                                            \
    for (int i = 0; i < FAULT_COUNT; i++)                                                          \
        X(faults[i]);                                                                              \
    X(connections);                                                                                \
    X(head_bytes_out);                                                                             \
    X(body_bytes_out);                                                                             \
    X(body_bytes_in);                                                                              \
    X(object_bytes_out);                                                                           \
    X(broken)

void counters_add_to(const struct counters *c, struct counters_sum *sum)
{
#define ADD(field) sum->field += counter_read(&c->field)
    EACH(ADD);
#undef ADD
}

void counters_subtract(struct counters_sum *sum, const struct counters_sum *base)
{
#define SUBTRACT(field) sum->field -= base->field
    EACH(SUBTRACT);
#undef SUBTRACT
}
