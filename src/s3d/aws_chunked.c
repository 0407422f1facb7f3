// SPDX-License-Identifier: Apache-2.0
#include "s3d/aws_chunked.h"

#include "base/text.h"

#include <ctype.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

//   SIZE_LINE ─size>0─► DATA ─► DATA_END ─► SIZE_LINE
//   SIZE_LINE ─size=0─► TRAILER ─empty line─► DONE
enum { SIZE_LINE, DATA, DATA_END, TRAILER, DONE };

void aws_chunked_init(struct aws_chunked *c, const struct sigv4_key *key, const char *amz_date,
                      const char *seed)
{
    memset(c, 0, sizeof(*c));
    if (!key)
        return;
    c->is_signed = true;
    c->key = *key;
    memcpy(c->amz_date, amz_date, sizeof(c->amz_date));
    memcpy(c->previous, seed, sizeof(c->previous));
    c->sha256 = EVP_MD_CTX_new();
}

void aws_chunked_fini(struct aws_chunked *c)
{
    EVP_MD_CTX_free(c->sha256);
    c->sha256 = NULL;
    buf_free(&c->trailers);
}

bool aws_chunked_is_done(const struct aws_chunked *c)
{
    return c->state == DONE;
}

static void string_signature(const struct aws_chunked *c, const char *algorithm, const char *hashes,
                             char out[static 65])
{
    struct buf text = {0};
    uint8_t mac[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    buf_printf(&text, "%s\n%s\n", algorithm, c->amz_date);
    sigv4_scope(&c->key, &text);
    buf_printf(&text, "\n%s\n%s", c->previous, hashes);
    HMAC(EVP_sha256(), c->key.key, sizeof(c->key.key), (const uint8_t *)text.data, text.len, mac,
         &n);
    text_hex(mac, 32, out);
    buf_free(&text);
}

static int check_chunk(struct aws_chunked *c)
{
    char hashes[64 + 1 + 64 + 1] = SIGV4_EMPTY_SHA256 "\n", signature[65];
    uint8_t digest[32];

    if (!c->is_signed)
        return 0;
    EVP_DigestFinal_ex(c->sha256, digest, NULL);
    text_hex(digest, 32, hashes + 65);
    string_signature(c, "AWS4-HMAC-SHA256-PAYLOAD", hashes, signature);
    if (strcmp(signature, c->claimed) != 0)
        return -EACCES;
    memcpy(c->previous, signature, sizeof(signature));
    return 0;
}

static int check_trailers(struct aws_chunked *c, const char *claimed)
{
    uint8_t digest[32];
    char hash[65], signature[65];

    if (!c->is_signed)
        return 0;
    EVP_Digest(buf_str(&c->trailers), c->trailers.len, digest, NULL, EVP_sha256(), NULL);
    text_hex(digest, 32, hash);
    string_signature(c, "AWS4-HMAC-SHA256-TRAILER", hash, signature);
    return strcmp(signature, claimed) ? -EACCES : 0;
}

static int take_size_line(struct aws_chunked *c)
{
    char *semicolon = strchr(c->line, ';'), *end;

    if (!isxdigit((unsigned char)c->line[0]))
        return -EBADMSG;
    errno = 0;
    c->left = strtoull(c->line, &end, 16);
    if (errno || (*end && *end != ';') || c->left > INT64_MAX)
        return -EBADMSG;
    c->claimed[0] = 0;
    if (semicolon && text_starts_with(semicolon, ";chunk-signature=") && strlen(semicolon) == 81)
        memcpy(c->claimed, semicolon + 17, 65);
    if (c->is_signed && !EVP_DigestInit_ex(c->sha256, EVP_sha256(), NULL))
        return -EBADMSG;
    if (c->left) {
        c->state = DATA;
        return 0;
    }
    c->state = TRAILER;
    return check_chunk(c);
}

static int take_trailer(struct aws_chunked *c)
{
    char *colon = strchr(c->line, ':');

    if (!c->line[0]) {
        c->state = DONE;
        return 0;
    }
    if (!colon || c->trailers.len > 8 * KIB)
        return -EBADMSG;
    if (text_starts_with(c->line, "x-amz-trailer-signature:"))
        return check_trailers(c, colon + 1);
    buf_printf(&c->trailers, "%s\n", c->line);
    return 0;
}

static int take_line(struct aws_chunked *c)
{
    if (c->state == SIZE_LINE)
        return take_size_line(c);
    if (c->state == TRAILER)
        return take_trailer(c);
    // DATA_END: the line is what is between the data and the next size
    if (c->line_len)
        return -EBADMSG;
    c->state = SIZE_LINE;
    return check_chunk(c);
}

int aws_chunked_feed(struct aws_chunked *c, const char *data, size_t len,
                     void (*on_data)(void *arg, const void *data, size_t len), void *arg)
{
    while (len) {
        if (c->state == DONE)
            return -EBADMSG;
        if (c->state == DATA) {
            size_t n = (size_t)MIN(c->left, len);

            if (c->is_signed)
                EVP_DigestUpdate(c->sha256, data, n);
            on_data(arg, data, n);
            c->left -= n;
            data += n;
            len -= n;
            if (!c->left)
                c->state = DATA_END;
            continue;
        }
        if (*data == '\n') {
            int rc;

            if (c->line_len && c->line[c->line_len - 1] == '\r')
                c->line_len--;
            c->line[c->line_len] = 0;
            rc = take_line(c);
            if (rc < 0)
                return rc;
            c->line_len = 0;
        } else if (c->line_len + 1 < sizeof(c->line)) {
            c->line[c->line_len++] = *data;
        } else {
            return -EBADMSG;
        }
        data++;
        len--;
    }
    return 0;
}
