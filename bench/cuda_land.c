// SPDX-License-Identifier: Apache-2.0
// cuda_land: reads an object into a GPU's memory with libos2g, again and again.
//
//   cuda_land WHERE PATH WAY [ROUNDS]
//
// WHERE: as for os2g_connect. WAY: pull (a pinned ring, copied from by this process), open (memory
// of cuMemCreate that the daemon opens) or ipc (memory of cuMemAlloc, likewise).
// Prints one line of JSON: gibps (of the best round), bytes, sha256 (of what lies in the GPU's
// memory after the last round), host_cpu_s (of this process, a round).
#include "base/clock.h"
#include "cuda/cuda.h"

#include <openssl/sha.h>
#include <os2g/os2g.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const struct cuda_driver *d;

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "cuda_land: %s: %s\n", what, why);
    exit(1);
}

static void check(CUresult r, const char *what)
{
    if (r != CUDA_SUCCESS)
        die(what, cuda_error(d, r));
}

static void check_os2g(int rc, const char *what)
{
    if (rc < 0)
        die(what, os2g_last_error());
}

// No way but the one that was asked for is measured.
static void on_event(void *arg, enum os2g_event event, const char *text)
{
    if (event == OS2G_EVENT_FALLBACK)
        die("another way was taken", text);
}

static double cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void print_digest(CUdeviceptr gpu, uint64_t size)
{
    uint8_t *back = malloc(size), digest[SHA256_DIGEST_LENGTH];

    if (!back)
        die("the check", "no memory");
    check(d->cuMemcpyDtoH(back, gpu, size), "copying back");
    SHA256(back, size, digest);
    free(back);
    for (size_t i = 0; i < sizeof(digest); i++)
        printf("%02x", digest[i]);
}

static void read_rounds(struct os2g_file *f, void *base, long rounds)
{
    uint64_t size = os2g_file_size(f);
    double best = 0, cpu = cpu_s();

    for (long i = 0; i < rounds; i++) {
        uint64_t begin = clock_monotonic_ns(), took;
        ssize_t n = os2g_read(f, base, size, 0, 0);

        took = clock_monotonic_ns() - begin;
        check_os2g(n < 0 ? (int)n : 0, "reading");
        if ((uint64_t)n != size)
            die("reading", "fewer bytes than the object has");
        best = MAX(best, (double)size / GIB / ((double)took / NS_PER_S));
    }
    cpu = (cpu_s() - cpu) / (double)rounds;
    printf("{\"bytes\": %llu, \"gibps\": %.3f, \"host_cpu_s\": %.4f, \"sha256\": \"",
           (unsigned long long)size, best, cpu);
    print_digest((CUdeviceptr)(uintptr_t)base, size);
    printf("\"}\n");
}

static void run(struct os2g *c, const char *path, bool ipc, long rounds)
{
    struct os2g_buffer *b;
    struct os2g_file *f;
    CUdeviceptr gpu = 0;
    uint64_t size;

    check_os2g(os2g_open(c, path, &f), path);
    size = os2g_file_size(f);
    if (ipc) {
        check(d->cuMemAlloc(&gpu, size), "memory of the GPU");
        check_os2g(os2g_buffer_register_cuda(c, &b, cuda_pointer(gpu), size), "memory of the GPU");
    } else {
        check_os2g(os2g_buffer_alloc(c, &b, size, OS2G_MEMORY_CUDA, 0), "memory of the GPU");
    }
    read_rounds(f, os2g_buffer_base(b), rounds);
    os2g_buffer_free(b);
    os2g_file_close(f);
    if (ipc)
        check(d->cuMemFree(gpu), "memory of the GPU");
}

int main(int argc, char **argv)
{
    struct os2g_options o = {.size = sizeof(o), .no_start = true, .event = on_event};
    const char *why = "", *way = argc > 3 ? argv[3] : "";
    CUcontext context;
    struct os2g *c;

    if (argc < 4 ||
        (strcmp(way, "pull") != 0 && strcmp(way, "open") != 0 && strcmp(way, "ipc") != 0)) {
        fprintf(stderr, "usage: cuda_land WHERE PATH pull|open|ipc [ROUNDS]\n");
        return 2;
    }
    d = cuda_driver_get(&why);
    if (!d)
        die("the GPU", why);
    check(d->cuDevicePrimaryCtxRetain(&context, 0), "the GPU");
    check(d->cuCtxSetCurrent(context), "the GPU");
    setenv("OS2G_CUDA", strcmp(way, "pull") == 0 ? "pull" : "open", 1);
    check_os2g(os2g_connect(&c, argv[1], &o), argv[1]);
    run(c, argv[2], !strcmp(way, "ipc"), argc > 4 ? MAX(strtol(argv[4], NULL, 10), 1) : 3);
    os2g_close(c);
    check(d->cuDevicePrimaryCtxRelease(0), "the GPU");
    return 0;
}
