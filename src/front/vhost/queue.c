// SPDX-License-Identifier: Apache-2.0
// Rings: the host kicks, chains are taken.
#include "front/vhost/session.h"

#include <unistd.h>

// Chains taken in one turn of the loop, before its messages and the other queues get theirs.
#define CHAINS_PER_TURN 64

static void post_turn(struct queue *q);

static void turn(struct queue *q)
{
    struct session *s = q->session;
    struct virtq_chain c = {.max = VHOST_PIECES_MAX, .pieces = s->vhost->pieces};
    const char *why = NULL;

    for (unsigned i = 0; i < CHAINS_PER_TURN; i++) {
        int rc;

        if (!q->running || q->stopping || session_is_bad(s))
            return;
        rc = virtq_pop(&q->q, &c, &why);
        if (rc == 0)
            return;
        if (rc < 0) {
            session_bad(s, "queue %u: %s", q->index, why);
            return;
        }
        request_take(q, &c);
    }
    post_turn(q);
}

static void on_turn(struct loop_msg *msg)
{
    struct queue *q = container_of(msg, struct queue, turn);

    q->turn_posted = false;
    turn(q);
    session_end_if_idle(q->session);
}

static void post_turn(struct queue *q)
{
    if (q->turn_posted)
        return;
    q->turn_posted = true;
    loop_post(q->session->vhost->loop, &q->turn, on_turn);
}

static void on_kick(struct loop_io *io, unsigned events, void *arg)
{
    struct queue *q = arg;

    if (!virtq_kicked(&q->q)) {
        session_bad(q->session, "queue %u: the kick descriptor is no eventfd", q->index);
        loop_io_want(io, 0);
    } else if (!q->turn_posted) {
        turn(q);
    }
}

int queue_start(struct queue *q, const struct vhost_command *c, int kick_fd)
{
    struct session *s = q->session;
    int rc;

    if (kick_fd < 0)
        return -EBADF;
    rc = loop_io_new(&q->kick, s->vhost->loop, kick_fd, on_kick, q);
    if (rc < 0)
        return rc;
    rc = virtq_start(&q->q, s->map, &s->memory.logs[q->index], c, kick_fd);
    if (rc < 0) {
        loop_io_free(q->kick);
        q->kick = NULL;
        return rc;
    }
    loop_io_want(q->kick, LOOP_READ);
    q->running = true;
    q->stopping = false;
    // requests left by a worker before this one, and kicks that came before the descriptor did
    post_turn(q);
    return 0;
}

void queue_set_call(struct queue *q, int call_fd)
{
    virtq_set_call(&q->q, call_fd);
}

void queue_pause(struct queue *q)
{
    q->stopping = true;
    loop_io_free(q->kick);
    q->kick = NULL;
}

uint32_t queue_stop(struct queue *q)
{
    q->running = q->stopping = false;
    return virtq_stop(&q->q);
}
