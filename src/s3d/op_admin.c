// SPDX-License-Identifier: Apache-2.0
// The server's own endpoints, for tests: /_s3d/... (see os2g-s3d(1)). They take no credentials;
// the server is meant for a loopback address.
#include "base/text.h"
#include "s3d/issue.h"
#include "s3d/response.h"
#include "s3d/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void refuse(struct request *r, const char *why)
{
    response_error_with(r, S3_InvalidArgument, why, NULL);
}

// --- counters ---

static void add_field(struct buf *b, const char *name, uint64_t value)
{
    buf_printf(b, "%s\n    \"%s\": %llu", b->data[b->len - 1] == '{' ? "" : ",", name,
               (unsigned long long)value);
}

// Requests of all operations with this one's class; 0 if an earlier one has it, too.
static uint64_t class_total(const struct counters_sum *sum, enum op first)
{
    uint64_t n = 0;

    for (int i = 0; i < OP_COUNT; i++) {
        if (strcmp(op_class(i), op_class(first)) != 0)
            continue;
        if (i < (int)first)
            return 0;
        n += sum->ops[i];
    }
    return n;
}

static void add_requests(struct buf *b, const struct counters_sum *sum)
{
    uint64_t total = 0;

    buf_add_str(b, "{\n  \"requests\": {");
    for (int i = 0; i < OP_COUNT; i++) {
        uint64_t n = class_total(sum, i);

        if (n)
            add_field(b, op_class(i), n);
        total += op_is_s3(i) ? sum->ops[i] : 0;
    }
    buf_add_str(b, "\n  },\n  \"operations\": {");
    for (int i = 0; i < OP_COUNT; i++)
        if (sum->ops[i])
            add_field(b, op_name(i), sum->ops[i]);
    buf_printf(b, "\n  },\n  \"requests_total\": %llu,\n", (unsigned long long)total);
}

static void add_outcomes(struct buf *b, const struct counters_sum *sum)
{
    buf_add_str(b, "  \"statuses\": {");
    for (int i = 0; i < 600; i++) {
        char name[8];

        snprintf(name, sizeof(name), "%d", i);
        if (sum->statuses[i])
            add_field(b, name, sum->statuses[i]);
    }
    buf_add_str(b, "\n  },\n  \"faults\": {");
    for (int i = FAULT_NONE + 1; i < FAULT_COUNT; i++)
        if (sum->faults[i])
            add_field(b, fault_action_name(i), sum->faults[i]);
    buf_add_str(b, "\n  },\n");
}

static void get_counters(struct request *r)
{
    struct server *s = r->worker->server;
    struct counters_sum *sum = xmalloc(sizeof(*sum));
    struct buf *b = &r->response.text;

    server_counters(s, sum);
    add_requests(b, sum);
    add_outcomes(b, sum);
    buf_printf(b,
               "  \"connections\": %llu,\n  \"open_connections\": %u,\n"
               "  \"object_bytes_out\": %llu,\n  \"body_bytes_out\": %llu,\n"
               "  \"head_bytes_out\": %llu,\n  \"body_bytes_in\": %llu,\n  \"broken\": %llu,\n"
               "  \"in_flight\": %u,\n  \"peak_in_flight\": %u\n}\n",
               (unsigned long long)sum->connections, atomic_load(&s->open_connections),
               (unsigned long long)sum->object_bytes_out, (unsigned long long)sum->body_bytes_out,
               (unsigned long long)sum->head_bytes_out, (unsigned long long)sum->body_bytes_in,
               (unsigned long long)sum->broken, atomic_load(&s->in_flight),
               atomic_load(&s->peak_in_flight));
    free(sum);
    response_json(r, 200);
}

// --- changing what the server does ---

static void touch(struct request *r)
{
    const char *bucket = request_query(r, "bucket"), *key = request_query(r, "key");
    uint64_t generation;
    int rc;

    if (!bucket || !key) {
        refuse(r, "expected bucket= and key=");
        return;
    }
    r->bucket = store_find(&r->worker->server->store, bucket);
    rc = r->bucket ? r->bucket->ops->touch(r->bucket, key, &generation) : -ENOENT;
    if (rc == -ENOTSUP) {
        refuse(r, "only synthetic objects can be touched: put a stored one anew");
    } else if (rc < 0) {
        response_errno(r, rc);
    } else {
        buf_printf(&r->response.text, "{\"generation\": %llu}\n", (unsigned long long)generation);
        response_json(r, 200);
    }
}

static void get_faults(struct request *r)
{
    struct fault_set *f = server_get_faults(r->worker->server);

    if (f)
        buf_add_str(&r->response.text, fault_set_text(f));
    fault_set_unref(f);
    response_empty(r, 200);
}

static void put_faults(struct request *r)
{
    struct buf *text = &r->payload.text;
    struct fault_set *f = NULL;
    char *why;

    if (text->len && fault_set_parse(&f, buf_str(text), &why) < 0) {
        refuse(r, why);
        free(why);
        return;
    }
    server_set_faults(r->worker->server, f);
    response_empty(r, 204);
}

static void put_latency(struct request *r)
{
    struct latency l;

    if (latency_parse(&l, buf_str(&r->payload.text)) < 0) {
        refuse(r, "expected 10ms, uniform:5ms-20ms, lognormal:10ms,0.5 or 10ms,p99=200ms");
        return;
    }
    server_set_latency(r->worker->server, &l);
    response_empty(r, 204);
}

static void issue(struct request *r)
{
    char expiration[25];
    const struct credential *c = issue_credential(r, expiration);

    if (!c)
        return;
    buf_printf(&r->response.text,
               "{\"Version\": 1, \"AccessKeyId\": \"%s\", \"SecretAccessKey\": \"%s\", "
               "\"SessionToken\": \"%s\", \"Expiration\": \"%s\"}\n",
               c->access, c->secret, c->token, expiration);
    response_json(r, 200);
}

static void expire(struct request *r)
{
    unsigned n =
        credential_table_expire_all(&r->worker->server->credentials, worker_wall_s(r->worker));

    buf_printf(&r->response.text, "{\"expired\": %u}\n", n);
    response_json(r, 200);
}

static void reset(struct request *r)
{
    server_reset_counters(r->worker->server);
    response_empty(r, 204);
}

static const struct {
    const char *method, *path;
    void (*fn)(struct request *r);
} endpoints[] = {
    {"GET", "counters", get_counters},
    {"POST", "reset", reset},
    {"POST", "touch", touch},
    {"GET", "faults", get_faults},
    {"PUT", "faults", put_faults},
    {"PUT", "latency", put_latency},
    {"POST", "issue-credentials", issue},
    {"GET", "issue-credentials", issue},
    {"POST", "expire-credentials", expire},
};

void op_admin_start(struct request *r)
{
    r->payload.kind = PAYLOAD_TEXT;
}

void op_admin_finish(struct request *r)
{
    const char *path = buf_str(&r->path) + strlen("/_s3d/");

    for (size_t i = 0; i < ARRAY_LEN(endpoints); i++) {
        if (!strcmp(path, endpoints[i].path) && !strcmp(r->head.method, endpoints[i].method)) {
            endpoints[i].fn(r);
            return;
        }
    }
    response_error_with(r, S3_MethodNotAllowed, "There is no such endpoint of the server", NULL);
}
