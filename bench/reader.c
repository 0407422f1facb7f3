// SPDX-License-Identifier: Apache-2.0
// reader: the programs on the host side of the benchmarks. Reads files as a training job would,
// with plain system calls, into pre-faulted memory.
//
//   reader seq FILE [--block 1M]               the whole file, front to back
//   reader rand FILE --ops N --threads 8 [--min 4K] [--max 256K] [--seed 1]
//                                              pread() of random lengths at random, unaligned
//                                              places
//   reader files DIR LIST [--threads 8]        open, read whole, close: each line of LIST, in order
//   reader streams DIR LIST [--block 256K]     one thread for each line of LIST, all at once
//
// Prints one line of JSON: seconds, bytes, files, errors, cpu_s (its own).
#include "base/base.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/text.h"
#include "lines.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct job {
    const char *mode, *dir;
    char **names;
    size_t n_names;
    uint64_t ops, threads, min, max, seed, block;
    int fd; // rand: the file
    uint64_t size;
    atomic_size_t next;
    atomic_uint_fast64_t bytes, files, errors;
};

struct worker {
    struct job *job;
    unsigned number;
    pthread_t thread;
    char *buffer;
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "reader: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void note_error(struct job *j, const char *what)
{
    if (atomic_fetch_add(&j->errors, 1) < 5)
        fprintf(stderr, "reader: %s: %s\n", what, strerror(errno));
}

static void read_whole(struct job *j, const char *name, char *buffer, uint64_t block)
{
    char *path = j->dir ? xasprintf("%s/%s", j->dir, name) : xstrdup(name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;

    if (fd >= 0) {
        while ((n = read(fd, buffer, block)) > 0)
            atomic_fetch_add_explicit(&j->bytes, (uint64_t)n, memory_order_relaxed);
        close(fd);
    }
    if (n < 0)
        note_error(j, path);
    else
        atomic_fetch_add(&j->files, 1);
    free(path);
}

static void read_random(struct job *j, struct worker *w)
{
    struct rand r;

    rand_seed(&r, j->seed * 1000 + w->number);
    while (atomic_fetch_add(&j->next, 1) < j->ops) {
        uint64_t len = j->min + rand_below(&r, j->max - j->min + 1);
        uint64_t offset = rand_below(&r, j->size - len + 1);
        ssize_t n = pread(j->fd, w->buffer, len, (off_t)offset);

        if (n != (ssize_t)len)
            note_error(j, "pread");
        else
            atomic_fetch_add_explicit(&j->bytes, len, memory_order_relaxed);
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct job *j = w->job;
    size_t i;

    if (!strcmp(j->mode, "rand"))
        read_random(j, w);
    else if (!strcmp(j->mode, "streams"))
        read_whole(j, j->names[w->number], w->buffer, j->block);
    else
        while ((i = atomic_fetch_add(&j->next, 1)) < j->n_names)
            read_whole(j, j->names[i], w->buffer, j->block);
    return NULL;
}

static void take_option(struct job *j, const char *name, const char *value)
{
    const struct {
        const char *name;
        uint64_t *value;
    } options[] = {{"--ops", &j->ops}, {"--threads", &j->threads}, {"--min", &j->min},
                   {"--max", &j->max}, {"--seed", &j->seed},       {"--block", &j->block}};

    errno = EINVAL;
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        if (!strcmp(name, options[i].name)) {
            if (!value || text_parse_size(value, options[i].value) < 0)
                die(name);
            return;
        }
    }
    die(name);
}

static void prepare(struct job *j, int argc, char **argv)
{
    bool lists = !strcmp(j->mode, "files") || !strcmp(j->mode, "streams");
    int positional = lists ? 4 : 3;

    errno = EINVAL;
    if (argc < positional)
        die("usage: reader seq FILE | rand FILE | files DIR LIST | streams DIR LIST [options]");
    for (int i = positional; i < argc; i += 2)
        take_option(j, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    if (lists) {
        j->dir = argv[2];
        j->names = lines_read(argv[3], &j->n_names);
    } else if (!strcmp(j->mode, "seq")) {
        j->names = &argv[2];
        j->n_names = 1;
        j->threads = 1;
    } else if (!strcmp(j->mode, "rand")) {
        struct stat st;

        j->fd = open(argv[2], O_RDONLY | O_CLOEXEC);
        if (j->fd < 0 || fstat(j->fd, &st) < 0)
            die(argv[2]);
        j->size = (uint64_t)st.st_size;
        if (j->size < j->max || j->min > j->max)
            die("the file is smaller than --max");
        j->block = j->max;
    } else {
        die(j->mode);
    }
    if (!strcmp(j->mode, "streams"))
        j->threads = j->n_names;
}

int main(int argc, char **argv)
{
    struct job j = {.mode = argc > 1 ? argv[1] : "",
                    .threads = 8,
                    .min = 4 * KIB,
                    .max = 256 * KIB,
                    .seed = 1,
                    .block = MIB};
    struct worker *workers;
    struct rusage u;
    uint64_t start;
    double seconds;

    prepare(&j, argc, argv);
    workers = xcalloc(j.threads, sizeof(*workers));
    for (unsigned i = 0; i < j.threads; i++) {
        workers[i].job = &j;
        workers[i].number = i;
        workers[i].buffer = mmap(NULL, j.block, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (workers[i].buffer == MAP_FAILED)
            die("mmap");
    }
    start = clock_monotonic_ns();
    for (unsigned i = 0; i < j.threads; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            die("pthread_create");
    for (unsigned i = 0; i < j.threads; i++)
        pthread_join(workers[i].thread, NULL);
    seconds = (double)(clock_monotonic_ns() - start) / 1e9;
    getrusage(RUSAGE_SELF, &u);
    printf("{\"seconds\": %.6f, \"bytes\": %lu, \"files\": %lu, \"errors\": %lu, "
           "\"cpu_s\": %.6f}\n",
           seconds, atomic_load(&j.bytes), atomic_load(&j.files), atomic_load(&j.errors),
           (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6);
    free(workers);
    return j.errors ? 1 : 0;
}
