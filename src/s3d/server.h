// SPDX-License-Identifier: Apache-2.0
// s3d/: os2g-s3d, the development S3 server: a program of its own for tests and benchmarks; no
// other directory uses it, but for synthetic.h. It uses net/'s HTTP heads, s3/'s signatures, loop/
// and base/.
//
//   server   loops, listening socket, what all workers share
//   conn     one connection: HTTP framing in (conn.c) and out (conn_send.c), over TCP or TLS
//   (wire.c) request  routing; response; payload (bodies of requests); auth op_*     the
//   operations, on store (store_mem, store_dir), uploads and credentials faults, latency, pacer
//   what makes it behave like a real, distant and unreliable store
//
// Each worker is a loop with its connections; a request is served where its connection lives.
// Buckets, uploads, key pairs and the fault rules are shared under locks.
#pragma once

#include "loop/loop.h"
#include "s3/sigv4.h"
#include "s3d/counters.h"
#include "s3d/credentials.h"
#include "s3d/latency.h"
#include "s3d/pacer.h"
#include "s3d/store.h"
#include "s3d/uploads.h"

#include <openssl/ssl.h>
#include <stdio.h>

struct options;

struct worker_key {
    const struct credential *who;
    struct sigv4_key key;
};

struct worker {
    struct server *server;
    struct loop *loop;
    struct list conns;
    struct rand rand;
    struct counters counters;
    char *scratch; // for bytes that are used at once
    uint64_t next_id;
    struct worker_key keys[16]; // the latest signing keys
    unsigned next_key;
    int64_t date_s; // the second that date is of
    char date[30];
};

#define WORKER_SCRATCH (256 * KIB)

struct server {
    const struct options *options;
    struct store store;
    struct s3d_table table;
    struct credential_table credentials;
    struct upload_table uploads;
    struct worker *workers;
    unsigned n_workers, next_worker;
    struct loop *accept_loop; // the main thread's
    struct loop_io *accept_io, *signal_io;
    int listen_fd, signal_fd;
    uint16_t port;
    SSL_CTX *tls;
    struct pacer total;
    FILE *log;
    pthread_mutex_t log_lock;

    pthread_mutex_t shared_lock; // for the next three
    struct fault_set *faults;    // NULL: none
    struct latency latency;
    struct counters_sum base; // what counters were at the last reset
    atomic_bool has_faults, has_latency;

    atomic_uint in_flight, peak_in_flight, open_connections;
};

// Binds and starts the workers; 0, or -errno after a message on stderr.
int server_start(struct server *s, const struct options *o);
void server_run(struct server *s);  // until SIGTERM or SIGINT
void server_stop(struct server *s); // also half-started ones

// The date header's value, and the wall clock with --clock-offset.
const char *worker_date(struct worker *w);
int64_t worker_wall_s(const struct worker *w);

// NULL stops it.
void server_set_faults(struct server *s, struct fault_set *f);
struct fault_set *server_get_faults(struct server *s); // a reference, or NULL
void server_set_latency(struct server *s, const struct latency *l);
uint64_t worker_draw_latency_ns(struct worker *w);
void server_counters(struct server *s, struct counters_sum *sum);
void server_reset_counters(struct server *s);
