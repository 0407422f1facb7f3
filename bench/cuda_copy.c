// SPDX-License-Identifier: Apache-2.0
// cuda_copy: what the ways into a GPU's memory are measured against: cuMemcpyHtoDAsync from pinned
// host memory, in pieces, one stream.
//
//   cuda_copy BYTES [PIECE] [ROUNDS]
//
// Prints one line of JSON: device, gibps (of the best round), bytes.
#include "base/clock.h"
#include "base/text.h"
#include "cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct cuda_driver *d;

static void check(CUresult r, const char *what)
{
    if (r == CUDA_SUCCESS)
        return;
    fprintf(stderr, "cuda_copy: %s: %s\n", what, cuda_error(d, r));
    exit(1);
}

static uint64_t number(const char *s, const char *what)
{
    uint64_t n;

    if (text_parse_size(s, &n) < 0 || !n) {
        fprintf(stderr, "cuda_copy: %s is not a number of bytes: %s\n", what, s);
        exit(2);
    }
    return n;
}

static double copy_once(CUdeviceptr to, const uint8_t *from, uint64_t size, uint64_t piece,
                        CUstream stream)
{
    uint64_t begin = clock_monotonic_ns();

    for (uint64_t at = 0; at < size; at += piece)
        check(d->cuMemcpyHtoDAsync(to + at, from + at, MIN(piece, size - at), stream), "copying");
    check(d->cuStreamSynchronize(stream), "copying");
    return (double)(clock_monotonic_ns() - begin) / NS_PER_S;
}

static void verify(CUdeviceptr gpu, const uint8_t *bytes, uint64_t size)
{
    uint8_t *back = malloc(size);

    if (!back) {
        fprintf(stderr, "cuda_copy: no memory\n");
        exit(1);
    }
    check(d->cuMemcpyDtoH(back, gpu, size), "copying back");
    if (memcmp(back, bytes, size) != 0) {
        fprintf(stderr, "cuda_copy: the bytes are not the same\n");
        exit(1);
    }
    free(back);
}

int main(int argc, char **argv)
{
    uint64_t size = argc > 1 ? number(argv[1], "BYTES") : GIB;
    uint64_t piece = argc > 2 ? number(argv[2], "PIECE") : MIB;
    long rounds = argc > 3 ? strtol(argv[3], NULL, 10) : 5;
    const char *why = "";
    char name[128] = "";
    double best = 0;
    CUcontext context;
    CUdeviceptr gpu;
    CUstream stream;
    uint8_t *host;

    d = cuda_driver_get(&why);
    if (!d) {
        fprintf(stderr, "cuda_copy: %s\n", why);
        return 1;
    }
    check(d->cuDevicePrimaryCtxRetain(&context, 0), "the GPU");
    check(d->cuCtxSetCurrent(context), "the GPU");
    check(d->cuDeviceGetName(name, sizeof(name), 0), "the GPU");
    check(d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream");
    check(d->cuMemAlloc(&gpu, size), "memory of the GPU");
    host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED) {
        fprintf(stderr, "cuda_copy: no memory\n");
        return 1;
    }
    for (uint64_t i = 0; i < size; i += 8)
        memcpy(host + i, &(uint64_t){i * 0x9e3779b97f4a7c15u}, MIN(8, size - i));
    check(d->cuMemHostRegister(host, size, CU_MEMHOSTREGISTER_PORTABLE), "pinned memory");
    for (long i = 0; i < MAX(rounds, 1); i++) {
        double gibps = (double)size / GIB / copy_once(gpu, host, size, piece, stream);

        best = MAX(best, gibps);
    }
    verify(gpu, host, size);
    printf("{\"device\": \"%s\", \"bytes\": %llu, \"gibps\": %.3f}\n", name,
           (unsigned long long)size, best);
    check(d->cuMemHostUnregister(host), "pinned memory");
    check(d->cuMemFree(gpu), "memory of the GPU");
    check(d->cuStreamDestroy(stream), "a stream");
    check(d->cuDevicePrimaryCtxRelease(0), "the GPU");
    munmap(host, size);
    return 0;
}
