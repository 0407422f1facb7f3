// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "daemon/open_files.h"
#include "daemon/spawn.h"
#include "daemon/supervised.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define RETRY_MIN_NS    (5 * NS_PER_S)
#define RETRY_MAX_NS    (60 * NS_PER_S)
#define HELPER_PAUSE_NS NS_PER_S

struct entry {
    struct list link; // of supervisor.entries
    struct supervised supervised;
    bool settled, seen;
    uint64_t retry_ns;
};

struct supervisor {
    struct supervisor_config config;
    struct program program;
    int signal_fd;
    struct list entries;
    bool stopping;
    bool failed;

    char *const *helper_argv;
    int helper_fd;
    pid_t helper;
    uint64_t helper_due_ns;
};

int supervisor_new(struct supervisor **ret, const struct supervisor_config *c)
{
    struct supervisor *s = xcalloc(1, sizeof(*s));
    sigset_t signals;
    int rc;

    s->config = *c;
    s->helper_due_ns = UINT64_MAX;
    list_init(&s->entries);
    rc = program_open(&s->program);
    if (rc < 0) {
        free(s);
        return rc;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    open_files_raise(); // hosts' descriptors are held here, and those of many
    s->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signal_fd < 0) {
        rc = -errno;
        program_close(&s->program);
        free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void supervisor_add(struct supervisor *s, struct export_options *o)
{
    struct entry *e = xcalloc(1, sizeof(*e));

    list_push_back(&s->entries, &e->link);
    supervised_start(&e->supervised, o, &s->program, s->config.log_style, s->config.linger_ns);
}

static struct supervised *of_link(struct list *link)
{
    return &list_entry(link, struct entry, link)->supervised;
}

static struct supervised *nth(struct supervisor *s, size_t i)
{
    list_for_each (it, &s->entries)
        if (i-- == 0)
            return of_link(it);
    return NULL;
}

const struct export_options *supervisor_export(struct supervisor *s, size_t i)
{
    const struct supervised *x = nth(s, i);

    return x ? x->options : NULL;
}

void supervisor_stop_export(struct supervisor *s, size_t i)
{
    supervised_stop(nth(s, i));
}

bool supervisor_replace(struct supervisor *s, size_t i, struct export_options *o)
{
    return supervised_set_options(nth(s, i), o);
}

void supervisor_add_helper(struct supervisor *s, char *const argv[], int fd)
{
    s->helper_argv = argv;
    s->helper_fd = fd;
    s->helper_due_ns = 0;
}

static void start_helper(struct supervisor *s)
{
    s->helper = spawn(&s->program, s->helper_argv, &s->helper_fd, 1);
    s->helper_due_ns = s->helper > 0 ? UINT64_MAX : clock_monotonic_ns() + HELPER_PAUSE_NS;
    s->helper = MAX(s->helper, 0);
}

// --- events ---

static void stop_all(struct supervisor *s)
{
    if (!s->stopping && s->config.stopping)
        s->config.stopping(s->config.arg);
    s->stopping = true;
    list_for_each (it, &s->entries)
        supervised_stop(of_link(it));
}

static void reload(struct supervisor *s)
{
    if (s->stopping)
        return;
    if (program_reopen(&s->program) < 0)
        log_warning("daemon", "%s is not there: workers go on with the version that runs",
                    s->program.path);
    if (s->config.reload)
        s->config.reload(s->config.arg, s);
    list_for_each (it, &s->entries)
        supervised_renew(of_link(it));
    if (s->helper > 0)
        kill(s->helper, SIGTERM);
}

static void child_ended(struct supervisor *s, pid_t pid, int status)
{
    if (pid == s->helper) {
        s->helper = 0;
        s->helper_due_ns = clock_monotonic_ns() + HELPER_PAUSE_NS;
        return;
    }
    list_for_each (it, &s->entries)
        if (supervised_child(of_link(it), pid, status))
            return;
}

static void reap(struct supervisor *s)
{
    for (;;) {
        siginfo_t info = {0};
        int status = 0;

        // its number stays taken until waitpid, and with it that of its process group
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            return;
        list_for_each (it, &s->entries)
            if (supervised_is_broker(of_link(it), info.si_pid))
                kill(-info.si_pid, SIGKILL);
        if (waitpid(info.si_pid, &status, WNOHANG) == info.si_pid)
            child_ended(s, info.si_pid, status);
    }
}

static void on_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;

    while (read(s->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            reap(s);
        else if (info.ssi_signo == SIGHUP)
            reload(s);
        else
            stop_all(s);
    }
}

// What the caller is told, and when a failed export is tried again.
static void look_at(struct supervisor *s, struct entry *e)
{
    struct supervised *x = &e->supervised;

    if (x->served) {
        e->retry_ns = 0;
        if (!e->settled)
            s->config.settled(s->config.arg, x->options, NULL, 0, !e->seen);
        e->settled = e->seen = true;
    }
    if (x->state != SUPERVISED_FAILED || x->due_ns != UINT64_MAX)
        return;
    s->config.settled(s->config.arg, x->options, x->error, x->reason, !e->seen);
    e->settled = false;
    e->seen = true;
    if (s->config.retry) {
        e->retry_ns = MIN(MAX(2 * e->retry_ns, RETRY_MIN_NS), RETRY_MAX_NS);
        x->due_ns = clock_monotonic_ns() + e->retry_ns;
    } else {
        s->failed = true;
        supervised_stop(x);
    }
}

static void sweep(struct supervisor *s)
{
    list_for_each_safe (it, &s->entries) {
        struct entry *e = list_entry(it, struct entry, link);

        look_at(s, e);
        if (e->supervised.state == SUPERVISED_ENDED) {
            list_remove(&e->link);
            supervised_free(&e->supervised);
            free(e);
        }
    }
}

static int wait_ms(const struct supervisor *s)
{
    uint64_t due = s->helper_argv ? s->helper_due_ns : UINT64_MAX, now = clock_monotonic_ns();

    list_for_each (it, &s->entries) {
        uint64_t entry_due = supervised_due_ns(of_link(it));

        due = MIN(due, entry_due);
    }
    if (due == UINT64_MAX)
        return -1;
    return due <= now ? 0 : (int)MIN((due - now) / NS_PER_MS + 1, 3600000u);
}

static void turn(struct supervisor *s)
{
    struct pollfd *p, *at;
    size_t n = 1;
    uint64_t now;

    list_for_each (it, &s->entries)
        n += supervised_poll_count(of_link(it));
    p = xcalloc(n, sizeof(*p));
    p[0] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    at = p + 1;
    list_for_each (it, &s->entries) {
        supervised_poll_fill(of_link(it), at);
        at += supervised_poll_count(of_link(it));
    }
    if (poll(p, (nfds_t)n, wait_ms(s)) >= 0) {
        at = p + 1;
        // messages first: what a worker said before it died counts
        list_for_each (it, &s->entries) {
            size_t own = supervised_poll_count(of_link(it));

            supervised_poll_done(of_link(it), at);
            at += own;
        }
        if (p[0].revents)
            on_signals(s);
    }
    free(p);
    now = clock_monotonic_ns();
    list_for_each (it, &s->entries)
        supervised_time(of_link(it), now);
    if (s->helper_argv && now >= s->helper_due_ns)
        start_helper(s);
}

int supervisor_run(struct supervisor *s)
{
    prctl(PR_SET_NAME, "os2g-supervisor");
    sweep(s);
    while (!list_empty(&s->entries)) {
        turn(s);
        sweep(s);
    }
    return s->failed ? 1 : 0;
}

void supervisor_free(struct supervisor *s)
{
    if (s->helper > 0)
        kill(s->helper, SIGTERM);
    close(s->signal_fd);
    program_close(&s->program);
    free(s);
}
