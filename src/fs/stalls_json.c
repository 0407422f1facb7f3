// SPDX-License-Identifier: Apache-2.0
// The report as JSON. Times are in seconds.
#include "base/clock.h"
#include "fs/stalls.h"

#include <string.h>

static const char *const cause_names[STALL_CAUSES] = {
    [STALL_LATENCY] = "store latency",          [STALL_THROUGHPUT] = "store throughput",
    [STALL_CONNECTIONS] = "connections in use", [STALL_POOL] = "pool full",
    [STALL_PLAN_SHORT] = "plan too short",      [STALL_NOT_PLANNED] = "not planned",
};

static const char *const wait_names[CACHE_WAITS] = {
    [CACHE_WAIT_MEMORY] = "memory",
    [CACHE_WAIT_CONNECTION] = "connection",
    [CACHE_WAIT_FIRST_BYTE] = "first byte",
    [CACHE_WAIT_BODY] = "body",
};

static const char *const advice[STALL_CAUSES] = {
    [STALL_LATENCY] = "The store was slow to answer requests that were sent in good time: declare "
                      "the order sooner (before the first read), or look at the store and the way "
                      "to it.",
    [STALL_THROUGHPUT] = "Bytes came more slowly than they were read: look at the store and the "
                         "network, and raise max-connections if it takes more requests at a time.",
    [STALL_CONNECTIONS] = "As many requests were under way as are allowed: raise max-connections, "
                          "or, if status counts throttled requests, ask the store for more.",
    [STALL_POOL] = "There was no memory for what readers asked for: give it more (memory), or have "
                   "fewer readers at a time.",
    [STALL_PLAN_SHORT] = "Readers overtook the plan, whose window was full: declare it with a "
                         "larger window, and give more memory if that is half of the pool already.",
    [STALL_NOT_PLANNED] = "Nobody had said that these objects would be read: declare the order "
                          "(PlanSampler, DeviceLoader, os2g_plan(3)), or run os2g prefetch before.",
};

// --- writing JSON ---

static void add_seconds(struct buf *out, uint64_t ns)
{
    buf_printf(out, "%llu.%06llu", (unsigned long long)(ns / NS_PER_S),
               (unsigned long long)(ns % NS_PER_S / 1000));
}

// The length of the UTF-8 character at s, 0 if there is none (RFC 3629).
static size_t utf8_len(const unsigned char *s, size_t left)
{
    size_t len = s[0] < 0x80                    ? 1
                 : s[0] >= 0xc2 && s[0] < 0xe0  ? 2
                 : s[0] >> 4 == 0xe             ? 3
                 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                                : 0;

    if (len > left)
        return 0;
    for (size_t i = 1; i < len; i++)
        if (s[i] >> 6 != 2)
            return 0;
    // no longer than need be, no surrogate, not beyond Unicode
    if (len == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0)))
        return 0;
    if (len == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)))
        return 0;
    return len;
}

// A key may be any bytes; what is not UTF-8 shows as U+FFFD, and so does zero, which many readers
// of JSON refuse (a FETCH's key is its host's to choose).
static void add_key(struct buf *out, const char *key, size_t len)
{
    const unsigned char *s = (const unsigned char *)key;

    buf_add_str(out, "\"");
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_len(s + i, len - i);
        if (!n || !s[i]) {
            buf_add_str(out, "\\ufffd");
            n = 1;
        } else if (s[i] < 0x20 || s[i] == 0x7f) {
            buf_printf(out, "\\u%04x", s[i]);
        } else {
            if (s[i] == '"' || s[i] == '\\')
                buf_add_str(out, "\\");
            buf_add(out, s + i, n);
        }
    }
    buf_add_str(out, "\"");
}

static void add_times(struct buf *out, const char *name, const char *const *names,
                      const uint64_t *ns, unsigned n)
{
    buf_printf(out, ", \"%s\": {", name);
    for (unsigned i = 0; i < n; i++) {
        buf_printf(out, "%s\"%s\": ", i ? ", " : "", names[i]);
        add_seconds(out, ns[i]);
    }
    buf_add_str(out, "}");
}

// --- the report ---

static enum stall_cause leading(const uint64_t ns[STALL_CAUSES])
{
    enum stall_cause lead = 0;

    for (int i = 1; i < STALL_CAUSES; i++)
        if (ns[i] > ns[lead])
            lead = (enum stall_cause)i;
    return lead;
}

static void add_sums(struct buf *out, const char *name, const struct stall_sums *s,
                     uint64_t waited_ns)
{
    buf_printf(out, ", \"%s\": {\"waits\": %llu, \"waited\": ", name, (unsigned long long)s->waits);
    add_seconds(out, waited_ns);
    buf_add_str(out, ", \"summed\": ");
    add_seconds(out, stall_sum(s->cause_ns));
    add_times(out, "causes", cause_names, s->cause_ns, STALL_CAUSES);
    add_times(out, "waited_for", wait_names, s->ns, CACHE_WAITS);
    buf_add_str(out, "}");
}

static void add_objects(struct buf *out, const struct stall_objects *o)
{
    bool shown[STALL_OBJECTS] = {false};

    buf_add_str(out, ", \"objects\": [");
    for (unsigned n = 0; n < o->n; n++) {
        const struct stall_object *most = NULL;

        for (unsigned i = 0; i < o->n; i++)
            if (!shown[i] && (!most || stall_sum(o->object[i].ns) > stall_sum(most->ns)))
                most = &o->object[i];
        shown[most - o->object] = true;
        buf_printf(out, "%s{\"key\": ", n ? ", " : "");
        add_key(out, most->key, most->key_len);
        buf_add_str(out, ", \"waited\": ");
        add_seconds(out, stall_sum(most->ns));
        buf_printf(out, ", \"waits\": %llu, \"cause\": \"%s\"}", (unsigned long long)most->waits,
                   cause_names[leading(most->ns)]);
    }
    buf_add_str(out, "]");
}

static void add_leading(struct buf *out, const struct stall_interval *i)
{
    uint64_t ns[STALL_CAUSES];
    enum stall_cause lead;

    for (int c = 0; c < STALL_CAUSES; c++)
        ns[c] = i->sums[STALL_READ].cause_ns[c] + i->sums[STALL_FETCH].cause_ns[c];
    lead = leading(ns);
    add_times(out, "causes", cause_names, ns, STALL_CAUSES);
    if (ns[lead])
        buf_printf(out, ", \"leading\": \"%s\", \"advice\": \"%s\"", cause_names[lead],
                   advice[lead]);
    else
        buf_add_str(out, ", \"leading\": null, \"advice\": null");
}

static void add_interval(struct buf *out, const struct stalls *s, const struct stall_interval *i,
                         uint64_t now_ns)
{
    uint64_t took = stall_seconds_ns(i, now_ns),
             waited = stalls_waited_ns(s, i, STALL_WAYS, now_ns);
    int64_t begun_s;

    if (i->epoch)
        buf_printf(out, "{\"epoch\": %llu", (unsigned long long)i->epoch);
    else
        buf_add_str(out, "{\"epoch\": null");
    begun_s = s->begun_s + (int64_t)((i->begun_ns - s->begun_ns) / NS_PER_S);
    buf_printf(out, ", \"begun\": %lld", (long long)begun_s);
    buf_printf(out,
               ", \"under_way\": %s, \"plans\": %u, \"seconds\": ", i->ended_ns ? "false" : "true",
               i->plans);
    add_seconds(out, took);
    buf_add_str(out, ", \"waited\": ");
    add_seconds(out, waited);
    buf_add_str(out, ", \"reader_itself\": ");
    add_seconds(out, took - waited);
    add_leading(out, i);
    add_sums(out, "reads", &i->sums[STALL_READ], stalls_waited_ns(s, i, STALL_READ, now_ns));
    add_sums(out, "fetches", &i->sums[STALL_FETCH], stalls_waited_ns(s, i, STALL_FETCH, now_ns));
    add_objects(out, &i->objects);
    buf_add_str(out, "}");
}

void stalls_json(const struct stalls *s, unsigned under_way, uint64_t now_ns, struct buf *out)
{
    buf_printf(out, "{\"under_way\": %u, \"totals\": {\"seconds\": ", under_way);
    add_seconds(out, now_ns - MIN(s->begun_ns, now_ns));
    add_sums(out, "reads", &s->totals[STALL_READ], stall_spans_sum(&s->spans[STALL_READ]));
    add_sums(out, "fetches", &s->totals[STALL_FETCH], stall_spans_sum(&s->spans[STALL_FETCH]));
    buf_add_str(out, "}, \"advice\": {");
    for (int c = 0; c < STALL_CAUSES; c++)
        buf_printf(out, "%s\"%s\": \"%s\"", c ? ", " : "", cause_names[c], advice[c]);
    buf_add_str(out, "},\n \"epochs\": [");
    for (unsigned i = 0; i < s->n; i++) {
        buf_add_str(out, i ? ",\n " : "\n ");
        add_interval(out, s, stalls_interval(s, i), now_ns);
    }
    buf_add_str(out, "]}\n");
}
