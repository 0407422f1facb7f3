// SPDX-License-Identifier: Apache-2.0
#include "daemon/status.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add(json_t *o, const char *name, uint64_t value)
{
    json_object_set_new(o, name, json_integer((json_int_t)value));
}

static void add_text(json_t *o, const char *name, const char *value)
{
    // what is not UTF-8 shows as null
    json_t *text = value ? json_string(value) : NULL;

    json_object_set_new(o, name, text ? text : json_null());
}

// --- the store: summed up over the clients of all loops ---

struct s3_sum {
    uint64_t requests[S3_KINDS], errors[S3_KINDS];
    uint64_t retries, resumed, hedges, hedges_won, redirects, throttled, bytes_in;
    struct histogram first_byte[S3_KINDS], connect;
    uint64_t opened, closed, failures, exchanges, stale, wire_in, wire_out;
};

static void sum_client(struct s3_sum *t, const struct s3_client *c)
{
    const struct s3_client_stats *s = s3_client_stats(c);
    const struct http_client_stats *h = s3_client_http_stats(c);

    for (int k = 0; k < S3_KINDS; k++) {
        t->requests[k] += counter_read(&s->requests[k]);
        t->errors[k] += counter_read(&s->errors[k]);
        histogram_merge(&t->first_byte[k], &s->first_byte[k]);
    }
    t->retries += counter_read(&s->retries);
    t->resumed += counter_read(&s->resumed_bodies);
    t->hedges += counter_read(&s->hedges);
    t->hedges_won += counter_read(&s->hedges_won);
    t->redirects += counter_read(&s->redirects);
    t->throttled += counter_read(&s->throttled);
    t->bytes_in += counter_read(&s->bytes_in);
    t->opened += counter_read(&h->connections_opened);
    t->closed += counter_read(&h->connections_closed);
    t->failures += counter_read(&h->connect_failures);
    t->exchanges += counter_read(&h->exchanges);
    t->stale += counter_read(&h->stale_retries);
    t->wire_in += counter_read(&h->bytes_in);
    t->wire_out += counter_read(&h->bytes_out);
    histogram_merge(&t->connect, &h->connect_time);
}

static json_t *latency(const struct histogram *h)
{
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1}};
    json_t *o = json_object();

    add(o, "count", histogram_count(h));
    json_object_set_new(o, "sum", json_real((double)histogram_sum_ns(h) / NS_PER_S));
    for (size_t i = 0; i < ARRAY_LEN(quantiles); i++)
        json_object_set_new(o, quantiles[i].name,
                            json_real((double)histogram_quantile_ns(h, quantiles[i].q) / NS_PER_S));
    return o;
}

static json_t *store_status(const struct export *e)
{
    static const char *const kinds[S3_KINDS] = {"get", "head", "list"};
    struct s3_sum *t = xcalloc(1, sizeof(*t));
    json_t *o = json_object(), *requests = json_object(), *errors = json_object(),
           *first_byte = json_object(), *http;

    sum_client(t, fs_s3_client(e->fs));
    for (unsigned i = 0; i < cache_data_loops(e->cache); i++)
        sum_client(t, cache_s3_client(e->cache, i));
    for (int k = 0; k < S3_KINDS; k++) {
        add(requests, kinds[k], t->requests[k]);
        add(errors, kinds[k], t->errors[k]);
        json_object_set_new(first_byte, kinds[k], latency(&t->first_byte[k]));
    }
    json_object_set_new(o, "requests", requests);
    json_object_set_new(o, "errors", errors);
    json_object_set_new(o, "first_byte", first_byte);
    add(o, "retries", t->retries);
    add(o, "resumed_bodies", t->resumed);
    add(o, "hedges", t->hedges);
    add(o, "hedges_won", t->hedges_won);
    add(o, "redirects", t->redirects);
    add(o, "throttled", t->throttled);
    add(o, "bytes_in", t->bytes_in);
    http = json_object();
    add(http, "connections_opened", t->opened);
    add(http, "connections_closed", t->closed);
    add(http, "connect_failures", t->failures);
    add(http, "exchanges", t->exchanges);
    add(http, "stale_retries", t->stale);
    add(http, "bytes_in", t->wire_in);
    add(http, "bytes_out", t->wire_out);
    json_object_set_new(http, "connect", latency(&t->connect));
    json_object_set_new(o, "http", http);
    free(t);
    return o;
}

// --- this machine ---

static json_t *cache_status(const struct cache *c)
{
    struct cache_stats s;
    json_t *o = json_object();

    cache_stats_read(c, &s);
    add(o, "pool_bytes", s.pool_bytes);
    add(o, "used_bytes", s.used_bytes);
    add(o, "unread_bytes", s.unread_bytes);
    add(o, "pinned_bytes", s.pinned_bytes);
    add(o, "peak_bytes", s.peak_bytes);
    add(o, "read_bytes", s.read_bytes);
    add(o, "hit_bytes", s.hit_bytes);
    add(o, "demand_bytes", s.demand_bytes);
    add(o, "direct_bytes", s.direct_bytes);
    add(o, "preread_bytes", s.preread_bytes);
    add(o, "preread_used_bytes", s.preread_used_bytes);
    add(o, "preread_wasted_bytes", s.preread_wasted_bytes);
    add(o, "waiting", s.waiting);
    add(o, "extents", s.extents);
    add(o, "data_loops", cache_data_loops(c));
    add(o, "pressure", cache_pressure(c));
    return o;
}

static json_t *fs_status(const struct fs *fs)
{
    struct fs_stats s;
    json_t *o = json_object();

    fs_stats_read(fs, &s);
    add(o, "nodes", s.nodes);
    add(o, "node_bytes", s.node_bytes);
    add(o, "handles", s.handles);
    add(o, "snapshots", s.snapshots);
    add(o, "snapshot_bytes", s.snapshot_bytes);
    add(o, "lookups", s.lookups);
    add(o, "opens", s.opens);
    add(o, "reads", s.reads);
    add(o, "fetches", s.fetches);
    add(o, "fetch_bytes", s.fetch_bytes);
    add(o, "readdirs", s.readdirs);
    add(o, "hidden_keys", s.hidden_keys);
    add(o, "plan_entries", s.plan_entries);
    add(o, "plan_fetched", s.plan_fetched);
    add(o, "plan_used", s.plan_used);
    add(o, "plan_dropped", s.plan_dropped);
    return o;
}

static json_t *fuse_status(struct devfuse *d)
{
    struct devfuse_stats s = {0};
    json_t *o = json_object();

    if (d)
        devfuse_stats_read(d, &s);
    add(o, "requests", s.requests);
    add(o, "replies_late", s.replies_late);
    add(o, "read_bytes", s.read_bytes);
    add(o, "in_flight", d ? devfuse_in_flight(d) : 0);
    return o;
}

static json_t *vhost_status(const struct export *e)
{
    struct vhost_stats s = {0};
    json_t *o = json_object();

    if (e->vhost)
        vhost_stats_read(e->vhost, &s);
    json_object_set_new(o, "hosts", session_table_json(&e->hosts));
    add(o, "sessions", s.sessions);
    add(o, "requests", s.requests);
    add(o, "read_bytes", s.read_bytes);
    add(o, "fetches", s.fetches);
    add(o, "landed_direct_bytes", s.landed_direct_bytes);
    add(o, "landed_copied_bytes", s.landed_copied_bytes);
    add(o, "landed_engine_bytes", s.landed_engine_bytes);
    add(o, "cut_off", s.cut_off);
    add(o, "bad", s.bad);
    return o;
}

static json_t *credentials_status(struct credentials_provider *p)
{
    struct credentials *c = credentials_provider_peek(p);
    json_t *o = json_object();

    json_object_set_new(o, "present", json_boolean(c != NULL));
    if (c) {
        json_object_set_new(o, "anonymous", json_boolean(c->anonymous));
        add_text(o, "source", c->source);
        add_text(o, "access_key", c->access_key); // names the key; only the other half is secret
        add(o, "expires", (uint64_t)c->expires_s);
    }
    credentials_unref(c);
    return o;
}

// Memory that is ours alone: RssAnon of this process.
static uint64_t own_memory(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    uint64_t kib = 0;
    char line[256];

    while (f && fgets(line, sizeof(line), f))
        if (text_starts_with(line, "RssAnon:"))
            kib = strtoull(line + strlen("RssAnon:"), NULL, 10);
    if (f)
        fclose(f);
    return kib * KIB;
}

static json_t *options_status(const struct export_options *o)
{
    const char *p = buf_str(&o->given), *end = p + o->given.len;
    json_t *object = json_object();

    for (; p < end; p += strlen(p) + 1) {
        const char *eq = strchr(p, '=');
        char *name = xstrndup(p, (size_t)(eq - p));

        add_text(object, name, eq + 1);
        free(name);
    }
    return object;
}

// The same text as .os2g/stalls.
static json_t *stalls_status(const struct fs *fs)
{
    struct buf text = {0};
    json_t *o;

    fs_stalls(fs, &text);
    o = json_loadb(text.data, text.len, 0, NULL);
    buf_free(&text);
    return o;
}

json_t *status_collect(const struct export *e, uint64_t restarts, uint64_t started_ns)
{
    json_t *o = json_object(), *worker = json_object();

    add_text(o, "version", OS2G_VERSION);
    add_text(o, "source", e->options->source);
    add_text(o, "directory", e->options->directory);
    add_text(o, "socket", export_options_offers_socket(e->options) ? e->options->socket : NULL);
    add_text(o, "endpoint", s3_bucket_settings(e->bucket)->endpoint_url);
    add(worker, "pid", (uint64_t)getpid());
    add(worker, "supervisor_pid", (uint64_t)getppid());
    add(worker, "restarts", restarts);
    json_object_set_new(worker, "uptime",
                        json_real((double)(clock_monotonic_ns() - started_ns) / NS_PER_S));
    add(worker, "anonymous_bytes", own_memory());
    json_object_set_new(o, "worker", worker);
    json_object_set_new(o, "credentials", credentials_status(e->provider));
    json_object_set_new(o, "fuse", fuse_status(e->wire));
    json_object_set_new(o, "vhost", vhost_status(e));
    json_object_set_new(o, "fs", fs_status(e->fs));
    json_object_set_new(o, "stalls", stalls_status(e->fs));
    json_object_set_new(o, "cache", cache_status(e->cache));
    json_object_set_new(o, "store", store_status(e));
    json_object_set_new(o, "options", options_status(e->options));
    return o;
}
