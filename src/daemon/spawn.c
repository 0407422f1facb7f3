// SPDX-License-Identifier: Apache-2.0
#include "daemon/spawn.h"

#include "base/text.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_FD 3

// Of the caller's environment: for the broker alone, which tells a worker what it needs.
static const char *const secrets[] = {"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
                                      "AWS_CONTAINER_AUTHORIZATION_TOKEN"};

int program_open(struct program *p)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    *p = (struct program){.fd = -1, .previous_fd = -1};
    if (n < 0)
        return -errno;
    path[n] = 0;
    p->fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (p->fd < 0)
        return -errno;
    p->path = xstrdup(path);
    return 0;
}

void program_close(struct program *p)
{
    if (p->fd >= 0)
        close(p->fd);
    if (p->previous_fd >= 0)
        close(p->previous_fd);
    free(p->path);
    *p = (struct program){.fd = -1, .previous_fd = -1};
}

int program_reopen(struct program *p)
{
    int fd;

    if (access(p->path, X_OK) < 0)
        return -errno;
    fd = open(p->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (p->previous_fd >= 0)
        close(p->previous_fd);
    p->previous_fd = p->fd;
    p->fd = fd;
    return 0;
}

bool program_revert(struct program *p)
{
    if (p->previous_fd < 0)
        return false;
    close(p->fd);
    p->fd = p->previous_fd;
    p->previous_fd = -1;
    return true;
}

static _Noreturn void child(const struct program *p, char *const argv[], const int *fds,
                            size_t n_fds)
{
    int above = FIRST_FD + (int)n_fds, moved[16], exe;
    sigset_t none;

    // first out of the way of the numbers they shall have
    exe = fcntl(p->fd, F_DUPFD_CLOEXEC, above);
    if (exe < 0)
        _exit(127);
    for (size_t i = 0; i < n_fds; i++) {
        moved[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, above);
        if (fds[i] >= 0 && moved[i] < 0)
            _exit(127);
    }
    for (size_t i = 0; i < n_fds; i++) {
        int fd = FIRST_FD + (int)i;

        if (moved[i] < 0)
            close(fd); // it may be ours
        else if (dup2(moved[i], fd) < 0)
            _exit(127);
    }
    // what whoever started us left open is nobody's business
    if (close_range((unsigned)above, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        _exit(127);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++)
        unsetenv(secrets[i]);
    execveat(exe, "", argv, environ, AT_EMPTY_PATH);
    _exit(127);
}

pid_t spawn(const struct program *p, char *const argv[], const int *fds, size_t n_fds)
{
    pid_t pid;

    assert(n_fds <= 16);
    pid = fork();
    if (pid == 0)
        child(p, argv, fds, n_fds);
    return pid < 0 ? -errno : pid;
}
