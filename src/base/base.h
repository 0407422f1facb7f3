// SPDX-License-Identifier: Apache-2.0
// base/: what every other directory may use and what itself uses only libc, OpenSSL's
// digests and xxhash: lists, buffers, text, time, random numbers and the log.
//
// This header holds the handful of macros that C lacks.
#pragma once

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define ARRAY_LEN(a)                    (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                       ((a) < (b) ? (a) : (b))
#define MAX(a, b)                       ((a) > (b) ? (a) : (b))
#define ALIGN_DOWN(x, a)                ((x) / (a) * (a))
#define ALIGN_UP(x, a)                  (((x) + (a)-1) / (a) * (a))

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

// xmalloc and friends end the process with a message when the machine has no memory left for a
// small, bounded object. Memory whose size comes from outside is taken with malloc and checked,
// or reserved from the page pool.
void *xmalloc(size_t size);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
void *xmemdup(const void *p, size_t n); // n bytes and a terminating zero
char *xasprintf(const char *fmt, ...) PRINTF_LIKE(1, 2);

// For the beginning of a program: closes the gap where standard input, output or error is closed,
// so that no file or socket of ours gets its number and what is printed. Writing there is still
// EBADF.
void base_fill_std_fds(void);

// Cores that this process may run on, at least 1: fewer than the machine's in a container or under
// taskset.
unsigned base_cores(void);
