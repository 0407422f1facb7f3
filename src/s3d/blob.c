// SPDX-License-Identifier: Apache-2.0
#include "s3d/blob.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY_MAX (512 * KIB) // larger ones go to a memfd, from where sendfile can take them

struct blob *blob_new(void)
{
    struct blob *b = xcalloc(1, sizeof(*b));

    b->refs = 1;
    b->fd = -1;
    return b;
}

struct blob *blob_new_file(int fd)
{
    struct blob *b = blob_new();

    b->fd = fd;
    return b;
}

struct blob *blob_from_file(int fd, uint64_t len)
{
    struct blob *b = blob_new_file(fd);

    b->len = len;
    return b;
}

struct blob *blob_join(struct blob *const *parts, size_t n)
{
    struct blob *b = blob_new();

    b->parts = xcalloc(n, sizeof(struct blob *));
    b->ends = xcalloc(n, sizeof(*b->ends));
    for (size_t i = 0; i < n; i++) {
        if (parts[i]->len == 0)
            continue;
        b->len += parts[i]->len;
        b->parts[b->n_parts] = blob_ref(parts[i]);
        b->ends[b->n_parts++] = b->len;
    }
    return b;
}

struct blob *blob_ref(struct blob *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void blob_unref(struct blob *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < b->n_parts; i++)
        blob_unref(b->parts[i]);
    free(b->parts);
    free(b->ends);
    free(b->mem);
    if (b->fd >= 0)
        close(b->fd);
    free(b);
}

static int write_all(int fd, const uint8_t *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int spill(struct blob *b)
{
    int fd = memfd_create("os2g-s3d-object", MFD_CLOEXEC), rc;

    if (fd < 0)
        return -errno;
    rc = write_all(fd, b->mem, b->len);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    free(b->mem);
    b->mem = NULL;
    b->fd = fd;
    return 0;
}

int blob_append(struct blob *b, const void *data, size_t len)
{
    int rc;

    if (b->fd < 0 && b->len + len > MEMORY_MAX) {
        rc = spill(b);
        if (rc < 0)
            return rc;
    }
    if (b->fd >= 0) {
        rc = write_all(b->fd, data, len);
        if (rc < 0)
            return rc;
    } else if (len) {
        if (b->len + len > b->room) {
            b->room = MIN(MEMORY_MAX, MAX(b->len + len, 2 * b->room));
            b->mem = xrealloc(b->mem, b->room);
        }
        memcpy(b->mem + b->len, data, len);
    }
    b->len += len;
    return 0;
}

static size_t part_at(const struct blob *b, uint64_t off)
{
    size_t low = 0, high = b->n_parts - 1;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (b->ends[middle] <= off)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct piece blob_piece(const struct blob *b, uint64_t off)
{
    while (b->n_parts) {
        size_t i = part_at(b, off);

        off -= i ? b->ends[i - 1] : 0;
        b = b->parts[i];
    }
    if (b->fd >= 0)
        return (struct piece){.fd = b->fd, .file_off = off, .len = b->len - off};
    return (struct piece){.mem = b->mem + off, .fd = -1, .len = b->len - off};
}

int blob_read(const struct blob *b, uint64_t off, void *out, size_t n)
{
    uint8_t *p = out;

    while (n) {
        struct piece piece = blob_piece(b, off);
        size_t step = (size_t)MIN(piece.len, n);
        ssize_t got = (ssize_t)step;

        if (piece.mem)
            memcpy(p, piece.mem, step);
        else
            got = pread(piece.fd, p, step, (off_t)piece.file_off);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        p += got;
        off += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

int blob_copy_to_file(const struct blob *b, uint64_t off, uint64_t n, int fd)
{
    while (n) {
        struct piece piece = blob_piece(b, off);
        uint64_t step = MIN(piece.len, n);
        int64_t in = (int64_t)piece.file_off;
        ssize_t moved;
        int rc;

        if (piece.mem) {
            rc = write_all(fd, piece.mem, (size_t)step);
            if (rc < 0)
                return rc;
            moved = (ssize_t)step;
        } else {
            moved = copy_file_range(piece.fd, &in, fd, NULL, (size_t)step, 0);
            // memfds and files are of different file systems
            if (moved < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP)) {
                uint8_t bounce[64 * 1024];

                step = MIN(step, sizeof(bounce));
                rc = blob_read(b, off, bounce, (size_t)step);
                if (rc == 0)
                    rc = write_all(fd, bounce, (size_t)step);
                if (rc < 0)
                    return rc;
                moved = (ssize_t)step;
            }
        }
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return moved < 0 ? -errno : -EIO;
        off += (uint64_t)moved;
        n -= (uint64_t)moved;
    }
    return 0;
}
