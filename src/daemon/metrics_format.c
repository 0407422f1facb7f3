// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics.h"

#include <string.h>

// One row a value of the status: where it stands there, and what it is called here. Rows of one
// family stand together.
static const struct metric {
    const char *family, *type, *help; // type and help in its first row
    const char *label;                // "kind=\"get\"", or NULL
    const char *path;                 // "store.requests.get"
    const char *suffix;               // behind the family's name: of a summary's totals
} metrics[] = {
    {"os2g_requests_total", "counter", "Requests sent to the store, retries and hedges included.",
     "kind=\"get\"", "store.requests.get"},
    {"os2g_requests_total", NULL, NULL, "kind=\"head\"", "store.requests.head"},
    {"os2g_requests_total", NULL, NULL, "kind=\"list\"", "store.requests.list"},
    {"os2g_request_errors_total", "counter", "Operations on the store that failed.", "kind=\"get\"",
     "store.errors.get"},
    {"os2g_request_errors_total", NULL, NULL, "kind=\"head\"", "store.errors.head"},
    {"os2g_request_errors_total", NULL, NULL, "kind=\"list\"", "store.errors.list"},
    {"os2g_request_retries_total", "counter", "Requests sent again after a failure.", NULL,
     "store.retries"},
    {"os2g_resumed_bodies_total", "counter", "Broken answers taken up again where they had ended.",
     NULL, "store.resumed_bodies"},
    {"os2g_hedges_total", "counter", "Late requests sent a second time.", NULL, "store.hedges"},
    {"os2g_hedges_won_total", "counter", "Second requests that were answered first.", NULL,
     "store.hedges_won"},
    {"os2g_throttled_total", "counter", "Answers that asked for fewer requests.", NULL,
     "store.throttled"},
    {"os2g_object_bytes_total", "counter", "Object bytes received.", NULL, "store.bytes_in"},
    {"os2g_network_bytes_total", "counter", "Bytes of HTTP messages.", "direction=\"in\"",
     "store.http.bytes_in"},
    {"os2g_network_bytes_total", NULL, NULL, "direction=\"out\"", "store.http.bytes_out"},
    {"os2g_connections_opened_total", "counter", "Connections made to the store.", NULL,
     "store.http.connections_opened"},
    {"os2g_connect_failures_total", "counter", "Connections that could not be made.", NULL,
     "store.http.connect_failures"},
    {"os2g_first_byte_seconds", "summary",
     "From sending a request to the first byte of its answer.", "kind=\"get\",quantile=\"0.5\"",
     "store.first_byte.get.p50"},
    {"os2g_first_byte_seconds", NULL, NULL, "kind=\"get\",quantile=\"0.9\"",
     "store.first_byte.get.p90"},
    {"os2g_first_byte_seconds", NULL, NULL, "kind=\"get\",quantile=\"0.99\"",
     "store.first_byte.get.p99"},
    {"os2g_first_byte_seconds", NULL, NULL, "kind=\"get\"", "store.first_byte.get.sum", "_sum"},
    {"os2g_first_byte_seconds", NULL, NULL, "kind=\"get\"", "store.first_byte.get.count", "_count"},
    {"os2g_first_byte_seconds", NULL, NULL, "kind=\"list\",quantile=\"0.5\"",
     "store.first_byte.list.p50"},
    {"os2g_first_byte_seconds", NULL, NULL, "kind=\"list\",quantile=\"0.9\"",
     "store.first_byte.list.p90"},
    {"os2g_first_byte_seconds", NULL, NULL, "kind=\"list\",quantile=\"0.99\"",
     "store.first_byte.list.p99"},
    {"os2g_first_byte_seconds", NULL, NULL, "kind=\"list\"", "store.first_byte.list.sum", "_sum"},
    {"os2g_first_byte_seconds", NULL, NULL, "kind=\"list\"", "store.first_byte.list.count",
     "_count"},
    {"os2g_fuse_requests_total", "counter", "Requests of the kernel.", NULL, "fuse.requests"},
    {"os2g_fuse_read_bytes_total", "counter", "Bytes that the kernel asked for.", NULL,
     "fuse.read_bytes"},
    {"os2g_hosts", "gauge", "Hosts that share memory: virtual machines, programs with libos2g.",
     NULL, "vhost.sessions"},
    {"os2g_host_requests_total", "counter", "Requests of such hosts.", NULL, "vhost.requests"},
    {"os2g_host_landed_bytes_total", "counter", "Bytes that came to lie in their memory.",
     "way=\"direct\"", "vhost.landed_direct_bytes"},
    {"os2g_host_landed_bytes_total", NULL, NULL, "way=\"copied\"", "vhost.landed_copied_bytes"},
    {"os2g_host_landed_bytes_total", NULL, NULL, "way=\"engine\"", "vhost.landed_engine_bytes"},
    {"os2g_hosts_bad_total", "counter", "Hosts that were cut off for breaking the rules.", NULL,
     "vhost.bad"},
    {"os2g_fuse_in_flight", "gauge", "Requests of the kernel not answered yet.", NULL,
     "fuse.in_flight"},
    {"os2g_opens_total", "counter", "Files opened.", NULL, "fs.opens"},
    {"os2g_lookups_total", "counter", "Names looked up.", NULL, "fs.lookups"},
    {"os2g_reads_total", "counter", "Reads of files.", NULL, "fs.reads"},
    {"os2g_fetches_total", "counter", "Objects fetched whole, by their keys.", NULL, "fs.fetches"},
    {"os2g_nodes", "gauge", "Files and directories that the kernel knows.", NULL, "fs.nodes"},
    {"os2g_metadata_bytes", "gauge", "Memory of names.", "of=\"nodes\"", "fs.node_bytes"},
    {"os2g_metadata_bytes", NULL, NULL, "of=\"snapshots\"", "fs.snapshot_bytes"},
    {"os2g_hidden_keys", "gauge", "Keys that no file name can stand for.", NULL, "fs.hidden_keys"},
    {"os2g_pool_bytes", "gauge", "Memory for object bytes.", "state=\"size\"", "cache.pool_bytes"},
    {"os2g_pool_bytes", NULL, NULL, "state=\"used\"", "cache.used_bytes"},
    {"os2g_pool_bytes", NULL, NULL, "state=\"unread\"", "cache.unread_bytes"},
    {"os2g_cache_read_bytes_total", "counter", "Bytes given to readers.", NULL, "cache.read_bytes"},
    {"os2g_cache_hit_bytes_total", "counter", "Bytes that were there, or coming, when asked for.",
     NULL, "cache.hit_bytes"},
    {"os2g_preread_bytes_total", "counter", "Bytes fetched ahead.", "fate=\"fetched\"",
     "cache.preread_bytes"},
    {"os2g_preread_bytes_total", NULL, NULL, "fate=\"used\"", "cache.preread_used_bytes"},
    {"os2g_preread_bytes_total", NULL, NULL, "fate=\"wasted\"", "cache.preread_wasted_bytes"},
    {"os2g_plan_entries_total", "counter", "Entries of plans.", "fate=\"declared\"",
     "fs.plan_entries"},
    {"os2g_plan_entries_total", NULL, NULL, "fate=\"fetched\"", "fs.plan_fetched"},
    {"os2g_plan_entries_total", NULL, NULL, "fate=\"used\"", "fs.plan_used"},
    {"os2g_plan_entries_total", NULL, NULL, "fate=\"dropped\"", "fs.plan_dropped"},
    {"os2g_stalled_seconds_total", "counter", "Time that readers waited, summed up over them.",
     "way=\"read\",cause=\"store latency\"", "stalls.totals.reads.causes.store latency"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"read\",cause=\"store throughput\"",
     "stalls.totals.reads.causes.store throughput"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"read\",cause=\"connections in use\"",
     "stalls.totals.reads.causes.connections in use"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"read\",cause=\"pool full\"",
     "stalls.totals.reads.causes.pool full"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"read\",cause=\"plan too short\"",
     "stalls.totals.reads.causes.plan too short"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"read\",cause=\"not planned\"",
     "stalls.totals.reads.causes.not planned"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"fetch\",cause=\"store latency\"",
     "stalls.totals.fetches.causes.store latency"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"fetch\",cause=\"store throughput\"",
     "stalls.totals.fetches.causes.store throughput"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"fetch\",cause=\"connections in use\"",
     "stalls.totals.fetches.causes.connections in use"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"fetch\",cause=\"pool full\"",
     "stalls.totals.fetches.causes.pool full"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"fetch\",cause=\"plan too short\"",
     "stalls.totals.fetches.causes.plan too short"},
    {"os2g_stalled_seconds_total", NULL, NULL, "way=\"fetch\",cause=\"not planned\"",
     "stalls.totals.fetches.causes.not planned"},
    {"os2g_stalled_wall_seconds_total", "counter", "Time in which at least one reader waited.",
     "way=\"read\"", "stalls.totals.reads.waited"},
    {"os2g_stalled_wall_seconds_total", NULL, NULL, "way=\"fetch\"",
     "stalls.totals.fetches.waited"},
    {"os2g_worker_restarts_total", "counter", "Workers that took over from one before.", NULL,
     "worker.restarts"},
    {"os2g_worker_anonymous_bytes", "gauge", "Memory of the worker.", NULL,
     "worker.anonymous_bytes"},
    {"os2g_credentials_expiry_seconds", "gauge",
     "When the credentials expire, in seconds since 1970; 0: never.", NULL, "credentials.expires"},
};

static const json_t *find(const json_t *o, const char *path)
{
    while (o && *path) {
        size_t len = strcspn(path, ".");

        o = json_object_getn(o, path, len);
        path += len + (path[len] == '.');
    }
    return o;
}

static void sample(struct buf *out, const struct metric *m, const struct metrics_export *e)
{
    const json_t *value = find(e->status, m->path);

    if (!json_is_number(value))
        return;
    buf_printf(out, "%s%s{export=\"%s\"%s%s} %.17g\n", m->family, m->suffix ? m->suffix : "",
               e->name, m->label ? "," : "", m->label ? m->label : "", json_number_value(value));
}

void metrics_format(struct buf *out, const struct metrics_export *exports, size_t n)
{
    buf_add_str(out, "# HELP os2g_up Whether the export's worker answers.\n# TYPE os2g_up gauge\n");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "os2g_up{export=\"%s\"} %d\n", exports[i].name, exports[i].status != NULL);
    for (size_t k = 0; k < ARRAY_LEN(metrics); k++) {
        const struct metric *m = &metrics[k];

        if (m->type)
            buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", m->family, m->help, m->family, m->type);
        for (size_t i = 0; i < n; i++)
            if (exports[i].status)
                sample(out, m, &exports[i]);
    }
}
