// SPDX-License-Identifier: Apache-2.0
#include "daemon/control_client.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mount_table.h"
#include "base/rendezvous.h"
#include "base/unix_address.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MAX (16 * MIB)

// The daemon that offers a socket, and nothing else, is asked by it.
static char *find_by_socket(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) ? rendezvous_control(st.st_uid, path)
                                                         : NULL;
}

char *control_no_mount(const char *path)
{
    return xasprintf("%s is not in a mount of os2g: os2g status shows those that there are", path);
}

int control_find(const char *path, char **ret_socket, char **ret_error)
{
    char *absolute = mount_table_absolute(path), *found;
    const struct mount_entry *e;
    struct mount_table t;
    int rc;

    if (!absolute) {
        rc = -errno;
        *ret_error = xasprintf("%s: %s", path, strerror(errno));
        return rc;
    }
    rc = mount_table_read(&t);
    if (rc < 0) {
        *ret_error = xasprintf("/proc/self/mountinfo: %s", strerror(-rc));
        free(absolute);
        return rc;
    }
    e = mount_table_find(&t, absolute);
    found = e ? rendezvous_control(e->owner, e->directory) : find_by_socket(absolute);
    if (found) {
        *ret_socket = found;
    } else {
        *ret_error = control_no_mount(path);
        rc = -ENOENT;
    }
    mount_table_free(&t);
    free(absolute);
    return rc;
}

// --- one question ---

static int wait_for(int fd, short events, uint64_t deadline_ns)
{
    uint64_t now = clock_monotonic_ns();
    struct pollfd p = {.fd = fd, .events = events};
    int n = now >= deadline_ns
                ? 0
                : poll(&p, 1, (int)((deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS));

    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    return n == 0 ? -ETIMEDOUT : 0;
}

static int converse(int fd, const char *request, uint64_t deadline_ns, struct buf *answer)
{
    struct buf line = {0};
    int rc = 0;

    buf_printf(&line, "{\"request\":\"%s\"}\n", request);
    // a line of this length always fits into an empty socket
    if (send(fd, line.data, line.len, MSG_NOSIGNAL) != (ssize_t)line.len)
        rc = -EPIPE;
    buf_free(&line);
    while (rc == 0) {
        ssize_t n;

        rc = wait_for(fd, POLLIN, deadline_ns);
        if (rc < 0)
            break;
        buf_reserve(answer, 64 * KIB);
        n = recv(fd, answer->data + answer->len, 64 * KIB, 0);
        if (n == 0)
            break;
        if (n < 0)
            rc = errno == EAGAIN || errno == EINTR ? 0 : -errno;
        else
            answer->len += (size_t)n;
        if (answer->len > ANSWER_MAX)
            rc = -EBADMSG;
    }
    return rc;
}

static char *explain(const char *path, int error)
{
    switch (error) {
    case -ENOENT:
    case -ECONNREFUSED:
        return xasprintf("no daemon listens at %s: it has ended (os2g umount DIR clears what is "
                         "left) or cannot be reached from here",
                         path);
    case -EACCES:
        return xasprintf("%s: not allowed; ask as the user who mounted, or as root", path);
    case -ETIMEDOUT:
        return xasprintf("the daemon at %s does not answer", path);
    default:
        return xasprintf("%s: %s", path, strerror(-error));
    }
}

int control_request(const char *socket_path, const char *request, unsigned timeout_ms, json_t **ret,
                    char **ret_error)
{
    uint64_t deadline = clock_monotonic_ns() + timeout_ms * NS_PER_MS;
    struct buf answer = {0};
    json_t *object = NULL;
    const char *error;
    int fd = unix_connect(socket_path, SOCK_NONBLOCK), rc;

    rc = fd < 0 ? fd : converse(fd, request, deadline, &answer);
    if (fd >= 0)
        close(fd);
    if (rc == 0) {
        object = json_loadb(buf_str(&answer), answer.len, 0, NULL);
        if (!json_is_object(object)) {
            json_decref(object);
            rc = -EBADMSG;
        }
    }
    buf_free(&answer);
    if (rc < 0) {
        *ret_error = explain(socket_path, rc);
        return rc;
    }
    error = json_string_value(json_object_get(object, "error"));
    if (error) {
        *ret_error = xasprintf("the daemon says: %s", error);
        json_decref(object);
        return -EBADMSG;
    }
    *ret = object;
    return 0;
}

int control_wait_gone(const char *socket_path, unsigned timeout_ms)
{
    const struct timespec pause = {.tv_nsec = 5 * NS_PER_MS};

    for (unsigned waited = 0; access(socket_path, F_OK) == 0; waited += 5) {
        int fd = unix_connect(socket_path, SOCK_NONBLOCK);

        if (fd == -ECONNREFUSED)
            return 0; // it was killed, and left the socket behind
        if (fd >= 0)
            close(fd);
        if (waited >= timeout_ms)
            return -ETIMEDOUT;
        nanosleep(&pause, NULL);
    }
    return 0;
}
