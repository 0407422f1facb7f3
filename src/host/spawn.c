// SPDX-License-Identifier: Apache-2.0
#include "host/spawn.h"

#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_MAX  1024
#define ERRNO_MAX 4095 // linux/err.h
// The line of a program that cannot be run at all: this, and errno as it is in memory.
#define NOT_RUN "\1"

static void say_not_run(int fd)
{
    char line[1 + sizeof(int)] = NOT_RUN;

    memcpy(line + 1, &(int){errno}, sizeof(int));
    // nobody is there to hear of a failure here
    if (write(fd, line, sizeof(line)) < 0)
        _exit(127);
}

// In the child of a process with many threads: calls that are safe after fork() only. _Fork runs no
// handlers: they would wait for locks that this thread may hold.
static void become(char *const *argv, int null, int log, int ready)
{
    sigset_t none;
    int fds[] = {null, null, log, ready};

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    setsid();
    // a second fork: nobody has to wait for what comes out of it
    switch (_Fork()) {
    case -1:
        _exit(1);
    case 0:
        break;
    default:
        _exit(0);
    }
    // out of the way of the numbers that they are to get
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = fcntl(fds[i], F_DUPFD, 16);
        if (fds[i] < 0)
            _exit(1);
    }
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++)
        if (dup2(fds[i], (int)i) < 0)
            _exit(1);
    if (close_range(SPAWN_READY_FD + 1, ~0U, 0) < 0 || chdir("/") < 0)
        _exit(1);
    execvp(argv[0], argv);
    say_not_run(SPAWN_READY_FD);
    _exit(127);
}

// What the daemon has complained of first, without a newline; NULL: nothing.
static char *first_line(int fd)
{
    char text[LINE_MAX];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    if (n <= 0)
        return NULL;
    text[n] = 0;
    text[strcspn(text, "\n")] = 0;
    return text[0] ? xstrdup(text) : NULL;
}

// Everything up to a newline or the end; 0 or -ETIMEDOUT.
static int read_line(int fd, char line[static LINE_MAX], size_t *ret_len, uint64_t deadline_ns)
{
    size_t len = 0;

    while (len < LINE_MAX - 1 && !memchr(line, '\n', len)) {
        uint64_t now = clock_monotonic_ns();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;

        if (now >= deadline_ns)
            return -ETIMEDOUT;
        if (poll(&p, 1, (int)MIN((deadline_ns - now) / NS_PER_MS + 1, 60000)) <= 0)
            continue;
        n = read(fd, line + len, LINE_MAX - 1 - len);
        if (n == 0)
            break;
        if (n > 0)
            len += (size_t)n;
    }
    line[len] = 0;
    *ret_len = len;
    return 0;
}

// "error ERRNO SENTENCE", or a sentence alone.
static int take_error(const char *line, const char **ret_text)
{
    static const char word[] = "error ";
    unsigned long error;
    char *end;

    *ret_text = line;
    if (strncmp(line, word, strlen(word)) != 0)
        return -EIO;
    error = strtoul(line + strlen(word), &end, 10);
    if (*end != ' ' || !error || error > ERRNO_MAX)
        return -EIO;
    *ret_text = end + 1;
    return -(int)error;
}

static int wait_ready(int fd, int log, const char *program, uint64_t deadline_ns, char **ret_error)
{
    char line[LINE_MAX];
    const char *text;
    size_t len;
    int rc = read_line(fd, line, &len, deadline_ns), error;

    if (rc < 0) {
        *ret_error = xasprintf("%s does not begin to serve", program);
        return rc;
    }
    if (!strcmp(line, "ready\n"))
        return 0;
    if (len == 1 + sizeof(error) && line[0] == NOT_RUN[0]) {
        memcpy(&error, line + 1, sizeof(error));
        *ret_error = xasprintf("%s cannot be run: %s", program, strerror(error));
        return -error;
    }
    line[strcspn(line, "\n")] = 0;
    error = take_error(line, &text);
    *ret_error = text[0] ? xstrdup(text) : first_line(log);
    if (!*ret_error)
        *ret_error = xasprintf("%s has ended without a word", program);
    return error;
}

int spawn_daemon(char *const *argv, uint64_t deadline_ns, char **ret_error)
{
    int ready[2] = {-1, -1}, null = open("/dev/null", O_RDWR | O_CLOEXEC),
        log = memfd_create("os2gd-log", MFD_CLOEXEC), status, rc = 0;
    pid_t pid = -1;

    if (null < 0 || log < 0 || pipe2(ready, O_CLOEXEC) < 0)
        rc = -errno;
    if (rc == 0 && (pid = _Fork()) < 0)
        rc = -errno;
    if (pid == 0)
        become(argv, null, log, ready[1]);
    if (ready[1] >= 0)
        close(ready[1]);
    if (pid > 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        rc = wait_ready(ready[0], log, argv[0], deadline_ns, ret_error);
    }
    if (ready[0] >= 0)
        close(ready[0]);
    if (log >= 0)
        close(log);
    if (null >= 0)
        close(null);
    return rc;
}
