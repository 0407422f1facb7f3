// SPDX-License-Identifier: Apache-2.0
// os2g cp: objects to files, many and in parts at a time. A file gets its name only when it is
// complete, so that what is there is whole. Devices such as /dev/null are written to, not replaced.
#include "cli/commands.h"

#include "base/text.h"
#include "cli/fetch.h"
#include "cli/progress.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHER_FILES 24 // of the process, beside targets and connections

struct target {
    char *path;      // final name
    char *temporary; // a name while it has not got that; NULL: none
    bool in_place;   // path itself is written to
    int fd;
    int64_t mtime_s;
    struct fetch_object *object;
};

struct cp {
    struct fetch_object *objects;
    struct target *targets;
    size_t n, size;
    size_t skip_len; // of the keys, cut off for the names below directory
    const char *directory;
    bool recursive, quiet, no_clobber;
    bool full; // there is no room for more
    uint64_t jobs;
    uint64_t copied, skipped, failed, bytes;
    struct progress progress;
};

static void complain(const char *name, const char *text)
{
    cli_fail(&cp_command, NULL, "%s: %s", name, text);
}

// --- what is to be copied ---

static void add(struct cp *cp, const char *key, const char *path, const char *etag, uint64_t size,
                int64_t mtime_s)
{
    if (cp->n == cp->size) {
        cp->size = cp->size ? 2 * cp->size : 256;
        cp->objects = xrealloc(cp->objects, cp->size * sizeof(*cp->objects));
        cp->targets = xrealloc(cp->targets, cp->size * sizeof(*cp->targets));
    }
    cp->objects[cp->n] =
        (struct fetch_object){.key = xstrdup(key), .etag = xstrdup(etag), .size = size};
    cp->targets[cp->n] = (struct target){.path = xstrdup(path), .fd = -1, .mtime_s = mtime_s};
    cp->bytes += size;
    cp->n++;
}

static int add_listed(void *arg, const struct s3_list_entry *e)
{
    struct cp *cp = arg;
    const char *name = e->key + MIN(cp->skip_len, e->key_len);
    char *path;

    if (!*name || text_ends_with(name, "/"))
        return 0; // the marker of a directory
    if (!session_is_path(name)) {
        complain(e->key, "skipped: this key can't be a file's name (see os2g cat)");
        cp->skipped++;
        return 0;
    }
    path = xasprintf("%s/%s", cp->directory, name);
    add(cp, e->key, path, e->info.etag, e->info.size, e->info.mtime_s);
    free(path);
    return 0;
}

struct single {
    struct cp *cp;
    const char *key, *path;
};

static void add_single(void *arg, const struct s3_object_info *info)
{
    struct single *s = arg;

    add(s->cp, s->key, s->path, info->etag, info->size, info->mtime_s);
}

// --- writing them ---

static int make_parents(const char *path)
{
    char *copy = xstrdup(path);
    int rc = 0;

    for (char *p = copy + 1; rc == 0 && (p = strchr(p, '/')); p++) {
        *p = 0;
        if (mkdir(copy, 0777) < 0 && errno != EEXIST)
            rc = -errno;
        *p = '/';
    }
    free(copy);
    return rc;
}

// A link's own name would be taken by the copy: what it points to is meant.
static void follow_link(struct target *t)
{
    struct stat st;
    char *real = lstat(t->path, &st) == 0 && S_ISLNK(st.st_mode) ? realpath(t->path, NULL) : NULL;

    if (!real)
        return;
    free(t->path);
    t->path = real;
}

// Parts arrive in any order.
static int open_device(struct target *t, const struct stat *st)
{
    if (S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode))
        return -ESPIPE;
    t->in_place = true;
    t->fd = open(t->path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return t->fd < 0 ? -errno : 0;
}

static void set_temporary(struct target *t, const struct cp *cp)
{
    const char *slash = strrchr(t->path, '/');

    t->temporary = xasprintf("%.*s.os2g-%d-%zu", slash ? (int)(slash + 1 - t->path) : 0, t->path,
                             getpid(), (size_t)(t - cp->targets));
}

// A file without a name is gone with us, however we end. Not every file system has them.
static int open_file(struct target *t, const struct cp *cp)
{
    const char *slash = strrchr(t->path, '/');
    char *directory = slash ? xasprintf("%.*s", (int)(slash + 1 - t->path), t->path) : xstrdup(".");

    if (access("/proc/self/fd", X_OK) == 0)
        t->fd = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    free(directory);
    if (t->fd >= 0)
        return 0;
    set_temporary(t, cp);
    t->fd = open(t->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return t->fd < 0 ? -errno : 0;
}

static int open_target(void *arg, struct fetch_object *o)
{
    struct cp *cp = arg;
    struct target *t = o->user;
    struct stat st;
    int rc;

    if (cp->full)
        return -ENOSPC;
    rc = make_parents(t->path);
    if (rc < 0)
        return rc;
    if (cp->no_clobber && access(t->path, F_OK) == 0)
        return -EEXIST;
    if (stat(t->path, &st) == 0 && !S_ISREG(st.st_mode))
        return open_device(t, &st);
    follow_link(t);
    rc = open_file(t, cp);
    if (rc < 0)
        return rc;
    // space now rather than ENOSPC at the end; not every file system can
    if (o->size && posix_fallocate(t->fd, 0, (off_t)o->size) == ENOSPC)
        return -ENOSPC;
    return 0;
}

static int write_target(void *arg, struct fetch_object *o, uint64_t offset, const void *data,
                        size_t len)
{
    struct target *t = o->user;
    const char *p = data;

    while (len) {
        ssize_t n = pwrite(t->fd, p, len, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static int give_name(struct target *t, const struct cp *cp)
{
    char from[32];

    snprintf(from, sizeof(from), "/proc/self/fd/%d", t->fd);
    if (linkat(AT_FDCWD, from, AT_FDCWD, t->path, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    set_temporary(t, cp);
    return linkat(AT_FDCWD, from, AT_FDCWD, t->temporary, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int finish_target(struct target *t, const struct cp *cp)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)t->mtime_s}};
    int rc = 0;

    if (!t->in_place && futimens(t->fd, times) < 0)
        rc = -errno;
    if (rc == 0 && !t->in_place && !t->temporary)
        rc = give_name(t, cp);
    // a network file system tells of a failed write here at the latest
    if (close(t->fd) < 0)
        rc = -errno;
    t->fd = -1;
    if (rc == 0 && t->temporary && rename(t->temporary, t->path) < 0)
        rc = -errno;
    return rc;
}

// A full disk is told once: all that follows would say the same.
static void complain_of_object(struct cp *cp, const struct fetch_object *o, int error,
                               const char *text)
{
    bool full = error == -ENOSPC || error == -EDQUOT;

    if (full && cp->full)
        return;
    cp->full = cp->full || full;
    progress_finish(&cp->progress);
    complain(o->key, *text              ? text
                     : error == -ESPIPE ? "to a pipe: use os2g cat"
                                        : strerror(-error));
}

static void end_target(void *arg, struct fetch_object *o, int error, const char *text)
{
    struct cp *cp = arg;
    struct target *t = o->user;

    if (!error)
        error = finish_target(t, cp);
    if (error == -EEXIST && cp->no_clobber) {
        cp->skipped++;
    } else if (error) {
        cp->failed++;
        complain_of_object(cp, o, error, text);
    } else {
        cp->copied++;
    }
    if (t->fd >= 0)
        close(t->fd);
    if (error && t->temporary)
        unlink(t->temporary);
    free(t->temporary);
    t->temporary = NULL;
    progress_update(&cp->progress, cp->progress.bytes, cp->copied);
}

static void on_progress(void *arg, uint64_t bytes)
{
    struct cp *cp = arg;

    progress_update(&cp->progress, cp->progress.bytes + bytes, cp->copied);
}

// No more at a time than there may be files and connections open.
static unsigned parallel(uint64_t jobs)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return (unsigned)jobs;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < OTHER_FILES + 2)
        return 1;
    return (unsigned)MIN(jobs, (files.rlim_cur - OTHER_FILES) / 2);
}

static int copy(struct cp *cp, struct session *s)
{
    struct fetch_config config = {.parallel = parallel(cp->jobs),
                                  .open = open_target,
                                  .write = write_target,
                                  .end = end_target,
                                  .progress = on_progress,
                                  .arg = cp};
    int rc;

    for (size_t i = 0; i < cp->n; i++)
        cp->objects[i].user = &cp->targets[i];
    progress_init(&cp->progress, "copying", cp->bytes, cp->n, cp->quiet);
    rc = fetch_run(s, &config, cp->objects, cp->n);
    progress_finish(&cp->progress);
    if (!cp->quiet)
        printf("%lu copied, %lu skipped, %lu failed\n", cp->copied, cp->skipped, cp->failed);
    return rc == -EEXIST && !cp->failed ? 0 : rc;
}

// --- the command ---

static int set_recursive(void *target, const char *value, char **ret_error)
{
    ((struct cp *)target)->recursive = true;
    return 0;
}

static int set_jobs(void *target, const char *value, char **ret_error)
{
    struct cp *cp = target;

    if (text_parse_u64(value, &cp->jobs) == 0 && cp->jobs > 0 && cp->jobs <= 1024)
        return 0;
    *ret_error = xstrdup("--jobs takes a number from 1 to 1024");
    return -EINVAL;
}

static int set_no_clobber(void *target, const char *value, char **ret_error)
{
    ((struct cp *)target)->no_clobber = true;
    return 0;
}

static int set_quiet(void *target, const char *value, char **ret_error)
{
    ((struct cp *)target)->quiet = true;
    return 0;
}

static int collect(struct cp *cp, struct session *s, const char *key, const char *to, char *text)
{
    const char *slash = strrchr(key, '/');
    struct single single = {.cp = cp, .key = key};
    struct stat st;
    bool to_directory = text_ends_with(to, "/") || (stat(to, &st) == 0 && S_ISDIR(st.st_mode));
    char *path, *prefix;
    int rc;

    if (cp->recursive) {
        // "s3://b/dir" and "s3://b/dir/" both mean what is below dir/
        prefix = xasprintf("%s%s", key, *key && !text_ends_with(key, "/") ? "/" : "");
        cp->skip_len = strlen(prefix);
        cp->directory = to;
        rc = session_list(s, prefix, 0, add_listed, cp, text);
        free(prefix);
        return rc;
    }
    path = to_directory ? xasprintf("%s/%s", to, slash ? slash + 1 : key) : xstrdup(to);
    single.path = path;
    rc = session_head(s, key, add_single, &single, text);
    free(path);
    return rc;
}

static void cp_fini(struct cp *cp)
{
    for (size_t i = 0; i < cp->n; i++) {
        free(cp->objects[i].key);
        free(cp->objects[i].etag);
        free(cp->targets[i].path);
    }
    free(cp->objects);
    free(cp->targets);
}

// What cannot be copied; NULL: nothing is wrong with it.
static const char *why_not(const struct cp *cp, const char *from, const char *to)
{
    const char *key = text_starts_with(from, "s3://") ? strchr(from + 5, '/') : NULL;

    if (!strcmp(to, "-"))
        return "to standard output: use os2g cat";
    if (text_starts_with(to, "s3://"))
        return "cp only copies out of a bucket, to a file or directory";
    if (!cp->recursive && text_starts_with(from, "s3://") && (!key || text_ends_with(key, "/")))
        return "this is a directory: add --recursive, or name one object";
    return NULL;
}

static int copy_from(struct cp *cp, struct export_options *o, const char *from, const char *to)
{
    char text[S3_ERROR_TEXT], *key;
    const char *why = why_not(cp, from, to);
    struct session session;
    int rc;

    if (why) {
        session_fail(&cp_command, why, -EINVAL);
        return -EINVAL;
    }
    rc = session_begin(&session, &cp_command, o, from, SESSION_SHARED, &key);
    if (rc < 0)
        return rc;
    rc = collect(cp, &session, key, to, text);
    if (rc < 0)
        session_fail(&cp_command, text, rc);
    else
        rc = copy(cp, &session);
    session_close(&session);
    free(key);
    return rc;
}

static int run(int argc, char **argv)
{
    struct export_options export;
    struct cli_arguments words;
    struct cp cp = {.jobs = 64};
    int rc;

    export_options_init(&export);
    cli_parse(&cp_command, argc, argv, &cp, &export, &words);
    if (words.n != 2) {
        cli_fail(&cp_command, "See: os2g cp --help", "name what to copy and where to");
        rc = EXIT_USAGE;
    } else {
        rc = copy_from(&cp, &export, words.words[0], words.words[1]) < 0 || cp.failed ? 1 : 0;
    }
    cp_fini(&cp);
    free(words.words);
    export_options_fini(&export);
    return rc;
}

static const struct cli_option options[] = {
    {"recursive", 'r', NULL, "everything below the prefix", set_recursive},
    {"jobs", 'j', "N", "objects or parts of 8 MiB at a time (default 64)", set_jobs},
    {"no-clobber", 'n', NULL, "leave files that exist", set_no_clobber},
    {"quiet", 'q', NULL, "no progress bar, no summary", set_quiet},
    {NULL},
};

const struct cli_command cp_command = {
    .name = "cp",
    .synopsis = "s3://BUCKET/KEY FILE|DIR",
    .summary = "Copies objects out of a bucket",
    .text = "With --recursive: s3://BUCKET[/PREFIX] DIR. A file gets its name only when it is "
            "complete.",
    .options = options,
    .export_groups = SESSION_EXPORT_GROUPS,
    .run = run,
};
