// SPDX-License-Identifier: Apache-2.0
#include "s3/file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <string.h>
#include <unistd.h>

static int read_all(int fd, size_t max, struct buf *out)
{
    for (;;) {
        ssize_t n;

        if (out->len > max)
            return -EFBIG;
        buf_reserve(out, 4096);
        n = read(fd, out->data + out->len, 4096);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            break;
        if (n > 0)
            out->len += (size_t)n;
    }
    out->data[out->len] = 0;
    return 0;
}

int file_read_small(const char *path, size_t max, struct buf *out, char **ret_error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    int rc;

    if (fd < 0) {
        rc = -errno;
    } else {
        rc = read_all(fd, max, out);
        close(fd);
    }
    if (rc < 0)
        *ret_error = xasprintf("cannot read %s: %s", path, strerror(-rc));
    return rc;
}

void file_forget(struct buf *b)
{
    if (b->data)
        OPENSSL_cleanse(b->data, b->size);
    buf_free(b);
}
