// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker.h"

#include "base/log.h"
#include "base/text.h"
#include "daemon/channel.h"
#include "daemon/control.h"
#include "daemon/export.h"
#include "daemon/open_files.h"
#include "daemon/privilege.h"
#include "daemon/resolver.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

// A worker ends by _exit, never by taking its layers apart: what must outlive it is in the
// memfds, and what is in flight belongs to requests that the next worker answers again.

struct worker {
    struct loop *loop;
    struct loop_io *channel_io;
    struct export_options options;
    struct resolver resolver;
    struct export export;
    struct control *control;
    struct s3_client *probe_client;
    struct s3_probe probe;
    bool built;
    bool serve;  // CHANNEL_SERVE has come
    int fuse_fd; // with it, if there is a mount
    uint64_t restarts;
    struct channel_queue events; // to the supervisor
};

static struct worker worker = {.fuse_fd = -1};

static void tell(enum channel_kind kind, uint64_t number, const char *text)
{
    if (channel_send(WORKER_FD_CHANNEL, kind, number, -1, text) < 0)
        _exit(1); // no supervisor, no worker
}

// reason: an errno, for programs; 0: none that says more than the text.
static _Noreturn void fail_for(int reason, const char *text)
{
    tell(CHANNEL_FAILED, (uint64_t)reason, text);
    _exit(1);
}

static _Noreturn void fail(const char *text)
{
    fail_for(0, text);
}

static void on_gone(void *arg)
{
    (void)arg;
    tell(CHANNEL_GONE, 0, NULL);
    _exit(0);
}

static void on_event(void *arg, const struct vhost_event *e)
{
    struct worker *w = arg;

    if (channel_queue_event(&w->events, WORKER_FD_CHANNEL, e) < 0)
        _exit(1);
    if (!channel_queue_empty(&w->events))
        loop_io_want(w->channel_io, LOOP_READ | LOOP_WRITE);
}

static void serve(struct worker *w)
{
    const struct control_config config = {
        .listen_fd = WORKER_FD_CONTROL,
        .export = &w->export,
        .restarts = w->restarts,
    };
    char *error = NULL;
    int rc = 0;

    if (w->options.directory)
        rc = export_serve(&w->export, w->fuse_fd, WORKER_FD_SLOTS, on_gone, w, &error);
    if (rc == 0 && export_options_offers_socket(&w->options))
        rc = export_serve_hosts(&w->export, WORKER_FD_LIFE, on_event, w, &error);
    if (rc < 0)
        fail(error);
    rc = control_new(&w->control, w->loop, &config);
    if (rc < 0)
        log_warning("daemon", "no status can be given: %s", strerror(-rc));
    tell(CHANNEL_SERVING, 0, NULL);
}

static void on_probe(struct s3_probe *p, int error)
{
    struct worker *w = container_of(p, struct worker, probe);

    if (error < 0)
        // no such bucket (s3/error.h) is to programs what no such file is
        fail_for(error == -ENODEV ? ENOENT : -error,
                 p->error_text[0] ? p->error_text : strerror(-error));
    s3_client_free(w->probe_client);
    w->probe_client = NULL;
    tell(CHANNEL_READY, 0, NULL);
}

// The mount is not there yet: what is wrong with bucket or keys is said before it is.
static void probe(struct worker *w)
{
    int rc = s3_client_new(&w->probe_client, w->loop, w->export.bucket);

    if (rc < 0)
        fail(strerror(-rc));
    w->probe.prefix = w->options.prefix;
    w->probe.done = on_probe;
    s3_probe_start(w->probe_client, &w->probe);
}

// --- the profile's settings ---

#define PROFILE_MAX (64 * KIB)

// Endpoint, region and the like, for workers to come: one that takes over while no credentials are
// to be had must not ask another store. json: of the broker; its keys are left out.
static void profile_keep(const char *json)
{
    json_t *root = json_loads(json, 0, NULL);
    json_t *kept = json_pack("{s:O?}", "settings", json_object_get(root, "settings"));
    char *text = json_dumps(kept, JSON_COMPACT);

    if (!text || ftruncate(WORKER_FD_PROFILE, 0) < 0 ||
        pwrite(WORKER_FD_PROFILE, text, strlen(text), 0) != (ssize_t)strlen(text))
        log_warning("daemon", "the profile's settings cannot be kept for the next worker");
    free(text);
    json_decref(kept);
    json_decref(root);
}

// NULL: none were learned.
static char *profile_kept(void)
{
    char *text = xcalloc(1, PROFILE_MAX + 1);

    if (pread(WORKER_FD_PROFILE, text, PROFILE_MAX, 0) > 0)
        return text;
    free(text);
    return NULL;
}

static void on_local(void *arg, const char *json, const char *error_text)
{
    struct worker *w = arg;
    bool resumed = w->serve;
    char *error = NULL, *kept = NULL;
    int rc;

    // programs are reading: the provider goes on asking while they wait
    if (!json && !resumed)
        fail(error_text);
    if (json) {
        resolver_keep(&w->resolver, json);
        profile_keep(json);
    } else {
        log_warning("daemon", "no credentials for now: %s", error_text);
        kept = profile_kept();
    }
    rc = export_build(&w->export, w->loop, &w->options, &w->resolver.base, json ? json : kept,
                      WORKER_FD_NODES, WORKER_FD_HANDLES, &error);
    free(kept);
    if (rc < 0)
        fail(error ? error : strerror(-rc));
    w->built = true;
    if (resumed)
        serve(w);
    else
        probe(w);
}

static void take_serve(struct worker *w, const struct channel_msg *m, int fd)
{
    if (fd < 0 && w->options.directory)
        _exit(1);
    w->serve = true;
    w->fuse_fd = fd;
    w->restarts = m->number;
}

static void on_channel(struct loop_io *io, unsigned events, void *arg)
{
    struct worker *w = arg;
    struct channel_msg m;
    int fd, rc;

    if (channel_queue_flush(&w->events, WORKER_FD_CHANNEL) < 0)
        _exit(1);
    if (channel_queue_empty(&w->events))
        loop_io_want(io, LOOP_READ);
    rc = channel_receive(WORKER_FD_CHANNEL, &m, &fd);
    if (rc == -EAGAIN)
        return;
    if (rc <= 0)
        _exit(1);
    switch (m.kind) {
    case CHANNEL_SERVE:
        take_serve(w, &m, fd);
        if (w->built)
            serve(w);
        break;
    case CHANNEL_CREDENTIALS:
        resolver_answer(&w->resolver, m.number, fd, m.text);
        break;
    case CHANNEL_VHOST:
        if (!w->export.vhost)
            _exit(1);
        export_command(&w->export, &m.command, fd);
        break;
    default:
        _exit(1);
    }
}

static void start(struct loop_msg *msg)
{
    struct worker *w = &worker;
    struct channel_msg m;
    int fd;

    // A worker that takes over finds CHANNEL_SERVE already there, and must know before it builds.
    if (channel_receive(WORKER_FD_CHANNEL, &m, &fd) == 1 && m.kind == CHANNEL_SERVE)
        take_serve(w, &m, fd);
    channel_queue_init(&w->events);
    if (loop_io_new(&w->channel_io, w->loop, WORKER_FD_CHANNEL, on_channel, w) < 0)
        _exit(1);
    loop_io_want(w->channel_io, LOOP_READ);
    resolver_init(&w->resolver, w->loop, WORKER_FD_CHANNEL);
    w->resolver.base.resolve(&w->resolver.base, w->loop, on_local, w);
}

static int read_options(struct export_options *o, char **ret_error)
{
    struct stat st;
    char *given;
    int rc;

    if (fstat(WORKER_FD_OPTIONS, &st) < 0)
        return -errno;
    given = xmalloc((size_t)st.st_size + 1);
    if (pread(WORKER_FD_OPTIONS, given, (size_t)st.st_size, 0) != st.st_size)
        rc = -EIO;
    else
        rc = export_options_replay(o, given, (size_t)st.st_size, ret_error);
    free(given);
    if (fcntl(WORKER_FD_CA, F_GETFD) >= 0) {
        free(o->s3.ca_file);
        o->s3.ca_file = xasprintf("/proc/self/fd/%d", WORKER_FD_CA);
    }
    return rc < 0 ? rc : export_options_complete(o, ret_error);
}

static void set_up_process(char **argv)
{
    prctl(PR_SET_NAME, "os2g-worker");
    // A terminal's ^C goes to the whole group; the supervisor alone decides what it means.
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    open_files_raise();
    if (!strcmp(argv[2], "file"))
        log_use_fd(STDERR_FILENO);
    else if (!strcmp(argv[2], "syslog"))
        log_open_syslog("os2g");
}

static int drop_rights(char **argv)
{
    uint64_t uid, gid;

    if (text_parse_u64(argv[3], &uid) < 0 || text_parse_u64(argv[4], &gid) < 0)
        return -EINVAL;
    return privilege_drop((uid_t)uid, (gid_t)gid);
}

int worker_main(int argc, char **argv)
{
    struct worker *w = &worker;
    struct loop_msg msg;
    char *error = NULL;
    int rc;

    if (argc < 5 || fcntl(WORKER_FD_CHANNEL, F_GETFD) < 0)
        return 2;
    for (int fd = WORKER_FD_CHANNEL; fd < WORKER_FDS_END; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    set_up_process(argv);
    rc = drop_rights(argv);
    if (rc < 0)
        fail("the worker could not give up its privileges");
    // after the change of user, which clears it; a supervisor that died before shows on the channel
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    export_options_init(&w->options);
    rc = read_options(&w->options, &error);
    if (rc < 0)
        fail(error ? error : strerror(-rc));
    if (w->options.log_level)
        log_configure(w->options.log_level);
    rc = loop_new(&w->loop, "os2g-worker");
    if (rc < 0)
        fail(strerror(-rc));
    loop_post(w->loop, &msg, start);
    loop_run(w->loop);
    return 0;
}
