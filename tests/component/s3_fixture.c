// SPDX-License-Identifier: Apache-2.0
#include "s3_fixture.h"

#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCESS_KEY "os2g"
#define SECRET_KEY "os2g-secret"

static void must(int rc, const char *what)
{
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(-rc));
        exit(1);
    }
}

// --- life ---

struct setup {
    struct s3_fixture *f;
    struct s3_settings s;
};

static void connect_on_loop(void *arg)
{
    struct setup *u = arg;
    struct s3_fixture *f = u->f;
    char *error = NULL;

    must(credentials_provider_new(&f->provider, f->loop,
                                  &(struct credentials_config){
                                      .access_key = u->s.access_key,
                                      .secret_key = u->s.secret_key,
                                      .no_sign_request = u->s.no_sign_request,
                                  },
                                  NULL),
         "credentials");
    must(s3_bucket_new(&f->bucket, &u->s, f->provider, &error), error);
    must(s3_client_new(&f->client, f->loop, f->bucket), "client");
}

static void connect_client(struct s3_fixture *f, struct s3_settings s)
{
    struct setup u = {.f = f, .s = s};

    u.s.bucket = s.bucket ? s.bucket : FIXTURE_BUCKET;
    u.s.endpoint_url = s.endpoint_url ? s.endpoint_url : f->server.url;
    u.s.access_key = s.access_key ? s.access_key : ACCESS_KEY;
    u.s.secret_key = s.secret_key ? s.secret_key : SECRET_KEY;
    must(loop_start(&f->loop, "test"), "loop");
    loop_call(f->loop, connect_on_loop, &u);
}

static void disconnect_on_loop(void *arg)
{
    struct s3_fixture *f = arg;

    s3_client_free(f->client);
    s3_bucket_free(f->bucket);
    credentials_provider_free(f->provider);
}

static void disconnect(struct s3_fixture *f)
{
    loop_call(f->loop, disconnect_on_loop, f);
    loop_stop(f->loop);
}

void s3_fixture_start(struct s3_fixture *f, struct s3_settings s, const char *const *args)
{
    const char *all[32] = {"--synthetic", FIXTURE_KEYS, "--threads", "1"};
    size_t n = 4;

    *f = (struct s3_fixture){0};
    signal(SIGPIPE, SIG_IGN);
    must(s3d_table_init(&f->table), "table");
    while (args && *args && n < ARRAY_LEN(all) - 1)
        all[n++] = *args++;
    s3d_process_start(&f->server, all);
    connect_client(f, s);
}

void s3_fixture_stop(struct s3_fixture *f)
{
    disconnect(f);
    s3d_process_stop(&f->server);
    s3d_table_fini(&f->table);
}

void s3_fixture_reconnect(struct s3_fixture *f, struct s3_settings s)
{
    disconnect(f);
    connect_client(f, s);
}

void s3_fixture_call(struct s3_fixture *f, void (*fn)(void *arg), void *arg)
{
    loop_call(f->loop, fn, arg);
}

// --- GET ---

struct s3_fixture_batch {
    struct s3_fixture *f;
    struct s3_fixture_get **gets;
    size_t n, left;
    sem_t done;
};

static int on_head(struct s3_get *get, const struct s3_object_info *info, uint64_t body_len)
{
    struct s3_fixture_get *g = container_of(get, struct s3_fixture_get, get);

    g->heads++;
    g->info = *info;
    g->body_len = body_len;
    snprintf(g->etag, sizeof(g->etag), "%s", info->etag);
    snprintf(g->content_type, sizeof(g->content_type), "%s", info->content_type);
    g->room = body_len;
    g->data = xrealloc(g->data, body_len + 1);
    return 0;
}

static int on_room(struct s3_get *get, struct iovec *iov, int max)
{
    struct s3_fixture_get *g = container_of(get, struct s3_fixture_get, get);
    size_t left = g->room - get->landed;

    // in two pieces, so that more than one is seen to work
    iov[0] = (struct iovec){g->data + get->landed, left / 2};
    iov[1] = (struct iovec){g->data + get->landed + left / 2, left - left / 2};
    return 2;
}

static void on_landed(struct s3_get *get, size_t n) {}

static void on_done(struct s3_get *get, int error)
{
    struct s3_fixture_get *g = container_of(get, struct s3_fixture_get, get);
    struct s3_fixture_batch *b = g->batch;

    g->dones++;
    g->error = error;
    if (g->ended)
        g->ended(g);
    if (--b->left == 0)
        sem_post(&b->done);
}

struct s3_fixture_get *s3_fixture_get_new(const char *key, uint64_t offset, uint64_t len)
{
    struct s3_fixture_get *g = xcalloc(1, sizeof(*g));

    g->get = (struct s3_get){
        .key = xstrdup(key),
        .key_len = strlen(key),
        .offset = offset,
        .len = len,
        .on_head = on_head,
        .on_room = on_room,
        .on_landed = on_landed,
        .done = on_done,
    };
    return g;
}

void s3_fixture_get_free(struct s3_fixture_get *g)
{
    free((char *)g->get.key);
    free(g->data);
    free(g);
}

static void start_batch(void *arg)
{
    struct s3_fixture_batch *b = arg;

    for (size_t i = 0; i < b->n; i++)
        s3_get_start(b->f->client, &b->gets[i]->get);
}

void s3_fixture_get_all(struct s3_fixture *f, struct s3_fixture_get **gets, size_t n)
{
    struct s3_fixture_batch b = {.f = f, .gets = gets, .n = n, .left = n};

    sem_init(&b.done, 0, 0);
    for (size_t i = 0; i < n; i++)
        gets[i]->batch = &b;
    loop_call(f->loop, start_batch, &b);
    while (sem_wait(&b.done) < 0 && errno == EINTR)
        ;
    sem_destroy(&b.done);
}

int s3_fixture_get_run(struct s3_fixture *f, struct s3_fixture_get *g)
{
    s3_fixture_get_all(f, &g, 1);
    return g->error;
}

bool s3_fixture_get_is_right(struct s3_fixture *f, const struct s3_fixture_get *g, uint64_t size)
{
    const struct s3_get *get = &g->get;
    uint64_t due = MIN(get->len, size - get->offset);
    struct s3d_name name;

    s3d_name_hash(&name, FIXTURE_BUCKET, get->key, 0);
    return g->error == 0 && g->dones == 1 && g->heads == 1 && g->body_len == due &&
           get->landed == due && g->info.size == size &&
           s3d_synthetic_check(&f->table, name.start, get->offset, g->data, due) < 0;
}
