// SPDX-License-Identifier: Apache-2.0
#include "fs/stalls.h"

#include <string.h>

// --- whose fault it is ---

// What the time waited for a request's bytes is put down to.
static const enum stall_cause of_store[CACHE_WAITS] = {
    [CACHE_WAIT_MEMORY] = STALL_POOL,
    [CACHE_WAIT_CONNECTION] = STALL_CONNECTIONS,
    [CACHE_WAIT_FIRST_BYTE] = STALL_LATENCY,
    [CACHE_WAIT_BODY] = STALL_THROUGHPUT,
};

static enum stall_cause late_cause(enum plan_lead lead, enum cache_wait_for wait)
{
    switch (lead) {
    case PLAN_UNPLANNED:
        return STALL_NOT_PLANNED;
    case PLAN_WINDOW_FULL:
        return STALL_PLAN_SHORT;
    case PLAN_POOL_FULL:
        return STALL_POOL;
    case PLAN_IN_TIME:
        break;
    }
    return of_store[wait];
}

// The parts of an operation that waited at the same time share the time that passed.
static uint64_t share(uint64_t ns, uint64_t passed, uint64_t sum)
{
    return sum > passed ? (uint64_t)((double)ns * (double)passed / (double)sum) : ns;
}

static void shares(const struct cache_waited *w, struct cache_waited *ret)
{
    uint64_t sum = 0;

    for (int i = 0; i < CACHE_WAITS; i++)
        sum += w->ns[i];
    *ret = *w;
    for (int i = 0; i < CACHE_WAITS; i++) {
        ret->ns[i] = share(w->ns[i], w->ended_ns - w->begun_ns, sum);
        ret->late_ns[i] = MIN(share(w->late_ns[i], w->ended_ns - w->begun_ns, sum), ret->ns[i]);
    }
}

void stall_causes(const struct cache_waited *w, enum plan_lead lead,
                  struct cache_waited *ret_shares, uint64_t ret[STALL_CAUSES])
{
    memset(ret, 0, STALL_CAUSES * sizeof(ret[0]));
    shares(w, ret_shares);
    for (int i = 0; i < CACHE_WAITS; i++) {
        ret[of_store[i]] += ret_shares->ns[i] - ret_shares->late_ns[i];
        ret[late_cause(lead, (enum cache_wait_for)i)] += ret_shares->late_ns[i];
    }
}

// --- intervals ---

static struct stall_interval *at(const struct stalls *s, unsigned i)
{
    return (struct stall_interval *)&s->intervals[(s->first + i) % STALL_INTERVALS];
}

static struct stall_interval *current(const struct stalls *s)
{
    return at(s, s->n - 1);
}

const struct stall_interval *stalls_interval(const struct stalls *s, unsigned i)
{
    return at(s, i);
}

uint64_t stall_seconds_ns(const struct stall_interval *i, uint64_t now_ns)
{
    uint64_t end = i->ended_ns ? i->ended_ns : now_ns;

    return end - MIN(i->begun_ns, end);
}

uint64_t stalls_waited_ns(const struct stalls *s, const struct stall_interval *i, unsigned way,
                          uint64_t now_ns)
{
    uint64_t waited = i->waited_ns[way];

    if (!i->ended_ns)
        waited = stall_spans_sum(&s->spans[way]) - waited;
    // one that ended in this interval may have begun in that before
    return MIN(waited, stall_seconds_ns(i, now_ns));
}

static void end_current(struct stalls *s, uint64_t now_ns)
{
    struct stall_interval *i = current(s);

    for (unsigned way = 0; way <= STALL_WAYS; way++)
        i->waited_ns[way] = stall_spans_sum(&s->spans[way]) - i->waited_ns[way];
    i->ended_ns = now_ns;
    // nobody wants to hear of the moments between two epochs
    if (!i->epoch && !i->sums[STALL_READ].waits && !i->sums[STALL_FETCH].waits) {
        stall_objects_fini(&i->objects);
        s->n--;
    }
}

static void begin_interval(struct stalls *s, uint64_t epoch, uint64_t now_ns)
{
    struct stall_interval *i;

    if (s->n == STALL_INTERVALS) {
        stall_objects_fini(&at(s, 0)->objects);
        s->first++;
        s->n--;
    }
    s->n++;
    i = current(s);
    *i = (struct stall_interval){.epoch = epoch, .begun_ns = now_ns};
    for (unsigned way = 0; way <= STALL_WAYS; way++)
        i->waited_ns[way] = stall_spans_sum(&s->spans[way]);
}

// --- epochs ---

static struct stall_owner *owner_find(struct stalls *s, uint64_t id)
{
    for (unsigned i = 0; i < s->n_owners; i++)
        if (s->owners[i].id == id)
            return &s->owners[i];
    return NULL;
}

// Those that have plans of the epoch before are not heard of in this one yet.
static void owners_begin(struct stalls *s)
{
    unsigned n = 0;

    for (unsigned i = 0; i < s->n_owners; i++) {
        s->owners[i].declared = false;
        if (s->owners[i].live)
            s->owners[n++] = s->owners[i];
    }
    s->n_owners = n;
}

void stalls_plan_begun(struct stalls *s, uint64_t owner, uint64_t now_ns)
{
    struct stall_owner *o = owner_find(s, owner);

    if (!s->live || (o && o->declared && !o->live)) {
        end_current(s, now_ns);
        begin_interval(s, ++s->epochs, now_ns);
        owners_begin(s);
        o = owner_find(s, owner);
    }
    if (!o && s->n_owners < STALL_OWNERS) {
        o = &s->owners[s->n_owners++];
        *o = (struct stall_owner){.id = owner};
    }
    if (o) {
        o->live++;
        o->declared = true;
    }
    s->live++;
    current(s)->plans++;
}

void stalls_plan_ended(struct stalls *s, uint64_t owner, uint64_t now_ns)
{
    struct stall_owner *o = owner_find(s, owner);

    if (o && o->live)
        o->live--;
    if (--s->live)
        return;
    end_current(s, now_ns);
    begin_interval(s, 0, now_ns);
}

// --- waits ---

static void sum_up(struct stall_sums *to, const struct cache_waited *w,
                   const uint64_t ns[STALL_CAUSES])
{
    to->waits++;
    for (int i = 0; i < CACHE_WAITS; i++)
        to->ns[i] += w->ns[i];
    for (int i = 0; i < STALL_CAUSES; i++)
        to->cause_ns[i] += ns[i];
}

// Of a wait's time, what its object had not been waited for before.
static void tally(struct stall_tally *t, const struct stall_interval *i,
                  const struct cache_waited *w, uint64_t ns[STALL_CAUSES])
{
    uint64_t passed = w->ended_ns - w->begun_ns, from;

    if (t->begun_ns != i->begun_ns)
        *t = (struct stall_tally){.begun_ns = i->begun_ns};
    from = MIN(MAX(w->begun_ns, t->waited_to_ns), w->ended_ns);
    t->waits++;
    t->waited_to_ns = MAX(t->waited_to_ns, w->ended_ns);
    for (int c = 0; c < STALL_CAUSES; c++) {
        ns[c] = share(ns[c], w->ended_ns - from, passed);
        t->ns[c] += ns[c];
    }
}

void stalls_wait(struct stalls *s, enum stall_way way, enum plan_lead lead,
                 const struct cache_waited *w, const char *key, size_t len, struct stall_tally *t)
{
    struct stall_interval *i = current(s);
    struct cache_waited shared;
    uint64_t ns[STALL_CAUSES];

    if (!w->begun_ns)
        return;
    stall_causes(w, lead, &shared, ns);
    sum_up(&s->totals[way], &shared, ns);
    sum_up(&i->sums[way], &shared, ns);
    stall_spans_add(&s->spans[way], w->begun_ns, w->ended_ns);
    stall_spans_add(&s->spans[STALL_WAYS], w->begun_ns, w->ended_ns);
    tally(t, i, w, ns);
    stall_objects_add(&i->objects, key, len, ns, t->waits, t->ns);
}

// --- life ---

void stalls_init(struct stalls *s, uint64_t now_ns, int64_t now_s)
{
    *s = (struct stalls){.begun_ns = now_ns, .begun_s = now_s};
    begin_interval(s, 0, now_ns);
}

void stalls_fini(struct stalls *s)
{
    for (unsigned i = 0; i < s->n; i++)
        stall_objects_fini(&at(s, i)->objects);
}
