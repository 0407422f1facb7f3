// SPDX-License-Identifier: Apache-2.0
#include "base/mount_table.h"
#include "base/rendezvous.h"
#include "cli/commands.h"
#include "daemon/control_client.h"
#include "front/devfuse/devfuse.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_MS 10000

struct umount_request {
    bool lazy;
};

static int set_lazy(void *target, const char *value, char **ret_error)
{
    ((struct umount_request *)target)->lazy = true;
    return 0;
}

static int not_ours(const struct mount_table *t, const char *directory)
{
    const struct mount_entry *around = mount_table_find(t, directory);

    if (around)
        return cli_fail(&umount_command, NULL, "%s lies in the mount at %s; unmount that",
                        directory, around->directory);
    return cli_fail(&umount_command, NULL, "nothing of os2g is mounted at %s", directory);
}

static int unmount(const struct mount_entry *e, bool lazy)
{
    char *socket_path = rendezvous_control(e->owner, e->directory), *error = NULL;
    uid_t self = geteuid();
    int rc;

    if (self != 0 && self != e->owner) {
        free(socket_path);
        return cli_fail(&umount_command, NULL,
                        "user %u mounted %s: unmount it as that user or root", e->owner,
                        e->directory);
    }
    rc = devfuse_unmount(e->directory, lazy, &error);
    if (rc == -EBUSY)
        rc =
            cli_fail(&umount_command,
                     "Programs have files open there: fuser -vm DIR names them. --lazy detaches it "
                     "now and ends once they close them.",
                     "%s is in use", e->directory);
    else if (rc < 0)
        rc = cli_fail(&umount_command, NULL, "%s", error ? error : strerror(-rc));
    else if (!lazy && control_wait_gone(socket_path, WAIT_MS) < 0)
        rc = cli_fail(&umount_command, NULL, "%s is unmounted, but its daemon has not ended",
                      e->directory);
    free(error);
    free(socket_path);
    return rc;
}

static int unmount_at(const char *directory, bool lazy)
{
    char *absolute = mount_table_absolute(directory);
    const struct mount_entry *e;
    struct mount_table table;
    int rc;

    if (!absolute)
        return cli_fail(&umount_command, NULL, "%s: %s", directory, strerror(errno));
    rc = mount_table_read(&table);
    if (rc < 0) {
        free(absolute);
        return cli_fail(&umount_command, NULL, "/proc/self/mountinfo: %s", strerror(-rc));
    }
    e = mount_table_at(&table, absolute);
    rc = e ? unmount(e, lazy) : not_ours(&table, absolute);
    mount_table_free(&table);
    free(absolute);
    return rc;
}

static int run(int argc, char **argv)
{
    struct umount_request request = {0};
    struct cli_arguments words;
    int rc;

    cli_parse(&umount_command, argc, argv, &request, NULL, &words);
    if (words.n == 1) {
        rc = unmount_at(words.words[0], request.lazy);
    } else {
        cli_fail(&umount_command, "See: os2g umount --help", "say which directory");
        rc = EXIT_USAGE;
    }
    free(words.words);
    return rc;
}

static const struct cli_option options[] = {
    {"lazy", 'z', NULL, "detach it even while programs use it", set_lazy},
    {NULL},
};

const struct cli_command umount_command = {
    .name = "umount",
    .synopsis = "DIR",
    .summary = "Ends a mount and its daemon",
    .text = "umount DIR and fusermount3 -u DIR do the same.",
    .options = options,
    .run = run,
};
