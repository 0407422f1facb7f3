// SPDX-License-Identifier: Apache-2.0
#include "cache/waited.h"

static void extend(struct cache_waited *w, uint64_t from, uint64_t to)
{
    w->begun_ns = w->begun_ns ? MIN(w->begun_ns, from) : from;
    w->ended_ns = MAX(w->ended_ns, to);
}

void cache_waited_memory(struct cache_waited *w, uint64_t from_ns, uint64_t to_ns)
{
    if (to_ns <= from_ns)
        return;
    extend(w, from_ns, to_ns);
    w->ns[CACHE_WAIT_MEMORY] += to_ns - from_ns;
}

static uint64_t within(uint64_t at, uint64_t from, uint64_t to)
{
    return at ? MIN(MAX(at, from), to) : to;
}

void cache_waited_bytes(struct cache_waited *w, const struct cache_asked *a, uint64_t from_ns,
                        uint64_t to_ns)
{
    uint64_t sent = within(a->sent_ns, from_ns, to_ns);
    uint64_t head = MAX(within(a->first_byte_ns, from_ns, to_ns), sent);
    uint64_t ns[CACHE_WAITS] = {
        [CACHE_WAIT_CONNECTION] = sent - from_ns,
        [CACHE_WAIT_FIRST_BYTE] = head - sent,
        [CACHE_WAIT_BODY] = to_ns - head,
    };
    bool late;

    if (to_ns <= from_ns)
        return;
    extend(w, from_ns, to_ns);
    late = a->on_demand || !a->sent_ns || a->sent_ns > from_ns ||
           from_ns - a->sent_ns < to_ns - from_ns;
    for (int i = 0; i < CACHE_WAITS; i++) {
        w->ns[i] += ns[i];
        w->late_ns[i] += late ? ns[i] : 0;
    }
}

void cache_waited_merge(struct cache_waited *to, const struct cache_waited *from)
{
    if (!from->begun_ns)
        return;
    extend(to, from->begun_ns, from->ended_ns);
    for (int i = 0; i < CACHE_WAITS; i++) {
        to->ns[i] += from->ns[i];
        to->late_ns[i] += from->late_ns[i];
    }
}
