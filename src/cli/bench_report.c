// SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include "cli/progress.h"

#include <jansson.h>
#include <stdio.h>

struct latency {
    const char *name;
    double quantile;
};

static const struct latency latencies[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}};

static double per(double value, double of)
{
    return of > 0 ? value / of : 0;
}

static double gib(const struct bench_result *r)
{
    return (double)r->bytes / (double)GIB;
}

static double quantile_us(const struct bench_result *r, double q)
{
    // the upper bound of a bucket may lie above the largest that was seen
    return (double)MIN(histogram_quantile_ns(&r->latency, q), r->latency_max_ns) / 1e3;
}

// --- JSON ---

static void set(json_t *to, const char *name, double value)
{
    json_object_set_new(to, name, json_real(value));
}

static void set_count(json_t *to, const char *name, uint64_t value)
{
    json_object_set_new(to, name, json_integer((json_int_t)value));
}

static void set_cpu(json_t *to, const struct bench_result *r, const char *name, double seconds)
{
    char field[64];

    snprintf(field, sizeof(field), "%s_cpu_s", name);
    set(to, field, seconds);
    snprintf(field, sizeof(field), "%s_cpu_s_per_gib", name);
    set(to, field, per(seconds, gib(r)));
    snprintf(field, sizeof(field), "%s_us_per_op", name);
    set(to, field, per(seconds * 1e6, (double)r->ops));
}

static json_t *plan_json(const struct os2g_plan_status *p)
{
    json_t *plan = json_object();

    set_count(plan, "entries", p->entries);
    set_count(plan, "fetched", p->fetched);
    set_count(plan, "used", p->used);
    set_count(plan, "dropped", p->dropped);
    set_count(plan, "missing", p->missing);
    set_count(plan, "bytes", p->bytes);
    return plan;
}

static void report_json(const struct bench_options *o, const struct bench_result *r)
{
    json_t *all = json_object(), *latency = json_object();

    set(all, "seconds", r->seconds);
    set_count(all, "ops", r->ops);
    set_count(all, "bytes", r->bytes);
    set_count(all, "errors", r->errors);
    if (o->verify)
        set_count(all, "mismatches", r->mismatches);
    set(all, "gibps", per(gib(r), r->seconds));
    set(all, "ops_per_s", per((double)r->ops, r->seconds));
    for (size_t i = 0; i < ARRAY_LEN(latencies); i++)
        set(latency, latencies[i].name, quantile_us(r, latencies[i].quantile));
    set(latency, "max", (double)r->latency_max_ns / 1e3);
    json_object_set_new(all, "latency_us", latency);
    set_cpu(all, r, "host", r->host_cpu_s);
    if (r->device_cpu_s >= 0) {
        set_cpu(all, r, "device", r->device_cpu_s);
        set_cpu(all, r, "total", r->host_cpu_s + r->device_cpu_s);
    }
    set_count(all, "bounced_bytes", r->stats.bounced_bytes);
    set_count(all, "cuda_bytes", r->stats.cuda_bytes);
    set_count(all, "reconnects", r->stats.reconnects);
    json_object_set_new(all, "way", json_string(r->stats.way));
    json_object_set_new(all, "release", json_string(r->stats.release));
    if (o->plan)
        json_object_set_new(all, "plan", plan_json(&r->plan));
    json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(all);
}

// --- for people ---

static void show_us(double us)
{
    if (us < 1000)
        printf(" %.0f us", us);
    else if (us < 1000000)
        printf(" %.1f ms", us / 1e3);
    else
        printf(" %.2f s", us / 1e6);
}

static void show_cpu(const struct bench_result *r, const char *name, double seconds)
{
    printf("%-12s %.3f s/GiB, %.1f us an operation\n", name, per(seconds, gib(r)),
           per(seconds * 1e6, (double)r->ops));
}

static void report_text(const struct bench_options *o, const struct bench_result *r)
{
    char bytes[16];

    progress_format_bytes(r->bytes, bytes);
    printf("%-12s %.3f GiB/s, %.0f operations/s (%s and %lu in %.2f s)\n", "throughput",
           per(gib(r), r->seconds), per((double)r->ops, r->seconds), bytes, r->ops, r->seconds);
    printf("%-12s", "latency");
    for (size_t i = 0; i < ARRAY_LEN(latencies); i++) {
        printf("%s %s", i ? "  " : "", latencies[i].name);
        show_us(quantile_us(r, latencies[i].quantile));
    }
    printf("   max");
    show_us((double)r->latency_max_ns / 1e3);
    putchar('\n');
    show_cpu(r, "host CPU", r->host_cpu_s);
    if (r->device_cpu_s >= 0) {
        show_cpu(r, "device CPU", r->device_cpu_s);
        show_cpu(r, "total CPU", r->host_cpu_s + r->device_cpu_s);
    }
    progress_format_bytes(r->stats.bounced_bytes, bytes);
    printf("%-12s %s, %s through the bounce buffer\n", "way", r->stats.way, bytes);
    if (o->plan)
        printf("%-12s %lu entries: %lu fetched ahead, %lu used, %lu dropped, %lu missing\n", "plan",
               r->plan.entries, r->plan.fetched, r->plan.used, r->plan.dropped, r->plan.missing);
    if (o->verify)
        printf("%-12s %lu of %lu operations had other bytes than before\n", "verified",
               r->mismatches, r->ops);
    if (r->errors)
        printf("%-12s %lu, the first: %s\n", "errors", r->errors, r->first_error);
}

void bench_report(const struct bench_options *o, const struct bench_result *r)
{
    if (o->json)
        report_json(o, r);
    else
        report_text(o, r);
}
