// SPDX-License-Identifier: Apache-2.0
// FUSE requests as system calls on the mount. Nodes are paths, handles are descriptors: both
// numbers of this process's own.
#include "host/guest.h"

#include "wire/control.h"
#include "wire/ops.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

// --- nodes ---

// The node's path, below the mount's directory and with that in front. NULL: there is no such node.
static char *node_path(struct guest *g, uint64_t node)
{
    char *path = NULL;

    if (node == FUSE_ROOT_ID)
        return xstrdup(g->directory);
    pthread_mutex_lock(&g->locked.lock.mutex);
    if (node - 2 < g->locked.n_nodes && g->locked.nodes[node - 2].path)
        path = xstrdup(g->locked.nodes[node - 2].path);
    pthread_mutex_unlock(&g->locked.lock.mutex);
    return path;
}

// path becomes the node's. Its number.
static uint64_t node_new(struct guest *g, char *path)
{
    size_t i = 0;

    pthread_mutex_lock(&g->locked.lock.mutex);
    while (i < g->locked.n_nodes && g->locked.nodes[i].path)
        i++;
    if (i == g->locked.n_nodes) {
        size_t n = MAX(g->locked.n_nodes * 2, (size_t)16);

        g->locked.nodes = xrealloc(g->locked.nodes, n * sizeof(*g->locked.nodes));
        memset(g->locked.nodes + i, 0, (n - i) * sizeof(*g->locked.nodes));
        g->locked.n_nodes = n;
    }
    g->locked.nodes[i] = (struct guest_node){.path = path, .refs = 1};
    pthread_mutex_unlock(&g->locked.lock.mutex);
    return i + 2;
}

void guest_forget(struct transport *t, unsigned generation, uint64_t node, uint64_t n)
{
    struct guest *g = guest_of(t);
    struct guest_node *at;

    pthread_mutex_lock(&g->locked.lock.mutex);
    if (generation == g->locked.generation && node - 2 < g->locked.n_nodes) {
        at = &g->locked.nodes[node - 2];
        at->refs -= MIN(at->refs, n);
        if (!at->refs) {
            free(at->path);
            at->path = NULL;
        }
    }
    pthread_mutex_unlock(&g->locked.lock.mutex);
}

static void fill_attr(struct fuse_attr *a, const struct stat *st)
{
    *a = (struct fuse_attr){
        .ino = st->st_ino,
        .size = (uint64_t)st->st_size,
        .blocks = (uint64_t)st->st_blocks,
        .mtime = (uint64_t)st->st_mtime,
        .mode = st->st_mode,
        .nlink = (uint32_t)st->st_nlink,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .blksize = (uint32_t)st->st_blksize,
    };
}

static int look_up(struct guest *g, const char *parent, const char *name,
                   struct fuse_entry_out *out)
{
    char *path = xasprintf("%s/%s", parent, name);
    struct stat st;

    if (lstat(path, &st) < 0) {
        int rc = -errno;

        free(path);
        return rc;
    }
    *out = (struct fuse_entry_out){.nodeid = node_new(g, path)};
    fill_attr(&out->attr, &st);
    return sizeof(*out);
}

static int get_attr(const char *path, struct fuse_attr_out *out)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return -errno;
    *out = (struct fuse_attr_out){0};
    fill_attr(&out->attr, &st);
    return sizeof(*out);
}

// --- open files ---

static uint64_t file_new(struct guest *g, int fd, DIR *dir)
{
    size_t i = 0;

    pthread_mutex_lock(&g->locked.lock.mutex);
    while (i < g->locked.n_files && g->locked.files[i].fd >= 0)
        i++;
    if (i == g->locked.n_files) {
        size_t n = MAX(g->locked.n_files * 2, (size_t)16);

        g->locked.files = xrealloc(g->locked.files, n * sizeof(*g->locked.files));
        for (size_t k = i; k < n; k++)
            g->locked.files[k] = (struct guest_file){.fd = -1};
        g->locked.n_files = n;
    }
    g->locked.files[i] = (struct guest_file){.fd = fd, .dir = dir};
    pthread_mutex_unlock(&g->locked.lock.mutex);
    return i;
}

static struct guest_file file_at(struct guest *g, uint64_t handle, bool take)
{
    struct guest_file f = {.fd = -1};

    pthread_mutex_lock(&g->locked.lock.mutex);
    if (handle < g->locked.n_files) {
        f = g->locked.files[handle];
        if (take)
            g->locked.files[handle] = (struct guest_file){.fd = -1};
    }
    pthread_mutex_unlock(&g->locked.lock.mutex);
    return f;
}

int guest_file_id(struct guest *g, uint64_t handle, uint64_t *ret)
{
    struct guest_file f = file_at(g, handle, false);
    struct os2g_gdd_id id = {.id = f.id};

    if (f.fd < 0)
        return -EBADF;
    if (!id.id) {
        if (ioctl(f.fd, OS2G_IOC_GDD_ID, &id) < 0)
            return -errno;
        pthread_mutex_lock(&g->locked.lock.mutex);
        if (handle < g->locked.n_files && g->locked.files[handle].fd == f.fd)
            g->locked.files[handle].id = id.id;
        pthread_mutex_unlock(&g->locked.lock.mutex);
    }
    *ret = id.id;
    return 0;
}

static void file_close(struct guest_file f)
{
    if (f.dir)
        closedir(f.dir); // and f.fd, which is its
    else if (f.fd >= 0)
        close(f.fd);
}

void guest_files_close(struct guest *g)
{
    for (size_t i = 0; i < g->locked.n_files; i++)
        file_close(g->locked.files[i]);
    for (size_t i = 0; i < g->locked.n_nodes; i++)
        free(g->locked.nodes[i].path);
    free(g->locked.files);
    free(g->locked.nodes);
    g->locked.files = NULL;
    g->locked.nodes = NULL;
    g->locked.n_files = g->locked.n_nodes = 0;
}

static int open_file(struct guest *g, const char *path, bool directory, struct fuse_open_out *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | (directory ? O_DIRECTORY : 0));
    DIR *dir = NULL;

    if (fd < 0)
        return -errno;
    if (directory) {
        dir = fdopendir(fd);
        if (!dir) {
            int rc = -errno;

            close(fd);
            return rc;
        }
    }
    *out = (struct fuse_open_out){.fh = file_new(g, fd, dir)};
    return sizeof(*out);
}

// One name with its attributes; false: there is no room.
static bool add_name(const struct guest_file *f, const struct dirent *e, int64_t next, char *out,
                     size_t room, size_t *len)
{
    size_t name_len = strlen(e->d_name);
    size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + name_len);
    struct fuse_direntplus d = {.dirent = {.ino = e->d_ino,
                                           .off = (uint64_t)next,
                                           .namelen = (uint32_t)name_len,
                                           .type = e->d_type}};
    struct stat st;

    if (room - *len < size)
        return false;
    if (fstatat(f->fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        fill_attr(&d.entry_out.attr, &st);
    memset(out + *len, 0, size);
    memcpy(out + *len, &d, FUSE_NAME_OFFSET_DIRENTPLUS);
    memcpy(out + *len + FUSE_NAME_OFFSET_DIRENTPLUS, e->d_name, name_len);
    *len += size;
    return true;
}

static int read_names(struct guest *g, const struct fuse_read_in *in, char *out, size_t room)
{
    struct guest_file f = file_at(g, in->fh, false);
    const struct dirent *e;
    size_t len = 0;

    if (!f.dir)
        return -EBADF;
    seekdir(f.dir, (long)in->offset);
    for (;;) {
        errno = 0;
        e = readdir(f.dir);
        if (!e)
            return errno && !len ? -errno : (int)len;
        if (!add_name(&f, e, telldir(f.dir), out, room, &len))
            return (int)len;
    }
}

static int ioctl_file(struct guest *g, const struct fuse_ioctl_in *in, const void *data, size_t len,
                      char *out, size_t room)
{
    struct fuse_ioctl_out head = {0};
    size_t size = MAX(in->in_size, in->out_size);
    char bytes[TRANSPORT_IN_MAX];
    int fd = file_at(g, in->fh, false).fd, rc;

    if (in->in_size > len || size > sizeof(bytes) || sizeof(head) + in->out_size > room)
        return -EINVAL;
    memcpy(bytes, data, in->in_size);
    rc = ioctl(fd, in->cmd, bytes);
    if (rc < 0)
        return -errno;
    head.result = rc;
    memcpy(out, &head, sizeof(head));
    memcpy(out + sizeof(head), bytes, in->out_size);
    return (int)(sizeof(head) + in->out_size);
}

static int get_xattr(const char *path, uint32_t size, const char *name, char *out, size_t room)
{
    ssize_t n = lgetxattr(path, name, out, MIN((size_t)size, room));

    return n < 0 ? -errno : (int)n;
}

// --- reading into memory of this process ---

// All of len that there is from offset on.
static ssize_t read_all(int fd, char *to, uint64_t len, uint64_t offset)
{
    uint64_t done = 0;

    while (done < len) {
        ssize_t n = pread(fd, to + done, len - done, (off_t)(offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (uint64_t)n;
    }
    return (ssize_t)done;
}

static int read_file(struct guest *g, const struct transport_request *r,
                     const struct fuse_read_in *in, uint64_t *ret_data)
{
    int fd = file_at(g, in->fh, false).fd;
    ssize_t n;

    if (fd < 0 || !r->memory)
        return -EBADF;
    n = read_all(fd, r->memory->base + r->memory_offset, MIN((uint64_t)in->size, r->data_len),
                 in->offset);
    *ret_data = n < 0 ? 0 : (uint64_t)n;
    return n < 0 ? (int)n : 0;
}

// By its path: what has none (a component that is empty, "." or "..") is not found.
static int fetch(struct guest *g, const struct transport_request *r, const char *key, size_t len,
                 struct os2g_fetch_out *out, uint64_t *ret_data)
{
    char *path = xasprintf("%s/%.*s", g->directory, (int)len, key);
    bool plain = memchr(key, 0, len) == NULL && !strstr(path, "/../") && !strstr(path, "/./") &&
                 !strstr(path, "//");
    int fd = plain ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    int rc = fd < 0 ? (plain ? -errno : -ENOENT) : 0;
    struct stat st;
    ssize_t n;

    free(path);
    if (rc == 0 && fstat(fd, &st) < 0)
        rc = -errno;
    if (rc == 0 && (S_ISDIR(st.st_mode) || !r->memory))
        rc = -ENOENT;
    if (rc == 0) {
        out->size = (uint64_t)st.st_size;
        rc = out->size > r->data_len ? -EFBIG : 0;
    }
    if (rc == 0) {
        n = read_all(fd, r->memory->base + r->memory_offset, out->size, 0);
        rc = n < 0 ? (int)n : (uint64_t)n < out->size ? -EIO : 0;
        *ret_data = rc ? 0 : (uint64_t)n;
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

// --- which is which ---

// A node's requests; bytes of out, or -errno.
static int for_node(struct guest *g, const struct transport_request *r, const char *in, size_t len)
{
    char *path = node_path(g, r->nodeid);
    int rc = -ESTALE;

    if (!path)
        return rc;
    switch (r->opcode) {
    case FUSE_LOOKUP:
        rc = look_up(g, path, in, r->out);
        break;
    case FUSE_GETATTR:
        rc = get_attr(path, r->out);
        break;
    case FUSE_GETXATTR:
        rc = get_xattr(path, ((const struct fuse_getxattr_in *)in)->size,
                       in + sizeof(struct fuse_getxattr_in), r->out, r->out_len);
        break;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        rc = open_file(g, path, r->opcode == FUSE_OPENDIR, r->out);
        break;
    }
    free(path);
    return rc;
}

int guest_carry_out(struct guest *g, struct transport_request *r, uint32_t *ret_out,
                    uint64_t *ret_data)
{
    // what comes is our own library's: whole messages, names that end with zero
    _Alignas(8) char in[TRANSPORT_IN_MAX + 1];
    size_t len = guest_message(r, in);
    int rc;

    in[len] = 0;
    switch (r->opcode) {
    case FUSE_READ:
        rc = read_file(g, r, (const struct fuse_read_in *)in, ret_data);
        break;
    case OS2G_OP_FETCH:
        rc = fetch(g, r, in + sizeof(struct os2g_fetch_in),
                   ((const struct os2g_fetch_in *)in)->key_len, r->out, ret_data);
        if (rc == 0 || rc == -EFBIG)
            *ret_out = sizeof(struct os2g_fetch_out);
        return rc;
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        file_close(file_at(g, ((const struct fuse_release_in *)in)->fh, true));
        rc = 0;
        break;
    case FUSE_READDIRPLUS:
        rc = read_names(g, (const struct fuse_read_in *)in, r->out, r->out_len);
        break;
    case FUSE_IOCTL:
        rc = ioctl_file(g, (const struct fuse_ioctl_in *)in, in + sizeof(struct fuse_ioctl_in),
                        len - sizeof(struct fuse_ioctl_in), r->out, r->out_len);
        break;
    default:
        rc = for_node(g, r, in, len);
    }
    *ret_out = rc > 0 ? (uint32_t)rc : 0;
    return MIN(rc, 0);
}
