// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker.h"

#include "s3/credentials.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PIPE_FD 3

static void write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; // the worker has gone; it will ask again
        data += n;
        len -= (size_t)n;
    }
}

// The supervisor's many are not for programs that close all that they may have.
static void lower_limits(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = MIN(files.rlim_cur, 1024);
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static _Noreturn void child(const struct export_options *o, int pipe_fd)
{
    struct credentials_config config = export_options_credentials(o);
    struct buf json = {0};
    char *error = NULL;
    sigset_t none;

    // a mount that its supervisor gives up must not live on in here
    if (dup2(pipe_fd, PIPE_FD) < 0 || close_range(PIPE_FD + 1, ~0U, 0) < 0 ||
        fcntl(PIPE_FD, F_SETFD, FD_CLOEXEC) < 0)
        _exit(1);
    setpgid(0, 0);
    lower_limits();
    config.join_group = true;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_IGN);
    alarm(BROKER_TIMEOUT_S);
    if (credentials_local_resolve(&config, &json, &error) == 0) {
        write_all(PIPE_FD, "+", 1);
        write_all(PIPE_FD, buf_str(&json), json.len);
    } else {
        write_all(PIPE_FD, "-", 1);
        write_all(PIPE_FD, error ? error : "", error ? strlen(error) : 0);
    }
    _exit(0);
}

pid_t broker_start(const struct export_options *o, int *ret_pipe)
{
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid == 0)
        child(o, fds[1]);
    if (pid < 0)
        pid = -errno;
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return pid;
    }
    setpgid(pid, pid); // the child does it, too: whoever comes first
    *ret_pipe = fds[0];
    return pid;
}
