// SPDX-License-Identifier: Apache-2.0
// Commands that mount, walk and read.
#include "guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// mount TAG DIRECTORY
static int run_mount(const struct command *c)
{
    mkdir(word(c, 2), 0755);
    return mount(word(c, 1), word(c, 2), "virtiofs", 0, NULL) < 0 ? -errno : 0;
}

// umount DIRECTORY
static int run_umount(const struct command *c)
{
    return umount(word(c, 1)) < 0 ? -errno : 0;
}

// become UID GID [GROUP]: from now on
static int run_become(const struct command *c)
{
    gid_t group = (gid_t)word_number(c, 3), gid = (gid_t)word_number(c, 2);
    uid_t uid = (uid_t)word_number(c, 1);

    if (setgroups(c->argc > 3 ? 1 : 0, &group) < 0 || setresgid(gid, gid, gid) < 0 ||
        setresuid(uid, uid, uid) < 0)
        return -errno;
    return 0;
}

// open PATH: what open(2) says
static int run_open(const struct command *c)
{
    int fd = open(word(c, 1), O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

// stat PATH
static int run_stat(const struct command *c)
{
    struct stat st;

    if (stat(word(c, 1), &st) < 0)
        return -errno;
    say_number("size", st.st_size);
    say_number("mode", st.st_mode);
    say_number("uid", st.st_uid);
    say_number("gid", st.st_gid);
    return 0;
}

// write PATH TEXT: to a file of /proc or /sys
static int run_write(const struct command *c)
{
    const char *text = word(c, 2);
    int fd = open(word(c, 1), O_WRONLY | O_CLOEXEC), rc = 0;

    if (fd < 0)
        return -errno;
    if (write(fd, text, strlen(text)) < 0)
        rc = -errno;
    close(fd);
    return rc;
}

// exec PROGRAM WORD ...: what it prints, and how it ends
static int run_exec(const struct command *c)
{
    static char output[16384];
    size_t len = 0;
    ssize_t n;
    int ends[2], status;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        execv(c->argv[1], c->argv + 1);
        _exit(127);
    }
    close(ends[1]);
    while (len < sizeof(output) - 1 &&
           (n = read(ends[0], output + len, sizeof(output) - 1 - len)) > 0)
        len += (size_t)n;
    close(ends[0]);
    output[len] = 0;
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -errno;
    say_text("output", output);
    say_number("status", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}

// --- walking ---

struct walk {
    const struct command *c;
    int (*file)(struct walk *w, const char *path, const struct stat *st);
    uint64_t files, directories, bytes;
    const char *mode;
    size_t block;
};

static int walk(struct walk *w, const char *path)
{
    struct dirent **names;
    struct stat st;
    int rc = 0, n;

    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode)) {
        w->files++;
        w->bytes += (uint64_t)st.st_size;
        return w->file(w, path, &st);
    }
    w->directories++;
    n = scandir(path, &names, NULL, alphasort);
    if (n < 0)
        return -errno;
    for (int i = 0; i < n; i++) {
        char below[4096];

        snprintf(below, sizeof(below), "%s/%s", path, names[i]->d_name);
        if (rc == 0 && strcmp(names[i]->d_name, ".") != 0 && strcmp(names[i]->d_name, "..") != 0)
            rc = walk(w, below);
        free(names[i]);
    }
    free(names);
    return rc;
}

static int walk_and_tell(const struct command *c, struct walk *w)
{
    int rc = walk(w, word(c, 1));

    say_begin(c);
    say_number("files", (int64_t)w->files);
    say_number("directories", (int64_t)w->directories);
    say_number("bytes", (int64_t)w->bytes);
    return rc;
}

static int tell_file(struct walk *w, const char *path, const struct stat *st)
{
    say_begin(w->c);
    say_text("path", path);
    say_number("size", st->st_size);
    say_end();
    return 0;
}

// walk PATH: a line for each file
static int run_walk(const struct command *c)
{
    struct walk w = {.c = c, .file = tell_file};

    return walk_and_tell(c, &w);
}

// --- reading: "buffered", "direct" (O_DIRECT), "mmap" ---

struct source {
    int fd;
    size_t size, block;
    void *map, *buffer;
};

static void source_close(struct source *s)
{
    if (s->map)
        munmap(s->map, s->size);
    free(s->buffer);
    if (s->fd >= 0)
        close(s->fd);
}

static int source_open(struct source *s, const char *path, const char *mode, size_t block)
{
    bool direct = !strcmp(mode, "direct");
    struct stat st;

    *s = (struct source){.fd = open(path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0))};
    if (s->fd < 0 || fstat(s->fd, &st) < 0)
        return -errno;
    s->size = (size_t)st.st_size;
    s->block = block;
    if (!strcmp(mode, "mmap") && s->size) {
        s->map = mmap(NULL, s->size, PROT_READ, MAP_SHARED, s->fd, 0);
        if (s->map == MAP_FAILED) {
            s->map = NULL;
            return -errno;
        }
    }
    return posix_memalign(&s->buffer, 4096, block) ? -ENOMEM : 0;
}

// The next block at offset: its length, 0 at the end, or -errno.
static ssize_t source_read(struct source *s, size_t offset, const void **ret)
{
    ssize_t n;

    if (s->map) {
        *ret = (const char *)s->map + offset;
        return (ssize_t)(s->size - offset < s->block ? s->size - offset : s->block);
    }
    n = pread(s->fd, s->buffer, s->block, (off_t)offset);
    *ret = s->buffer;
    return n < 0 ? -errno : n;
}

static int hash_file(struct walk *w, const char *path, const struct stat *st)
{
    struct sha256 sha;
    struct source s;
    char hex[65];
    int rc = source_open(&s, path, w->mode, w->block);

    sha256_init(&sha);
    for (size_t at = 0; rc == 0;) {
        const void *data;
        ssize_t n = source_read(&s, at, &data);

        if (n <= 0) {
            rc = (int)n;
            break;
        }
        sha256_add(&sha, data, (size_t)n);
        at += (size_t)n;
    }
    source_close(&s);
    sha256_hex(&sha, hex);
    say_begin(w->c);
    say_text("path", path);
    say_number("size", st->st_size);
    say_text("sha256", rc ? strerror(-rc) : hex);
    say_end();
    return rc;
}

// hash PATH MODE BLOCK: a line for each file
static int run_hash(const struct command *c)
{
    struct walk w = {.c = c, .file = hash_file, .mode = word(c, 2), .block = word_number(c, 3)};

    return walk_and_tell(c, &w);
}

struct reading {
    uint64_t bytes, files, worst_ns;
    char wrong[200];
};

// Reads all of a synthetic file and compares; what is wrong stands in r->wrong then.
static void check_file(struct reading *r, const char *path, const char *mode, size_t block,
                       uint64_t start)
{
    uint64_t before = now_ns(), took;
    struct source s;
    ssize_t n = source_open(&s, path, mode, block);
    size_t at = 0;

    while (n == 0 && at < s.size) {
        const void *data;
        int64_t wrong;
        ssize_t got = source_read(&s, at, &data);

        n = got < 0 ? got : 0;
        if (got == 0)
            snprintf(r->wrong, sizeof(r->wrong), "%.100s ends at %zu", path, at);
        if (got <= 0)
            break;
        took = now_ns() - before;
        if (!s.map && took > r->worst_ns)
            r->worst_ns = took;
        wrong = synthetic_check(start, at, data, (size_t)got);
        if (wrong >= 0) {
            snprintf(r->wrong, sizeof(r->wrong), "%.100s by %s: byte %llu", path, mode,
                     (unsigned long long)at + (unsigned long long)wrong);
            break;
        }
        at += (size_t)got;
        before = now_ns();
    }
    if (n < 0)
        snprintf(r->wrong, sizeof(r->wrong), "%.100s by %s: %s", path, mode, strerror((int)-n));
    r->bytes += at;
    r->files++;
    source_close(&s);
}

// load BLOCK DROP PATH START [PATH START ...]: reads them over and over in all modes, until it is
// stopped or a byte is wrong. DROP: lets the kernel forget its pages between rounds.
static int run_load(const struct command *c)
{
    static const char *const modes[] = {"buffered", "direct", "mmap"};
    struct reading r = {0};
    uint64_t rounds = 0;

    synthetic_check(0, 0, "", 0); // makes the table
    while (!guest_stop && !r.wrong[0]) {
        for (int i = 3; i + 1 < c->argc && !guest_stop && !r.wrong[0]; i += 2)
            check_file(&r, word(c, i), modes[(rounds + (uint64_t)i / 2) % 3], word_number(c, 1),
                       word_number(c, i + 1));
        rounds++;
        if (word_number(c, 2)) {
            FILE *f = fopen("/proc/sys/vm/drop_caches", "w");

            if (f && (fputs("1\n", f), fclose(f)) < 0)
                return -errno;
        }
    }
    say_begin(c);
    say_number("rounds", (int64_t)rounds);
    say_number("files", (int64_t)r.files);
    say_number("bytes", (int64_t)r.bytes);
    say_number("worst_ms", (int64_t)(r.worst_ns / 1000000));
    say_text("wrong", r.wrong);
    return 0;
}

// read PATH MODE BLOCK BYTES: front to back, again and again until so many bytes were read
static int run_read(const struct command *c)
{
    uint64_t total = word_number(c, 4), done = 0, before;
    struct source s;
    ssize_t n = source_open(&s, word(c, 1), word(c, 2), word_number(c, 3));
    size_t at = 0;

    before = now_ns();
    while (n == 0 && done < total) {
        const void *data;
        ssize_t got = source_read(&s, at, &data);

        if (got < 0)
            n = got;
        if (got == 0 && at == 0)
            break;
        at = got == 0 ? 0 : at + (size_t)got;
        done += got > 0 ? (uint64_t)got : 0;
    }
    say_number("ns", (int64_t)(now_ns() - before));
    say_number("bytes", (int64_t)done);
    source_close(&s);
    return (int)n;
}

const struct command_kind file_commands[] = {
    {"mount", run_mount}, {"umount", run_umount}, {"become", run_become}, {"open", run_open},
    {"stat", run_stat},   {"write", run_write},   {"walk", run_walk},     {"hash", run_hash},
    {"exec", run_exec},   {"load", run_load},     {"read", run_read},     {NULL},
};
