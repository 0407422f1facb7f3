// SPDX-License-Identifier: Apache-2.0
// os2g status: the live counters of a mount, as a table or as the JSON they come in.
#include "cli/commands.h"

#include "base/clock.h"
#include "base/mount_table.h"
#include "base/rendezvous.h"
#include "base/text.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/status_stalls.h"
#include "daemon/control_client.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 5000

// The number at a path like "store.first_byte.get.p50"; 0 where there is none.
static double number(const json_t *status, const char *path)
{
    while (*path && status) {
        size_t len = strcspn(path, ".");
        char name[32];

        snprintf(name, sizeof(name), "%.*s", (int)len, path);
        status = json_object_get(status, name);
        path += len + (path[len] == '.');
    }
    return json_number_value(status);
}

static uint64_t count(const json_t *status, const char *path)
{
    double v = number(status, path);

    return v > 0 ? (uint64_t)v : 0;
}

static const char *text(const json_t *object, const char *name)
{
    const char *s = json_string_value(json_object_get(object, name));

    return s ? s : "-";
}

struct row {
    const char *label, *path;
    enum { COUNT, BYTES } unit;
};

// Counters that grow: with --watch the change since the last table stands beside each.
static const struct row rows[] = {
    {"FUSE requests", "fuse.requests", COUNT},
    {"  asked for by reads", "fuse.read_bytes", BYTES},
    {"names looked up", "fs.lookups", COUNT},
    {"files opened", "fs.opens", COUNT},
    {"directories read", "fs.readdirs", COUNT},
    {"GET requests", "store.requests.get", COUNT},
    {"HEAD requests", "store.requests.head", COUNT},
    {"LIST requests", "store.requests.list", COUNT},
    {"  retries", "store.retries", COUNT},
    {"  bodies resumed", "store.resumed_bodies", COUNT},
    {"  hedges", "store.hedges", COUNT},
    {"  hedges that won", "store.hedges_won", COUNT},
    {"  throttled", "store.throttled", COUNT},
    {"connections opened", "store.http.connections_opened", COUNT},
    {"bytes in", "store.http.bytes_in", BYTES},
    {"bytes out", "store.http.bytes_out", BYTES},
    {"given to readers", "cache.read_bytes", BYTES},
    {"  was there or coming", "cache.hit_bytes", BYTES},
    {"  fetched on demand", "cache.demand_bytes", BYTES},
    {"pre-read", "cache.preread_bytes", BYTES},
    {"  and used", "cache.preread_used_bytes", BYTES},
    {"  and wasted", "cache.preread_wasted_bytes", BYTES},
    {"hosts' requests", "vhost.requests", COUNT},
    {"  landed", "vhost.read_bytes", BYTES},
    {"  whole objects", "vhost.fetches", COUNT},
    {"  cut off", "vhost.cut_off", COUNT},
    {"plan entries", "fs.plan_entries", COUNT},
    {"  used", "fs.plan_used", COUNT},
    {"  dropped", "fs.plan_dropped", COUNT},
};

static void show_value(const struct row *row, double v)
{
    char bytes[16];

    if (row->unit == BYTES) {
        progress_format_bytes(v > 0 ? (uint64_t)v : 0, bytes);
        printf("  %12s", bytes);
    } else {
        printf("  %12.0f", v);
    }
}

static void show_latency(const json_t *status, const char *label, const char *kind)
{
    char path[64];
    double ms[3];
    static const char *const quantiles[] = {"p50", "p90", "p99"};

    for (size_t i = 0; i < ARRAY_LEN(quantiles); i++) {
        snprintf(path, sizeof(path), "store.first_byte.%s.%s", kind, quantiles[i]);
        ms[i] = number(status, path) * 1000;
    }
    if (ms[0] > 0)
        printf("%-24s  p50 %.1f ms  p90 %.1f ms  p99 %.1f ms\n", label, ms[0], ms[1], ms[2]);
}

static void show_gauge(const json_t *status, const char *label, const char *used, const char *of)
{
    char a[16], b[16];

    progress_format_bytes(count(status, used), a);
    progress_format_bytes(count(status, of), b);
    printf("%-24s  %12s of %s\n", label, a, b);
}

// Hosts that share memory: who, what, since when.
static void show_hosts(const json_t *hosts)
{
    const json_t *host;
    size_t i;

    json_array_foreach(hosts, i, host)
    {
        char bytes[16], when[25];

        progress_format_bytes(count(host, "region_bytes"), bytes);
        clock_format_iso8601((int64_t)count(host, "since"), when);
        printf("%-24s  pid %lu, user %lu, %lu queues, %lu regions of %s, since %.19sZ\n",
               i == 0 ? "hosts" : "", count(host, "pid"), count(host, "uid"), count(host, "queues"),
               count(host, "regions"), bytes, when);
    }
}

static void show_table(const json_t *now, const json_t *before, double seconds)
{
    const json_t *credentials = json_object_get(now, "credentials");
    const json_t *worker = json_object_get(now, "worker");
    char bytes[16];

    printf("%s on %s, OS2G %s\n", text(now, "source"),
           text(now, json_is_string(json_object_get(now, "directory")) ? "directory" : "socket"),
           text(now, "version"));
    printf("%-24s  pid %lu, up %.0f s, %lu restarts\n", "worker", count(worker, "pid"),
           number(worker, "uptime"), count(worker, "restarts"));
    printf("%-24s  %s\n", "credentials", text(credentials, "source"));
    if (count(credentials, "expires")) {
        char when[25];

        clock_format_iso8601((int64_t)count(credentials, "expires"), when);
        printf("%-24s  %.19sZ\n", "  good until", when);
    }
    show_hosts(json_object_get(json_object_get(now, "vhost"), "hosts"));
    show_gauge(now, "page pool used", "cache.used_bytes", "cache.pool_bytes");
    progress_format_bytes(count(now, "worker.anonymous_bytes"), bytes);
    printf("%-24s  %12s\n", "worker's memory", bytes);
    progress_format_bytes(count(now, "fs.node_bytes") + count(now, "fs.snapshot_bytes"), bytes);
    printf("%-24s  %12s for %lu names\n", "names", bytes, count(now, "fs.nodes"));
    if (before)
        printf("%-24s  %12s  %12s\n", "", "in all", "a second");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double v = number(now, rows[i].path);

        printf("%-24s", rows[i].label);
        show_value(&rows[i], v);
        // a new worker counts from zero
        if (before && v >= number(before, rows[i].path))
            show_value(&rows[i], (v - number(before, rows[i].path)) / seconds);
        putchar('\n');
    }
    show_latency(now, "GET, first byte", "get");
    show_latency(now, "HEAD, first byte", "head");
    show_latency(now, "LIST, first byte", "list");
    status_show_stalls(now);
}

// The status of the mount that dir lies in; NULL after a complaint.
static json_t *ask(const char *dir)
{
    char *socket_path = NULL, *error = NULL;
    json_t *status = NULL;
    int rc = control_find(dir, &socket_path, &error);

    if (rc == 0)
        rc = control_request(socket_path, "status", TIMEOUT_MS, &status, &error);
    if (rc < 0)
        session_fail(&status_command, error, rc);
    free(socket_path);
    free(error);
    return rc < 0 ? NULL : status;
}

static void show(const json_t *status, bool json)
{
    if (json) {
        json_dumpf(status, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        show_table(status, NULL, 0);
    }
}

static int show_once(const char *dir, bool json)
{
    json_t *status = ask(dir);

    if (!status)
        return 1;
    show(status, json);
    json_decref(status);
    return 0;
}

static int watch(const char *dir, bool json, uint64_t interval_ns)
{
    json_t *before = NULL, *now;
    struct timespec pause = {.tv_sec = (time_t)(interval_ns / NS_PER_S),
                             .tv_nsec = (long)(interval_ns % NS_PER_S)};

    while ((now = ask(dir))) {
        if (json) {
            json_dumpf(now, stdout, JSON_COMPACT);
            putchar('\n');
        } else {
            if (isatty(STDOUT_FILENO))
                fputs("\033[H\033[J", stdout);
            show_table(now, before, (double)interval_ns / 1e9);
        }
        if (fflush(stdout))
            break;
        json_decref(before);
        before = now;
        nanosleep(&pause, NULL);
    }
    json_decref(before);
    return 1;
}

// --- all, when none was named ---

static int show_mounts(bool json, unsigned *shown)
{
    struct mount_table table;
    int rc = mount_table_read(&table), failed = 0;

    if (rc < 0)
        return session_fail(&status_command, NULL, rc);
    for (size_t i = 0; i < table.n; i++) {
        if (!table.entries[i].ours)
            continue;
        if ((*shown)++)
            putchar('\n');
        failed |= show_once(table.entries[i].directory, json);
    }
    mount_table_free(&table);
    return failed;
}

// What a daemon has only a socket for is in no table of the kernel's: its control socket is looked
// for. Of one that has ended the name may be left.
static int show_exports(bool json, unsigned *shown)
{
    char **sockets = rendezvous_controls(geteuid());
    int failed = 0;

    for (char **s = sockets; s && *s; s++) {
        json_t *status = NULL;
        char *error = NULL;
        int rc = control_request(*s, "status", TIMEOUT_MS, &status, &error);

        if (rc == 0 && !json_is_string(json_object_get(status, "directory"))) {
            if ((*shown)++)
                putchar('\n');
            show(status, json);
        } else if (rc < 0 && rc != -ENOENT && rc != -ECONNREFUSED && rc != -EACCES) {
            failed |= session_fail(&status_command, error, rc);
        }
        json_decref(status);
        free(error);
        free(*s);
    }
    free(sockets);
    return failed;
}

static int show_all(bool json)
{
    unsigned shown = 0;
    int failed = show_mounts(json, &shown);

    failed |= show_exports(json, &shown);
    if (!shown && !failed)
        fputs("nothing is mounted or offered at a socket by os2g\n", stderr);
    return failed;
}

struct status_request {
    bool json, watch;
    uint64_t interval_ns;
};

static int set_json(void *target, const char *value, char **ret_error)
{
    ((struct status_request *)target)->json = true;
    return 0;
}

static int set_watch(void *target, const char *value, char **ret_error)
{
    ((struct status_request *)target)->watch = true;
    return 0;
}

static int set_interval(void *target, const char *value, char **ret_error)
{
    struct status_request *r = target;

    r->watch = true;
    if (text_parse_duration(value, &r->interval_ns) == 0 && r->interval_ns > 0)
        return 0;
    *ret_error = xstrdup("--interval takes a time, e.g. 5s");
    return -EINVAL;
}

static int run(int argc, char **argv)
{
    struct status_request r = {.interval_ns = NS_PER_S};
    struct cli_arguments words;
    int rc;

    cli_parse(&status_command, argc, argv, &r, NULL, &words);
    if (words.n > 1 || (r.watch && words.n == 0)) {
        cli_fail(&status_command, "See: os2g status --help", "name one directory");
        rc = EXIT_USAGE;
    } else if (words.n == 0) {
        rc = show_all(r.json);
    } else {
        rc = r.watch ? watch(words.words[0], r.json, r.interval_ns)
                     : show_once(words.words[0], r.json);
    }
    free(words.words);
    return rc;
}

static const struct cli_option options[] = {
    {"json", 0, NULL, "the counters as JSON", set_json},
    {"watch", 'w', NULL, "again and again, with rates", set_watch},
    {"interval", 0, "TIME", "between two looks of --watch (default 1s)", set_interval},
    {NULL},
};

const struct cli_command status_command = {
    .name = "status",
    .synopsis = "[DIR|SOCKET]",
    .summary = "Shows what a mount or an export at a socket, or each of them, is doing",
    .options = options,
    .run = run,
};
