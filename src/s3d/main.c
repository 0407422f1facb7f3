// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "s3d/http_get.h"
#include "s3d/options.h"
#include "s3d/server.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- serve ---

static int write_port_file(const char *path, uint16_t port)
{
    // whoever waits for the file must not see it half written
    char *temporary = xasprintf("%s.new", path);
    FILE *f = fopen(temporary, "we");
    int rc = 0;

    if (!f || fprintf(f, "%u\n", port) < 0 || fclose(f) || rename(temporary, path) < 0) {
        rc = -errno;
        fprintf(stderr, "os2g-s3d: %s: %s\n", path, strerror(-rc));
    }
    free(temporary);
    return rc;
}

static int serve(int argc, char **argv)
{
    struct server *s = xcalloc(1, sizeof(*s));
    struct options o;
    int rc = options_parse(&o, argc, argv);

    if (rc != 0) {
        options_fini(&o);
        free(s);
        return rc < 0 ? 2 : 0;
    }
    rc = server_start(s, &o);
    if (rc == 0 && o.port_file)
        rc = write_port_file(o.port_file, s->port);
    if (rc == 0) {
        bool v6 = strchr(o.listen_host, ':');

        printf("listening on %s://%s%s%s:%u\n", s->tls ? "https" : "http", v6 ? "[" : "",
               o.listen_host, v6 ? "]" : "", s->port);
        fflush(stdout);
        server_run(s);
    }
    server_stop(s);
    options_fini(&o);
    free(s);
    return rc < 0 ? 1 : 0;
}

// --- bytes, table ---

static int print_all(const void *data, size_t len)
{
    return fwrite(data, 1, len, stdout) == len ? 0 : -EIO;
}

static int print_table(void)
{
    struct s3d_table table;
    int rc = s3d_table_init(&table);

    if (rc == 0)
        rc = print_all(table.bytes, S3D_TABLE_BYTES);
    s3d_table_fini(&table);
    return rc < 0 || fflush(stdout) ? 1 : 0;
}

static int print_range(const struct s3d_table *table, uint64_t start, uint64_t off, uint64_t len,
                       const EVP_MD *digest)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    char *chunk = xmalloc(MIB), hex[2 * EVP_MAX_MD_SIZE + 1];
    uint8_t sum[EVP_MAX_MD_SIZE];
    unsigned sum_len = 0;
    int rc = 0;

    if (digest)
        EVP_DigestInit_ex(md, digest, NULL);
    for (size_t n; len && rc == 0; off += n, len -= n) {
        n = (size_t)MIN(len, MIB);
        s3d_synthetic_fill(table, start, off, chunk, n);
        if (digest)
            EVP_DigestUpdate(md, chunk, n);
        else
            rc = print_all(chunk, n);
    }
    if (digest) {
        EVP_DigestFinal_ex(md, sum, &sum_len);
        text_hex(sum, sum_len, hex);
        printf("%s\n", hex);
    }
    EVP_MD_CTX_free(md);
    free(chunk);
    return rc;
}

static int usage(const char *text)
{
    fprintf(stderr, "usage: os2g-s3d %s\n", text);
    return 2;
}

static int bytes(int argc, char **argv)
{
    static const char text[] = "bytes BUCKET/KEY OFFSET LENGTH [--generation N] [--md5 | --sha256]";
    uint64_t off, len, generation = 0;
    const EVP_MD *digest = NULL;
    struct s3d_table table;
    struct s3d_name name;
    char *slash;
    int rc;

    if (argc < 3 || !(slash = strchr(argv[0], '/')) || text_parse_size(argv[1], &off) < 0 ||
        text_parse_size(argv[2], &len) < 0)
        return usage(text);
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--md5"))
            digest = EVP_md5();
        else if (!strcmp(argv[i], "--sha256"))
            digest = EVP_sha256();
        else if (strcmp(argv[i], "--generation") != 0 || ++i == argc ||
                 text_parse_u64(argv[i], &generation) < 0)
            return usage(text);
    }
    *slash = 0;
    s3d_name_hash(&name, argv[0], slash + 1, generation);
    rc = s3d_table_init(&table);
    if (rc == 0)
        rc = print_range(&table, name.start, off, len, digest);
    s3d_table_fini(&table);
    return rc < 0 || fflush(stdout) ? 1 : 0;
}

// --- issue-credentials: what credential_process wants to read ---

static int issue_credentials(int argc, char **argv)
{
    struct buf body = {0};
    int rc;

    if (argc != 1)
        return usage("issue-credentials http://HOST:PORT");
    rc = http_get(argv[0], "/_s3d/issue-credentials", &body);
    if (rc == 0)
        fputs(buf_str(&body), stdout);
    else
        fprintf(stderr, "os2g-s3d: %s: %s\n", argv[0], strerror(-rc));
    buf_free(&body);
    return rc < 0 || fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
    base_fill_std_fds();
    argc--;
    argv++;
    if (argc && !strcmp(argv[0], "bytes"))
        return bytes(argc - 1, argv + 1);
    if (argc && !strcmp(argv[0], "table"))
        return print_table();
    if (argc && !strcmp(argv[0], "issue-credentials"))
        return issue_credentials(argc - 1, argv + 1);
    if (argc && !strcmp(argv[0], "--version")) {
        puts("os2g-s3d " OS2G_VERSION);
        return 0;
    }
    if (argc && !strcmp(argv[0], "serve"))
        return serve(argc - 1, argv + 1);
    return serve(argc, argv);
}
