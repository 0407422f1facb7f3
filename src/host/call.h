// SPDX-License-Identifier: Apache-2.0
// One question to the device, waited for.
#pragma once

#include "host/transport.h"

struct call {
    uint32_t opcode;
    unsigned generation; // as of struct transport_request; 0 with the root
    uint64_t nodeid;
    struct iovec in[3]; // copied
    unsigned n_in;
    void *out;
    uint32_t out_len;
    bool out_variable;
    uint64_t deadline_ns;
    struct os2g *client; // whose user may be called away meanwhile: -EINTR; NULL: nobody
};
// The number of bytes of out, or -errno (no sentence): of the answer, -ETIMEDOUT, -ENOTCONN (of a
// session that has ended: with generation 0 it is asked again by itself).
int call_run(struct transport *t, const struct call *call);
