// SPDX-License-Identifier: Apache-2.0
// os2gd: several exports under one supervisor, from a configuration file; or one, from the command
// line.
#include "base/clock.h"
#include "base/log.h"
#include "base/rendezvous.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/single.h"
#include "daemon/config.h"
#include "daemon/metrics.h"
#include "daemon/notify.h"
#include "daemon/privilege.h"
#include "daemon/supervisor.h"
#include "daemon/worker.h"
#include "gdd/engine.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_FILE   "/etc/os2g.conf"
#define DEFAULT_LINGER (5 * NS_PER_S)

struct os2gd {
    const char *file;
    bool check, version;
    size_t waited_for; // exports that systemd is not told of yet
    char **metrics_argv;
    int metrics_fd;
    struct single single; // with --export
};

// --- metrics ---

static void free_words(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}

// os2g-metrics --metrics UID GID, then NAME SOCKET for each export
static char **metrics_words(const struct config *c)
{
    char **words = xcalloc(2 * c->n + 5, sizeof(*words));
    uid_t uid;
    gid_t gid;

    privilege_worker_ids(&uid, &gid);
    words[0] = xstrdup("os2g-metrics");
    words[1] = xstrdup(METRICS_ARGUMENT);
    words[2] = xasprintf("%u", uid);
    words[3] = xasprintf("%u", gid);
    for (size_t i = 0; i < c->n; i++) {
        words[4 + 2 * i] = xstrdup(c->exports[i].name);
        words[5 + 2 * i] =
            rendezvous_control(geteuid(), export_options_place(c->exports[i].options));
    }
    return words;
}

static void set_metrics(struct os2gd *d, struct supervisor *s, const struct config *c)
{
    char **words = metrics_words(c);

    if (d->metrics_fd >= 0)
        supervisor_add_helper(s, words, d->metrics_fd);
    free_words(d->metrics_argv);
    d->metrics_argv = words;
}

// --- what the supervisor tells ---

static void on_settled(void *arg, const struct export_options *o, const char *error, int reason,
                       bool first)
{
    struct os2gd *d = arg;

    if (error)
        log_error("os2gd", "%s at %s: %s", o->source, export_options_place(o), error);
    if (first && d->waited_for && --d->waited_for == 0)
        notify("READY=1");
}

static void on_stopping(void *arg)
{
    (void)arg;
    notify("STOPPING=1");
}

static struct config_export *find_place(struct config *c, const char *place)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->exports[i].options && !strcmp(export_options_place(c->exports[i].options), place))
            return &c->exports[i];
    return NULL;
}

// What is no longer in the file goes, what is new there comes, the rest gets its new options.
static void apply(struct supervisor *s, struct config *c)
{
    const struct export_options *o;

    for (size_t i = 0; (o = supervisor_export(s, i)); i++) {
        struct config_export *e = find_place(c, export_options_place(o));

        if (e && supervisor_replace(s, i, e->options))
            e->options = NULL; // the supervisor's now
        else
            supervisor_stop_export(s, i);
    }
    for (size_t i = 0; i < c->n; i++) {
        if (c->exports[i].options)
            supervisor_add(s, c->exports[i].options);
        c->exports[i].options = NULL;
    }
}

static void on_reload(void *arg, struct supervisor *s)
{
    struct os2gd *d = arg;
    struct timespec now;
    struct config c;
    char *error = NULL, state[64];

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    notify(state);
    if (config_read(&c, d->file, getuid(), getgid(), &error) < 0) {
        log_error("os2gd", "%s: everything stays as it is", error);
        free(error);
    } else {
        set_metrics(d, s, &c);
        apply(s, &c);
        config_fini(&c);
    }
    notify("READY=1");
}

// --- start ---

static int run(struct os2gd *d, struct config *c)
{
    const struct supervisor_config config = {
        .log_style = c->log_directory ? "file" : "stderr",
        .retry = true,
        .settled = on_settled,
        .reload = on_reload,
        .stopping = on_stopping,
        .arg = d,
    };
    struct supervisor *s;
    int rc = supervisor_new(&s, &config);

    if (rc < 0) {
        log_error("os2gd", "%s", strerror(-rc));
        return 1;
    }
    d->waited_for = c->n;
    set_metrics(d, s, c);
    apply(s, c);
    config_fini(c);
    rc = supervisor_run(s);
    supervisor_free(s);
    free_words(d->metrics_argv);
    return rc;
}

static int log_to_directory(const char *directory)
{
    char *path = xasprintf("%s/os2gd.log", directory);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);

    free(path);
    if (fd < 0)
        return -errno;
    dup2(fd, STDERR_FILENO);
    close(fd);
    log_use_fd(STDERR_FILENO);
    return 0;
}

static int set_file(void *target, const char *value, char **ret_error)
{
    ((struct os2gd *)target)->file = value;
    return 0;
}

static int set_check(void *target, const char *value, char **ret_error)
{
    ((struct os2gd *)target)->check = true;
    return 0;
}

static int set_export(void *target, const char *value, char **ret_error)
{
    ((struct os2gd *)target)->single.source = value;
    return 0;
}

static int set_words(void *target, const char *value, char **ret_error)
{
    struct buf *words = &((struct os2gd *)target)->single.words;

    buf_add(words, value, strlen(value) + 1);
    return 0;
}

static int set_until_idle(void *target, const char *value, char **ret_error)
{
    uint64_t *linger = &((struct os2gd *)target)->single.linger_ns;

    *linger = DEFAULT_LINGER;
    if (!value || (text_parse_duration(value, linger) == 0 && *linger > 0))
        return 0;
    *ret_error = xstrdup("--until-idle takes a time, e.g. 5s");
    return -EINVAL;
}

static int set_ready_fd(void *target, const char *value, char **ret_error)
{
    uint64_t fd;

    if (text_parse_u64(value, &fd) < 0 || fd > INT_MAX || fcntl((int)fd, F_GETFD) < 0) {
        *ret_error = xasprintf("--ready-fd: %s is no open descriptor", value);
        return -EINVAL;
    }
    ((struct os2gd *)target)->single.ready_fd = (int)fd;
    return 0;
}

static int set_version(void *target, const char *value, char **ret_error)
{
    ((struct os2gd *)target)->version = true;
    return 0;
}

static const struct cli_option options[] = {
    {"config", 'c', "FILE", "the configuration (default " DEFAULT_FILE ")", set_file},
    {"check", 0, NULL, "read the configuration, say what is wrong with it, and end", set_check},
    {"export", 0, "SOURCE", "serve s3://bucket/prefix at --socket, without a configuration",
     set_export},
    {"options", 'o', "OPTIONS", "of that export, as in /etc/fstab, separated by commas", set_words},
    {"until-idle", 0, "TIME", "end it so long after the last host has gone (5s)", set_until_idle,
     true},
    {"ready-fd", 0, "N", "where a line says ready, or what is wrong (default 1)", set_ready_fd},
    {"version", 'V', NULL, "print the version", set_version},
    {NULL},
};

static const struct cli_command command = {
    .name = "os2gd",
    .program = true,
    .synopsis = "",
    .summary = "Serves the exports of a configuration file until it gets SIGTERM",
    .text =
        "SIGHUP reads the file again and renews every worker. With --export it serves one bucket "
        "to virtual machines and libos2g instead; the options of exports below are for that. See "
        "os2gd(8).",
    .options = options,
    .export_groups = EXPORT_GROUP_ALL,
};

// Reads the configuration and makes ready what it asks for.
static int prepare(struct os2gd *d, struct config *c, char **ret_error)
{
    int rc = config_read(c, d->file, getuid(), getgid(), ret_error);

    if (rc < 0 || d->check)
        return rc;
    if (c->log_directory) {
        rc = log_to_directory(c->log_directory);
        if (rc < 0)
            *ret_error = xasprintf("%s: %s", c->log_directory, strerror(-rc));
    }
    if (rc == 0 && c->log_level)
        log_configure(c->log_level);
    if (rc == 0 && c->metrics)
        rc = d->metrics_fd = metrics_listen(c->metrics, ret_error);
    if (rc < 0)
        config_fini(c);
    return rc;
}

static int serve(struct os2gd *d)
{
    struct config c;
    char *error = NULL;

    if (prepare(d, &c, &error) < 0) {
        cli_fail(&command, NULL, "%s", error);
        free(error);
        return EXIT_USAGE;
    }
    if (d->check) {
        config_fini(&c);
        return 0;
    }
    return run(d, &c);
}

int main(int argc, char **argv)
{
    struct os2gd d = {.file = DEFAULT_FILE, .metrics_fd = -1};
    struct cli_arguments words;
    int rc = 0;

    base_fill_std_fds();
    if (argc > 1 && !strcmp(argv[1], WORKER_ARGUMENT))
        return worker_main(argc, argv);
    if (argc > 1 && !strcmp(argv[1], METRICS_ARGUMENT))
        return metrics_main(argc, argv);
    if (argc > 1 && !strcmp(argv[1], ENGINE_ARGUMENT))
        return engine_helper_main(argc, argv);
    single_init(&d.single);
    cli_parse(&command, argc, argv, &d, &d.single.options, &words);
    if (d.version) {
        printf("os2gd %s\n", OS2G_VERSION);
    } else if (words.n) {
        cli_fail(&command, "See: os2gd --help", "what is '%s' for?", words.words[0]);
        rc = EXIT_USAGE;
    } else if (single_was_meant(&d.single)) {
        rc = single_run(&d.single);
    } else {
        rc = serve(&d);
    }
    single_fini(&d.single);
    free(words.words);
    return rc;
}
