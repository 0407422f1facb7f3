// SPDX-License-Identifier: Apache-2.0
// CPU time, of this process and of the daemon's: of the supervisor, its worker and a GPU's helper,
// each by the clock of the process, which counts threads that have ended, too, in nanoseconds.
#include "cli/bench.h"

#include "base/clock.h"
#include "base/text.h"
#include "base/unix_address.h"
#include "daemon/control_client.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS  2000
#define DEPTH_MAX   8 // of a tree of processes
#define TEXT_MAX    4096
#define NS_TO_S(ns) ((double)(ns) / 1e9)

double bench_cpu_self(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static bool read_file(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "re");
    size_t n = 0;

    text[0] = 0;
    if (!f)
        return false;
    n = fread(text, 1, size - 1, f);
    text[n] = 0;
    fclose(f);
    return true;
}

static uint64_t tree_ns(uint64_t pid, unsigned depth);

// Of the processes that a thread has started.
static uint64_t children_ns(uint64_t pid, const char *thread, unsigned depth)
{
    char path[320], text[TEXT_MAX], *p = text, *end;
    uint64_t ns = 0;

    snprintf(path, sizeof(path), "/proc/%lu/task/%s/children", pid, thread);
    if (!read_file(path, text, sizeof(text)))
        return 0; // it has ended
    for (uint64_t child; (child = strtoull(p, &end, 10)) && end != p; p = end)
        ns += tree_ns(child, depth - 1);
    return ns;
}

static uint64_t tree_ns(uint64_t pid, unsigned depth)
{
    struct timespec t;
    struct dirent *e;
    clockid_t clock;
    char path[64];
    uint64_t ns;
    DIR *d;

    if (clock_getcpuclockid((pid_t)pid, &clock) || clock_gettime(clock, &t) < 0)
        return 0;
    ns = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
    snprintf(path, sizeof(path), "/proc/%lu/task", pid);
    d = depth ? opendir(path) : NULL;
    while (d && (e = readdir(d)))
        if (e->d_name[0] != '.')
            ns += children_ns(pid, e->d_name, depth);
    if (d)
        closedir(d);
    return ns;
}

double bench_cpu_of(uint64_t pid)
{
    return NS_TO_S(tree_ns(pid, DEPTH_MAX));
}

// --- whose ---

static uint64_t listener_of(const char *path)
{
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    int fd = unix_connect(path, 0);

    if (fd < 0)
        return 0;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        peer.pid = 0;
    close(fd);
    return peer.pid > 0 ? (uint64_t)peer.pid : 0;
}

static uint64_t server_of(const char *directory)
{
    char *path = NULL, *error = NULL;
    json_t *status = NULL;
    uint64_t pid = 0;

    if (control_find(directory, &path, &error) == 0 &&
        control_request(path, "status", TIMEOUT_MS, &status, &error) == 0)
        pid = (uint64_t)json_integer_value(
            json_object_get(json_object_get(status, "worker"), "supervisor_pid"));
    json_decref(status);
    free(path);
    free(error);
    return pid;
}

uint64_t bench_device_pid(const struct bench_options *o)
{
    const char *where = o->where;
    struct stat st;

    // a supervisor without its worker would be next to nothing
    if (access("/proc/thread-self/children", R_OK) < 0)
        return 0;
    if (o->device_pid)
        return o->device_pid;
    if (text_starts_with(where, "s3://"))
        where = getenv("OS2G_SOCKET");
    if (!where || stat(where, &st) < 0)
        return 0;
    return S_ISDIR(st.st_mode) ? server_of(where) : listener_of(where);
}
