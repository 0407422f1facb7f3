// SPDX-License-Identifier: Apache-2.0
// libos2g in a guest, over a mount's .os2g/gdd: guest-libos2g DIRECTORY PATH START. Every call is
// checked with PATH, a synthetic object, which is left in the BAR in the end. Prints "ok", or what
// was wrong; a key below the export is a path in the mount here.
#include "guest.h"

#include <os2g/os2g.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOM  ((size_t)8 << 20)
#define BATCH 8

static const char *path;
static uint64_t start;

static void must(bool good, const char *what)
{
    if (good)
        return;
    printf("%s: %s\n", what, os2g_last_error());
    exit(1);
}

static void must_be_right(const void *data, uint64_t offset, ssize_t len, const char *what)
{
    if (len >= 0 && synthetic_check(start, offset, data, (size_t)len) == -1)
        return;
    printf("%s: %zd bytes, %s\n", what, len, len < 0 ? os2g_last_error() : "wrong ones");
    exit(1);
}

static struct os2g_buffer *alloc(struct os2g *c, enum os2g_memory memory)
{
    struct os2g_buffer *b;

    must(os2g_buffer_alloc(c, &b, ROOM, memory, 0) == 0, "os2g_buffer_alloc");
    must(os2g_buffer_memory(b) == memory && os2g_buffer_size(b) == ROOM, "the buffer");
    return b;
}

static uint64_t fetch_into(struct os2g *c, void *base, off_t at)
{
    uint64_t size = 0;

    must(os2g_fetch(c, path, base, ROOM / 2, at, &size) == 0, "os2g_fetch");
    must_be_right((char *)base + at, 0, (ssize_t)size, "os2g_fetch");
    return size;
}

static void try_errors(struct os2g *c, void *base)
{
    struct os2g_file *f;
    uint64_t size = 0;

    must(os2g_fetch(c, "none", base, ROOM, 0, &size) == -ENOENT, "an object that is not there");
    must(os2g_fetch(c, path, base, 4096, 0, &size) == -EFBIG && size > 4096, "too little room");
    must(os2g_open(c, "none", &f) == -ENOENT, "a path that is not there");
}

static void try_file(struct os2g *c, void *base)
{
    uint64_t end;
    struct os2g_file *f;

    must(os2g_open(c, path, &f) == 0, "os2g_open");
    end = os2g_file_size(f);
    must_be_right((char *)base + 100, 5000, os2g_read(f, base, 70000, 5000, 100), "os2g_read");
    must_be_right(base, end - 1000, os2g_read(f, base, 5000, (off_t)end - 1000, 0), "at the end");
    must(os2g_read(f, base, 5000, (off_t)end - 1000, 0) == 1000, "short at the end");
    os2g_file_close(f);
}

static void try_batch(struct os2g *c, void *base, size_t room)
{
    struct os2g_io io[BATCH] = {0};
    struct os2g_io_event events[BATCH];
    struct os2g_batch *b;
    int n = 0, fd;

    must(os2g_batch_new(c, &b, BATCH) == 0, "os2g_batch_new");
    fd = os2g_batch_eventfd(b);
    must(fd >= 0, "os2g_batch_eventfd");
    for (unsigned i = 0; i < BATCH; i++)
        io[i] = (struct os2g_io){.kind = OS2G_IO_FETCH,
                                 .key = path,
                                 .buffer_base = base,
                                 .size = room,
                                 .buffer_offset = (off_t)(i * room),
                                 .cookie = &io[i]};
    must(os2g_batch_submit(b, io, BATCH) == 0, "os2g_batch_submit");
    while (n < BATCH) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int got;

        must(poll(&p, 1, 30000) == 1, "the batch's descriptor");
        got = os2g_batch_status(b, 0, BATCH, events, NULL);
        must(got >= 0, "os2g_batch_status");
        for (int i = 0; i < got; i++) {
            const struct os2g_io *one = events[i].cookie;

            must_be_right((char *)base + one->buffer_offset, 0, events[i].result, "a batch");
        }
        n += got;
    }
    os2g_batch_free(b);
}

static int count(void *arg, const char *name, const struct os2g_stat *st)
{
    ++*(int *)arg;
    return 0;
}

// A child has a connection of its own, and none of the parent's leases.
static void try_child(struct os2g *c, void *bar)
{
    uint64_t size;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct os2g_buffer *b = alloc(c, OS2G_MEMORY_HOST), *own = alloc(c, OS2G_MEMORY_BAR);

        fetch_into(c, os2g_buffer_base(b), 0);
        fetch_into(c, os2g_buffer_base(own), 0);
        must(os2g_fetch(c, path, bar, ROOM, 0, &size) == -EPERM, "a parent's lease");
        os2g_buffer_free(b);
        os2g_buffer_free(own);
        os2g_close(c);
        _exit(0);
    }
    must(waitpid(pid, &status, 0) == pid && status == 0, "a child");
}

int main(int argc, char **argv)
{
    struct os2g_stats stats = {.size = sizeof(stats)};
    struct os2g_buffer *bar, *host;
    struct os2g *c;
    void *plain = malloc(ROOM);
    int names = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 4 || !plain)
        return 2;
    path = argv[2];
    start = strtoull(argv[3], NULL, 0);
    must(os2g_connect(&c, argv[1], NULL) == 0, "os2g_connect");
    bar = alloc(c, OS2G_MEMORY_BAR);
    host = alloc(c, OS2G_MEMORY_HOST);
    must(os2g_list(c, "", count, &names) == 0 && names > 0, "os2g_list");
    void *const places[] = {os2g_buffer_base(host), plain, os2g_buffer_base(bar)};
    for (int i = 0; i < 3; i++) {
        fetch_into(c, places[i], 12345);
        try_file(c, places[i]);
        try_errors(c, places[i]);
        try_batch(c, places[i], ROOM / BATCH);
    }
    try_child(c, os2g_buffer_base(bar));
    fetch_into(c, os2g_buffer_base(bar), 0); // what the test looks for
    must(os2g_stats_read(c, &stats) == 0 && !strcmp(stats.way, "guest BAR"), "os2g_stats_read");
    printf("ok\n");
    os2g_buffer_free(bar);
    os2g_buffer_free(host);
    os2g_close(c);
    free(plain);
    return 0;
}
