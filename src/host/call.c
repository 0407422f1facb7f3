// SPDX-License-Identifier: Apache-2.0
#include "host/call.h"

#include "host/client.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// Lives on after its caller's time is over, until the device has answered.
struct running {
    struct transport_request r;
    struct transport *transport;
    _Atomic uint32_t ended;
    _Atomic unsigned refs; // the caller's and the transport's
    int error;
    uint32_t out_got;
    uint8_t bytes[]; // in, then out
};

static void unref(struct running *c)
{
    if (atomic_fetch_sub(&c->refs, 1) == 1)
        free(c);
}

static void on_done(struct transport_request *r, int error, uint32_t out_got, uint64_t data_got)
{
    struct running *c = container_of(r, struct running, r);

    c->error = error;
    c->out_got = out_got;
    transport_flag(c->transport, &c->ended);
    unref(c);
}

int call_run(struct transport *t, const struct call *call)
{
    struct running *c;
    size_t in_len = 0, at = 0;
    int rc;

    for (unsigned i = 0; i < call->n_in; i++)
        in_len += call->in[i].iov_len;
    c = xcalloc(1, sizeof(*c) + in_len + call->out_len);
    for (unsigned i = 0; i < call->n_in; at += call->in[i++].iov_len)
        memcpy(c->bytes + at, call->in[i].iov_base, call->in[i].iov_len);
    c->transport = t;
    c->refs = 2;
    c->r = (struct transport_request){
        .opcode = call->opcode,
        .nodeid = call->nodeid,
        .in = {{c->bytes, in_len}},
        .n_in = 1,
        .out = c->bytes + in_len,
        .out_len = call->out_len,
        .out_variable = call->out_variable,
        .again = !call->generation,
        .generation = call->generation,
        .done = on_done,
    };
    rc = transport_submit(t, &c->r, false);
    if (rc < 0) {
        free(c);
        return rc;
    }
    rc = call->client ? client_wait(call->client, &c->ended, NULL, call->deadline_ns)
                      : transport_wait(t, &c->ended, call->deadline_ns);
    if (rc < 0) {
        transport_cancel(t, &c->r);
    } else {
        if (!c->error && c->out_got)
            memcpy(call->out, c->bytes + in_len, c->out_got);
        rc = c->error ? c->error : (int)c->out_got;
    }
    unref(c);
    return rc;
}
