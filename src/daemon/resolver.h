// SPDX-License-Identifier: Apache-2.0
// The worker's half of getting credentials (see broker.h): asks the supervisor over the channel,
// reads the pipe it gets. On one loop, whose thread makes all calls.
#pragma once

#include "base/list.h"
#include "daemon/channel.h"
#include "s3/credentials.h"

struct resolver {
    struct credentials_resolver base; // for credentials_provider_new
    // private
    struct loop *loop;
    int channel;
    uint64_t last_number;
    struct list waiting;
    char *kept; // an answer that the next call gets
};

void resolver_init(struct resolver *r, struct loop *l, int channel);
// The supervisor's CHANNEL_CREDENTIALS. fd (or -1) becomes the resolver's.
void resolver_answer(struct resolver *r, uint64_t number, int fd, const char *text);
// The next resolve gets json without asking.
void resolver_keep(struct resolver *r, const char *json);
