// SPDX-License-Identifier: Apache-2.0
#include "host/where.h"

#include "base/mount_table.h"
#include "base/rendezvous.h"
#include "base/text.h"
#include "host/error.h"
#include "wire/control.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The directory at or above path that has a .os2g/gdd, or NULL.
static char *find_guest(const char *path)
{
    char *at = xstrdup(path);

    for (;;) {
        char *gdd = xasprintf("%s/" OS2G_CONTROL_DIR "/gdd", at);
        bool there = access(gdd, F_OK) == 0;

        free(gdd);
        if (there && at[0])
            return at;
        if (!at[0])
            break;
        *strrchr(at, '/') = 0; // at is absolute
    }
    free(at);
    return NULL;
}

static int find_mount(const char *path, struct where *ret)
{
    char *absolute = mount_table_absolute(path);
    const struct mount_entry *e;
    struct mount_table t;
    int rc;

    if (!absolute)
        return client_fail_errno(-errno, path);
    rc = mount_table_read(&t);
    if (rc < 0) {
        free(absolute);
        return client_fail_errno(rc, "/proc/self/mountinfo");
    }
    e = mount_table_find(&t, absolute);
    if (e) {
        ret->kind = WHERE_SOCKET;
        ret->path = rendezvous_socket(e->owner, e->directory);
    } else {
        ret->kind = WHERE_GUEST;
        ret->path = find_guest(absolute);
    }
    mount_table_free(&t);
    free(absolute);
    return ret->path
               ? 0
               : client_fail(-ENOENT,
                             "%s is neither the socket of an export nor in a mount of os2g: mount "
                             "the bucket (os2g mount s3://BUCKET DIR), or name s3://BUCKET/PREFIX",
                             path);
}

int where_find(const char *where, struct where *ret)
{
    const char *socket = getenv("OS2G_SOCKET");
    struct stat st;

    if (text_starts_with(where, "s3://") && where[5] && where[5] != '/') {
        ret->named = socket && socket[0];
        ret->kind = ret->named ? WHERE_SOCKET : WHERE_BUCKET;
        ret->path = xstrdup(ret->named ? socket : where);
        return 0;
    }
    if (!where[0] || strstr(where, "://"))
        return client_fail(-EINVAL, "\"%s\" is no s3://bucket/prefix, socket or directory", where);
    if (stat(where, &st) == 0 && S_ISSOCK(st.st_mode)) {
        *ret = (struct where){WHERE_SOCKET, xstrdup(where), false};
        return 0;
    }
    return find_mount(where, ret);
}
