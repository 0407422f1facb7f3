// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervised.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/open_files.h"
#include "daemon/privilege.h"
#include "daemon/supervised_mount.h"
#include "daemon/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ERRNO_MAX    4095            // linux/err.h
#define HASTY_NS     (10 * NS_PER_S) // a death so soon after it served is a bad sign
#define HASTY_FREE   24              // so many of those are answered at once
#define HASTY_MAX    120             // then a pause after each; after so many we give up
#define BARREN_FREE  2
#define BARREN_MAX   8
#define PAUSE_MIN_NS (50 * NS_PER_MS)
#define PAUSE_MAX_NS NS_PER_S
#define STOP_NS      (5 * NS_PER_S) // for open files after a lazy unmount
#define EBB_NS       (5 * NS_PER_S) // for a GPU's driver to let go of a helper that was killed
#define EBB_END_MS   1000           // the same, when nothing else is waited for

static const char *place(const struct supervised *s)
{
    return export_options_place(s->options);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

// What it looks for is for a worker that is no more; the next one asks for itself.
static void drop_broker(struct supervised *s)
{
    if (s->broker > 0)
        kill(-s->broker, SIGKILL);
    s->broker = 0; // reaped by the supervisor as nobody's
}

static bool has_ebbed(const struct supervised *s, int timeout_ms)
{
    struct pollfd p = {.fd = s->life_fd};

    return s->life_fd < 0 || poll(&p, 1, timeout_ms) > 0;
}

static void end(struct supervised *s, enum supervised_state state)
{
    if (s->worker > 0)
        kill(s->worker, SIGKILL);
    // hosts are hung up on when nothing can land in their memory any more
    if (s->vhost.n_sessions + s->vhost.n_leaving > 0 && !has_ebbed(s, EBB_END_MS))
        log_warning("daemon", "%s: the worker, or a helper of its, does not end", place(s));
    s->ebbing = false;
    close_fd(&s->life_fd);
    if (s->helper > 0)
        kill(s->helper, SIGKILL);
    s->worker = s->helper = 0; // as the broker
    s->checking = false;
    drop_broker(s);
    supervised_vhost_close(&s->vhost);
    close_fd(&s->channel);
    close_fd(&s->fuse_fd);
    s->offered = false;
    lasting_close(&s->lasting);
    s->state = state;
    s->due_ns = UINT64_MAX;
}

static void fail(struct supervised *s, char *error)
{
    free(s->error);
    s->error = error;
    s->reason = 0;
    s->served = false;
    end(s, SUPERVISED_FAILED);
}

// --- workers ---

static int start_worker(struct supervised *s)
{
    char uid_text[16], gid_text[16];
    char *const argv[] = {(char *)"os2g-worker",
                          (char *)WORKER_ARGUMENT,
                          (char *)s->log_style,
                          uid_text,
                          gid_text,
                          s->options->source,
                          (char *)place(s),
                          NULL};
    const struct lasting *l = &s->lasting;
    int pair[2], life[2], rc = channel_pair(pair);
    uid_t uid;
    gid_t gid;

    if (rc < 0)
        return rc;
    if (pipe2(life, O_CLOEXEC) < 0) {
        rc = -errno;
        close(pair[0]);
        close(pair[1]);
        return rc;
    }
    privilege_worker_ids(&uid, &gid);
    snprintf(uid_text, sizeof(uid_text), "%u", uid);
    snprintf(gid_text, sizeof(gid_text), "%u", gid);
    {
        // in the order of worker.h
        const int fds[] = {pair[1],       l->options_fd, l->slots_fd,   l->nodes_fd, l->handles_fd,
                           l->control.fd, l->ca_fd,      l->profile_fd, life[1]};

        _Static_assert(ARRAY_LEN(fds) == WORKER_FDS_END - WORKER_FD_CHANNEL, "as in worker.h");
        s->worker = spawn(s->program, argv, fds, ARRAY_LEN(fds));
    }
    close(pair[1]);
    close(life[1]);
    if (s->worker < 0) {
        rc = s->worker;
        s->worker = 0;
        close(pair[0]);
        close(life[0]);
        return rc;
    }
    s->channel = pair[0];
    s->life_fd = life[0];
    s->answering = false;
    s->renewing = false;
    s->dropped = false;
    if (s->offered)
        channel_send(s->channel, CHANNEL_SERVE, s->workers, s->fuse_fd, NULL);
    s->workers++;
    return 0;
}

static void give_up(struct supervised *s)
{
    log_error("daemon",
              "%s: its worker died %u times in a row; giving up. Programs that have files "
              "open get errors",
              place(s), s->barren + s->hasty);
    if (s->options->directory)
        supervised_mount_detach(s->options->directory);
    fail(s, xasprintf("the worker of %s died again and again", place(s)));
}

static uint64_t pause_after(unsigned deaths, unsigned free_deaths)
{
    if (deaths <= free_deaths)
        return 0;
    return MIN(PAUSE_MIN_NS << MIN(deaths - free_deaths - 1, 10u), PAUSE_MAX_NS);
}

static void next_worker(struct supervised *s)
{
    int rc = start_worker(s);

    if (rc == 0) {
        s->state = SUPERVISED_SERVING;
        s->due_ns = UINT64_MAX;
        return;
    }
    log_error("daemon", "%s: no worker can be started: %s", place(s), strerror(-rc));
    if (++s->barren > BARREN_MAX) {
        give_up(s);
        return;
    }
    s->state = SUPERVISED_WAITING;
    s->due_ns = clock_monotonic_ns() + PAUSE_MAX_NS;
}

static void count_death(struct supervised *s, uint64_t now)
{
    if (!s->answering) {
        s->barren++;
        return;
    }
    s->barren = 0;
    s->hasty = now - s->answering_ns < HASTY_NS ? s->hasty + 1 : 0;
}

// Nothing of it writes to hosts' memory any more.
static void worker_died(struct supervised *s, int status)
{
    uint64_t now = clock_monotonic_ns(), pause;

    s->ebbing = false;
    close_fd(&s->life_fd);
    supervised_vhost_worker_died(&s->vhost);
    close_fd(&s->channel);
    drop_broker(s);
    switch (s->state) {
    case SUPERVISED_PREPARING:
        fail(s, WIFSIGNALED(status) ? xasprintf("the worker was ended by signal %d (%s)",
                                                WTERMSIG(status), strsignal(WTERMSIG(status)))
                                    : xstrdup("the worker ended before it was ready"));
        return;
    case SUPERVISED_STOPPING:
        end(s, SUPERVISED_ENDED);
        return;
    case SUPERVISED_SERVING:
        break;
    case SUPERVISED_WAITING:
    case SUPERVISED_FAILED:
    case SUPERVISED_ENDED:
        return;
    }
    if (s->renewing) {
        next_worker(s);
        return;
    }
    count_death(s, now);
    if (WIFSIGNALED(status))
        log_warning("daemon", "%s: the worker was ended by signal %d (%s); starting the next one",
                    place(s), WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        log_warning("daemon", "%s: the worker ended with status %d; starting the next one",
                    place(s), WEXITSTATUS(status));
    if (s->barren == BARREN_FREE && program_revert(s->program))
        log_warning("daemon", "the new version of %s does not work: going on with the one before",
                    s->program->path);
    if (s->barren > BARREN_MAX || s->hasty > HASTY_MAX) {
        give_up(s);
        return;
    }
    pause = MAX(pause_after(s->barren, BARREN_FREE), pause_after(s->hasty, HASTY_FREE));
    if (pause == 0) {
        next_worker(s);
        return;
    }
    s->state = SUPERVISED_WAITING;
    s->due_ns = now + pause;
}

// The worker was reaped. Its helpers are killed with it, but a copy engine may be at work until the
// driver has let go of them.
static void worker_ended(struct supervised *s, int status)
{
    if (has_ebbed(s, 0)) {
        worker_died(s, status);
        return;
    }
    s->ebbing = true;
    s->ebbing_status = status;
    s->ebbing_due_ns = clock_monotonic_ns() + EBB_NS;
}

static void look_at_ebbing(struct supervised *s, uint64_t now_ns)
{
    bool ebbed = s->ebbing && has_ebbed(s, 0);

    if (!s->ebbing || (!ebbed && now_ns < s->ebbing_due_ns))
        return;
    if (!ebbed)
        log_warning("daemon",
                    "%s: a GPU helper of the worker that ended does not end; going on without "
                    "waiting: bytes that were on their way to a GPU may still arrive there",
                    place(s));
    worker_died(s, s->ebbing_status);
}

// --- what a worker says ---

static void start_broker(struct supervised *s, uint64_t number)
{
    int pipe_fd = -1;
    pid_t pid = s->broker > 0 ? -EBUSY : broker_start(s->options, &pipe_fd);

    channel_send(s->channel, CHANNEL_CREDENTIALS, number, pipe_fd,
                 pid == -EBUSY ? "credentials are being looked for already" : "no process for it");
    if (pid < 0)
        return;
    close(pipe_fd);
    s->broker = pid;
    s->broker_due_ns = clock_monotonic_ns() + (BROKER_TIMEOUT_S + 1) * NS_PER_S;
}

static void ready(struct supervised *s)
{
    char *error = NULL;
    int rc = supervised_vhost_open(&s->vhost, s->options, &error);

    if (rc == 0 && s->options->directory)
        rc = s->fuse_fd = supervised_mount_make(s->options, &error);
    if (rc < 0) {
        fail(s, error ? error : xstrdup(strerror(-rc)));
        return;
    }
    lasting_alias_control(&s->lasting, s->options);
    s->offered = true;
    s->state = SUPERVISED_SERVING;
    channel_send(s->channel, CHANNEL_SERVE, 0, s->fuse_fd, NULL);
}

// umount would find the mount busy before.
static void helper_ended(struct supervised *s)
{
    s->helper = 0;
    s->served = true;
}

static void first_served(struct supervised *s)
{
    if (!s->options->directory) {
        log_info("daemon", "%s is offered at %s", s->options->source, s->options->socket);
        s->served = true;
        return;
    }
    log_info("daemon", "%s is mounted at %s", s->options->source, s->options->directory);
    s->helper = supervised_mount_raise_readahead(s->options->directory);
    if (s->helper < 0)
        helper_ended(s);
}

static void serving(struct supervised *s)
{
    s->answering = true;
    s->answering_ns = clock_monotonic_ns();
    supervised_vhost_worker(&s->vhost, s->channel);
    if (!s->served && s->helper == 0)
        first_served(s);
}

static void gone(struct supervised *s)
{
    log_info("daemon", "%s is unmounted", place(s));
    s->served = true; // if only for a moment
    end(s, SUPERVISED_ENDED);
}

// One that only closed its channel, or babbles, is no use. Until it is seen to have ended (as a
// child's end) it may still write to its hosts' memory.
static void drop_worker(struct supervised *s)
{
    s->dropped = true;
    if (s->worker > 0)
        kill(s->worker, SIGKILL);
}

static void worker_failed(struct supervised *s, const struct channel_msg *m)
{
    fail(s, xstrdup(m->text));
    s->reason = m->number <= ERRNO_MAX ? (int)m->number : 0;
}

// Whether there may be more to read.
static bool take_message(struct supervised *s)
{
    struct channel_msg m;
    int fd, rc = channel_receive(s->channel, &m, &fd);

    if (rc == -EAGAIN)
        return false;
    if (rc <= 0) {
        drop_worker(s);
        return false;
    }
    if (fd >= 0)
        close(fd);
    if (m.kind == CHANNEL_VHOST_EVENT)
        supervised_vhost_event(&s->vhost, &m.event);
    else if (m.kind == CHANNEL_RESOLVE)
        start_broker(s, m.number);
    else if (m.kind == CHANNEL_READY && s->state == SUPERVISED_PREPARING)
        ready(s);
    else if (m.kind == CHANNEL_FAILED && s->state == SUPERVISED_PREPARING)
        worker_failed(s, &m);
    else if (m.kind == CHANNEL_FAILED)
        log_error("daemon", "%s: %s", place(s), m.text);
    else if (m.kind == CHANNEL_SERVING && s->state == SUPERVISED_SERVING && !s->answering)
        serving(s);
    else if (m.kind == CHANNEL_GONE &&
             (s->state == SUPERVISED_SERVING || s->state == SUPERVISED_STOPPING))
        gone(s);
    return s->channel >= 0;
}

// --- what is polled: the channel, the end of what a worker leaves, then the hosts ---

#define OWN_POLLED 2

size_t supervised_poll_count(const struct supervised *s)
{
    return OWN_POLLED + supervised_vhost_poll_count(&s->vhost);
}

void supervised_poll_fill(const struct supervised *s, struct pollfd *p)
{
    p[0] = (struct pollfd){
        .fd = s->dropped ? -1 : s->channel,
        .events = (short)(POLLIN | (supervised_vhost_waits(&s->vhost) ? POLLOUT : 0)),
    };
    p[1] = (struct pollfd){.fd = s->ebbing ? s->life_fd : -1};
    supervised_vhost_poll_fill(&s->vhost, p + OWN_POLLED);
}

void supervised_poll_done(struct supervised *s, const struct pollfd *p)
{
    supervised_vhost_poll_done(&s->vhost, p + OWN_POLLED);
    if (p[0].revents & POLLOUT)
        supervised_vhost_flush(&s->vhost);
    if (p[0].revents & ~POLLOUT)
        take_message(s);
    if (s->vhost.broken && !s->dropped)
        drop_worker(s);
    if (p[1].revents)
        look_at_ebbing(s, clock_monotonic_ns());
}

// --- children ---

static void checked(struct supervised *s, int status);

bool supervised_is_broker(const struct supervised *s, pid_t pid)
{
    return pid == s->broker;
}

bool supervised_child(struct supervised *s, pid_t pid, int status)
{
    if (pid == s->worker) {
        s->worker = 0;
        // what it said last, it said before it died
        while (s->channel >= 0 && take_message(s))
            ;
        worker_ended(s, status);
    } else if (pid == s->broker) {
        s->broker = 0;
    } else if (pid == s->helper) {
        helper_ended(s);
    } else if (pid == s->checker) {
        s->checker = 0;
        if (s->checking)
            checked(s, status);
    } else {
        return false;
    }
    return true;
}

// --- time and the operator ---

// Nobody is there, and nobody has come for a while.
static uint64_t idle_due_ns(const struct supervised *s)
{
    return s->linger_ns && s->state == SUPERVISED_SERVING && s->vhost.n_sessions == 0
               ? s->vhost.idle_since_ns + s->linger_ns
               : UINT64_MAX;
}

uint64_t supervised_due_ns(const struct supervised *s)
{
    uint64_t due = s->due_ns, vhost = supervised_vhost_due_ns(&s->vhost), idle = idle_due_ns(s);

    if (s->broker > 0)
        due = MIN(due, s->broker_due_ns);
    if (s->checking)
        due = MIN(due, s->check_due_ns);
    if (s->ebbing)
        due = MIN(due, s->ebbing_due_ns);
    due = MIN(due, idle);
    return MIN(due, vhost);
}

void supervised_time(struct supervised *s, uint64_t now_ns)
{
    supervised_vhost_time(&s->vhost, now_ns);
    look_at_ebbing(s, now_ns);
    if (s->broker > 0 && now_ns >= s->broker_due_ns) {
        kill(-s->broker, SIGKILL);
        s->broker_due_ns = UINT64_MAX;
    }
    if (s->checking && now_ns >= s->check_due_ns) {
        kill(s->checker, SIGKILL); // it may go on waiting; then it is reaped later
        fail(s, supervised_mount_hangs(s->options->directory));
        return;
    }
    if (now_ns >= idle_due_ns(s)) {
        log_info("daemon", "%s: nobody uses it any more", place(s));
        supervised_stop(s);
        return;
    }
    if (now_ns < s->due_ns)
        return;
    if (s->state == SUPERVISED_WAITING)
        next_worker(s);
    else if (s->state == SUPERVISED_STOPPING)
        end(s, SUPERVISED_ENDED);
    else if (s->state == SUPERVISED_FAILED)
        supervised_restart(s);
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

bool supervised_set_options(struct supervised *s, struct export_options *o)
{
    const struct export_options *now = s->options;

    if (!same(now->source, o->source) || !same(now->directory, o->directory) ||
        !same(now->prefix, o->prefix) || now->allow_other != o->allow_other ||
        now->allow_root != o->allow_root || !same(now->socket, o->socket) ||
        now->socket_mode != o->socket_mode || now->socket_group != o->socket_group)
        return false;
    if (lasting_set_options(&s->lasting, o) < 0)
        return false;
    export_options_fini(s->options);
    free(s->options);
    s->options = o;
    s->vhost.options = o;
    return true;
}

void supervised_renew(struct supervised *s)
{
    if (s->state == SUPERVISED_SERVING && s->worker > 0) {
        // any moment is a good one: what it had in hand is in the slots
        s->renewing = true;
        kill(s->worker, SIGKILL);
    } else if (s->state == SUPERVISED_WAITING) {
        next_worker(s);
    } else if (s->state == SUPERVISED_FAILED) {
        supervised_restart(s);
    }
}

void supervised_stop(struct supervised *s)
{
    switch (s->state) {
    case SUPERVISED_PREPARING:
    case SUPERVISED_FAILED:
    case SUPERVISED_STOPPING:
        end(s, SUPERVISED_ENDED);
        return;
    case SUPERVISED_WAITING:
        if (s->options->directory)
            supervised_mount_undo(s->options->directory, 0);
        end(s, SUPERVISED_ENDED);
        return;
    case SUPERVISED_SERVING:
        if (!s->options->directory) {
            end(s, SUPERVISED_ENDED);
            return;
        }
        s->state = SUPERVISED_STOPPING;
        s->due_ns = clock_monotonic_ns() + STOP_NS;
        supervised_mount_undo(s->options->directory, (unsigned)(STOP_NS / NS_PER_S));
        supervised_vhost_stop(&s->vhost);
        lasting_drop_control(&s->lasting); // its name is free for the next mount at this place
        return;
    case SUPERVISED_ENDED:
        return;
    }
}

// The place is free.
static void prepare(struct supervised *s)
{
    const struct export_options *o = s->options;
    char *error = NULL;
    int rc = open_files_check(o->threads, o->s3.max_connections, &error);

    if (rc == 0)
        rc = supervised_vhost_free_place(o, &error);
    if (rc == 0)
        rc = lasting_make(&s->lasting, s->options, &error);
    if (rc == 0) {
        rc = start_worker(s);
        if (rc < 0)
            error = xasprintf("no worker can be started: %s", strerror(-rc));
    }
    if (rc < 0)
        fail(s, error ? error : xstrdup(strerror(-rc)));
}

static void checked(struct supervised *s, int status)
{
    char *error = NULL;

    s->checking = false;
    if (supervised_mount_checked(s->options->directory, status, &error) < 0)
        fail(s, error);
    else
        prepare(s);
}

void supervised_restart(struct supervised *s)
{
    free(s->error);
    s->error = NULL;
    s->workers = 0;
    s->served = false;
    s->barren = s->hasty = 0;
    s->state = SUPERVISED_PREPARING;
    s->due_ns = UINT64_MAX;
    if (!s->options->directory) {
        prepare(s);
        return;
    }
    if (s->checker > 0) { // since the last time
        fail(s, supervised_mount_hangs(s->options->directory));
        return;
    }
    s->checker = supervised_mount_check(s->options->directory);
    s->checking = s->checker > 0;
    s->check_due_ns = clock_monotonic_ns() + SUPERVISED_CHECK_NS;
    if (s->checker < 0) {
        fail(s, xasprintf("no process for a look at %s: %s", s->options->directory,
                          strerror(-s->checker)));
        s->checker = 0;
    }
}

void supervised_start(struct supervised *s, struct export_options *options, struct program *program,
                      const char *log_style, uint64_t linger_ns)
{
    *s = (struct supervised){
        .options = options,
        .program = program,
        .log_style = log_style,
        .channel = -1,
        .life_fd = -1,
        .fuse_fd = -1,
        .lasting = LASTING_NONE,
        .linger_ns = linger_ns,
    };
    supervised_vhost_init(&s->vhost);
    supervised_restart(s);
}

void supervised_free(struct supervised *s)
{
    export_options_fini(s->options);
    free(s->options);
    free(s->error);
}
