// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "fake_s3.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GETS_MAX 65536

struct s3_client {
    struct loop *loop;
};

struct fake {
    struct loop_msg msg, cancel_msg;
    struct loop *loop;
    struct s3_get *get; // NULL once done
    uint64_t offset, len;
    bool demand, cancelled;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake *fakes[GETS_MAX];
static unsigned n_fakes;
static size_t automatic;
static struct s3_settings settings = {.max_connections = 64};

uint8_t fake_byte(const char *key, uint64_t offset)
{
    uint64_t x = (offset + 1) * 0x9e3779b97f4a7c15u + (uint8_t)key[0] * 77u;

    return (uint8_t)(x >> 56);
}

// --- what the cache calls ---

const struct s3_settings *s3_bucket_settings(const struct s3_bucket *b)
{
    return &settings;
}

int s3_client_new(struct s3_client **ret, struct loop *l, struct s3_bucket *b)
{
    *ret = xcalloc(1, sizeof(**ret));
    (*ret)->loop = l;
    return 0;
}

void s3_client_free(struct s3_client *c)
{
    free(c);
}

static void end(struct fake *f, int error)
{
    struct s3_get *get = f->get;

    f->get = NULL;
    if (get)
        get->done(get, error);
}

static void land(struct fake *f, uint64_t n)
{
    struct s3_get *get = f->get;
    uint64_t left = n;

    while (left) {
        struct iovec iov[8];
        int count = get->on_room(get, iov, 8);
        size_t landed = 0;

        assert_true(count > 0);
        for (int i = 0; i < count && left; i++) {
            size_t len = MIN(iov[i].iov_len, left);

            for (size_t k = 0; k < len; k++)
                ((uint8_t *)iov[i].iov_base)[k] =
                    fake_byte(get->key, get->offset + get->landed + landed + k);
            landed += len;
            left -= len;
        }
        get->landed += landed;
        get->on_landed(get, landed);
    }
}

static void run_automatic(struct loop_msg *msg)
{
    struct fake *f = container_of(msg, struct fake, msg);
    struct s3_object_info info = {.etag = "\"v1\""};

    if (!f->get)
        return;
    info.size = strtoull(strrchr(f->get->key, ':') + 1, NULL, 10);
    if (f->get->landed == 0)
        assert_int_equal(f->get->on_head(f->get, &info, f->len), 0);
    land(f, MIN(automatic, f->len - f->get->landed));
    if (f->get->landed == f->len)
        end(f, 0);
    else
        loop_post(f->loop, &f->msg, run_automatic);
}

void s3_get_start(struct s3_client *c, struct s3_get *g)
{
    struct fake *f = xcalloc(1, sizeof(*f));

    *f = (struct fake){
        .loop = c->loop,
        .get = g,
        .offset = g->offset,
        .len = g->len,
        .demand = g->priority == HTTP_DEMAND,
    };
    g->op = f;
    pthread_mutex_lock(&lock);
    assert_true(n_fakes < GETS_MAX);
    fakes[n_fakes++] = f;
    if (automatic)
        loop_post(f->loop, &f->msg, run_automatic);
    pthread_mutex_unlock(&lock);
}

static void on_cancel(struct loop_msg *msg)
{
    end(container_of(msg, struct fake, cancel_msg), -ECANCELED);
}

void s3_get_cancel(struct s3_get *g)
{
    struct fake *f = g->op;

    if (f->cancelled)
        return;
    f->cancelled = true;
    loop_post(f->loop, &f->cancel_msg, on_cancel);
}

void s3_get_raise(struct s3_get *g)
{
    ((struct fake *)g->op)->demand = true;
}

// --- what the test calls ---

void fake_reset(void)
{
    for (unsigned i = 0; i < n_fakes; i++)
        free(fakes[i]);
    n_fakes = 0;
    automatic = 0;
    settings.max_connections = 64;
}

void fake_set_connections(unsigned n)
{
    settings.max_connections = n;
}

void fake_set_automatic(size_t piece)
{
    pthread_mutex_lock(&lock);
    automatic = piece;
    pthread_mutex_unlock(&lock);
}

unsigned fake_count(void)
{
    unsigned n;

    pthread_mutex_lock(&lock);
    n = n_fakes;
    pthread_mutex_unlock(&lock);
    return n;
}

void fake_wait(unsigned n)
{
    for (int i = 0; i < 5000 && fake_count() < n; i++)
        usleep(1000);
    assert_true(fake_count() >= n);
}

static struct fake *fake_at(unsigned get)
{
    struct fake *f;

    fake_wait(get + 1);
    pthread_mutex_lock(&lock);
    f = fakes[get];
    pthread_mutex_unlock(&lock);
    return f;
}

uint64_t fake_offset(unsigned get)
{
    return fake_at(get)->offset;
}

uint64_t fake_len(unsigned get)
{
    return fake_at(get)->len;
}

uint64_t fake_bytes_asked(void)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < fake_count(); i++)
        sum += fake_len(i);
    return sum;
}

struct order {
    struct fake *f;
    uint64_t n;
    int error;
    bool flag;
};

static void see_demand(void *arg)
{
    struct order *o = arg;

    o->flag = o->f->demand;
}

bool fake_is_demand(unsigned get)
{
    struct order o = {.f = fake_at(get)};

    loop_call(o.f->loop, see_demand, &o);
    return o.flag;
}

static void see_cancelled(void *arg)
{
    struct order *o = arg;

    o->flag = o->f->cancelled;
}

bool fake_cancelled(unsigned get)
{
    struct order o = {.f = fake_at(get)};

    loop_call(o.f->loop, see_cancelled, &o);
    return o.flag;
}

static void do_head(void *arg)
{
    struct order *o = arg;
    struct s3_object_info info = {.size = o->n, .etag = "\"v1\""};
    int rc = o->f->get->on_head(o->f->get, &info, MIN(o->f->len, o->n));

    if (rc < 0)
        end(o->f, rc);
}

void fake_head(unsigned get, uint64_t size)
{
    struct order o = {.f = fake_at(get), .n = size};

    loop_call(o.f->loop, do_head, &o);
}

static void do_land(void *arg)
{
    struct order *o = arg;

    land(o->f, o->n);
}

void fake_land(unsigned get, uint64_t n)
{
    struct order o = {.f = fake_at(get), .n = n};

    loop_call(o.f->loop, do_land, &o);
}

static void do_finish(void *arg)
{
    struct order *o = arg;

    end(o->f, o->error);
}

void fake_finish(unsigned get, int error)
{
    struct order o = {.f = fake_at(get), .error = error};

    loop_call(o.f->loop, do_finish, &o);
}

void fake_succeed(unsigned get, uint64_t size)
{
    fake_head(get, size);
    fake_land(get, fake_len(get));
    fake_finish(get, 0);
}
