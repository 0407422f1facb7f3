// SPDX-License-Identifier: Apache-2.0
#include "s3d/server.h"

#include "base/clock.h"
#include "base/log.h"
#include "s3d/conn.h"
#include "s3d/options.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096

// --- connections come in on the main thread and go to the workers in turn ---

struct newcomer {
    struct loop_msg msg;
    struct worker *worker;
    int fd;
};

static void on_newcomer(struct loop_msg *msg)
{
    struct newcomer *n = container_of(msg, struct newcomer, msg);

    conn_new(n->worker, n->fd);
    free(n);
}

static void on_accept(struct loop_io *io, unsigned events, void *arg)
{
    struct server *s = arg;
    int fd;

    while ((fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct newcomer *n = xcalloc(1, sizeof(*n));

        n->worker = &s->workers[s->next_worker++ % s->n_workers];
        n->fd = fd;
        loop_post(n->worker->loop, &n->msg, on_newcomer);
    }
    if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
        log_warning("s3d", "accept: %s", strerror(errno));
}

static void on_signal(struct loop_io *io, unsigned events, void *arg)
{
    struct server *s = arg;
    struct signalfd_siginfo info;

    if (read(s->signal_fd, &info, sizeof(info)) == sizeof(info))
        loop_quit(s->accept_loop);
}

// --- starting ---

static int complain(const char *what, const char *why)
{
    fprintf(stderr, "os2g-s3d: %s: %s\n", what, why);
    return -EINVAL;
}

static int start_listening(struct server *s, const struct options *o)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    char service[8];
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } bound = {0};
    socklen_t len = sizeof(bound);
    int one = 1, rc;

    snprintf(service, sizeof(service), "%u", o->port);
    rc = getaddrinfo(o->listen_host, service, &hints, &found);
    if (rc)
        return complain(o->listen_host, gai_strerror(rc));
    s->listen_fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    rc = s->listen_fd < 0 ||
                 setsockopt(s->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
                 bind(s->listen_fd, found->ai_addr, found->ai_addrlen) < 0 ||
                 listen(s->listen_fd, BACKLOG) < 0 ||
                 getsockname(s->listen_fd, &bound.any, &len) < 0
             ? -errno
             : 0;
    freeaddrinfo(found);
    if (rc < 0)
        return complain(o->listen_host, strerror(-rc));
    s->port = ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
    return 0;
}

static int start_tls(struct server *s, const struct options *o)
{
    if (!o->tls_cert)
        return 0;
    s->tls = SSL_CTX_new(TLS_server_method());
    if (!s->tls || SSL_CTX_use_certificate_chain_file(s->tls, o->tls_cert) != 1)
        return complain(o->tls_cert, ERR_reason_error_string(ERR_get_error()));
    if (SSL_CTX_use_PrivateKey_file(s->tls, o->tls_key, SSL_FILETYPE_PEM) != 1)
        return complain(o->tls_key, ERR_reason_error_string(ERR_get_error()));
    SSL_CTX_set_mode(s->tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                 SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_min_proto_version(s->tls, TLS1_2_VERSION);
    return 0;
}

static void raise_file_limit(void)
{
    struct rlimit limit;

    // thousands of connections, and an open file behind each large object in memory
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int add_keys(struct server *s, const struct options *o)
{
    char *why = NULL;
    int rc;

    for (size_t i = 0; i < o->n_keys; i++)
        if (credential_table_add(&s->credentials, o->keys[i].access, o->keys[i].secret, RIGHT_ALL,
                                 "") < 0)
            return complain(o->keys[i].access, "this access key is given twice");
    if (!o->auth_file)
        return 0;
    rc = credential_table_load(&s->credentials, o->auth_file, &why);
    if (rc < 0) {
        rc = why ? complain("--auth-file", why) : complain(o->auth_file, strerror(-rc));
        free(why);
    }
    return rc;
}

static int add_buckets(struct server *s, const struct options *o)
{
    for (size_t i = 0; i < o->n_buckets; i++) {
        struct option_bucket *b = &o->buckets[i];
        int rc = b->is_synthetic ? store_add(&s->store, store_mem_new(b->name, &b->families))
                                 : store_create(&s->store, b->name);

        if (rc < 0 && (rc != -EEXIST || b->is_synthetic))
            return complain(b->name, strerror(-rc));
    }
    for (size_t i = 0; i < o->n_requester_pays; i++) {
        struct bucket *b = store_find(&s->store, o->requester_pays[i]);

        if (!b)
            return complain(o->requester_pays[i], "--requester-pays names no bucket");
        b->requester_pays = true;
        bucket_unref(b);
    }
    return 0;
}

static int load_faults(struct server *s, const char *path)
{
    FILE *f = path ? fopen(path, "re") : NULL;
    struct fault_set *set;
    struct buf text = {0};
    char line[4096], *why;
    int rc = 0;

    if (!path)
        return 0;
    if (!f)
        return complain(path, strerror(errno));
    while (fgets(line, sizeof(line), f))
        buf_add_str(&text, line);
    fclose(f);
    if (fault_set_parse(&set, buf_str(&text), &why) == 0) {
        server_set_faults(s, set);
    } else {
        rc = complain(path, why);
        free(why);
    }
    buf_free(&text);
    return rc;
}

static int start_workers(struct server *s, const struct options *o)
{
    s->workers = xcalloc(o->threads, sizeof(s->workers[0]));
    for (unsigned i = 0; i < o->threads; i++) {
        struct worker *w = &s->workers[i];
        char name[16];
        int rc;

        w->server = s;
        w->next_id = ((uint64_t)i + 1) << 56;
        w->scratch = xmalloc(WORKER_SCRATCH);
        list_init(&w->conns);
        rand_seed(&w->rand, i + 1);
        snprintf(name, sizeof(name), "s3d-%u", i);
        s->n_workers++;
        rc = loop_start(&w->loop, name);
        if (rc < 0)
            return complain("starting a thread", strerror(-rc));
    }
    return 0;
}

static int start_main_loop(struct server *s)
{
    sigset_t signals;
    int rc = loop_new(&s->accept_loop, "s3d-accept");

    if (rc < 0)
        return rc;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    s->signal_fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (s->signal_fd < 0)
        return -errno;
    rc = loop_io_new(&s->signal_io, s->accept_loop, s->signal_fd, on_signal, s);
    if (rc == 0)
        rc = loop_io_new(&s->accept_io, s->accept_loop, s->listen_fd, on_accept, s);
    if (rc < 0)
        return rc;
    loop_io_want(s->signal_io, LOOP_READ);
    loop_io_want(s->accept_io, LOOP_READ);
    return 0;
}

int server_start(struct server *s, const struct options *o)
{
    int rc;

    *s = (struct server){.options = o, .listen_fd = -1, .signal_fd = -1};
    pthread_mutex_init(&s->log_lock, NULL);
    pthread_mutex_init(&s->shared_lock, NULL);
    credential_table_init(&s->credentials);
    upload_table_init(&s->uploads);
    s->total.bytes_per_s = o->bandwidth_total;
    server_set_latency(s, &o->latency);
    raise_file_limit();
    rc = store_init(&s->store, o->data_path);
    if (rc < 0)
        return complain(o->data_path, strerror(-rc));
    rc = s3d_table_init(&s->table);
    if (rc < 0)
        return complain("the table of synthetic bytes", strerror(-rc));
    if (o->log_path && !(s->log = fopen(o->log_path, "ae")))
        return complain(o->log_path, strerror(errno));
    if ((rc = add_keys(s, o)) < 0 || (rc = add_buckets(s, o)) < 0 ||
        (rc = load_faults(s, o->faults_path)) < 0 || (rc = start_tls(s, o)) < 0 ||
        (rc = start_listening(s, o)) < 0)
        return rc;
    rc = start_main_loop(s);
    if (rc < 0)
        return complain("starting", strerror(-rc));
    return start_workers(s, o);
}

void server_run(struct server *s)
{
    loop_run(s->accept_loop);
}

static void drop_connections(void *arg)
{
    struct worker *w = arg;

    list_for_each_safe (it, &w->conns)
        conn_free(list_entry(it, struct conn, link), CONN_ORDERLY);
}

void server_stop(struct server *s)
{
    loop_io_free(s->accept_io);
    loop_io_free(s->signal_io);
    for (unsigned i = 0; i < s->n_workers; i++) {
        struct worker *w = &s->workers[i];

        if (w->loop)
            loop_call(w->loop, drop_connections, w);
        loop_stop(w->loop);
        free(w->scratch);
    }
    loop_stop(s->accept_loop);
    free(s->workers);
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    if (s->signal_fd >= 0)
        close(s->signal_fd);
    if (s->log)
        fclose(s->log);
    SSL_CTX_free(s->tls);
    fault_set_unref(s->faults);
    upload_table_fini(&s->uploads);
    credential_table_fini(&s->credentials);
    store_fini(&s->store);
    s3d_table_fini(&s->table);
    pthread_mutex_destroy(&s->log_lock);
    pthread_mutex_destroy(&s->shared_lock);
}

// --- what workers share ---

int64_t worker_wall_s(const struct worker *w)
{
    return clock_wall_s() + w->server->options->clock_offset_s;
}

const char *worker_date(struct worker *w)
{
    int64_t now = worker_wall_s(w);

    if (now != w->date_s) {
        w->date_s = now;
        clock_format_http_date(now, w->date);
    }
    return w->date;
}

void server_set_faults(struct server *s, struct fault_set *f)
{
    struct fault_set *old;

    pthread_mutex_lock(&s->shared_lock);
    old = s->faults;
    s->faults = f;
    atomic_store(&s->has_faults, f != NULL);
    pthread_mutex_unlock(&s->shared_lock);
    fault_set_unref(old);
}

struct fault_set *server_get_faults(struct server *s)
{
    struct fault_set *f;

    pthread_mutex_lock(&s->shared_lock);
    f = s->faults ? fault_set_ref(s->faults) : NULL;
    pthread_mutex_unlock(&s->shared_lock);
    return f;
}

void server_set_latency(struct server *s, const struct latency *l)
{
    pthread_mutex_lock(&s->shared_lock);
    s->latency = *l;
    atomic_store(&s->has_latency, l->a_ns || l->b_ns);
    pthread_mutex_unlock(&s->shared_lock);
}

uint64_t worker_draw_latency_ns(struct worker *w)
{
    struct server *s = w->server;
    struct latency l;

    if (!atomic_load_explicit(&s->has_latency, memory_order_relaxed))
        return 0;
    pthread_mutex_lock(&s->shared_lock);
    l = s->latency;
    pthread_mutex_unlock(&s->shared_lock);
    return latency_draw_ns(&l, &w->rand);
}

static void sum_counters(struct server *s, struct counters_sum *sum)
{
    memset(sum, 0, sizeof(*sum));
    for (unsigned i = 0; i < s->n_workers; i++)
        counters_add_to(&s->workers[i].counters, sum);
}

void server_counters(struct server *s, struct counters_sum *sum)
{
    sum_counters(s, sum);
    pthread_mutex_lock(&s->shared_lock);
    counters_subtract(sum, &s->base);
    pthread_mutex_unlock(&s->shared_lock);
}

void server_reset_counters(struct server *s)
{
    struct counters_sum now;

    sum_counters(s, &now);
    pthread_mutex_lock(&s->shared_lock);
    s->base = now;
    pthread_mutex_unlock(&s->shared_lock);
    atomic_store(&s->peak_in_flight, 0);
}
