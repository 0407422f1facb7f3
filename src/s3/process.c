// SPDX-License-Identifier: Apache-2.0
#include "s3/process.h"

#include "base/clock.h"

#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

// --- words ---

// One word from *s on; the quotes are POSIX's: nothing is special in '...', in "..." a backslash
// escapes itself and the quote, outside it escapes anything.
static int take_word(const char **s, struct buf *word)
{
    char quote = 0;

    for (; **s && (quote || !isspace((unsigned char)**s)); (*s)++) {
        char c = **s;

        if (quote) {
            if (c == quote) {
                quote = 0;
                continue;
            }
            if (c == '\\' && quote == '"' && ((*s)[1] == '"' || (*s)[1] == '\\'))
                c = *++*s;
        } else if (c == '\'' || c == '"') {
            quote = c;
            continue;
        } else if (c == '\\') {
            c = *++*s;
            if (!c)
                return -EINVAL;
        }
        buf_add(word, &c, 1);
    }
    return quote ? -EINVAL : 0;
}

int process_words(const char *command, char ***ret)
{
    char **words = xcalloc(1, sizeof(*words));
    size_t n = 0;
    int rc = 0;

    for (;;) {
        struct buf word = {0};

        while (isspace((unsigned char)*command))
            command++;
        if (!*command)
            break;
        rc = take_word(&command, &word);
        words = xrealloc(words, (n + 2) * sizeof(*words));
        words[n++] = buf_steal(&word);
        words[n] = NULL;
        if (rc < 0)
            break;
    }
    if (rc == 0 && n == 0)
        rc = -EINVAL;
    if (rc < 0)
        process_words_free(words);
    else
        *ret = words;
    return rc;
}

void process_words_free(char **words)
{
    for (char **w = words; *w; w++)
        free(*w);
    free(words);
}

// --- running ---

struct process {
    pid_t pid;
    int pidfd;
    int out, err; // our ends of its output
    uint64_t deadline_ns;
    bool join_group;
    struct buf *stdout_text;
    struct buf stderr_text;
};

// A group of its own, unless it joins ours, so that what it started can be ended with it; signals
// as a fresh program expects them, whatever this process has blocked or ignored.
static int spawn(struct process *p, char **words, int out, int err)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, usual;
    int rc;

    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, err, 2);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGCHLD);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &usual);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, (short)((p->join_group ? 0 : POSIX_SPAWN_SETPGROUP) |
                                            POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    rc = -posix_spawnp(&p->pid, words[0], &files, &attr, words, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

// 0 at the end of the output so far, -EFBIG.
static int drain(int fd, struct buf *to)
{
    for (;;) {
        ssize_t n;

        buf_reserve(to, 4096);
        n = read(fd, to->data + to->len, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        to->len += (size_t)n;
        if (to->len > PROCESS_OUTPUT_MAX)
            return -EFBIG;
    }
    to->data[to->len] = 0;
    return 0;
}

static int watch(struct process *p)
{
    struct pollfd fds[] = {{p->pidfd, POLLIN, 0}, {p->out, POLLIN, 0}, {p->err, POLLIN, 0}};
    int rc;

    for (;;) {
        uint64_t now = clock_monotonic_ns();

        if (now >= p->deadline_ns)
            return -ETIMEDOUT;
        rc = poll(fds, ARRAY_LEN(fds), (int)MIN((p->deadline_ns - now) / NS_PER_MS + 1, 1000));
        if (rc < 0 && errno != EINTR)
            return -errno;
        if (rc <= 0)
            continue;
        if ((rc = drain(p->out, p->stdout_text)) < 0 || (rc = drain(p->err, &p->stderr_text)) < 0)
            return rc;
        // what the process left running may keep the pipes open: its own end is what counts
        if (fds[0].revents)
            return 0;
        for (size_t i = 1; i < ARRAY_LEN(fds); i++)
            if ((fds[i].revents & POLLHUP) && !(fds[i].revents & POLLIN))
                fds[i].fd = -1;
    }
}

static char *first_line(const struct buf *text)
{
    return xasprintf("%.*s", (int)MIN(strcspn(buf_str(text), "\r\n"), 200), buf_str(text));
}

static int judge(struct process *p, const char *command, int rc, int status, char **ret_error)
{
    char *said = first_line(&p->stderr_text);

    if (rc == -ETIMEDOUT)
        *ret_error = xasprintf("credential_process \"%s\" took too long and was ended", command);
    else if (rc == -EFBIG)
        *ret_error = xasprintf("credential_process \"%s\" wrote too much and was ended", command);
    else if (rc < 0)
        *ret_error = xasprintf("credential_process \"%s\": %s", command, strerror(-rc));
    else if (WIFSIGNALED(status))
        *ret_error = xasprintf("credential_process \"%s\" was ended by signal %d", command,
                               WTERMSIG(status));
    else if (WEXITSTATUS(status))
        *ret_error = xasprintf("credential_process \"%s\" failed with exit status %d%s%s", command,
                               WEXITSTATUS(status), *said ? ": " : "", said);
    free(said);
    return *ret_error && rc == 0 ? -EACCES : rc;
}

static int run_started(struct process *p, const char *command, char **ret_error)
{
    int rc, status = 0;

    p->pidfd = pidfd_open(p->pid, 0);
    rc = p->pidfd < 0 ? -errno : watch(p);
    if (rc < 0)
        kill(p->join_group ? p->pid : -p->pid, SIGKILL);
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (p->pidfd >= 0)
        close(p->pidfd);
    return judge(p, command, rc, status, ret_error);
}

static int open_pipes(int out[2], int err[2])
{
    int rc;

    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(err, O_CLOEXEC) < 0) {
        rc = -errno;
        close(out[0]);
        close(out[1]);
        return rc;
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    return 0;
}

static int run_words(struct process *p, const char *command, char **words, char **ret_error)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    int rc = open_pipes(out, err);

    if (rc < 0)
        return rc;
    p->out = out[0];
    p->err = err[0];
    rc = spawn(p, words, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    if (rc == 0)
        rc = run_started(p, command, ret_error);
    close(p->out);
    close(p->err);
    return rc;
}

int process_run(const char *command, uint64_t timeout_ns, bool join_group, struct buf *out,
                char **ret_error)
{
    struct process p = {.deadline_ns = clock_monotonic_ns() + timeout_ns,
                        .join_group = join_group,
                        .stdout_text = out};
    char **words;
    int rc;

    *ret_error = NULL;
    if (process_words(command, &words) < 0) {
        *ret_error = xasprintf("credential_process \"%s\" is empty or has a quote that is not "
                               "closed",
                               command);
        return -EINVAL;
    }
    rc = run_words(&p, command, words, ret_error);
    if (rc < 0 && !*ret_error)
        *ret_error =
            xasprintf("credential_process \"%s\" cannot be started: %s", command, strerror(-rc));
    process_words_free(words);
    buf_free(&p.stderr_text);
    return rc;
}
