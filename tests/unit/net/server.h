// SPDX-License-Identifier: Apache-2.0
// A server that follows a script, in a thread of its own, so that a test decides every byte.
#pragma once

#include "base/buf.h"

#include <openssl/ssl.h>
#include <pthread.h>

struct server {
    uint16_t port;
    int fd;
    SSL_CTX *tls; // NULL: plain
    pthread_t thread;
    void (*script)(struct server *s);
    char trouble[200]; // what did not go as the script expected
};

struct peer {
    struct server *server;
    int fd;
    SSL *ssl;
    struct buf head, body; // of the request read last
    bool resumed;          // the TLS session
};

void server_start(struct server *s, void (*script)(struct server *s), SSL_CTX *tls);
// Waits for the script's end; fails the test if it had trouble.
void server_stop(struct server *s);

// --- for scripts; each waits a few seconds at most ---

struct peer *server_accept(struct server *s); // never NULL, possibly in trouble
void peer_read_request(struct peer *p);       // its head, and the body it announces
void peer_send(struct peer *p, const char *s);
void peer_send_bytes(struct peer *p, const void *data, size_t len);
void peer_drip(struct peer *p, const char *s); // byte by byte
void peer_expect_end(struct peer *p);          // the client closes without a further byte
void peer_start_tls(struct peer *p, SSL_CTX *ctx);
void peer_close(struct peer *p);
void peer_reset(struct peer *p);
void server_expect(struct server *s, bool ok, const char *what);

// --- certificates ---

struct test_ca {
    X509 *cert;
    EVP_PKEY *key;
    char file[32]; // PEM
};

void test_ca_make(struct test_ca *ca);
void test_ca_free(struct test_ca *ca);
// A context for a server of that name (or address, "IP:127.0.0.1").
SSL_CTX *test_ca_server(struct test_ca *ca, const char *alt_name);
