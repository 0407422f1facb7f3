// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
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
    struct supervised supervised;
    bool settled, seen;
    uint64_t retry_ns;
};

struct supervisor {
    struct supervisor_config config;
    struct program program;
    int signal_fd;
    struct entry **entries;
    size_t n;
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

    s->entries = xrealloc(s->entries, (s->n + 1) * sizeof(*s->entries));
    s->entries[s->n++] = e;
    supervised_start(&e->supervised, o, &s->program, s->config.log_style);
}

const struct export_options *supervisor_export(struct supervisor *s, size_t i)
{
    return i < s->n ? s->entries[i]->supervised.options : NULL;
}

void supervisor_stop_export(struct supervisor *s, size_t i)
{
    supervised_stop(&s->entries[i]->supervised);
}

bool supervisor_replace(struct supervisor *s, size_t i, struct export_options *o)
{
    return supervised_set_options(&s->entries[i]->supervised, o);
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
    for (size_t i = 0; i < s->n; i++)
        supervised_stop(&s->entries[i]->supervised);
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
    for (size_t i = 0; i < s->n; i++)
        supervised_renew(&s->entries[i]->supervised);
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
    for (size_t i = 0; i < s->n; i++)
        if (supervised_child(&s->entries[i]->supervised, pid, status))
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
        for (size_t i = 0; i < s->n; i++)
            if (supervised_is_broker(&s->entries[i]->supervised, info.si_pid))
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
            s->config.settled(s->config.arg, x->options, NULL, !e->seen);
        e->settled = e->seen = true;
    }
    if (x->state != SUPERVISED_FAILED || x->due_ns != UINT64_MAX)
        return;
    s->config.settled(s->config.arg, x->options, x->error, !e->seen);
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
    for (size_t i = 0; i < s->n;) {
        struct entry *e = s->entries[i];

        look_at(s, e);
        if (e->supervised.state != SUPERVISED_ENDED) {
            i++;
            continue;
        }
        supervised_free(&e->supervised);
        free(e);
        memmove(s->entries + i, s->entries + i + 1, (--s->n - i) * sizeof(*s->entries));
    }
}

static int wait_ms(const struct supervisor *s)
{
    uint64_t due = s->helper_argv ? s->helper_due_ns : UINT64_MAX, now = clock_monotonic_ns();

    for (size_t i = 0; i < s->n; i++)
        due = MIN(due, supervised_due_ns(&s->entries[i]->supervised));
    if (due == UINT64_MAX)
        return -1;
    return due <= now ? 0 : (int)MIN((due - now) / NS_PER_MS + 1, 3600000u);
}

static void turn(struct supervisor *s)
{
    size_t n = s->n;
    struct pollfd *p = xcalloc(n + 1, sizeof(*p));
    uint64_t now;

    p[n] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    for (size_t i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = s->entries[i]->supervised.channel, .events = POLLIN};
    if (poll(p, (nfds_t)n + 1, wait_ms(s)) >= 0) {
        // messages first: what a worker said before it died counts
        for (size_t i = 0; i < n; i++)
            if (p[i].revents && p[i].fd == s->entries[i]->supervised.channel)
                supervised_message(&s->entries[i]->supervised);
        if (p[n].revents)
            on_signals(s);
    }
    free(p);
    now = clock_monotonic_ns();
    for (size_t i = 0; i < s->n; i++)
        supervised_time(&s->entries[i]->supervised, now);
    if (s->helper_argv && now >= s->helper_due_ns)
        start_helper(s);
}

int supervisor_run(struct supervisor *s)
{
    prctl(PR_SET_NAME, "os2g-supervisor");
    sweep(s);
    while (s->n) {
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
    free(s->entries);
    free(s);
}
