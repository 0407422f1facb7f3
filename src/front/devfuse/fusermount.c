// SPDX-License-Identifier: Apache-2.0
// Mounting without root: fusermount3, which every distribution installs set-uid, opens and mounts
// /dev/fuse and passes the descriptor over the socket named in _FUSE_COMMFD (fusermount3(1)).
#include "base/buf.h"
#include "front/devfuse/mount.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM  "fusermount3"
#define COMM_FD  3
#define TEXT_MAX 1024

extern char **environ;

// Runs argv with its standard error on err_fd and, if comm_fd >= 0, that as COMM_FD. 0 or -errno.
static int spawn(pid_t *ret, char *const argv[], int comm_fd, int err_fd)
{
    char comm_env[] = "_FUSE_COMMFD=3";
    posix_spawn_file_actions_t actions;
    size_t n = 0;
    char **env;
    int rc;

    while (environ[n])
        n++;
    env = xcalloc(n + 2, sizeof(*env));
    if (n)
        memcpy(env, environ, n * sizeof(*env));
    env[n] = comm_env;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, err_fd, STDERR_FILENO);
    if (comm_fd >= 0)
        posix_spawn_file_actions_adddup2(&actions, comm_fd, COMM_FD);
    rc = -posix_spawnp(ret, PROGRAM, &actions, NULL, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    free(env);
    return rc;
}

static int receive_fd(int sock)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };
    struct cmsghdr *c;
    int fd;

    if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) <= 0)
        return -EIO; // it ended without sending one
    c = CMSG_FIRSTHDR(&msg);
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(sizeof(int)))
        return -EIO;
    memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    return fd;
}

// All that the program had to say, without the last newline.
static void read_text(int fd, struct buf *text)
{
    char piece[256];
    ssize_t n;

    while ((n = read(fd, piece, sizeof(piece))) > 0)
        if (text->len < TEXT_MAX)
            buf_add(text, piece, (size_t)n);
    while (text->len && text->data[text->len - 1] == '\n')
        text->data[--text->len] = 0;
}

static int wait_for(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

static char *spawn_error(int rc)
{
    if (rc == -ENOENT)
        return xstrdup(PROGRAM " is not installed, and mounting without it needs root (apt install "
                               "fuse3)");
    return xasprintf(PROGRAM ": %s", strerror(-rc));
}

static char *explain(const char *text)
{
    if (strstr(text, "user_allow_other"))
        return xstrdup("other users can be let in only if /etc/fuse.conf has a line "
                       "\"user_allow_other\" (or mount as root)");
    if (strstr(text, "/dev/fuse"))
        return xasprintf("%s (modprobe fuse if it is missing; chmod 666 /dev/fuse lets users "
                         "mount, as distributions set it)",
                         text);
    return xstrdup(*text ? text : PROGRAM " failed");
}

// Runs it to its end. comm: our end of the socket and the program's, which is closed, or NULL.
// Returns the descriptor it sent (0 without comm), or -errno with its words in *ret_error.
static int run(char *const argv[], const int comm[2], char **ret_error)
{
    struct buf text = {0};
    int err[2], fd = 0, rc;
    pid_t pid;

    if (pipe2(err, O_CLOEXEC) < 0) {
        rc = -errno;
        *ret_error = spawn_error(rc);
        if (comm)
            close(comm[1]);
        return rc;
    }
    rc = spawn(&pid, argv, comm ? comm[1] : -1, err[1]);
    close(err[1]);
    if (comm)
        close(comm[1]);
    if (rc < 0) {
        *ret_error = spawn_error(rc);
        close(err[0]);
        return rc;
    }
    read_text(err[0], &text);
    close(err[0]);
    if (comm)
        fd = receive_fd(comm[0]);
    rc = wait_for(pid);
    if (rc < 0 || fd < 0) {
        *ret_error = explain(buf_str(&text));
        if (comm && fd >= 0)
            close(fd);
        fd = rc < 0 ? rc : fd;
    }
    buf_free(&text);
    return fd;
}

// fusermount3 takes a comma in a value with a backslash before it.
static void add_escaped(struct buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == ',' || *s == '\\')
            buf_add(b, "\\", 1);
        buf_add(b, s, 1);
    }
}

int fusermount_mount(const char *path, const struct devfuse_mount_options *o, char **ret_error)
{
    struct buf options = {0};
    int comm[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, comm) < 0) {
        rc = -errno;
        *ret_error = xasprintf("socketpair: %s", strerror(-rc));
        return rc;
    }
    buf_printf(&options,
               "ro,nosuid,nodev,subtype=os2g,max_read=%u,fsname=", devfuse_mount_max_read(o));
    add_escaped(&options, o->source);
    if (o->allow_other || o->allow_root)
        buf_add_str(&options, ",allow_other");
    if (o->default_permissions)
        buf_add_str(&options, ",default_permissions");
    if (o->extra && *o->extra)
        buf_printf(&options, ",%s", o->extra);
    rc = run((char *[]){PROGRAM, "-o", options.data, "--", (char *)path, NULL}, comm, ret_error);
    close(comm[0]);
    buf_free(&options);
    return rc;
}

int fusermount_unmount(const char *dir, bool lazy, char **ret_error)
{
    char *plain[] = {PROGRAM, "-u", "--", (char *)dir, NULL};
    char *detach[] = {PROGRAM, "-u", "-z", "--", (char *)dir, NULL};

    return run(lazy ? detach : plain, NULL, ret_error);
}
