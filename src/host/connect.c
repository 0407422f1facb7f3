// SPDX-License-Identifier: Apache-2.0
// Connections made and ended, and what each call does first.
#include "base/clock.h"
#include "host/buffer.h"
#include "host/cuda_client.h"
#include "host/io.h"
#include "host/private_daemon.h"
#include "host/staging.h"
#include "host/where.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_DEFAULT   256
#define DEPTH_MAX       1024
#define TIMEOUT_DEFAULT 90000
#define BOUNCE_BYTES    (64 * MIB)
#define INTERRUPTED_NS  (50 * NS_PER_MS) // as often a call that waits asks

const char *os2g_version(void)
{
    return OS2G_VERSION;
}

// --- what calls begin with ---

// The parent's bounce memory is shared with it, and its chunks are the parent's.
static int enter_child(struct os2g *c)
{
    struct staging *bounce = c->locked.bounce;
    int rc;

    c->locked.bounce = NULL;
    list_init(&c->locked.pending);
    c->locked.pumping = false;
    staging_free(bounce);
    rc = transport_after_fork(c->transport);
    if (rc == 0)
        c->forks = fork_count();
    return rc;
}

int client_enter(struct os2g *c)
{
    int rc = 0;

    if (atomic_load_explicit(&c->forks, memory_order_acquire) == fork_count())
        return 0;
    pthread_mutex_lock(&c->enter.mutex);
    if (c->forks != fork_count())
        rc = enter_child(c);
    pthread_mutex_unlock(&c->enter.mutex);
    return rc;
}

uint64_t client_deadline(const struct os2g *c)
{
    return clock_monotonic_ns() + c->options.timeout_ms * NS_PER_MS;
}

int client_wait(struct os2g *c, const _Atomic uint32_t *flag, const _Atomic uint32_t *missing,
                uint64_t deadline_ns)
{
    const struct os2g_options *o = &c->options;

    for (;;) {
        uint64_t until = deadline_ns;
        int rc;

        if (o->interrupted)
            until = MIN(deadline_ns, clock_monotonic_ns() + INTERRUPTED_NS);
        rc = transport_wait_many(c->transport, flag, missing, until);
        if (rc == 0 || until == deadline_ns)
            return rc;
        if (o->interrupted(o->arg))
            return -EINTR;
    }
}

void client_event(struct os2g *c, enum os2g_event event, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    if (!c->options.event)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    c->options.event(c->options.arg, event, text);
}

int client_bounce(struct os2g *c, struct staging **ret)
{
    struct staging *s, *mine = NULL;
    int rc;

    pthread_mutex_lock(&c->locked.lock.mutex);
    s = c->locked.bounce;
    pthread_mutex_unlock(&c->locked.lock.mutex);
    if (!s) {
        rc = staging_new(&mine, c, BOUNCE_BYTES);
        if (rc < 0)
            return rc;
        pthread_mutex_lock(&c->locked.lock.mutex);
        if (!c->locked.bounce) {
            c->locked.bounce = mine;
            mine = NULL;
        }
        s = c->locked.bounce;
        pthread_mutex_unlock(&c->locked.lock.mutex);
        staging_free(mine); // another thread was quicker
    }
    *ret = s;
    return 0;
}

// --- connecting ---

// Options may be of a later version, with more behind what is known here, or of an earlier one.
// What is not known must not be asked for: it would be taken for granted.
static bool asks_for_more(const struct os2g_options *o)
{
    const char *p = (const char *)o;

    for (size_t i = sizeof(*o); i < o->size; i++)
        if (p[i])
            return true;
    return false;
}

static int fill_options(struct os2g_options *to, const struct os2g_options *from)
{
    *to = (struct os2g_options){0};
    if (from) {
        if (from->size < sizeof(size_t) || from->size > 4096)
            return client_fail(-EINVAL, "os2g_options.size is to be sizeof(struct os2g_options)");
        if (asks_for_more(from))
            return client_fail(-EINVAL, "an option that this libos2g (%s) does not know: update it",
                               OS2G_VERSION);
        memcpy(to, from, MIN(from->size, sizeof(*to)));
    }
    to->size = sizeof(*to);
    if (to->depth > DEPTH_MAX)
        return client_fail(-EINVAL, "at most %d requests can be under way", DEPTH_MAX);
    if (!to->depth)
        to->depth = DEPTH_DEFAULT;
    if (!to->timeout_ms)
        to->timeout_ms = TIMEOUT_DEFAULT;
    return 0;
}

static void on_room(void *arg)
{
    io_pump(arg);
}

static int make_transport(struct os2g *c, const struct where *w, const char *where)
{
    struct transport_vhost_config config = {.path = w->path, .o = &c->options};
    int rc;

    switch (w->kind) {
    case WHERE_SOCKET:
        if (w->named)
            source_ask(&config.asked, where, c->options.export_options);
        break;
    case WHERE_BUCKET:
        rc = private_daemon_new(&c->started, w->path, &c->options);
        if (rc < 0)
            return rc;
        config.path = private_daemon_socket(c->started);
        config.start = private_daemon_start;
        config.arg = c->started;
        break;
    case WHERE_GUEST:
        return transport_guest_new(&c->transport, w->path, &c->options);
    }
    rc = transport_vhost_new(&c->transport, &config);
    source_fini(&config.asked);
    return rc;
}

int os2g_connect(struct os2g **ret, const char *where, const struct os2g_options *options)
{
    struct os2g *c = xcalloc(1, sizeof(*c));
    struct where w = {0};
    int rc = fill_options(&c->options, options);

    c->forks = fork_count();
    list_init(&c->locked.pending);
    fork_lock_init(&c->enter, FORK_ENTER);
    fork_lock_init(&c->locked.lock, FORK_CLIENT);
    if (rc == 0)
        rc = where_find(where, &w);
    if (rc == 0)
        rc = make_transport(c, &w, where);
    if (rc == 0)
        transport_on_room(c->transport, on_room, c);
    free(w.path);
    // what they point to need not last
    c->options.program = NULL;
    c->options.export_options = NULL;
    if (rc < 0) {
        os2g_close(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void os2g_close(struct os2g *c)
{
    if (!c)
        return;
    if (c->transport && c->forks == fork_count()) {
        client_cuda_end(c->locked.cuda);
        // what timed out and is under way still ends here
        if (c->locked.bounce)
            staging_cut(c->locked.bounce);
        while (transport_poll(c->transport))
            ;
    }
    client_cuda_free(c->locked.cuda);
    staging_free(c->locked.bounce);
    transport_free(c->transport);
    private_daemon_free(c->started);
    fork_lock_fini(&c->locked.lock);
    fork_lock_fini(&c->enter);
    free(c->locked.buffers);
    free(c);
}

int os2g_stats_read(struct os2g *c, struct os2g_stats *ret)
{
    struct os2g_stats s = {0};
    size_t size = ret->size;

    if (size < sizeof(size_t) || size > 4096)
        return client_fail(-EINVAL, "os2g_stats.size is to be sizeof(struct os2g_stats)");
    transport_stats(c->transport, &s);
    s.bounced_bytes = c->bounced_bytes;
    s.cuda_bytes = c->cuda_bytes;
    memset(ret, 0, size);
    memcpy(ret, &s, MIN(size, sizeof(s)));
    ret->size = size;
    return 0;
}
