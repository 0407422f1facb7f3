// SPDX-License-Identifier: Apache-2.0
#include "s3d/request_log.h"

#include "base/clock.h"

void request_log_write(struct conn *c)
{
    struct server *s = c->worker->server;
    struct request *r = &c->request;
    const char *range = request_header(r, "range");

    if (!s->log || r->op == OP_ADMIN)
        return;
    pthread_mutex_lock(&s->log_lock);
    fprintf(s->log, "%016llX %s %s %s %d %llu %.3fms range=%s fault=%s\n",
            (unsigned long long)r->id, op_name(r->op), r->head.method, r->head.target,
            r->response.status, (unsigned long long)c->body_sent,
            (double)(clock_monotonic_ns() - c->arrived_ns) / 1e6, range ? range : "-",
            fault_action_name(r->fault.action));
    fflush(s->log);
    pthread_mutex_unlock(&s->log_lock);
}
