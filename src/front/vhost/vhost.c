// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/vhost.h"

#include "front/vhost/session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int vhost_new(struct vhost **ret, struct loop *l, const struct vhost_config *c)
{
    struct vhost *v = xcalloc(1, sizeof(*v));

    v->config = *c;
    v->loop = l;
    list_init(&v->sessions);
    v->pieces = xcalloc(VHOST_PIECES_MAX, sizeof(*v->pieces));
    *ret = v;
    return 0;
}

static struct session *find(struct vhost *v, uint32_t number)
{
    list_for_each (it, &v->sessions) {
        struct session *s = list_entry(it, struct session, link);

        // one that has ended may have requests under way that nobody waits for
        if (s->number == number && !atomic_load(&s->ending))
            return s;
    }
    return NULL;
}

static void refuse(struct vhost *v, const struct vhost_command *c, int fd)
{
    struct vhost_event e = {
        .kind = VHOST_BAD, .session = c->session, .text = "a command that makes no sense"};

    if (fd >= 0)
        close(fd);
    v->config.event(v->config.arg, &e);
}

void vhost_command(struct vhost *v, const struct vhost_command *c, int fd)
{
    struct session *s = find(v, c->session);

    if (s)
        session_command(s, c, fd);
    else if (c->kind == VHOST_SESSION_ADD && fd >= 0)
        session_new(v, c, fd);
    else
        refuse(v, c, fd);
}

static uint64_t read_counter(const _Atomic uint64_t *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

void vhost_stats_read(const struct vhost *v, struct vhost_stats *ret)
{
    *ret = (struct vhost_stats){
        .sessions = read_counter(&v->n_sessions),
        .requests = read_counter(&v->requests),
        .read_bytes = read_counter(&v->read_bytes),
        .fetches = read_counter(&v->fetches),
        .landed_direct_bytes = read_counter(&v->landed_direct),
        .landed_copied_bytes = read_counter(&v->landed_copied),
        .landed_engine_bytes = read_counter(&v->landed_engine),
        .cut_off = read_counter(&v->cut_off),
        .bad = read_counter(&v->bad),
    };
}
