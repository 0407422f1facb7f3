// SPDX-License-Identifier: Apache-2.0
// Mounting and unmounting by root itself; fusermount.c does it for others.
#include "front/devfuse/mount.h"

#include "base/buf.h"
#include "base/mount_table.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FSTYPE "fuse.os2g"

// --- what is mounted where ---

// The topmost mount at path: ours, another over one of ours, or any other or none.
enum top { TOP_OURS, TOP_COVERED, TOP_OTHER };

static enum top topmost(const char *path)
{
    const struct mount_entry *at, *top;
    enum top result = TOP_OTHER;
    struct mount_table t;

    if (mount_table_read(&t) < 0)
        return TOP_OTHER;
    at = mount_table_at(&t, path);
    top = mount_table_top(&t, path);
    if (at)
        result = at == top ? TOP_OURS : TOP_COVERED;
    mount_table_free(&t);
    return result;
}

// The directory without links, so that it can be found in the table of mounts.
static int check_directory(const char *dir, char **ret_path, char **ret_error)
{
    char *path = realpath(dir, NULL);
    struct stat st;
    int rc;

    if (path && topmost(path) == TOP_OURS) {
        *ret_error = xasprintf("%s: a bucket is mounted there already (os2g umount %s)", dir, dir);
        free(path);
        return -EBUSY;
    }
    if (path && stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) {
            *ret_path = path;
            return 0;
        }
        *ret_error = xasprintf("%s is not a directory", dir);
        free(path);
        return -ENOTDIR;
    }
    rc = -errno;
    free(path);
    if (rc == -ENOENT)
        *ret_error = xasprintf("%s does not exist; make the directory first", dir);
    else if (rc == -ENOTCONN)
        *ret_error = xasprintf("%s: a FUSE mount whose daemon has died is in the way (os2g umount "
                               "%s)",
                               dir, dir);
    else
        *ret_error = xasprintf("%s: %s", dir, strerror(-rc));
    return rc;
}

// --- mounting as root ---

static int open_device(char **ret_error)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC), rc;

    if (fd >= 0)
        return fd;
    rc = -errno;
    if (rc == -ENOENT || rc == -ENODEV || rc == -ENXIO)
        *ret_error = xstrdup("there is no /dev/fuse: load the kernel module (modprobe fuse), or "
                             "give the container the device (docker run --device /dev/fuse "
                             "--cap-add SYS_ADMIN)");
    else if (rc == -EPERM)
        *ret_error = xstrdup("/dev/fuse: not permitted; give the container the device (docker run "
                             "--device /dev/fuse --cap-add SYS_ADMIN)");
    else
        *ret_error = xasprintf("/dev/fuse: %s", strerror(-rc));
    return rc;
}

// Options that the kernel takes as flags; all else goes to it as text.
static bool add_flag(const char *name, unsigned long *flags)
{
    static const struct {
        const char *name;
        unsigned long set, clear;
    } known[] = {
        {"ro", MS_RDONLY, 0},     {"nosuid", MS_NOSUID, 0},         {"nodev", MS_NODEV, 0},
        {"noexec", MS_NOEXEC, 0}, {"exec", 0, MS_NOEXEC},           {"noatime", MS_NOATIME, 0},
        {"atime", 0, MS_NOATIME}, {"nodiratime", MS_NODIRATIME, 0}, {"sync", MS_SYNCHRONOUS, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (!strcmp(known[i].name, name)) {
            *flags = (*flags | known[i].set) & ~known[i].clear;
            return true;
        }
    }
    return false;
}

static void add_extra(const char *extra, struct buf *data, unsigned long *flags)
{
    char *copy = xstrdup(extra), *at = NULL;

    for (char *o = strtok_r(copy, ",", &at); o; o = strtok_r(NULL, ",", &at))
        if (!add_flag(o, flags))
            buf_printf(data, ",%s", o);
    free(copy);
}

static int mount_directly(const char *path, const struct devfuse_mount_options *o, char **ret_error)
{
    unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV;
    int fd = open_device(ret_error), rc = 0;
    struct buf data = {0};

    if (fd < 0)
        return fd;
    buf_printf(&data, "fd=%d,rootmode=40000,user_id=%u,group_id=%u,max_read=%u", fd, geteuid(),
               getegid(), devfuse_mount_max_read(o));
    // allow_root is ours to hold: to the kernel, it means that others may ask
    if (o->allow_other || o->allow_root)
        buf_add_str(&data, ",allow_other");
    if (o->default_permissions)
        buf_add_str(&data, ",default_permissions");
    if (o->extra)
        add_extra(o->extra, &data, &flags);
    if (mount(o->source, path, FSTYPE, flags, buf_str(&data)) < 0) {
        rc = -errno;
        if (rc == -EPERM)
            *ret_error = xasprintf("mounting at %s: not permitted; in a container, run it with "
                                   "--cap-add SYS_ADMIN",
                                   path);
        else if (rc == -EINVAL)
            *ret_error = xasprintf("mounting at %s: the kernel refuses the options \"%s\"", path,
                                   buf_str(&data));
        else
            *ret_error = xasprintf("mounting at %s: %s", path, strerror(-rc));
        close(fd);
    }
    buf_free(&data);
    return rc < 0 ? rc : fd;
}

int devfuse_mount(const char *dir, const struct devfuse_mount_options *o, char **ret_error)
{
    char *path = NULL;
    int rc = check_directory(dir, &path, ret_error);

    if (rc < 0)
        return rc;
    rc = geteuid() == 0 ? mount_directly(path, o, ret_error) : fusermount_mount(path, o, ret_error);
    free(path);
    return rc;
}

// --- unmounting ---

int devfuse_unmount(const char *dir, bool lazy, char **ret_error)
{
    int rc;

    if (topmost(dir) == TOP_COVERED) {
        *ret_error =
            xasprintf("%s: another file system is mounted over it; unmount that first", dir);
        return -EXDEV;
    }
    if (geteuid() != 0)
        return fusermount_unmount(dir, lazy, ret_error);
    if (umount2(dir, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    rc = -errno;
    if (rc == -EBUSY)
        *ret_error = xasprintf("%s is in use (fuser -vm %s shows by whom); --lazy detaches it "
                               "anyway",
                               dir, dir);
    else if (rc == -EINVAL)
        *ret_error = xasprintf("nothing is mounted at %s", dir);
    else
        *ret_error = xasprintf("unmounting %s: %s", dir, strerror(-rc));
    return rc;
}

// --- read-ahead ---

int devfuse_set_readahead(const char *dir, uint64_t bytes)
{
    char path[64], text[32];
    struct stat st;
    ssize_t n;
    int fd, rc;

    if (stat(dir, &st) < 0)
        return -errno;
    snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev),
             minor(st.st_dev));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    n = write(fd, text,
              (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)(bytes / KIB)));
    rc = n < 0 ? -errno : 0;
    close(fd);
    return rc;
}
