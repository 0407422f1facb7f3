// SPDX-License-Identifier: Apache-2.0
#include "daemon/session_table.h"

#include <stdlib.h>

struct row {
    struct list link;
    struct vhost_command added; // VHOST_SESSION_ADD
    unsigned regions;
    uint64_t region_bytes;
    uint32_t queues; // a bit each
};

void session_table_init(struct session_table *t)
{
    list_init(&t->sessions);
}

static struct row *find(struct session_table *t, uint32_t session)
{
    list_for_each (it, &t->sessions) {
        struct row *r = list_entry(it, struct row, link);

        if (r->added.session == session)
            return r;
    }
    return NULL;
}

void session_table_note(struct session_table *t, const struct vhost_command *c)
{
    struct row *r = find(t, c->session);

    if (!r && c->kind == VHOST_SESSION_ADD) {
        r = xcalloc(1, sizeof(*r));
        r->added = *c;
        list_push_back(&t->sessions, &r->link);
    }
    if (!r)
        return;
    if (c->kind == VHOST_SESSION_REMOVE) {
        list_remove(&r->link);
        free(r);
    } else if (c->kind == VHOST_REGION_ADD) {
        r->regions++;
        r->region_bytes += c->region.size;
    } else if (c->kind == VHOST_REGION_REMOVE) {
        r->regions--;
        r->region_bytes -= c->region.size;
    } else if (c->kind == VHOST_QUEUE_START && c->queue < VHOST_QUEUES) {
        r->queues |= 1u << c->queue;
    } else if (c->kind == VHOST_QUEUE_STOP && c->queue < VHOST_QUEUES) {
        r->queues &= ~(1u << c->queue);
    }
}

json_t *session_table_json(const struct session_table *t)
{
    json_t *a = json_array();

    list_for_each (it, &t->sessions) {
        const struct row *r = list_entry(it, struct row, link);

        json_array_append_new(
            a, json_pack("{s:I s:I s:I s:I s:I s:I s:I}", "session", (json_int_t)r->added.session,
                         "pid", (json_int_t)r->added.peer.pid, "uid", (json_int_t)r->added.peer.uid,
                         "since", (json_int_t)r->added.peer.since_s, "regions",
                         (json_int_t)r->regions, "region_bytes", (json_int_t)r->region_bytes,
                         "queues", (json_int_t)__builtin_popcount(r->queues)));
    }
    return a;
}
