// SPDX-License-Identifier: Apache-2.0
// A connection to a fake device, for one test.
#pragma once

#include "fake_device.h"
#include "test.h"

#include <os2g/os2g.h>

struct world {
    char directory[64], socket[96];
    struct fake_device *device;
    struct os2g *c;
    struct os2g_buffer *buffer; // 64 MiB
    uint8_t *memory;            // of buffer
    _Atomic unsigned lost, reconnected, fallbacks;
};

int world_setup(void **state); // time-outs of 5 s
int world_teardown(void **state);
void world_check(const struct world *w, const char *name, uint64_t offset, const uint8_t *p,
                 uint64_t len);
struct os2g *world_connect(struct world *w, unsigned depth, unsigned timeout_ms);
