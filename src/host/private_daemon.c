// SPDX-License-Identifier: Apache-2.0
#include "host/private_daemon.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/rendezvous.h"
#include "base/text.h"
#include "base/unix_address.h"
#include "host/spawn.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define LOOK_AGAIN_NS (20 * NS_PER_MS)

struct private_daemon {
    char *source, *program;
    char *socket, *lock; // paths
    char **options;      // "name=value", NULL at the end
    bool no_start;
    uint64_t timeout_ns;
};

// --- what is the same daemon ---

// Of the environment, what says which store and whose rights. Secrets are left out, for the name is
// seen by others; each goes with a name that is not one.
static bool matters(const char *entry)
{
    static const char *const secret[] = {"AWS_SECRET_ACCESS_KEY=", "AWS_SESSION_TOKEN="};

    if (!text_starts_with(entry, "AWS_") && !text_starts_with(entry, "OS2G_") &&
        !text_starts_with(entry, "HOME="))
        return false;
    for (unsigned i = 0; i < ARRAY_LEN(secret); i++)
        if (text_starts_with(entry, secret[i]))
            return false;
    return true;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_environment(struct buf *identity)
{
    const char **entries;
    size_t n = 0;

    for (char **e = environ; *e; e++)
        n += matters(*e);
    entries = xcalloc(n + 1, sizeof(*entries));
    n = 0;
    for (char **e = environ; *e; e++)
        if (matters(*e))
            entries[n++] = *e;
    qsort(entries, n, sizeof(*entries), compare);
    for (size_t i = 0; i < n; i++)
        buf_add(identity, entries[i], strlen(entries[i]) + 1);
    free(entries);
}

static void name_files(struct private_daemon *d, const char *directory)
{
    struct buf identity = {0};
    XXH128_hash_t h;

    buf_add(&identity, d->source, strlen(d->source) + 1);
    buf_add(&identity, d->program, strlen(d->program) + 1);
    for (char **o = d->options; *o; o++)
        buf_add(&identity, *o, strlen(*o) + 1);
    buf_add(&identity, "", 1);
    add_environment(&identity);
    h = XXH3_128bits(identity.data, identity.len);
    buf_free(&identity);
    d->socket = xasprintf("%s/p%016llx%016llx.vhost", directory, (unsigned long long)h.high64,
                          (unsigned long long)h.low64);
    d->lock = xasprintf("%.*slock", (int)(strlen(d->socket) - 5), d->socket);
}

// --- where it is ---

// Ours alone: whoever else could write there could serve us bytes of his own.
static int make_directory(const char *path)
{
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return client_fail_errno(-errno, path);
    if (lstat(path, &st) < 0)
        return client_fail_errno(-errno, path);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
        return client_fail(-EACCES, "%s is not a directory of this user's alone", path);
    return 0;
}

// The program beside the library: PREFIX/lib/…/libos2g.so → PREFIX/bin/os2gd, or NULL.
static char *beside_library(void)
{
    Dl_info info;
    char *at, *path = NULL;

    if (!dladdr((void *)&os2g_version, &info) || !info.dli_fname || info.dli_fname[0] != '/')
        return NULL;
    at = xstrdup(info.dli_fname);
    for (unsigned i = 0; i < 4 && !path && strrchr(at, '/') != at; i++) {
        *strrchr(at, '/') = 0;
        path = xasprintf("%s/bin/os2gd", at);
        if (access(path, X_OK) < 0) {
            free(path);
            path = NULL;
        }
    }
    free(at);
    return path;
}

static char *find_program(const char *wanted)
{
    const char *variable = getenv("OS2GD");
    char *beside;

    if (wanted)
        return xstrdup(wanted);
    if (variable && variable[0])
        return xstrdup(variable);
    beside = beside_library();
    return beside ? beside : xstrdup("os2gd");
}

static void copy_options(struct private_daemon *d, const char *const *from)
{
    size_t n = 0;

    while (from && from[n])
        n++;
    d->options = xcalloc(n + 1, sizeof(*d->options));
    for (size_t i = 0; i < n; i++)
        d->options[i] = xstrdup(from[i]);
}

int private_daemon_new(struct private_daemon **ret, const char *source,
                       const struct os2g_options *o)
{
    char *directory = rendezvous_directory(geteuid());
    struct private_daemon *d;
    int rc = make_directory(directory);

    if (rc == 0) {
        d = xcalloc(1, sizeof(*d));
        d->source = xstrdup(source);
        d->program = find_program(o->program);
        copy_options(d, o->export_options);
        d->no_start = o->no_start;
        d->timeout_ns = o->timeout_ms * NS_PER_MS;
        name_files(d, directory);
        *ret = d;
    }
    free(directory);
    return rc;
}

void private_daemon_free(struct private_daemon *d)
{
    if (!d)
        return;
    for (char **o = d->options; *o; o++)
        free(*o);
    free(d->options);
    free(d->source);
    free(d->program);
    free(d->socket);
    free(d->lock);
    free(d);
}

const char *private_daemon_socket(const struct private_daemon *d)
{
    return d->socket;
}

// --- starting it ---

// The file at path is still the one that was opened: whoever is done with the lock removes it.
static bool is_there(int fd, const char *path)
{
    struct stat ours, there;

    return fstat(fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

// Of many processes one at a time looks and starts.
static int take_lock(const struct private_daemon *d, uint64_t deadline_ns, int *ret_fd)
{
    struct timespec pause = {.tv_nsec = (long)LOOK_AGAIN_NS};

    do {
        int fd = open(d->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0)
            return client_fail_errno(-errno, d->lock);
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_there(fd, d->lock)) {
            *ret_fd = fd;
            return 0;
        }
        close(fd);
        nanosleep(&pause, NULL);
    } while (clock_monotonic_ns() < deadline_ns);
    return client_fail(-ETIMEDOUT, "another process is starting the daemon for too long");
}

static void give_lock(const struct private_daemon *d, int fd)
{
    unlink(d->lock);
    close(fd);
}

static int start(const struct private_daemon *d, uint64_t deadline_ns)
{
    char **argv = xcalloc(16, sizeof(*argv)), *error = NULL;
    size_t n = 0, n_options = 0;
    int rc;

    while (d->options[n_options])
        n_options++;
    argv = xrealloc(argv, (n_options + 16) * sizeof(*argv));
    argv[n++] = xstrdup(d->program);
    argv[n++] = xstrdup("--export");
    argv[n++] = xstrdup(d->source);
    argv[n++] = xstrdup("--socket");
    argv[n++] = xstrdup(d->socket);
    argv[n++] = xstrdup("--until-idle");
    argv[n++] = xstrdup("--ready-fd");
    argv[n++] = xasprintf("%d", SPAWN_READY_FD);
    for (size_t i = 0; i < n_options; i++)
        argv[n++] = xasprintf("--%s", d->options[i]);
    argv[n] = NULL;
    rc = spawn_daemon(argv, deadline_ns, &error);
    for (size_t i = 0; i < n; i++)
        free(argv[i]);
    free(argv);
    if (rc < 0)
        client_fail(rc, "%s: %s", d->source, error ? error : strerror(-rc));
    free(error);
    return rc;
}

static bool none_listens(int connected)
{
    return connected == -ENOENT || connected == -ECONNREFUSED;
}

int private_daemon_start(void *arg, int *ret_socket)
{
    const struct private_daemon *d = arg;
    uint64_t deadline = clock_monotonic_ns() + d->timeout_ns;
    int lock = -1, connected, rc;

    if (d->no_start)
        return client_fail(-ENOENT, "no daemon serves %s, and none may be started", d->source);
    rc = take_lock(d, deadline, &lock);
    if (rc < 0)
        return rc;
    // another process may have started it meanwhile
    connected = unix_connect(d->socket, SOCK_NONBLOCK);
    if (none_listens(connected)) {
        rc = start(d, deadline);
        if (rc == 0)
            connected = unix_connect(d->socket, SOCK_NONBLOCK);
        if (rc == 0 && none_listens(connected))
            rc = client_fail(connected, "%s: the daemon was started and is not there", d->source);
    }
    give_lock(d, lock);
    if (rc == 0)
        *ret_socket = connected;
    return rc;
}
