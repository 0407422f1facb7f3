// SPDX-License-Identifier: Apache-2.0
// gpu_reader WHERE pull|open|ipc|any SIZE: reads into SIZE bytes of a GPU's memory, as told on its
// standard input, a line a command, and answers each with a line:
//
//   read PATH OFFSET LENGTH          the bytes' SHA-256 and their number
//   fetch KEY                        the same
//   stream PATH OFFSET LENGTH        the same, read in the order of a stream
//   batch LENGTH PATH...             the same for each path, side by side in the memory
//   stats                            cuda_bytes, reconnects
//
// or "error ERRNO TEXT". Events of the connection go to standard error.
#include "cuda/cuda.h"

#include <openssl/sha.h>
#include <os2g/os2g.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 64

static const struct cuda_driver *d;
static struct os2g *c;
static uint8_t *gpu; // device memory

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "gpu_reader: %s: %s\n", what, why);
    exit(1);
}

static void check(CUresult r, const char *what)
{
    if (r != CUDA_SUCCESS)
        die(what, cuda_error(d, r));
}

static void on_event(void *arg, enum os2g_event event, const char *text)
{
    static const char *const names[] = {"lost", "reconnected", "fallback"};

    fprintf(stderr, "event %s: %s\n", names[event], text ? text : "");
}

static void say_error(int64_t rc)
{
    printf("error %d %s", (int)-rc, os2g_last_error());
}

// What n bytes at offset of the memory are, or the error that n is.
static void say_bytes(uint64_t offset, int64_t n)
{
    uint8_t digest[SHA256_DIGEST_LENGTH], *back;

    if (n < 0) {
        say_error(n);
        return;
    }
    back = malloc((size_t)n + 1);
    if (!back)
        die("a copy", "no memory");
    if (n)
        check(d->cuMemcpyDtoH(back, (CUdeviceptr)(uintptr_t)gpu + offset, (size_t)n), "copying");
    SHA256(back, (size_t)n, digest);
    free(back);
    for (size_t i = 0; i < sizeof(digest); i++)
        printf("%02x", digest[i]);
    printf(" %lld", (long long)n);
}

static void do_read(const char *path, uint64_t offset, uint64_t len)
{
    struct os2g_file *f;
    int64_t n = os2g_open(c, path, &f);

    if (n == 0) {
        n = os2g_read(f, gpu, len, (off_t)offset, 0);
        os2g_file_close(f);
    }
    say_bytes(0, n);
}

static void do_fetch(const char *key, uint64_t room)
{
    uint64_t size = 0;
    int64_t rc = os2g_fetch(c, key, gpu, room, 0, &size);

    say_bytes(0, rc < 0 ? rc : (int64_t)size);
}

struct ordered {
    size_t len;
    off_t file_offset, buffer_offset;
    ssize_t n, seen;
};

static void note(void *arg)
{
    struct ordered *o = arg;

    o->seen = o->n; // what follows on the stream finds the result
}

static void do_stream(const char *path, uint64_t offset, uint64_t len)
{
    struct ordered o = {.len = len, .file_offset = (off_t)offset, .seen = -1};
    struct os2g_file *f;
    CUstream stream;
    int rc = os2g_open(c, path, &f);

    if (rc < 0) {
        say_error(rc);
        return;
    }
    check(d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream");
    rc = os2g_read_async(f, gpu, &o.len, &o.file_offset, &o.buffer_offset, &o.n, stream);
    check(d->cuLaunchHostFunc(stream, note, &o), "a host function");
    check(d->cuStreamSynchronize(stream), "a stream");
    check(d->cuStreamDestroy(stream), "a stream");
    os2g_file_close(f);
    say_bytes(0, rc < 0 ? rc : o.seen);
}

static void do_batch(uint64_t len, char **paths, unsigned n)
{
    struct os2g_io io[WORDS_MAX] = {0};
    struct os2g_io_event events[WORDS_MAX];
    int64_t results[WORDS_MAX];
    struct os2g_batch *b;
    int got = 0, rc = os2g_batch_new(c, &b, n);

    if (rc < 0) {
        say_error(rc);
        return;
    }
    for (unsigned i = 0; i < n; i++)
        io[i] = (struct os2g_io){.kind = OS2G_IO_FETCH,
                                 .key = paths[i],
                                 .buffer_base = gpu,
                                 .size = len,
                                 .buffer_offset = (off_t)(i * len),
                                 .cookie = &results[i]};
    rc = os2g_batch_submit(b, io, n);
    if (rc == 0)
        got = os2g_batch_status(b, n, n, events, NULL);
    for (int i = 0; i < got; i++)
        *(int64_t *)events[i].cookie = events[i].result;
    os2g_batch_free(b);
    if (rc < 0 || got != (int)n)
        say_error(rc < 0 ? rc : got);
    for (unsigned i = 0; rc == 0 && got == (int)n && i < n; i++) {
        say_bytes(i * len, results[i]);
        printf(i + 1 < n ? " " : "");
    }
}

static void do_stats(void)
{
    struct os2g_stats s = {.size = sizeof(s)};

    os2g_stats_read(c, &s);
    printf("%llu %llu", (unsigned long long)s.cuda_bytes, (unsigned long long)s.reconnects);
}

static void carry_out(char *line, uint64_t room)
{
    char *words[WORDS_MAX], *save = NULL;
    unsigned n = 0;

    for (char *w = strtok_r(line, " \n", &save); w && n < WORDS_MAX;
         w = strtok_r(NULL, " \n", &save))
        words[n++] = w;
    if (n == 4 && !strcmp(words[0], "read"))
        do_read(words[1], strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10));
    else if (n == 4 && !strcmp(words[0], "stream"))
        do_stream(words[1], strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10));
    else if (n == 2 && !strcmp(words[0], "fetch"))
        do_fetch(words[1], room);
    else if (n > 2 && !strcmp(words[0], "batch"))
        do_batch(strtoull(words[1], NULL, 10), words + 2, n - 2);
    else if (n == 1 && !strcmp(words[0], "stats"))
        do_stats();
    else
        die("a command", "it makes no sense");
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct os2g_options o = {.size = sizeof(o), .no_start = true, .event = on_event};
    uint64_t room = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    const char *why = "";
    struct os2g_buffer *b;
    CUcontext context;
    CUdeviceptr p = 0;
    char line[8192];
    int rc;

    if (!room)
        die("usage", "gpu_reader WHERE pull|open|ipc|any SIZE");
    d = cuda_driver_get(&why);
    if (!d)
        die("the GPU", why);
    check(d->cuDevicePrimaryCtxRetain(&context, 0), "the GPU");
    check(d->cuCtxSetCurrent(context), "the GPU");
    if (!strcmp(argv[2], "any"))
        unsetenv("OS2G_CUDA");
    else
        setenv("OS2G_CUDA", strcmp(argv[2], "pull") ? "open" : "pull", 1);
    rc = os2g_connect(&c, argv[1], &o);
    if (rc == 0 && !strcmp(argv[2], "ipc")) {
        check(d->cuMemAlloc(&p, room + 4096), "memory"); // not at the allocation's beginning
        rc = os2g_buffer_register_cuda(c, &b, (void *)(uintptr_t)(p + 4096), room);
    } else if (rc == 0) {
        rc = os2g_buffer_alloc(c, &b, room, OS2G_MEMORY_CUDA, 0);
    }
    if (rc < 0)
        die(argv[1], os2g_last_error());
    gpu = os2g_buffer_base(b);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin))
        carry_out(line, room);
    os2g_buffer_free(b);
    os2g_close(c);
    if (p)
        check(d->cuMemFree(p), "memory");
    check(d->cuDevicePrimaryCtxRelease(0), "the GPU");
    return 0;
}
