// SPDX-License-Identifier: Apache-2.0
// os2g prefetch: tells a mount what will be read, or reads a directory into the page cache.
//
// With --order the plan lives as long as this command, which shows how far the readers have come.
// Without, the command is the reader itself: it plans all files of the directory and moves their
// pages to /dev/null with sendfile(), which fills the kernel's page cache and copies nothing.
#include "cli/commands.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "daemon/control_client.h"
#include "wire/control.h"

#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define POLL_NS   (100 * NS_PER_MS)
#define SET_TRIES 10

struct paths {
    char **items;
    size_t n, size;
    uint64_t bytes; // 0 when not known
};

static void paths_add(struct paths *p, const char *path)
{
    if (p->n == p->size) {
        p->size = p->size ? 2 * p->size : 1024;
        p->items = xrealloc(p->items, p->size * sizeof(*p->items));
    }
    p->items[p->n++] = xstrdup(path);
}

static void paths_free(struct paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->items[i]);
    free(p->items);
}

// --- finding the mount ---

// The top of the mount that dir is in, and dir's path below it ("" at the top, else "a/b/").
static int find_mount(const char *dir, char **ret_top, char **ret_below, char **ret_error)
{
    char *path = realpath(dir, NULL), *control = NULL;
    struct stat st, up;
    int rc;

    if (!path || stat(path, &st) < 0)
        rc = -errno;
    else
        rc = S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    if (!path || rc < 0) {
        *ret_error = xasprintf("%s: %s", dir, strerror(-rc));
        free(path);
        return rc < 0 ? rc : -EIO; // an errno of 0 is the analyzer's idea
    }
    for (char *top = xstrdup(path);;) {
        char *parent = xasprintf("%s/..", top), *slash;
        bool at_top = stat(top, &st) == 0 && stat(parent, &up) == 0 && st.st_dev != up.st_dev;

        free(parent);
        slash = strrchr(top, '/');
        if (at_top || !slash || slash == top) {
            control = xasprintf("%s/" OS2G_CONTROL_DIR "/" OS2G_CONTROL_FILE, top);
            rc = !at_top ? -ENOENT : access(control, R_OK) == 0 ? 0 : -errno;
            free(control);
            if (rc < 0) {
                *ret_error = rc == -ENOENT || rc == -ENOTDIR
                                 ? control_no_mount(dir)
                                 : xasprintf("%s: %s", dir, strerror(-rc));
                free(top);
            } else {
                const char *below = path + strlen(top);

                *ret_below = *below ? xasprintf("%s/", below + 1) : xstrdup("");
                *ret_top = top;
            }
            free(path);
            return rc;
        }
        *slash = 0;
    }
}

// --- the plan ---

static int plan_send(int fd, struct os2g_plan_request *r, uint32_t op)
{
    r->op = op;
    return ioctl(fd, OS2G_IOC_PLAN, r) < 0 ? -errno : 0;
}

// Sets the plan of fd, anew if there was one: paths are relative to the mount.
static int plan_set_once(int fd, const struct paths *paths, size_t from, uint64_t window)
{
    struct os2g_plan_request *r = xcalloc(1, sizeof(*r));
    int rc;

    r->window_bytes = window;
    rc = plan_send(fd, r, OS2G_PLAN_BEGIN);
    r->len = 0;
    for (size_t i = from; rc == 0 && i < paths->n; i++) {
        size_t len = strlen(paths->items[i]) + 1;

        if (r->len + len > sizeof(r->data)) {
            rc = plan_send(fd, r, OS2G_PLAN_ADD);
            r->len = 0;
        }
        memcpy(r->data + r->len, paths->items[i], len);
        r->len += (uint32_t)len;
    }
    if (rc == 0 && r->len)
        rc = plan_send(fd, r, OS2G_PLAN_ADD);
    r->len = 0;
    if (rc == 0)
        rc = plan_send(fd, r, OS2G_PLAN_COMMIT);
    free(r);
    return rc;
}

// ESTALE: the daemon's worker was replaced meanwhile.
static int plan_set(int fd, const struct paths *paths, size_t from, uint64_t window)
{
    int rc = plan_set_once(fd, paths, from, window);

    for (int i = 0; rc == -ESTALE && i < SET_TRIES; i++)
        rc = plan_set_once(fd, paths, from, window);
    return rc;
}

static uint64_t plan_over(const struct os2g_plan_request *r)
{
    return r->used + r->dropped + r->missing;
}

static void plan_add_counts(struct os2g_plan_request *to, const struct os2g_plan_request *r)
{
    to->used += r->used;
    to->dropped += r->dropped;
    to->missing += r->missing;
    to->fetched += r->fetched;
    to->bytes += r->bytes;
}

// Shows the readers' progress until every entry has been read, dropped or was not found. A plan
// that was lost with the daemon's worker is set again from where the readers were.
static int plan_follow(int fd, const struct paths *paths, uint64_t window, bool quiet)
{
    struct os2g_plan_request *r = xcalloc(1, sizeof(*r)), *before = xcalloc(1, sizeof(*before)),
                             *last = xcalloc(1, sizeof(*last));
    struct progress progress;
    int rc;

    progress_init(&progress, "read", 0, paths->n, quiet);
    while ((rc = plan_send(fd, r, OS2G_PLAN_STATUS)) == 0) {
        uint64_t begun = plan_over(before);

        if (begun + r->entries < paths->n) {
            plan_add_counts(before, last);
            memset(last, 0, sizeof(*last));
            rc = plan_set(fd, paths, plan_over(before), window);
            if (rc < 0)
                break;
            progress_finish(&progress);
            cli_fail(&prefetch_command, NULL,
                     "the mount's worker was replaced: the plan was set again from entry %lu on",
                     plan_over(before) + 1);
            continue;
        }
        *last = *r;
        progress_update(&progress, before->bytes + r->bytes, begun + plan_over(r));
        if (begun + plan_over(r) >= paths->n)
            break;
        nanosleep(&(struct timespec){.tv_nsec = (long)POLL_NS}, NULL);
    }
    progress_finish(&progress);
    plan_add_counts(before, last);
    if (rc == 0 && !quiet)
        printf("%zu entries: %lu read, %lu dropped unread, %lu not found; %lu fetched ahead\n",
               paths->n, before->used, before->dropped, before->missing, before->fetched);
    free(r);
    free(before);
    free(last);
    return rc;
}

// One path a line, relative to DIR, or absolute below it.
static int read_order(const char *file, const char *dir, const char *below, struct paths *paths,
                      char **ret_error)
{
    FILE *f = strcmp(file, "-") ? fopen(file, "r") : stdin;
    char *line = NULL, *top = realpath(dir, NULL);
    size_t room = 0, number = 0;
    ssize_t len;
    int rc = 0;

    if (!f || !top) {
        rc = -errno;
        *ret_error = xasprintf("%s: %s", f ? dir : file, strerror(-rc));
        goto out;
    }
    while ((len = getline(&line, &room, f)) >= 0) {
        const char *name = line;
        char *path;

        number++;
        if (len && line[len - 1] == '\n')
            line[--len] = 0;
        if (text_starts_with(name, top) && name[strlen(top)] == '/')
            name += strlen(top) + 1;
        while (text_starts_with(name, "./"))
            name += 2;
        if (!*name)
            continue;
        path = xasprintf("%s%s", below, name);
        if (strlen(path) < PATH_MAX)
            paths_add(paths, path);
        else
            cli_fail(&prefetch_command, NULL, "%s: line %zu is too long for a path: left out", file,
                     number);
        free(path);
    }
    if (ferror(f)) {
        rc = -EIO;
        *ret_error = xasprintf("%s: can't be read", file);
    }
out:
    free(line);
    free(top);
    if (f && f != stdin)
        fclose(f);
    return rc;
}

// --- warming ---

struct warming {
    int top_fd; // the mount's top
    const struct paths *paths;
    atomic_size_t next;
    atomic_uint_fast64_t bytes, files, failed;
    unsigned running;
};

// All files below dir, in an order near to that of the store's listings.
static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int find_files(char *dir, const char *below, struct paths *paths)
{
    char *roots[] = {dir, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, by_name);
    size_t skip = strlen(dir) + 1;
    FTSENT *e;
    int rc = 0;

    if (!fts)
        return -errno;
    while ((e = fts_read(fts))) {
        if (e->fts_info == FTS_F && e->fts_statp->st_size > 0) {
            char *path = xasprintf("%s%s", below, e->fts_path + skip);

            paths_add(paths, path);
            paths->bytes += (uint64_t)e->fts_statp->st_size;
            free(path);
        } else if (e->fts_info == FTS_D && e->fts_level == 1 &&
                   !strcmp(e->fts_name, OS2G_CONTROL_DIR)) {
            fts_set(fts, e, FTS_SKIP);
        } else if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS) {
            cli_fail(&prefetch_command, NULL, "%s: %s", e->fts_path, strerror(e->fts_errno));
            rc = -e->fts_errno;
        }
    }
    fts_close(fts);
    return rc;
}

static void warm_file(struct warming *w, const char *path, int sink)
{
    int fd = openat(w->top_fd, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;

    if (fd >= 0) {
        while ((n = sendfile(sink, fd, NULL, MIB)) > 0)
            atomic_fetch_add(&w->bytes, (uint64_t)n);
    }
    if (n < 0) {
        cli_fail(&prefetch_command, NULL, "%s: %s", path, strerror(errno));
        atomic_fetch_add(&w->failed, 1);
    }
    if (fd >= 0)
        close(fd);
    atomic_fetch_add(&w->files, 1);
}

static void *warm_thread(void *arg)
{
    struct warming *w = arg;
    int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
    size_t i;

    while (sink >= 0 && (i = atomic_fetch_add(&w->next, 1)) < w->paths->n)
        warm_file(w, w->paths->items[i], sink);
    if (sink >= 0)
        close(sink);
    return NULL;
}

static int warm(const char *top, const struct paths *paths, unsigned jobs, bool quiet)
{
    struct warming w = {.paths = paths, .top_fd = open(top, O_PATH | O_CLOEXEC)};
    pthread_t *threads = xcalloc(jobs, sizeof(*threads));
    struct progress progress;
    unsigned started = 0;

    progress_init(&progress, "warming", paths->bytes, paths->n, quiet);
    while (started < jobs && pthread_create(&threads[started], NULL, warm_thread, &w) == 0)
        started++;
    while (started && atomic_load(&w.files) < paths->n) {
        progress_update(&progress, atomic_load(&w.bytes), atomic_load(&w.files));
        nanosleep(&(struct timespec){.tv_nsec = (long)POLL_NS / 2}, NULL);
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    progress_finish(&progress);
    free(threads);
    close(w.top_fd);
    if (!quiet) {
        char bytes[16];

        progress_format_bytes(atomic_load(&w.bytes), bytes);
        printf("%lu files, %s read into the page cache, %lu failed\n",
               paths->n - atomic_load(&w.failed), bytes, atomic_load(&w.failed));
    }
    return atomic_load(&w.failed) || !started ? -EIO : 0;
}

// --- the command ---

struct request {
    const char *order;
    uint64_t window, jobs;
    bool quiet;
};

static int set_order(void *target, const char *value, char **ret_error)
{
    ((struct request *)target)->order = value;
    return 0;
}

static int set_window(void *target, const char *value, char **ret_error)
{
    if (text_parse_size(value, &((struct request *)target)->window) == 0)
        return 0;
    *ret_error = xstrdup("--window takes a size, e.g. 256M");
    return -EINVAL;
}

static int set_jobs(void *target, const char *value, char **ret_error)
{
    struct request *r = target;

    if (text_parse_u64(value, &r->jobs) == 0 && r->jobs > 0 && r->jobs <= 256)
        return 0;
    *ret_error = xstrdup("--jobs takes a number from 1 to 256");
    return -EINVAL;
}

static int set_quiet(void *target, const char *value, char **ret_error)
{
    ((struct request *)target)->quiet = true;
    return 0;
}

static int prefetch(const struct request *a, char *dir, const char *top, const char *below,
                    struct paths *paths, char **ret_error)
{
    char *control = xasprintf("%s/" OS2G_CONTROL_DIR "/" OS2G_CONTROL_FILE, top);
    int fd = open(control, O_RDONLY | O_CLOEXEC), rc = fd < 0 ? -errno : 0, found = 0;

    free(control);
    if (rc == 0 && a->order)
        rc = read_order(a->order, dir, below, paths, ret_error);
    else if (rc == 0)
        found = find_files(dir, below, paths);
    if (rc == 0)
        rc = plan_set(fd, paths, 0, a->window);
    if (rc < 0)
        goto out;
    if (a->order) {
        printf("plan of %zu files set\n", paths->n);
        fflush(stdout);
        rc = plan_follow(fd, paths, a->window, a->quiet);
    } else {
        rc = warm(top, paths, (unsigned)a->jobs, a->quiet);
    }
out:
    if (fd >= 0)
        close(fd);
    return rc < 0 ? rc : found;
}

static int run(int argc, char **argv)
{
    struct request request = {.jobs = 8};
    char *top = NULL, *below = NULL, *error = NULL, *dir;
    struct cli_arguments words;
    struct paths paths = {0};
    int rc;

    cli_parse(&prefetch_command, argc, argv, &request, NULL, &words);
    if (words.n != 1) {
        free(words.words);
        cli_fail(&prefetch_command, "See: os2g prefetch --help", "name one directory");
        return EXIT_USAGE;
    }
    dir = words.words[0];
    while (strlen(dir) > 1 && text_ends_with(dir, "/"))
        dir[strlen(dir) - 1] = 0;
    rc = find_mount(dir, &top, &below, &error);
    if (rc == 0)
        rc = prefetch(&request, dir, top, below, &paths, &error);
    if (rc < 0)
        session_fail(&prefetch_command, error, rc);
    paths_free(&paths);
    free(words.words);
    free(top);
    free(below);
    free(error);
    return rc < 0 ? 1 : 0;
}

static const struct cli_option options[] = {
    {"order", 0, "FILE", "paths below DIR in the order of reading, one a line; - is standard input",
     set_order},
    {"window", 0, "SIZE", "to be ahead of the readers (default: what they turn out to need)",
     set_window},
    {"jobs", 'j', "N", "readers at a time, without --order (default 8)", set_jobs},
    {"quiet", 'q', NULL, "no progress bar, no summary", set_quiet},
    {NULL},
};

const struct cli_command prefetch_command = {
    .name = "prefetch",
    .synopsis = "DIR",
    .summary = "Reads a directory ahead, or declares an order of reading",
    .text = "Without --order: reads all files below DIR, in a mount of os2g, into the kernel's "
            "page cache. With it: tells the mount in which order files will be read, so that each "
            "is there when it is opened; a path may come more than once. The plan is set when the "
            "first line is printed, and lives until all is read or this command ends.",
    .options = options,
    .run = run,
};
