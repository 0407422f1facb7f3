// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervised_mount.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mount_table.h"
#include "front/devfuse/devfuse.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define READAHEAD_S 5
// Four requests at a time: with one, readers wait for each (bench/NOTES.md).
#define MOUNT_READAHEAD (4 * MIB)

// --- the directory before the mount ---

// What a mount over it would take from every program, this one too.
static bool is_needed(const char *directory)
{
    static const char *const needed[] = {"/", "/dev", "/proc", "/run", "/sys"};

    for (size_t i = 0; i < ARRAY_LEN(needed); i++)
        if (!strcmp(directory, needed[i]))
            return true;
    return false;
}

pid_t supervised_mount_check(const char *directory)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid < 0 ? -errno : pid;
    close_range(STDERR_FILENO + 1, ~0U, 0);
    // attributes may come from the kernel's cache; opening asks the daemon
    _exit(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0 ? errno : 0);
}

char *supervised_mount_hangs(const char *directory)
{
    return xasprintf("%s does not answer: the file system there, or one below which it lies, hangs",
                     directory);
}

// A directory whose daemon was killed answers nothing but ENOTCONN until it is unmounted.
int supervised_mount_checked(const char *directory, int status, char **ret_error)
{
    int rc = WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
    struct mount_table t;
    bool ours = false;

    if (is_needed(directory)) {
        *ret_error = xasprintf("%s: the system needs this directory as it is; mount at another "
                               "one, e.g. /mnt/bucket",
                               directory);
        return -EINVAL;
    }
    if (mount_table_read(&t) == 0) {
        ours = mount_table_at(&t, directory) != NULL;
        mount_table_free(&t);
    }
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

// --- the mount ---

int supervised_mount_make(const struct export_options *options, char **ret_error)
{
    const struct devfuse_mount_options o = {
        .source = options->source,
        .allow_other = options->allow_other,
        .allow_root = options->allow_root,
        .default_permissions = true,
        .extra = options->kernel_options.len ? options->kernel_options.data : NULL,
    };

    return devfuse_mount(options->directory, &o, ret_error);
}

pid_t supervised_mount_raise_readahead(const char *directory)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    alarm(READAHEAD_S);
    // the mount must not live on in here
    close_range(STDERR_FILENO + 1, ~0U, 0);
    if (devfuse_set_readahead(directory, MOUNT_READAHEAD) < 0)
        log_info("daemon",
                 "%s: the kernel's read-ahead stays at its default, for raising it takes "
                 "root; large files are read faster with direct-io",
                 directory);
    _exit(0);
}

static void report(int rc, char *error)
{
    if (rc < 0 && rc != -EINVAL) // EINVAL: somebody has unmounted it already
        log_error("daemon", "%s", error ? error : strerror(-rc));
    free(error);
}

void supervised_mount_undo(const char *directory, unsigned seconds)
{
    char *error = NULL;
    int rc = devfuse_unmount(directory, false, &error);

    if (rc == -EBUSY) {
        log_warning("daemon", "%s is in use: detached; open files go on for %u s", directory,
                    seconds);
        supervised_mount_detach(directory);
        free(error);
        return;
    }
    report(rc, error);
}

void supervised_mount_detach(const char *directory)
{
    char *error = NULL;
    int rc = devfuse_unmount(directory, true, &error);

    report(rc, error);
}
