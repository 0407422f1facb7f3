// SPDX-License-Identifier: Apache-2.0
#include "front/vhost/foreign_fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLOSERS_MAX  1024 // at a time; a descriptor beyond that stays open
#define CLOSER_STACK ((size_t)64 * 1024)

static bool is_eventfd(int fd)
{
    char path[32], target[32];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, target, sizeof(target) - 1);
    if (n < 0)
        return false;
    target[n] = 0;
    return !strcmp(target, "anon_inode:[eventfd]");
}

// From what the kernel knows of it already.
static bool is_device(int fd)
{
    struct statx s;
    unsigned type;

    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &s) < 0 ||
        !(s.stx_mask & STATX_TYPE))
        return false;
    type = s.stx_mode & S_IFMT;
    return type == 0 || type == S_IFCHR; // anonymous inodes have none
}

enum foreign_kind foreign_fd_kind(int fd)
{
    // only files whose pages are memory have seals
    if (fcntl(fd, F_GET_SEALS) >= 0)
        return FOREIGN_MEMORY;
    if (is_eventfd(fd))
        return FOREIGN_EVENTFD;
    return is_device(fd) ? FOREIGN_DEVICE : FOREIGN_OTHER;
}

bool foreign_fd_same(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// --- closing ---

static _Atomic unsigned closers;

static void *close_it(void *arg)
{
    close((int)(intptr_t)arg);
    atomic_fetch_sub(&closers, 1);
    return NULL;
}

static bool start_closer(int fd)
{
    pthread_attr_t attr;
    pthread_t thread;
    bool started;

    if (atomic_fetch_add(&closers, 1) >= CLOSERS_MAX) {
        atomic_fetch_sub(&closers, 1);
        return false;
    }
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, CLOSER_STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a number for the thread, and never an address
    started = pthread_create(&thread, &attr, close_it, (void *)(intptr_t)fd) == 0;
    pthread_attr_destroy(&attr);
    if (!started)
        atomic_fetch_sub(&closers, 1);
    return started;
}

void foreign_fd_close(int fd)
{
    if (fd < 0)
        return;
    // FUSE's close() waits for the answer to FLUSH, and cannot be killed then
    if (foreign_fd_kind(fd) == FOREIGN_OTHER)
        start_closer(fd);
    else
        close(fd);
}
