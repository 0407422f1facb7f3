// SPDX-License-Identifier: Apache-2.0
#include "fs/table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROW_MIN ((size_t)256 << 10)
#define GROW_MAX ((size_t)64 << 20)

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

// Maps the file's bytes [from, to) to their place; both are multiples of the page size.
static int map(struct table *t, size_t from, size_t to)
{
    if (to > from && mmap(t->base + from, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          t->fd, (off_t)from) == MAP_FAILED)
        return -errno;
    t->n = (uint32_t)MIN(to / t->record_size, (size_t)t->max);
    return 0;
}

static size_t reserved(const struct table *t)
{
    return ALIGN_UP((size_t)t->max * t->record_size, page_size());
}

int table_open(struct table *t, int fd, const char *name, size_t record_size, uint32_t max)
{
    struct table new = {.record_size = record_size, .max = max};
    struct stat st;
    int rc;

    new.fd = fd < 0 ? memfd_create(name, MFD_CLOEXEC) : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (new.fd < 0)
        return -errno;
    new.base =
        mmap(NULL, reserved(&new), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (new.base == MAP_FAILED || fstat(new.fd, &st) < 0) {
        rc = -errno;
        if (new.base == MAP_FAILED)
            new.base = NULL;
        table_close(&new);
        return rc;
    }
    // a worker may have died in the middle of growing the file: what does not fill a page is empty
    rc = map(&new, 0, MIN(ALIGN_DOWN((size_t)st.st_size, page_size()), reserved(&new)));
    if (rc < 0) {
        table_close(&new);
        return rc;
    }
    *t = new;
    return 0;
}

void table_close(struct table *t)
{
    if (t->base)
        munmap(t->base, reserved(t));
    if (t->record_size)
        close(t->fd);
    *t = (struct table){0};
}

int table_grow(struct table *t)
{
    size_t page = page_size();
    // the bytes mapped so far: n records leave a rest of less than one record
    size_t from = ALIGN_UP((size_t)t->n * t->record_size, page);
    size_t step = MIN(MAX(from / 8, GROW_MIN), GROW_MAX);
    size_t to = MIN(ALIGN_UP(from + step, page), reserved(t));

    if (t->n >= t->max)
        return -ENOMEM;
    if (ftruncate(t->fd, (off_t)to) < 0)
        return -ENOMEM;
    return map(t, from, to) < 0 ? -ENOMEM : 0;
}
