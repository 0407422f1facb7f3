// SPDX-License-Identifier: Apache-2.0
#include "base/base.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *checked(void *p)
{
    if (!p) {
        fputs("os2g: out of memory\n", stderr);
        abort();
    }
    return p;
}

void *xmalloc(size_t size)
{
    return checked(malloc(size ? size : 1));
}

void *xcalloc(size_t n, size_t size)
{
    return checked(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t size)
{
    return checked(realloc(p, size ? size : 1));
}

char *xstrdup(const char *s)
{
    return checked(strdup(s));
}

char *xstrndup(const char *s, size_t n)
{
    return checked(strndup(s, n));
}

void *xmemdup(const void *p, size_t n)
{
    char *copy = xmalloc(n + 1);

    if (n)
        memcpy(copy, p, n);
    copy[n] = 0;
    return copy;
}

char *xasprintf(const char *fmt, ...)
{
    va_list args;
    char *s;

    va_start(args, fmt);
    if (vasprintf(&s, fmt, args) < 0)
        s = NULL;
    va_end(args);
    return checked(s);
}

void base_fill_std_fds(void)
{
    int fd;

    // the lowest free number comes first
    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

unsigned base_cores(void)
{
    cpu_set_t cores;
    long online;

    if (sched_getaffinity(0, sizeof(cores), &cores) == 0)
        return (unsigned)CPU_COUNT(&cores);
    // more of them than the set has room for
    online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : (unsigned)online;
}
