// SPDX-License-Identifier: Apache-2.0
// Which hosts are there, for the status: made of what the supervisor tells the worker.
#pragma once

#include "base/list.h"
#include "front/vhost/command.h"

#include <jansson.h>

struct session_table {
    struct list sessions;
};

void session_table_init(struct session_table *t);
void session_table_note(struct session_table *t, const struct vhost_command *c);
json_t *session_table_json(const struct session_table *t); // a new array
