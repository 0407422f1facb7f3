// SPDX-License-Identifier: Apache-2.0
#include "s3/bucket.h"

#include "base/clock.h"
#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SKEW_S (10 * 365 * 86400ll) // a store's clock that is further off is not believed

struct s3_bucket {
    atomic_int refs;
    struct s3_settings *settings;
    struct credentials_provider *provider;
    atomic_uint generation;
    _Atomic int64_t clock_offset_s;

    pthread_mutex_t lock;
    struct {
        struct s3_target *target;
        struct load load;
        struct list waiting; // struct s3_bucket_waiter
    } locked;
};

int s3_bucket_new(struct s3_bucket **ret, const struct s3_settings *s,
                  struct credentials_provider *provider, char **ret_error)
{
    struct s3_target *t = xcalloc(1, sizeof(*t));
    struct s3_bucket *b;
    int rc = s->ca_file ? http_ca_file_check(s->ca_file, ret_error) : 0;

    if (rc == 0 && s->proxy)
        rc = http_proxy_check(s->proxy, ret_error);
    if (rc == 0)
        rc = s3_endpoint_build(s, NULL, &t->endpoint, ret_error);
    if (rc < 0) {
        free(t);
        return rc;
    }
    atomic_init(&t->refs, 1);
    strncpy(t->region, s->region && *s->region ? s->region : "us-east-1", sizeof(t->region) - 1);

    b = xcalloc(1, sizeof(*b));
    atomic_init(&b->refs, 1);
    b->settings = s3_settings_dup(s);
    if (b->settings->retry_timeout_ns == 0)
        b->settings->retry_timeout_ns = 60 * NS_PER_S;
    if (b->settings->max_connections == 0)
        b->settings->max_connections = S3_CONNECTIONS_DEFAULT;
    b->provider = provider;
    pthread_mutex_init(&b->lock, NULL);
    list_init(&b->locked.waiting);
    b->locked.target = t;
    load_init(&b->locked.load,
              &(struct load_config){.max_in_flight = b->settings->max_connections,
                                    .max_requests_per_s = b->settings->max_requests_per_s,
                                    .max_bytes_per_s = b->settings->max_bytes_per_s},
              clock_monotonic_ns());
    *ret = b;
    return 0;
}

void s3_bucket_free(struct s3_bucket *b)
{
    if (b)
        s3_bucket_unref(b);
}

void s3_bucket_ref(struct s3_bucket *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

void s3_bucket_unref(struct s3_bucket *b)
{
    if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1)
        return;
    assert(list_empty(&b->locked.waiting));
    s3_target_unref(b->locked.target);
    pthread_mutex_destroy(&b->lock);
    s3_settings_free(b->settings);
    free(b);
}

const struct s3_settings *s3_bucket_settings(const struct s3_bucket *b)
{
    return b->settings;
}

struct credentials_provider *s3_bucket_credentials(struct s3_bucket *b)
{
    return b->provider;
}

// --- where and when ---

unsigned s3_bucket_generation(const struct s3_bucket *b)
{
    return atomic_load_explicit(&b->generation, memory_order_acquire);
}

struct s3_target *s3_bucket_target(struct s3_bucket *b, unsigned *ret_generation)
{
    struct s3_target *t;

    pthread_mutex_lock(&b->lock);
    t = s3_target_ref(b->locked.target);
    *ret_generation = s3_bucket_generation(b);
    pthread_mutex_unlock(&b->lock);
    return t;
}

static void set_target_locked(struct s3_bucket *b, struct s3_target *t)
{
    s3_target_unref(b->locked.target);
    b->locked.target = s3_target_ref(t);
    atomic_fetch_add_explicit(&b->generation, 1, memory_order_release);
}

bool s3_bucket_learn_region(struct s3_bucket *b, const struct s3_target *from, const char *region)
{
    char *error = NULL;
    struct s3_target *t;
    bool news;

    if (!*region || strlen(region) >= sizeof(t->region) || !strcmp(from->region, region))
        return false;
    t = xcalloc(1, sizeof(*t));
    atomic_init(&t->refs, 1);
    memcpy(t->region, region, strlen(region) + 1);
    if (s3_endpoint_build(b->settings, region, &t->endpoint, &error) < 0) {
        log_warning("s3", "the store says that the bucket is in another region: %s", error);
        free(error);
        s3_target_unref(t);
        return false;
    }
    pthread_mutex_lock(&b->lock);
    news = strcmp(b->locked.target->region, region) != 0;
    if (news)
        set_target_locked(b, t);
    pthread_mutex_unlock(&b->lock);
    if (news)
        log_info("s3", "bucket %s is in region %s; asking at %s from now on", b->settings->bucket,
                 region, t->endpoint.host);
    s3_target_unref(t);
    return true;
}

void s3_bucket_learn_target(struct s3_bucket *b, struct s3_target *t)
{
    pthread_mutex_lock(&b->lock);
    set_target_locked(b, t);
    pthread_mutex_unlock(&b->lock);
    log_info("s3", "bucket %s has moved; asking at %s from now on", b->settings->bucket,
             t->endpoint.host_header);
}

int64_t s3_bucket_clock_offset_s(const struct s3_bucket *b)
{
    return atomic_load_explicit(&b->clock_offset_s, memory_order_relaxed);
}

// A minute more or less is nothing that a store would refuse.
static bool differ(int64_t a_s, int64_t b_s)
{
    return a_s - b_s >= 60 || b_s - a_s >= 60;
}

bool s3_bucket_learn_time(struct s3_bucket *b, int64_t server_s, int64_t used_offset_s)
{
    int64_t offset = server_s - clock_wall_s();

    if (offset > MAX_SKEW_S || offset < -MAX_SKEW_S || !differ(offset, used_offset_s))
        return false;
    // of many requests that were under way the first is news
    if (differ(offset, s3_bucket_clock_offset_s(b))) {
        atomic_store_explicit(&b->clock_offset_s, offset, memory_order_relaxed);
        log_warning("s3",
                    "this machine's clock differs from the store's by %lld s; set it (requests "
                    "are signed with the store's time until then)",
                    (long long)offset);
    }
    return true;
}

// --- load control ---

void s3_bucket_waiter_init(struct s3_bucket_waiter *w, struct s3_bucket *b, struct loop *l,
                           void (*wake)(struct s3_bucket_waiter *w))
{
    *w = (struct s3_bucket_waiter){.bucket = b, .loop = l, .wake = wake};
    list_init(&w->link);
}

bool s3_bucket_waiter_leave(struct s3_bucket_waiter *w)
{
    bool posted;

    pthread_mutex_lock(&w->bucket->lock);
    list_remove(&w->link);
    posted = w->posted;
    pthread_mutex_unlock(&w->bucket->lock);
    return !posted;
}

static void on_wake(struct loop_msg *msg)
{
    struct s3_bucket_waiter *w = container_of(msg, struct s3_bucket_waiter, msg);

    pthread_mutex_lock(&w->bucket->lock);
    w->posted = false;
    pthread_mutex_unlock(&w->bucket->lock);
    w->wake(w);
}

static bool wake_next_locked(struct s3_bucket *b, const struct s3_bucket_waiter *self)
{
    struct s3_bucket_waiter *w = list_first(&b->locked.waiting, struct s3_bucket_waiter, link);

    if (!w || !load_has_room(&b->locked.load, true))
        return false;
    list_remove(&w->link);
    if (w == self)
        return true;
    w->posted = true;
    loop_post(w->loop, &w->msg, on_wake);
    return false;
}

uint64_t s3_bucket_enter(struct s3_bucket *b, struct s3_bucket_waiter *w, bool demand)
{
    uint64_t now = clock_monotonic_ns(), wait;

    pthread_mutex_lock(&b->lock);
    wait = load_enter(&b->locked.load, demand, now);
    if (wait == LOAD_FULL && !w->posted && list_empty(&w->link))
        list_push_back(&b->locked.waiting, &w->link);
    pthread_mutex_unlock(&b->lock);
    return wait;
}

bool s3_bucket_leave(struct s3_bucket *b, struct s3_bucket_waiter *self, enum load_answer a,
                     uint64_t sent_ns)
{
    uint64_t now = clock_monotonic_ns();
    bool self_is_next;

    pthread_mutex_lock(&b->lock);
    load_leave(&b->locked.load, a, sent_ns, now);
    self_is_next = wake_next_locked(b, self);
    pthread_mutex_unlock(&b->lock);
    return self_is_next;
}

void s3_bucket_pass(struct s3_bucket *b)
{
    pthread_mutex_lock(&b->lock);
    wake_next_locked(b, NULL);
    pthread_mutex_unlock(&b->lock);
}

uint64_t s3_bucket_bytes_wait(struct s3_bucket *b, bool demand)
{
    uint64_t wait;

    if (b->settings->max_bytes_per_s == 0)
        return 0;
    pthread_mutex_lock(&b->lock);
    wait = load_bytes_wait(&b->locked.load, demand, clock_monotonic_ns());
    pthread_mutex_unlock(&b->lock);
    return wait;
}

void s3_bucket_bytes_take(struct s3_bucket *b, uint64_t n)
{
    if (b->settings->max_bytes_per_s == 0)
        return;
    pthread_mutex_lock(&b->lock);
    load_bytes_take(&b->locked.load, n);
    pthread_mutex_unlock(&b->lock);
}
