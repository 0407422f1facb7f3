// SPDX-License-Identifier: Apache-2.0
#include "daemon/open_files.h"

#include "base/log.h"
#include "s3/settings.h"

#include <dirent.h>
#include <sys/resource.h>

// A worker that nobody asks anything of has 21, and 5 for each data loop; a mount and hosts take
// more, and so does each connection.
#define OF_WORKER    40
#define OF_DATA_LOOP 6
#define OF_EXPORT    16 // in the supervisor: 10, and what it takes to start a worker
#define FULL         (1u << 20)

#define HOW_TO                                                                                     \
    "raise the hard limit (ulimit -Hn, LimitNOFILE= of a systemd unit, nofile in "                 \
    "/etc/security/limits.conf)"

void open_files_raise(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

// Of this process; 0 where that cannot be seen.
static unsigned files_open(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    if (!dir)
        return errno == EMFILE ? FULL : 0;
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        n += e->d_name[0] != '.';
    closedir(dir);
    return n - 1; // without dir's own
}

int open_files_check(unsigned data_loops, unsigned connections, char **ret_error)
{
    unsigned worker = OF_WORKER + OF_DATA_LOOP * data_loops, here = files_open() + OF_EXPORT;
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return 0;
    if (files.rlim_cur < MAX(worker, here)) {
        *ret_error =
            xasprintf("a process may have only %llu files open, which is too few for %s: " HOW_TO,
                      (unsigned long long)files.rlim_cur,
                      files.rlim_cur < worker ? "an export's worker" : "one more export");
        return -EMFILE;
    }
    connections = connections ? connections : S3_CONNECTIONS_DEFAULT;
    if (files.rlim_cur < worker + connections)
        log_warning("daemon",
                    "a process may have only %llu files open: there will not be as many as %u "
                    "connections to the store; " HOW_TO ", or lower max-connections",
                    (unsigned long long)files.rlim_cur, connections);
    return 0;
}
