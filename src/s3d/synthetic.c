// SPDX-License-Identifier: Apache-2.0
#include "s3d/synthetic.h"

#include "base/buf.h"
#include "base/text.h"

#include <endian.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TABLE_MAPPED ALIGN_UP((size_t)S3D_TABLE_BYTES, 8)

static uint64_t splitmix64(uint64_t i)
{
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

int s3d_table_init(struct s3d_table *t)
{
    int fd = memfd_create("os2g-s3d-table", MFD_CLOEXEC), rc;
    uint64_t *words;

    if (fd < 0)
        return -errno;
    if (ftruncate(fd, TABLE_MAPPED) < 0)
        goto fail;
    words = mmap(NULL, TABLE_MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (words == MAP_FAILED)
        goto fail;
    for (size_t i = 0; i < TABLE_MAPPED / 8; i++)
        words[i] = htole64(splitmix64(i));
    *t = (struct s3d_table){.bytes = (const uint8_t *)words, .fd = fd};
    return 0;
fail:
    rc = -errno;
    close(fd);
    return rc;
}

void s3d_table_fini(struct s3d_table *t)
{
    if (!t->bytes)
        return;
    munmap((void *)t->bytes, TABLE_MAPPED);
    close(t->fd);
    *t = (struct s3d_table){0};
}

static void name_digest(const char *bucket, const char *key, const char *suffix,
                        uint8_t digest[static SHA256_DIGEST_LENGTH])
{
    char small[1536];
    int n = snprintf(small, sizeof(small), "%s/%s%s", bucket, key, suffix);

    if (n < (int)sizeof(small)) {
        SHA256((const uint8_t *)small, (size_t)n, digest);
    } else {
        char *text = xasprintf("%s/%s%s", bucket, key, suffix);

        SHA256((const uint8_t *)text, (size_t)n, digest);
        free(text);
    }
}

static uint64_t first_word(const uint8_t *digest)
{
    uint64_t word;

    memcpy(&word, digest, sizeof(word));
    return le64toh(word);
}

void s3d_name_hash(struct s3d_name *n, const char *bucket, const char *key, uint64_t generation)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    char suffix[24];

    snprintf(suffix, sizeof(suffix), "\n%llu", (unsigned long long)generation);
    name_digest(bucket, key, suffix, digest);
    n->start = first_word(digest) % S3D_TABLE_BYTES;
    text_hex(digest + 8, 16, n->etag);
    memcpy(n->etag + 32, "-1", 3);
}

uint64_t s3d_name_luck(const char *bucket, const char *key)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];

    name_digest(bucket, key, "\nsize", digest);
    return first_word(digest);
}

void s3d_synthetic_fill(const struct s3d_table *t, uint64_t start, uint64_t off, void *out,
                        size_t len)
{
    size_t at = (size_t)((start + off) % S3D_TABLE_BYTES);
    uint8_t *p = out;

    while (len) {
        size_t n = MIN(len, S3D_TABLE_BYTES - at);

        memcpy(p, t->bytes + at, n);
        p += n;
        len -= n;
        at = 0;
    }
}

int64_t s3d_synthetic_check(const struct s3d_table *t, uint64_t start, uint64_t off,
                            const void *data, size_t len)
{
    size_t at = (size_t)((start + off) % S3D_TABLE_BYTES), done = 0;
    const uint8_t *p = data;

    while (done < len) {
        size_t n = MIN(len - done, S3D_TABLE_BYTES - at);

        if (memcmp(p + done, t->bytes + at, n) != 0) {
            while (p[done] == t->bytes[at])
                done++, at++;
            return (int64_t)done;
        }
        done += n;
        at = 0;
    }
    return -1;
}
