// SPDX-License-Identifier: Apache-2.0
#include "gdd/engine_wire.h"

#include "gdd/engine.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_FDS (ENGINE_FDS_END - ENGINE_FD_SOCKET)

// What the child does between its beginning and the program: it gets these descriptors alone.
static int prepare(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attr, const int *moved,
                   int n)
{
    sigset_t none;
    int rc = 0;

    for (int i = 0; i < n && rc == 0; i++)
        rc = posix_spawn_file_actions_adddup2(actions, moved[i], ENGINE_FD_SOCKET + i);
    if (rc == 0)
        rc = posix_spawn_file_actions_addclosefrom_np(actions, ENGINE_FD_SOCKET + n);
    sigemptyset(&none);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(attr, &none);
    if (rc == 0)
        rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK);
    return -rc;
}

static int run(const char *program, const int *moved, int n, int *ret_pidfd)
{
    char *argv[] = {(char *)program, ENGINE_ARGUMENT, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    pid_t pid = -1;
    int rc;

    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    rc = prepare(&actions, &attr, moved, n);
    if (rc == 0)
        rc = -posix_spawn(&pid, program, &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    if (rc < 0)
        return rc;
    *ret_pidfd = pidfd_open(pid, 0);
    if (*ret_pidfd < 0) {
        rc = -errno;
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    return rc;
}

int engine_spawn(const char *program, const int fds[static N_FDS], int *ret_pidfd)
{
    int wanted = fds[N_FDS - 1] < 0 ? N_FDS - 1 : N_FDS;
    int moved[N_FDS] = {-1}, n = 0, rc = 0;

    // out of the way of the numbers they are to have
    for (; n < wanted && rc == 0; n++) {
        moved[n] = fcntl(fds[n], F_DUPFD_CLOEXEC, ENGINE_FDS_END);
        if (moved[n] < 0)
            rc = -errno;
    }
    if (rc == 0)
        rc = run(program, moved, n, ret_pidfd);
    for (int i = 0; i < n; i++)
        if (moved[i] >= 0)
            close(moved[i]);
    return rc;
}
