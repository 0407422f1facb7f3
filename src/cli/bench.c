// SPDX-License-Identifier: Apache-2.0
// os2g bench: how fast objects come into memory by libos2g, and what CPU that takes on both sides.
#include "cli/bench.h"

#include "base/clock.h"
#include "base/text.h"
#include "cli/commands.h"

#include <stdlib.h>
#include <string.h>

// --- options ---

static int set_key(void *target, const char *value, char **ret_error)
{
    struct bench_options *o = target;

    o->keys = xrealloc(o->keys, (o->n_keys + 1) * sizeof(*o->keys));
    o->keys[o->n_keys++] = value;
    return 0;
}

static int set_keys(void *target, const char *value, char **ret_error)
{
    ((struct bench_options *)target)->below = value;
    return 0;
}

static int set_list(void *target, const char *value, char **ret_error)
{
    ((struct bench_options *)target)->list = value;
    return 0;
}

static int set_op(void *target, const char *value, char **ret_error)
{
    struct bench_options *o = target;

    o->op = !strcmp(value, "read") ? OS2G_IO_READ : OS2G_IO_FETCH;
    if (o->op == OS2G_IO_READ || !strcmp(value, "fetch"))
        return 0;
    *ret_error = xstrdup("--op takes fetch or read");
    return -EINVAL;
}

static int set_memory(void *target, const char *value, char **ret_error)
{
    struct bench_options *o = target;
    static const struct {
        const char *name;
        enum os2g_memory memory;
        bool plain;
    } kinds[] = {{"host", OS2G_MEMORY_HOST, false},
                 {"malloc", OS2G_MEMORY_HOST, true},
                 {"cuda", OS2G_MEMORY_CUDA, false},
                 {"bar", OS2G_MEMORY_BAR, false}};

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!strcmp(value, kinds[i].name)) {
            o->memory = kinds[i].memory;
            o->plain = kinds[i].plain;
            return 0;
        }
    }
    *ret_error = xstrdup("--memory takes host, malloc, cuda or bar");
    return -EINVAL;
}

static int take_size(uint64_t *to, const char *name, const char *value, char **ret_error)
{
    if (text_parse_size(value, to) == 0 && *to > 0)
        return 0;
    *ret_error = xasprintf("--%s takes a size, e.g. 1M", name);
    return -EINVAL;
}

static int set_object_size(void *target, const char *value, char **ret_error)
{
    return take_size(&((struct bench_options *)target)->object_size, "object-size", value,
                     ret_error);
}

static int set_block_size(void *target, const char *value, char **ret_error)
{
    return take_size(&((struct bench_options *)target)->block_size, "block-size", value, ret_error);
}

static int take_number(uint64_t *to, const char *name, const char *value, uint64_t min,
                       uint64_t max, char **ret_error)
{
    if (text_parse_u64(value, to) == 0 && *to >= min && *to <= max)
        return 0;
    *ret_error = xasprintf("--%s takes a number from %lu to %lu", name, min, max);
    return -EINVAL;
}

static int set_threads(void *target, const char *value, char **ret_error)
{
    return take_number(&((struct bench_options *)target)->threads, "threads", value, 1, 1024,
                       ret_error);
}

static int set_depth(void *target, const char *value, char **ret_error)
{
    return take_number(&((struct bench_options *)target)->depth, "depth", value, 1, 1024,
                       ret_error);
}

static int set_reap(void *target, const char *value, char **ret_error)
{
    return take_number(&((struct bench_options *)target)->reap, "reap", value, 1, 1024, ret_error);
}

static int set_device(void *target, const char *value, char **ret_error)
{
    return take_number(&((struct bench_options *)target)->device, "device", value, 0, 1023,
                       ret_error);
}

static int set_loops(void *target, const char *value, char **ret_error)
{
    return take_number(&((struct bench_options *)target)->loops, "loops", value, 1, 1000000,
                       ret_error);
}

static int set_operations(void *target, const char *value, char **ret_error)
{
    return take_number(&((struct bench_options *)target)->operations, "operations", value, 1,
                       1000000000, ret_error);
}

static int set_warm_up(void *target, const char *value, char **ret_error)
{
    return take_number(&((struct bench_options *)target)->warm_up, "warm-up", value, 0, 1000000000,
                       ret_error);
}

static int set_device_pid(void *target, const char *value, char **ret_error)
{
    return take_number(&((struct bench_options *)target)->device_pid, "device-pid", value, 1,
                       INT32_MAX, ret_error);
}

static int set_seconds(void *target, const char *value, char **ret_error)
{
    if (text_parse_duration(value, &((struct bench_options *)target)->duration_ns) == 0)
        return 0;
    *ret_error = xstrdup("--seconds takes a time, e.g. 10");
    return -EINVAL;
}

static int set_verify(void *target, const char *value, char **ret_error)
{
    struct bench_options *o = target;

    o->verify = !strcmp(value, "same");
    if (o->verify || !strcmp(value, "none"))
        return 0;
    *ret_error = xstrdup("--verify takes none or same");
    return -EINVAL;
}

static int set_options(void *target, const char *value, char **ret_error)
{
    ((struct bench_options *)target)->export_options = value;
    return 0;
}

static int set_in_place(void *target, const char *value, char **ret_error)
{
    ((struct bench_options *)target)->in_place = true;
    return 0;
}

static int set_shuffle(void *target, const char *value, char **ret_error)
{
    ((struct bench_options *)target)->shuffle = true;
    return 0;
}

static int set_plan(void *target, const char *value, char **ret_error)
{
    ((struct bench_options *)target)->plan = true;
    return 0;
}

static int set_json(void *target, const char *value, char **ret_error)
{
    ((struct bench_options *)target)->json = true;
    return 0;
}

static int set_quiet(void *target, const char *value, char **ret_error)
{
    ((struct bench_options *)target)->quiet = true;
    return 0;
}

// What the options ask for together; a sentence when it can't be.
static const char *why_not(const struct bench_options *o)
{
    if (o->in_place && o->op != OS2G_IO_READ)
        return "--in-place goes with --op read";
    if (o->verify && (o->in_place || o->memory == OS2G_MEMORY_CUDA))
        return "--verify needs host memory, and goes without --in-place";
    if (o->plan && o->duration_ns)
        return "--plan goes with --loops or --operations: how much is read must be known";
    return NULL;
}

// --- the course ---

// "a=b,c=d" as a list that ends with NULL; its strings lie in *ret_text.
static const char **split(const char *options, char **ret_text)
{
    size_t n = 0;
    const char **list;

    *ret_text = xstrdup(options ? options : "");
    list = xcalloc(strlen(*ret_text) + 2, sizeof(*list));
    for (char *save = NULL, *word = strtok_r(*ret_text, ",", &save); word;
         word = strtok_r(NULL, ",", &save))
        list[n++] = word;
    return list;
}

static void on_event(void *arg, enum os2g_event event, const char *text)
{
    cli_fail(&bench_command, NULL, "%s", text);
}

static int bench(struct bench_options *o, struct bench_result *result, char **ret_error)
{
    char *text;
    const char **list = split(o->export_options, &text);
    struct os2g_options options = {.size = sizeof(options),
                                   .depth = (unsigned)MIN(1024, o->threads * o->depth),
                                   .export_options = list,
                                   .event = on_event};
    struct bench_items items;
    struct os2g *c;
    int rc = os2g_connect(&c, o->where, &options);

    free(list);
    free(text);
    if (rc < 0) {
        *ret_error = xstrdup(os2g_last_error());
        return rc;
    }
    rc = bench_items_make(&items, c, o, ret_error);
    if (rc == 0) {
        rc = bench_work(c, o, &items, result, ret_error);
        bench_items_free(&items);
    }
    os2g_close(c);
    return rc;
}

static int run(int argc, char **argv)
{
    struct bench_options o = {.op = OS2G_IO_FETCH,
                              .object_size = MIB,
                              .block_size = 8 * MIB,
                              .threads = 1,
                              .depth = 16,
                              .reap = 1,
                              .warm_up = UINT64_MAX,
                              .duration_ns = UINT64_MAX};
    static struct bench_result result; // histograms are large
    struct cli_arguments words;
    char *error = NULL;
    int rc = EXIT_USAGE;

    cli_parse(&bench_command, argc, argv, &o, NULL, &words);
    if (o.duration_ns == UINT64_MAX)
        o.duration_ns = o.loops || o.operations || o.plan ? 0 : 10 * NS_PER_S;
    o.loops = MAX(1, o.loops);
    if (words.n != 1) {
        cli_fail(&bench_command, "See: os2g bench --help", "name one place to read from");
    } else if (why_not(&o)) {
        cli_fail(&bench_command, "See: os2g bench --help", "%s", why_not(&o));
    } else {
        o.where = words.words[0];
        rc = bench(&o, &result, &error);
        if (rc < 0)
            cli_fail(&bench_command, NULL, "%s", error ? error : strerror(-rc));
        else
            bench_report(&o, &result);
        rc = rc < 0 || result.errors || result.mismatches ? 1 : 0;
    }
    free(error);
    free(o.keys);
    free(words.words);
    return rc;
}

static const struct cli_option options[] = {
    {"key", 'k', "KEY", "read this object; may come more than once", set_key},
    {"keys", 0, "DIR", "read all objects below DIR; / for all there are", set_keys},
    {"list", 0, "FILE", "read the objects that FILE names, one a line; - is standard input",
     set_list},
    {"op", 0, "fetch|read", "whole objects by key (default), or blocks of files", set_op},
    {"object-size", 0, "SIZE", "room for an object whose size was not listed (default 1M)",
     set_object_size},
    {"block-size", 'b', "SIZE", "of a read (default 8M)", set_block_size},
    {"threads", 't', "N", "each with a batch and a buffer of its own (default 1)", set_threads},
    {"depth", 'd', "N", "operations under way in each thread (default 16)", set_depth},
    {"reap", 0, "N", "ends that a thread waits for before it goes on (default 1)", set_reap},
    {"memory", 'm', "host|malloc|cuda|bar",
     "where bytes land: memory of the library's (default), a malloc'd buffer, a GPU, a guest's BAR",
     set_memory},
    {"device", 0, "N", "the GPU (default 0)", set_device},
    {"in-place", 0, NULL, "read: each block to its place in one buffer of an object's size",
     set_in_place},
    {"seconds", 's', "TIME", "how long (default 10, unless --loops, --operations or --plan)",
     set_seconds},
    {"loops", 'l', "N", "how many times each object is read", set_loops},
    {"operations", 'n', "N", "how many operations in all, instead", set_operations},
    {"warm-up", 0, "N",
     "operations before, not measured (default: such that each place is landed in)", set_warm_up},
    {"shuffle", 0, NULL, "in a random order, the same each time", set_shuffle},
    {"plan", 0, NULL, "declare the order before", set_plan},
    {"verify", 0, "none|same", "same: each object's bytes are the same each time they are read",
     set_verify},
    {"options", 'o', "OPTIONS", "of the export, when a daemon is started: endpoint-url=URL,...",
     set_options},
    {"device-pid", 0, "PID", "the daemon whose CPU is counted (default: it is found)",
     set_device_pid},
    {"json", 0, NULL, "one line of JSON", set_json},
    {"quiet", 'q', NULL, "no progress bar", set_quiet},
    {NULL},
};

const struct cli_command bench_command = {
    .name = "bench",
    .synopsis = "s3://BUCKET[/PREFIX]|SOCKET|DIR",
    .summary = "Measures how fast objects come into memory",
    .text = "By libos2g, see os2g_connect(3): throughput, latency, and the CPU that it takes in "
            "this process and in the daemon.",
    .options = options,
    .run = run,
};
