// SPDX-License-Identifier: Apache-2.0
#include "s3d/checksum.h"

#include <endian.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// --- CRCs, eight bytes at a time ("slicing by 8") ---

struct crc_table {
    uint32_t t[8][256];
};

static struct crc_table crc32_table, crc32c_table;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void build_table(struct crc_table *table, uint32_t polynomial)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;

        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ polynomial : c >> 1;
        table->t[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            table->t[k][i] = table->t[k - 1][i] >> 8 ^ table->t[0][table->t[k - 1][i] & 255];
}

static void build_tables(void)
{
    build_table(&crc32_table, 0xedb88320);
    build_table(&crc32c_table, 0x82f63b78);
}

static uint32_t crc_add(const struct crc_table *table, uint32_t crc, const uint8_t *p, size_t len)
{
    crc = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t w;

        memcpy(&w, p, 8);
        w = le64toh(w) ^ crc;
        crc = 0;
        for (int k = 0; k < 8; k++)
            crc ^= table->t[7 - k][w >> 8 * k & 255];
    }
    while (len--)
        crc = crc >> 8 ^ table->t[0][(crc ^ *p++) & 255];
    return ~crc;
}

uint32_t checksum_crc32(uint32_t crc, const void *data, size_t len)
{
    pthread_once(&tables_once, build_tables);
    return crc_add(&crc32_table, crc, data, len);
}

uint32_t checksum_crc32c(uint32_t crc, const void *data, size_t len)
{
    pthread_once(&tables_once, build_tables);
    return crc_add(&crc32c_table, crc, data, len);
}

// --- all of them ---

struct checksum {
    EVP_MD_CTX *md[CHECKSUM_SHA1 + 1];
    unsigned kinds;
    uint32_t crc32, crc32c;
};

struct checksum *checksum_new(unsigned kinds)
{
    const EVP_MD *const types[] = {EVP_md5(), EVP_sha256(), EVP_sha1()};
    struct checksum *c = xcalloc(1, sizeof(*c));

    c->kinds = kinds;
    for (int i = 0; i <= CHECKSUM_SHA1; i++) {
        if (!(kinds & 1u << i))
            continue;
        c->md[i] = EVP_MD_CTX_new();
        if (!c->md[i] || !EVP_DigestInit_ex(c->md[i], types[i], NULL)) {
            checksum_free(c);
            return NULL;
        }
    }
    return c;
}

void checksum_free(struct checksum *c)
{
    if (!c)
        return;
    for (int i = 0; i <= CHECKSUM_SHA1; i++)
        EVP_MD_CTX_free(c->md[i]);
    free(c);
}

void checksum_add(struct checksum *c, const void *data, size_t len)
{
    for (int i = 0; i <= CHECKSUM_SHA1; i++)
        if (c->md[i])
            EVP_DigestUpdate(c->md[i], data, len);
    if (c->kinds & 1u << CHECKSUM_CRC32)
        c->crc32 = checksum_crc32(c->crc32, data, len);
    if (c->kinds & 1u << CHECKSUM_CRC32C)
        c->crc32c = checksum_crc32c(c->crc32c, data, len);
}

size_t checksum_get(struct checksum *c, enum checksum_kind kind,
                    uint8_t out[static CHECKSUM_MAX_BYTES])
{
    uint32_t crc;
    unsigned n = 0;

    assert(c->kinds & 1u << kind);
    if (kind <= CHECKSUM_SHA1) {
        EVP_MD_CTX *copy = EVP_MD_CTX_new();

        if (copy && EVP_MD_CTX_copy_ex(copy, c->md[kind]))
            EVP_DigestFinal_ex(copy, out, &n);
        EVP_MD_CTX_free(copy);
        return n;
    }
    crc = htobe32(kind == CHECKSUM_CRC32 ? c->crc32 : c->crc32c);
    memcpy(out, &crc, sizeof(crc));
    return sizeof(crc);
}

int checksum_kind_of_header(const char *name)
{
    static const char *const names[] = {NULL, "sha256", "sha1", "crc32", "crc32c"};

    if (strncasecmp(name, "x-amz-checksum-", 15) != 0)
        return -1;
    for (int i = 1; i < CHECKSUM_KINDS; i++)
        if (!strcasecmp(name + 15, names[i]))
            return i;
    return -1;
}
