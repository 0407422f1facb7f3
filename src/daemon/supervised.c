// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervised.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mount_table.h"
#include "daemon/broker.h"
#include "daemon/privilege.h"
#include "daemon/worker.h"
#include "front/devfuse/devfuse.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HASTY_NS     (10 * NS_PER_S) // a death so soon after it served is a bad sign
#define HASTY_FREE   24              // so many of those are answered at once
#define HASTY_MAX    120             // then a pause after each; after so many we give up
#define BARREN_FREE  2
#define BARREN_MAX   8
#define PAUSE_MIN_NS (50 * NS_PER_MS)
#define PAUSE_MAX_NS NS_PER_S
#define STOP_NS      (5 * NS_PER_S) // for open files after a lazy unmount
#define HELPER_S     5
// Four requests at a time: with one, readers wait for each (bench/NOTES.md).
#define MOUNT_READAHEAD (4 * MIB)

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

static void end(struct supervised *s, enum supervised_state state)
{
    if (s->worker > 0)
        kill(s->worker, SIGKILL);
    if (s->helper > 0)
        kill(s->helper, SIGKILL);
    s->worker = s->helper = 0; // as the broker
    drop_broker(s);
    close_fd(&s->channel);
    close_fd(&s->fuse_fd);
    lasting_close(&s->lasting);
    s->state = state;
    s->due_ns = UINT64_MAX;
}

static void fail(struct supervised *s, char *error)
{
    free(s->error);
    s->error = error;
    s->served = false;
    end(s, SUPERVISED_FAILED);
}

// --- the mount ---

// What a mount over it would take from every program, this one too.
static bool is_needed(const char *directory)
{
    static const char *const needed[] = {"/", "/dev", "/proc", "/run", "/sys"};

    for (size_t i = 0; i < ARRAY_LEN(needed); i++)
        if (!strcmp(directory, needed[i]))
            return true;
    return false;
}

// A directory whose daemon was killed answers nothing but ENOTCONN until it is unmounted.
static int clear_directory(const char *directory, char **ret_error)
{
    struct mount_table t;
    bool ours = false;
    int fd, rc;

    if (is_needed(directory)) {
        *ret_error = xasprintf("%s: the system needs this directory as it is; mount at another "
                               "one, e.g. /mnt/bucket",
                               directory);
        return -EINVAL;
    }
    rc = mount_table_read(&t);
    if (rc == 0) {
        ours = mount_table_at(&t, directory) != NULL;
        mount_table_free(&t);
    }
    // attributes may come from the kernel's cache; opening asks the daemon
    fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = fd < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    if (ours && (rc == -ENOTCONN || rc == -ECONNABORTED)) {
        log_warning("daemon", "%s: the daemon that served it has died; unmounting what is left",
                    directory);
        return devfuse_unmount(directory, true, ret_error);
    }
    if (ours) {
        *ret_error = xasprintf("%s is mounted already; unmount it first: os2g umount %s", directory,
                               directory);
        return -EBUSY;
    }
    if (rc < 0)
        *ret_error = xasprintf("%s: %s", directory, strerror(-rc));
    return rc;
}

static int mount_now(struct supervised *s, char **ret_error)
{
    const struct devfuse_mount_options o = {
        .source = s->options->source,
        .allow_other = s->options->allow_other,
        .allow_root = s->options->allow_root,
        .default_permissions = true,
        .extra = s->options->kernel_options.len ? s->options->kernel_options.data : NULL,
    };

    s->fuse_fd = devfuse_mount(s->options->directory, &o, ret_error);
    return s->fuse_fd < 0 ? s->fuse_fd : 0;
}

static void helper_ended(struct supervised *s)
{
    s->helper = 0;
    s->served = true;
}

// In a child, since it asks the file system, and a worker may hang. The mount counts as served once
// it is done: umount would find it busy before.
static void raise_readahead(struct supervised *s)
{
    s->helper = fork();
    if (s->helper < 0)
        helper_ended(s);
    if (s->helper != 0)
        return;
    alarm(HELPER_S);
    // the mount must not live on in here
    close_range(STDERR_FILENO + 1, ~0U, 0);
    if (devfuse_set_readahead(s->options->directory, MOUNT_READAHEAD) < 0)
        log_info("daemon",
                 "%s: the kernel's read-ahead stays at its default, for raising it takes "
                 "root; large files are read faster with direct-io",
                 s->options->directory);
    _exit(0);
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
                          s->options->directory,
                          NULL};
    const struct lasting *l = &s->lasting;
    int pair[2], rc = channel_pair(pair);
    uid_t uid;
    gid_t gid;

    if (rc < 0)
        return rc;
    privilege_worker_ids(&uid, &gid);
    snprintf(uid_text, sizeof(uid_text), "%u", uid);
    snprintf(gid_text, sizeof(gid_text), "%u", gid);
    {
        // in the order of worker.h
        const int fds[] = {pair[1],       l->options_fd, l->slots_fd, l->nodes_fd,
                           l->handles_fd, l->control_fd, l->ca_fd,    l->profile_fd};

        _Static_assert(ARRAY_LEN(fds) == WORKER_FDS_END - WORKER_FD_CHANNEL, "as in worker.h");
        s->worker = spawn(s->program, argv, fds, ARRAY_LEN(fds));
    }
    close(pair[1]);
    if (s->worker < 0) {
        rc = s->worker;
        s->worker = 0;
        close(pair[0]);
        return rc;
    }
    s->channel = pair[0];
    s->answering = false;
    s->renewing = false;
    if (s->fuse_fd >= 0)
        channel_send(s->channel, CHANNEL_SERVE, s->workers, s->fuse_fd, NULL);
    s->workers++;
    return 0;
}

static void give_up(struct supervised *s)
{
    char *error = NULL;

    log_error("daemon",
              "%s: its worker died %u times in a row; unmounting. Programs that have files "
              "open get errors",
              s->options->directory, s->barren + s->hasty);
    if (devfuse_unmount(s->options->directory, true, &error) < 0)
        log_error("daemon", "%s", error ? error : "it could not be unmounted");
    free(error);
    fail(s, xasprintf("the worker of %s died again and again", s->options->directory));
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
    log_error("daemon", "%s: no worker can be started: %s", s->options->directory, strerror(-rc));
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

static void worker_died(struct supervised *s, int status)
{
    uint64_t now = clock_monotonic_ns(), pause;

    s->worker = 0;
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
                    s->options->directory, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        log_warning("daemon", "%s: the worker ended with status %d; starting the next one",
                    s->options->directory, WEXITSTATUS(status));
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

    if (mount_now(s, &error) < 0) {
        fail(s, error ? error : xstrdup("mounting failed"));
        return;
    }
    s->state = SUPERVISED_SERVING;
    channel_send(s->channel, CHANNEL_SERVE, 0, s->fuse_fd, NULL);
}

static void serving(struct supervised *s)
{
    s->answering = true;
    s->answering_ns = clock_monotonic_ns();
    if (!s->served && s->helper == 0) {
        log_info("daemon", "%s is mounted at %s", s->options->source, s->options->directory);
        raise_readahead(s);
    }
}

static void gone(struct supervised *s)
{
    log_info("daemon", "%s is unmounted", s->options->directory);
    s->served = true; // if only for a moment
    end(s, SUPERVISED_ENDED);
}

// Whether there may be more to read.
static bool take_message(struct supervised *s)
{
    struct channel_msg m;
    int fd, rc = channel_receive(s->channel, &m, &fd);

    if (rc == -EAGAIN)
        return false;
    if (rc <= 0) {
        // its end comes as a child's; one that only closed its channel, or babbles, is no use
        close_fd(&s->channel);
        if (s->worker > 0)
            kill(s->worker, SIGKILL);
        return false;
    }
    if (fd >= 0)
        close(fd);
    if (m.kind == CHANNEL_RESOLVE)
        start_broker(s, m.number);
    else if (m.kind == CHANNEL_READY && s->state == SUPERVISED_PREPARING)
        ready(s);
    else if (m.kind == CHANNEL_FAILED && s->state == SUPERVISED_PREPARING)
        fail(s, xstrdup(m.text));
    else if (m.kind == CHANNEL_FAILED)
        log_error("daemon", "%s: %s", s->options->directory, m.text);
    else if (m.kind == CHANNEL_SERVING && s->state == SUPERVISED_SERVING && !s->answering)
        serving(s);
    else if (m.kind == CHANNEL_GONE &&
             (s->state == SUPERVISED_SERVING || s->state == SUPERVISED_STOPPING))
        gone(s);
    return s->channel >= 0;
}

void supervised_message(struct supervised *s)
{
    take_message(s);
}

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
        worker_died(s, status);
    } else if (pid == s->broker) {
        s->broker = 0;
    } else if (pid == s->helper) {
        helper_ended(s);
    } else {
        return false;
    }
    return true;
}

// --- time and the operator ---

uint64_t supervised_due_ns(const struct supervised *s)
{
    return s->broker > 0 ? MIN(s->due_ns, s->broker_due_ns) : s->due_ns;
}

void supervised_time(struct supervised *s, uint64_t now_ns)
{
    if (s->broker > 0 && now_ns >= s->broker_due_ns) {
        kill(-s->broker, SIGKILL);
        s->broker_due_ns = UINT64_MAX;
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

bool supervised_set_options(struct supervised *s, struct export_options *o)
{
    const struct export_options *now = s->options;

    if (strcmp(now->source, o->source) != 0 || strcmp(now->directory, o->directory) != 0 ||
        strcmp(now->prefix, o->prefix) != 0 || now->allow_other != o->allow_other ||
        now->allow_root != o->allow_root)
        return false;
    if (lasting_set_options(&s->lasting, o) < 0)
        return false;
    export_options_fini(s->options);
    free(s->options);
    s->options = o;
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

static void unmount(struct supervised *s)
{
    char *error = NULL;
    int rc = devfuse_unmount(s->options->directory, false, &error);

    if (rc == -EBUSY) {
        free(error);
        error = NULL;
        log_warning("daemon", "%s is in use: detached; open files go on for %u s",
                    s->options->directory, (unsigned)(STOP_NS / NS_PER_S));
        rc = devfuse_unmount(s->options->directory, true, &error);
    }
    if (rc < 0 && rc != -EINVAL) // EINVAL: somebody has unmounted it already
        log_error("daemon", "%s", error ? error : strerror(-rc));
    free(error);
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
        unmount(s);
        end(s, SUPERVISED_ENDED);
        return;
    case SUPERVISED_SERVING:
        s->state = SUPERVISED_STOPPING;
        s->due_ns = clock_monotonic_ns() + STOP_NS;
        unmount(s);
        lasting_drop_control(&s->lasting); // its name is free for the next mount at this place
        return;
    case SUPERVISED_ENDED:
        return;
    }
}

void supervised_restart(struct supervised *s)
{
    char *error = NULL;
    int rc;

    free(s->error);
    s->error = NULL;
    s->workers = 0;
    s->served = false;
    s->barren = s->hasty = 0;
    s->state = SUPERVISED_PREPARING;
    s->due_ns = UINT64_MAX;
    rc = clear_directory(s->options->directory, &error);
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

void supervised_start(struct supervised *s, struct export_options *options, struct program *program,
                      const char *log_style)
{
    *s = (struct supervised){
        .options = options,
        .program = program,
        .log_style = log_style,
        .channel = -1,
        .fuse_fd = -1,
        .lasting = LASTING_NONE,
    };
    supervised_restart(s);
}

void supervised_free(struct supervised *s)
{
    export_options_fini(s->options);
    free(s->options);
    free(s->error);
}
