// SPDX-License-Identifier: Apache-2.0
// Memory goes away under requests in progress. First it is said to each of them that it must not
// write any more, then a fence lets everybody finish who had not seen that (docs/design/vhost.md).
#include "front/vhost/session.h"

static void worsen(struct request *r, enum fate fate)
{
    if (atomic_load_explicit(&r->fate, memory_order_relaxed) < fate)
        atomic_store_explicit(&r->fate, fate, memory_order_release);
    atomic_store_explicit(&r->landing.dest.cut, true, memory_order_release);
}

// Its answer would be of no use; whatever it waits for need not be waited for. Cancelling may end
// requests, which then leave the list.
static void cancel_marked(struct session *s)
{
    struct list all;

    list_init(&all);
    list_splice_back(&all, &s->in_progress);
    while (!list_empty(&all)) {
        struct request *r = list_first(&all, struct request, link);
        struct fs_request *fs = &r->fuse.fs;

        list_remove(&r->link);
        list_push_back(&s->in_progress, &r->link);
        if (r->cancelled || atomic_load_explicit(&r->fate, memory_order_relaxed) == FATE_ANSWER)
            continue;
        r->cancelled = true;
        atomic_fetch_add_explicit(&s->vhost->cut_off, 1, memory_order_relaxed);
        if (fs->cancel)
            fs->cancel(fs, fs->cancel_arg);
    }
}

// What is left of a request when this region goes.
static enum fate fate_without(const struct request *r, uint64_t region)
{
    enum fate fate = FATE_ANSWER;
    uint64_t at = 0;

    for (unsigned i = 0; i < r->n_out; i++) {
        if (r->out[i].id == region)
            fate = MAX(fate, at < sizeof(struct fuse_out_header) ? FATE_MUTE : FATE_CUT);
        at += r->out[i].len;
    }
    return fate;
}

void cut_off_region(struct session *s, uint64_t region)
{
    requests_collect(s);
    list_for_each (it, &s->in_progress) {
        struct request *r = list_entry(it, struct request, link);
        enum fate fate = fate_without(r, region);

        if (fate != FATE_ANSWER)
            worsen(r, fate);
    }
    leases_cut(s->leases, region);
    cancel_marked(s);
}

void cut_off_queue(struct queue *q)
{
    struct session *s = q->session;

    requests_collect(s);
    list_for_each (it, &s->in_progress) {
        struct request *r = list_entry(it, struct request, link);

        if (r->queue == q)
            worsen(r, FATE_DETACHED);
    }
    cancel_marked(s);
}
