// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_event(void *arg, enum os2g_event event, const char *text)
{
    struct world *w = arg;

    if (event == OS2G_EVENT_LOST)
        w->lost++;
    else if (event == OS2G_EVENT_RECONNECTED)
        w->reconnected++;
    else if (event == OS2G_EVENT_FALLBACK)
        w->fallbacks++;
}

struct os2g *world_connect(struct world *w, unsigned depth, unsigned timeout_ms)
{
    struct os2g_options o = {
        .size = sizeof(o),
        .depth = depth,
        .timeout_ms = timeout_ms * TEST_SLOWED_DOWN,
        .event = on_event,
        .arg = w,
    };
    struct os2g *c = NULL;

    if (os2g_connect(&c, w->socket, &o) < 0)
        fail_msg("%s", os2g_last_error());
    return c;
}

int world_setup(void **state)
{
    struct world *w = xcalloc(1, sizeof(*w));

    snprintf(w->directory, sizeof(w->directory), "/tmp/os2g-test-host-XXXXXX");
    assert_non_null(mkdtemp(w->directory));
    snprintf(w->socket, sizeof(w->socket), "%s/s", w->directory);
    w->device = fake_device_new(w->socket);
    w->c = world_connect(w, 64, 30000); // loaded machines are slow
    if (os2g_buffer_alloc(w->c, &w->buffer, 64 * MIB, OS2G_MEMORY_HOST, 0) < 0)
        fail_msg("%s", os2g_last_error());
    w->memory = os2g_buffer_base(w->buffer);
    *state = w;
    return 0;
}

int world_teardown(void **state)
{
    struct world *w = *state;

    os2g_buffer_free(w->buffer);
    os2g_close(w->c);
    if (w->device)
        fake_device_free(w->device);
    rmdir(w->directory);
    free(w);
    return 0;
}

void world_check(const struct world *w, const char *name, uint64_t offset, const uint8_t *p,
                 uint64_t len)
{
    for (uint64_t i = 0; i < len; i++)
        if (p[i] != fake_byte(name, offset + i))
            fail_msg("%s: byte %llu is %u", name, (unsigned long long)(offset + i), p[i]);
}
