// SPDX-License-Identifier: Apache-2.0
#include "daemon/listen.h"

#include "base/unix_address.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG 1024 // one that is full is EAGAIN to whoever does not wait

bool listener_in_use(const char *path)
{
    int fd = unix_connect(path, SOCK_NONBLOCK);

    if (fd >= 0)
        close(fd);
    // a full backlog is somebody's, too
    return fd >= 0 || fd == -EAGAIN || fd == -EPROTOTYPE;
}

// Makes room for a socket of that name.
static int clear_name(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode))
        return -EEXIST;
    if (listener_in_use(path))
        return -EADDRINUSE;
    return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int bind_at(struct listener *l, const struct sockaddr_un *address, mode_t mode, uid_t uid,
                   gid_t gid)
{
    mode_t before = umask(0);
    struct stat st;
    int rc;

    // the name is born with the socket's own mode (unix(7))
    rc = fchmod(l->fd, mode) < 0 ||
                 bind(l->fd, (const struct sockaddr *)address, sizeof(*address)) < 0
             ? -errno
             : 0;
    umask(before);
    if (rc < 0)
        return rc;
    if (lstat(address->sun_path, &st) < 0)
        return -errno;
    l->path = xstrdup(address->sun_path);
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    if ((uid != (uid_t)-1 || gid != (gid_t)-1) && lchown(l->path, uid, gid) < 0)
        return -errno;
    return listen(l->fd, BACKLOG) < 0 ? -errno : 0;
}

int listener_open(struct listener *l, const char *path, mode_t mode, uid_t uid, gid_t gid)
{
    struct sockaddr_un address;
    int rc = unix_address(&address, path);

    *l = LISTENER_NONE;
    if (rc == 0)
        rc = clear_name(path);
    if (rc < 0)
        return rc;
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return -errno;
    rc = bind_at(l, &address, mode, uid, gid);
    if (rc < 0)
        listener_close(l);
    return rc;
}

int listener_alias(struct listener *l, const char *alias)
{
    int rc = listener_clear_alias(alias);

    if (rc == 0 && symlink(l->path, alias) < 0)
        rc = -errno;
    if (rc == 0)
        l->alias = xstrdup(alias);
    return rc;
}

int listener_clear_alias(const char *alias)
{
    struct stat st;

    if (lstat(alias, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISLNK(st.st_mode))
        return -EEXIST;
    return unlink(alias) < 0 && errno != ENOENT ? -errno : 0;
}

// Ours still, and not that of a listener which has come after.
static bool alias_is_ours(const struct listener *l)
{
    char target[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    ssize_t n = readlink(l->alias, target, sizeof(target));

    return n >= 0 && (size_t)n == strlen(l->path) && !memcmp(target, l->path, (size_t)n);
}

void listener_close(struct listener *l)
{
    struct stat st;

    if (l->path && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino) {
        if (l->alias && alias_is_ours(l))
            unlink(l->alias);
        unlink(l->path);
    }
    if (l->fd >= 0)
        close(l->fd);
    free(l->alias);
    free(l->path);
    *l = LISTENER_NONE;
}
