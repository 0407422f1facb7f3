// SPDX-License-Identifier: Apache-2.0
#include "s3/sigv4.h"

#include "base/text.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ALGORITHM    "AWS4-HMAC-SHA256"
#define SHA256_BYTES 32
#define SHA256_BLOCK 64

// For OpenSSL 3 looking the algorithm up, and making and freeing contexts, cost more than hashing a
// request: the one is done once, the other once for each thread.
static EVP_MD *sha256_md;
static pthread_key_t sha256_key;
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;

static void free_context(void *ctx)
{
    EVP_MD_CTX_free(ctx);
}

static void fetch_sha256(void)
{
    sha256_md = EVP_MD_fetch(NULL, "SHA256", NULL);
    // an OpenSSL without SHA-256 can do no TLS either
    if (!sha256_md || pthread_key_create(&sha256_key, free_context) != 0)
        abort();
}

static EVP_MD_CTX *context(void)
{
    EVP_MD_CTX *ctx;

    pthread_once(&sha256_once, fetch_sha256);
    ctx = pthread_getspecific(sha256_key);
    if (!ctx) {
        ctx = EVP_MD_CTX_new();
        if (!ctx || pthread_setspecific(sha256_key, ctx) != 0)
            abort();
    }
    return ctx;
}

// Of a block (may be NULL) and what follows it.
static void sha256(const uint8_t *block, const void *data, size_t len,
                   uint8_t out[static SHA256_BYTES])
{
    EVP_MD_CTX *ctx = context();
    int ok = EVP_DigestInit_ex2(ctx, sha256_md, NULL);

    if (block)
        ok &= EVP_DigestUpdate(ctx, block, SHA256_BLOCK);
    ok &= EVP_DigestUpdate(ctx, data, len) & EVP_DigestFinal_ex(ctx, out, NULL);
    if (ok != 1)
        abort();
}

// RFC 2104.
static void hmac_sha256(const void *key, size_t key_len, const void *data, size_t len,
                        uint8_t out[static SHA256_BYTES])
{
    uint8_t inner[SHA256_BLOCK] = {0}, outer[SHA256_BLOCK];

    if (key_len > SHA256_BLOCK)
        sha256(NULL, key, key_len, inner);
    else
        memcpy(inner, key, key_len);
    for (size_t i = 0; i < SHA256_BLOCK; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    sha256(inner, data, len, out);
    sha256(outer, out, SHA256_BYTES, out);
    OPENSSL_cleanse(inner, sizeof(inner));
    OPENSSL_cleanse(outer, sizeof(outer));
}

void sigv4_key_derive(struct sigv4_key *k, const char *secret, const char *date, const char *region,
                      const char *service)
{
    struct buf start = {0};
    uint8_t a[SHA256_BYTES], b[SHA256_BYTES];

    *k = (struct sigv4_key){0};
    strncpy(k->date, date, sizeof(k->date) - 1);
    strncpy(k->region, region, sizeof(k->region) - 1);
    strncpy(k->service, service, sizeof(k->service) - 1);

    buf_printf(&start, "AWS4%s", secret);
    hmac_sha256(start.data, start.len, k->date, strlen(k->date), a);
    hmac_sha256(a, sizeof(a), k->region, strlen(k->region), b);
    hmac_sha256(b, sizeof(b), k->service, strlen(k->service), a);
    hmac_sha256(a, sizeof(a), "aws4_request", 12, k->key);
    OPENSSL_cleanse(start.data, start.len);
    buf_free(&start);
}

void sigv4_signed_headers(const struct sigv4_request *r, struct buf *out)
{
    for (size_t i = 0; i < r->n_headers; i++) {
        if (i)
            buf_add(out, ";", 1);
        buf_add_str(out, r->headers[i].name);
    }
}

void sigv4_scope(const struct sigv4_key *k, struct buf *out)
{
    buf_add_str(out, k->date);
    buf_add(out, "/", 1);
    buf_add_str(out, k->region);
    buf_add(out, "/", 1);
    buf_add_str(out, k->service);
    buf_add_str(out, "/aws4_request");
}

// White space at the ends goes, runs of it inside become one space.
static void add_trimmed(struct buf *out, const char *value)
{
    bool gap = false, begun = false;

    buf_reserve(out, strlen(value));
    for (; *value; value++) {
        if (*value == ' ' || *value == '\t') {
            gap = begun;
            continue;
        }
        if (gap)
            out->data[out->len++] = ' ';
        out->data[out->len++] = *value;
        gap = false;
        begun = true;
    }
    out->data[out->len] = 0;
}

static void canonical_request(const struct sigv4_request *r, struct buf *out)
{
    buf_add_str(out, r->method);
    buf_add(out, "\n", 1);
    buf_add_str(out, r->path);
    buf_add(out, "\n", 1);
    buf_add_str(out, r->query);
    buf_add(out, "\n", 1);
    for (size_t i = 0; i < r->n_headers; i++) {
        buf_add_str(out, r->headers[i].name);
        buf_add(out, ":", 1);
        add_trimmed(out, r->headers[i].value);
        buf_add(out, "\n", 1);
    }
    buf_add(out, "\n", 1);
    sigv4_signed_headers(r, out);
    buf_add(out, "\n", 1);
    buf_add_str(out, r->payload_hash);
}

void sigv4_signature(const struct sigv4_key *k, const struct sigv4_request *r,
                     char out_hex[static 65])
{
    struct buf text = {0};
    uint8_t hash[SHA256_BYTES];
    char hash_hex[2 * SHA256_BYTES + 1];

    buf_reserve(&text, 1024); // nearly always enough
    canonical_request(r, &text);
    sha256(NULL, text.data, text.len, hash);
    text_hex(hash, sizeof(hash), hash_hex);

    buf_reset(&text);
    buf_add_str(&text, ALGORITHM "\n");
    buf_add_str(&text, r->amz_date);
    buf_add(&text, "\n", 1);
    sigv4_scope(k, &text);
    buf_add(&text, "\n", 1);
    buf_add(&text, hash_hex, sizeof(hash_hex) - 1);
    hmac_sha256(k->key, sizeof(k->key), text.data, text.len, hash);
    text_hex(hash, sizeof(hash), out_hex);
    buf_free(&text);
}

void sigv4_authorization(const struct sigv4_key *k, const char *access_key,
                         const struct sigv4_request *r, struct buf *out)
{
    char signature[2 * SHA256_BYTES + 1];

    sigv4_signature(k, r, signature);
    buf_add_str(out, ALGORITHM " Credential=");
    buf_add_str(out, access_key);
    buf_add(out, "/", 1);
    sigv4_scope(k, out);
    buf_add_str(out, ",SignedHeaders=");
    sigv4_signed_headers(r, out);
    buf_add_str(out, ",Signature=");
    buf_add(out, signature, sizeof(signature) - 1);
}

// --- query ---

// One "name=value" as it will be written, with the place of its '='.
struct pair {
    char *text;
    size_t name_len;
};

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    int order = memcmp(x->text, y->text, MIN(x->name_len, y->name_len));

    if (!order && x->name_len != y->name_len)
        order = x->name_len < y->name_len ? -1 : 1;
    return order ? order : strcmp(x->text + x->name_len, y->text + y->name_len);
}

static int add_recoded(struct buf *out, const char *s, size_t len)
{
    struct buf plain = {0};
    int rc = text_percent_decode(&plain, s, len);

    if (rc == 0)
        text_percent_encode(out, buf_str(&plain), plain.len, false);
    buf_free(&plain);
    return rc;
}

static int parse_pair(struct pair *p, const char *s, size_t len)
{
    const char *equals = memchr(s, '=', len);
    size_t name_len = equals ? (size_t)(equals - s) : len;
    struct buf text = {0};
    int rc = add_recoded(&text, s, name_len);

    p->name_len = text.len;
    buf_add(&text, "=", 1);
    if (rc == 0 && equals)
        rc = add_recoded(&text, equals + 1, len - name_len - 1);
    p->text = buf_steal(&text);
    return rc;
}

int sigv4_canonical_query(const char *query, struct buf *out)
{
    struct pair *pairs = NULL;
    size_t n = 0;
    int rc = 0;

    while (*query && rc == 0) {
        size_t len = strcspn(query, "&");

        if (len) {
            pairs = xrealloc(pairs, (n + 1) * sizeof(*pairs));
            rc = parse_pair(&pairs[n++], query, len);
        }
        query += len + (query[len] == '&');
    }
    if (rc == 0 && n) {
        qsort(pairs, n, sizeof(*pairs), compare_pairs);
        for (size_t i = 0; i < n; i++) {
            if (i)
                buf_add(out, "&", 1);
            buf_add_str(out, pairs[i].text);
        }
    }
    for (size_t i = 0; i < n; i++)
        free(pairs[i].text);
    free(pairs);
    return rc;
}
