// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include "net/http_head.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void server_expect(struct server *s, bool ok, const char *what)
{
    if (!ok && !s->trouble[0])
        snprintf(s->trouble, sizeof(s->trouble), "%s", what);
}

static void *run_script(void *arg)
{
    struct server *s = arg;

    s->script(s);
    return NULL;
}

void server_start(struct server *s, void (*script)(struct server *s), SSL_CTX *tls)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval wait = {.tv_sec = 5};
    socklen_t len = sizeof(addr);

    signal(SIGPIPE, SIG_IGN);
    *s = (struct server){.script = script, .tls = tls};
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s->fd >= 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(s->fd, 64), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&addr, &len), 0);
    setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    s->port = ntohs(addr.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, run_script, s), 0);
}

void server_stop(struct server *s)
{
    pthread_join(s->thread, NULL);
    close(s->fd);
    SSL_CTX_free(s->tls);
    if (s->trouble[0])
        fail_msg("the server met: %s", s->trouble);
}

struct peer *server_accept(struct server *s)
{
    struct peer *p = xcalloc(1, sizeof(*p));
    struct timeval wait = {.tv_sec = 5};
    int one = 1;

    p->server = s;
    p->fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
    server_expect(s, p->fd >= 0, "no connection");
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(p->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    setsockopt(p->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    if (s->tls)
        peer_start_tls(p, s->tls);
    return p;
}

void peer_start_tls(struct peer *p, SSL_CTX *ctx)
{
    p->ssl = SSL_new(ctx);
    SSL_set_fd(p->ssl, p->fd);
    // clients that refuse the certificate are what some tests are about
    if (SSL_accept(p->ssl) == 1)
        p->resumed = SSL_session_reused(p->ssl);
}

static ssize_t receive(struct peer *p, void *data, size_t len)
{
    return p->ssl ? SSL_read(p->ssl, data, (int)len) : recv(p->fd, data, len, 0);
}

void peer_read_request(struct peer *p)
{
    static _Thread_local struct http_head head;
    struct buf copy = {0};
    ssize_t head_len = 0;
    int64_t body;
    char sink[64 * 1024];

    buf_reset(&p->head);
    buf_reset(&p->body);
    while (head_len == 0) {
        char c;

        if (receive(p, &c, 1) <= 0) {
            server_expect(p->server, false, "no request");
            return;
        }
        buf_add(&p->head, &c, 1);
        buf_reset(&copy);
        buf_add(&copy, p->head.data, p->head.len);
        head_len = http_head_parse(&head, HTTP_REQUEST, copy.data, copy.len);
    }
    server_expect(p->server, head_len > 0, "not a request");
    for (body = head.content_length; body > 0;) {
        ssize_t n = receive(p, sink, MIN((size_t)body, sizeof(sink)));

        if (n <= 0) {
            server_expect(p->server, false, "the request's body ended early");
            break;
        }
        buf_add(&p->body, sink, (size_t)n);
        body -= n;
    }
    buf_free(&copy);
}

void peer_send_bytes(struct peer *p, const void *data, size_t len)
{
    const char *at = data;

    while (len > 0) {
        ssize_t n = p->ssl ? SSL_write(p->ssl, at, (int)len) : send(p->fd, at, len, MSG_NOSIGNAL);

        if (n <= 0)
            return; // the client may have had enough
        at += n;
        len -= (size_t)n;
    }
}

void peer_send(struct peer *p, const char *s)
{
    peer_send_bytes(p, s, strlen(s));
}

void peer_drip(struct peer *p, const char *s)
{
    for (; *s; s++) {
        peer_send_bytes(p, s, 1);
        usleep(100);
    }
}

void peer_expect_end(struct peer *p)
{
    char c;
    ssize_t n = receive(p, &c, 1);

    server_expect(p->server, n == 0 || (n < 0 && (p->ssl || errno == ECONNRESET)),
                  "the client did not close");
}

void peer_close(struct peer *p)
{
    if (p->ssl)
        SSL_shutdown(p->ssl);
    SSL_free(p->ssl);
    close(p->fd);
    buf_free(&p->head);
    buf_free(&p->body);
    free(p);
}

void peer_reset(struct peer *p)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    SSL_free(p->ssl);
    p->ssl = NULL;
    peer_close(p);
}

// --- certificates ---

static X509 *make_cert(EVP_PKEY *key, const char *name, X509 *issuer, EVP_PKEY *issuer_key,
                       const char *ext_name, const char *ext_value)
{
    static long serial = 1;
    X509 *cert = X509_new();
    X509_NAME *subject = X509_get_subject_name(cert);
    X509V3_CTX ctx;
    X509_EXTENSION *ext;

    X509_set_version(cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, issuer ? X509_get_subject_name(issuer) : subject);
    X509V3_set_ctx(&ctx, issuer ? issuer : cert, cert, NULL, NULL, 0);
    ext = X509V3_EXT_conf(NULL, &ctx, ext_name, ext_value);
    assert_non_null(ext);
    X509_add_ext(cert, ext, -1);
    X509_EXTENSION_free(ext);
    assert_true(X509_sign(cert, issuer_key, EVP_sha256()) > 0);
    return cert;
}

void test_ca_make(struct test_ca *ca)
{
    FILE *f;

    ca->key = EVP_EC_gen("P-256");
    assert_non_null(ca->key);
    ca->cert = make_cert(ca->key, "OS2G test CA", NULL, ca->key, "basicConstraints", "CA:TRUE");
    strcpy(ca->file, "/tmp/os2g-test-ca-XXXXXX");
    f = fdopen(mkstemp(ca->file), "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_X509(f, ca->cert), 1);
    fclose(f);
}

void test_ca_free(struct test_ca *ca)
{
    unlink(ca->file);
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
}

SSL_CTX *test_ca_server(struct test_ca *ca, const char *alt_name)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_cert(key, "server", ca->cert, ca->key, "subjectAltName", alt_name);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

    assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    X509_free(cert);
    EVP_PKEY_free(key);
    return ctx;
}
