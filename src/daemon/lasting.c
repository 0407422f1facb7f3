// SPDX-License-Identifier: Apache-2.0
#include "daemon/lasting.h"

#include "base/log.h"
#include "base/rendezvous.h"
#include "daemon/privilege.h"
#include "front/devfuse/devfuse.h"
#include "net/http_client.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CA_MAX (4 * MIB)

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void lasting_drop_control(struct lasting *l)
{
    listener_close(&l->control);
}

void lasting_close(struct lasting *l)
{
    lasting_drop_control(l);
    close_fd(&l->options_fd);
    close_fd(&l->slots_fd);
    close_fd(&l->nodes_fd);
    close_fd(&l->handles_fd);
    close_fd(&l->ca_fd);
    close_fd(&l->profile_fd);
}

// --- memory ---

static int make_memfd(const char *name, size_t size)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, (off_t)size) < 0)
        close_fd(&fd);
    return fd;
}

static int make_options(const struct export_options *o)
{
    int fd = memfd_create("os2g-options", MFD_CLOEXEC);

    if (fd >= 0 && pwrite(fd, o->given.data, o->given.len, 0) != (ssize_t)o->given.len)
        close_fd(&fd);
    return fd;
}

int lasting_set_options(struct lasting *l, const struct export_options *o)
{
    int fd;

    if (l->options_fd < 0)
        return 0; // lasting_make comes yet
    fd = make_options(o);
    // the profile may be another one
    if (fd < 0 || ftruncate(l->profile_fd, 0) < 0) {
        close_fd(&fd);
        return -EIO;
    }
    close_fd(&l->options_fd);
    l->options_fd = fd;
    return 0;
}

static int copy_file(int from, int to)
{
    char piece[16384];
    size_t total = 0;
    ssize_t n;

    while ((n = read(from, piece, sizeof(piece))) > 0) {
        total += (size_t)n;
        if (total > CA_MAX)
            return -EFBIG;
        if (write(to, piece, (size_t)n) != n)
            return -EIO;
    }
    return n < 0 ? -errno : 0;
}

// A worker of root could not open a file in root's home.
static int make_ca(struct lasting *l, const struct export_options *o, char **ret_error)
{
    const char *path = o->s3.ca_file ? o->s3.ca_file : getenv("AWS_CA_BUNDLE");
    int from, rc;

    if (!path || !*path || geteuid() != 0)
        return 0;
    // here, where its name is known, rather than in the worker
    rc = http_ca_file_check(path, ret_error);
    if (rc < 0)
        return rc;
    l->ca_fd = make_memfd("os2g-ca", 0);
    from = open(path, O_RDONLY | O_CLOEXEC);
    rc = from < 0 || l->ca_fd < 0 ? -errno : copy_file(from, l->ca_fd);
    close_fd(&from);
    if (rc < 0)
        *ret_error = xasprintf("ca-file: %s: %s", path, strerror(-rc));
    return rc;
}

// --- the control socket ---

// Nobody else may have made the directory ready for us.
static int make_directory(const char *path, bool root)
{
    struct stat st;

    if (mkdir(path, root ? 0755 : 0700) < 0 && errno != EEXIST)
        return -errno;
    if (lstat(path, &st) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022) ? 0 : -EPERM;
}

static int make_control(struct lasting *l, const char *place, char **ret_error)
{
    bool root = geteuid() == 0;
    char *directory = rendezvous_directory(geteuid()), *path;
    int rc = make_directory(directory, root);
    uid_t uid = (uid_t)-1;
    gid_t gid = (gid_t)-1;

    if (rc == 0) {
        // the metrics process asks, too, and is no more than a worker
        if (root)
            privilege_worker_ids(&uid, &gid);
        path = rendezvous_control(geteuid(), place);
        // of a daemon that was killed; its worker may just be ending. The directory is our own.
        unlink(path);
        rc = listener_open(&l->control, path, 0600, uid, gid);
        free(path);
    }
    if (rc < 0)
        *ret_error =
            xasprintf("%s cannot be used for the control socket: %s", directory, strerror(-rc));
    free(directory);
    return rc < 0 ? rc : 0;
}

void lasting_alias_control(struct lasting *l, const struct export_options *o)
{
    char *alias;
    int rc;

    if (!o->directory || !export_options_offers_socket(o))
        return; // the place is its name, or there is no other
    alias = rendezvous_control(geteuid(), o->socket);
    rc = listener_alias(&l->control, alias);
    if (rc == -EEXIST && unlink(alias) == 0) // an export's, which had this socket and was killed
        rc = listener_alias(&l->control, alias);
    if (rc < 0)
        log_warning("daemon", "%s: %s cannot be made, os2g status knows it by %s only: %s",
                    o->socket, alias, o->directory, strerror(-rc));
    free(alias);
}

int lasting_make(struct lasting *l, const struct export_options *o, char **ret_error)
{
    int rc;

    l->options_fd = make_options(o);
    l->slots_fd = make_memfd("os2g-slots", devfuse_slots_size());
    l->nodes_fd = make_memfd("os2g-nodes", 0);
    l->handles_fd = make_memfd("os2g-handles", 0);
    l->profile_fd = make_memfd("os2g-profile", 0);
    if (l->options_fd < 0 || l->slots_fd < 0 || l->nodes_fd < 0 || l->handles_fd < 0 ||
        l->profile_fd < 0) {
        *ret_error = xasprintf("memory for the state of the mount: %s", strerror(errno));
        return -ENOMEM;
    }
    rc = make_ca(l, o, ret_error);
    return rc < 0 ? rc : make_control(l, export_options_place(o), ret_error);
}
