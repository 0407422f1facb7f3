// SPDX-License-Identifier: Apache-2.0
#include "s3/client.h"

#include "base/clock.h"
#include "s3/request.h"

#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_NS (5 * NS_PER_S)
#define STALL_TIMEOUT_NS   (10 * NS_PER_S)
#define REFUSED_AGAIN_NS   (10 * NS_PER_S)
#define IDLE_TIMEOUT_NS    (20 * NS_PER_S) // S3 closes idle connections after about this time

// --- turns ---

// Tries to enter; on false arranges that dispatch is called when it may work.
static bool enter(struct s3_client *c, bool demand)
{
    uint64_t wait = s3_bucket_enter(c->bucket, &c->waiter, demand);

    if (wait == 0)
        return true;
    if (wait != LOAD_FULL)
        loop_timer_start_ns(&c->rate_timer, wait);
    return false;
}

// Sends what waits, demand first, as far as there is room.
static void dispatch(struct s3_client *c)
{
    c->dispatching = true;
    for (int p = 0; p < HTTP_PRIORITIES; p++) {
        while (!list_empty(&c->queued[p])) {
            struct s3_request *r;

            if (!enter(c, p == HTTP_DEMAND)) {
                c->dispatching = false;
                return;
            }
            r = list_first(&c->queued[p], struct s3_request, link);
            list_remove(&r->link);
            s3_request_admitted(r);
        }
    }
    c->dispatching = false;
    s3_bucket_pass(c->bucket);
}

static void on_wake(struct s3_bucket_waiter *w)
{
    struct s3_client *c = container_of(w, struct s3_client, waiter);

    if (c->freed) {
        s3_bucket_pass(c->bucket);
        s3_bucket_unref(c->bucket);
        free(c);
        return;
    }
    dispatch(c);
}

static void on_rate_timer(struct loop_timer *t)
{
    dispatch(container_of(t, struct s3_client, rate_timer));
}

bool s3_client_admit(struct s3_client *c, struct s3_request *r)
{
    bool others_first = false;

    for (int p = 0; p <= (int)r->priority; p++)
        others_first |= !list_empty(&c->queued[p]);
    if (!others_first && enter(c, r->priority == HTTP_DEMAND))
        return true;
    if (!r->queued_ns)
        r->queued_ns = clock_monotonic_ns();
    if (r->again)
        list_push_front(&c->queued[r->priority], &r->link);
    else
        list_push_back(&c->queued[r->priority], &r->link);
    return false;
}

void s3_client_leave(struct s3_client *c, enum load_answer a, uint64_t sent_ns)
{
    if (a == LOAD_TOO_MUCH)
        counter_add(&c->stats.throttled, 1);
    // a request without credentials may give its turn back while others are being given theirs
    if (s3_bucket_leave(c->bucket, &c->waiter, a, sent_ns) && !c->dispatching)
        dispatch(c);
}

// --- credentials ---

// Outlives the client when need be, for a wait cannot be taken back.
struct s3_credentials_wait {
    struct credentials_wait wait;
    struct s3_client *client; // NULL: it has gone
};

static void on_credentials(struct credentials_wait *wait, struct credentials *cr, int error,
                           const char *error_text)
{
    struct s3_credentials_wait *w = container_of(wait, struct s3_credentials_wait, wait);
    struct s3_client *c = w->client;
    struct list requests;

    list_init(&requests);
    if (c) {
        c->wait = NULL;
        list_splice_back(&requests, &c->unsigned_requests);
    }
    while (!list_empty(&requests)) {
        struct s3_request *r = list_first(&requests, struct s3_request, link);

        list_remove(&r->link);
        if (cr)
            s3_request_signable(r);
        else
            s3_request_unsignable(r, error, error_text);
    }
    if (cr)
        credentials_unref(cr);
    free(w);
}

void s3_client_wait_for_credentials(struct s3_client *c, struct s3_request *r)
{
    list_push_back(&c->unsigned_requests, &r->link);
    if (c->wait)
        return;
    c->wait = xcalloc(1, sizeof(*c->wait));
    c->wait->client = c;
    c->wait->wait.done = on_credentials;
    credentials_provider_wait(s3_bucket_credentials(c->bucket), &c->wait->wait);
}

static bool same_keys(const struct credentials *a, const struct credentials *b)
{
    return !strcmp(a->access_key, b->access_key) && !strcmp(a->secret_key, b->secret_key) &&
           !strcmp(a->session_token ? a->session_token : "",
                   b->session_token ? b->session_token : "");
}

bool s3_client_credentials_refused(struct s3_client *c, struct credentials *cr)
{
    uint64_t now = clock_monotonic_ns();
    bool again = c->refused && c->refused != cr && same_keys(c->refused, cr) &&
                 now - c->refused_ns < REFUSED_AGAIN_NS;

    // the same object is refused to all requests that were under way
    if (!again) {
        if (c->refused != cr) {
            credentials_unref(c->refused);
            c->refused = credentials_ref(cr);
            c->refused_ns = now;
        }
        credentials_provider_refused(s3_bucket_credentials(c->bucket), cr);
    }
    return !again;
}

const struct sigv4_key *s3_client_signing_key(struct s3_client *c, struct credentials *cr,
                                              const char *region, int64_t now_s)
{
    if (now_s != c->second) {
        c->second = now_s;
        clock_format_amz_date(now_s, c->amz_date);
    }
    if (cr != c->signed_by || strncmp(c->key.date, c->amz_date, 8) != 0 ||
        strcmp(c->key.region, region) != 0) {
        char date[9] = {0};

        memcpy(date, c->amz_date, 8);
        sigv4_key_derive(&c->key, cr->secret_key, date, region, "s3");
        credentials_unref(c->signed_by);
        c->signed_by = credentials_ref(cr);
    }
    return &c->key;
}

// --- life ---

struct s3_target *s3_client_target(struct s3_client *c)
{
    if (c->generation != s3_bucket_generation(c->bucket) || !c->target) {
        s3_target_unref(c->target);
        c->target = s3_bucket_target(c->bucket, &c->generation);
    }
    return c->target;
}

int s3_client_new(struct s3_client **ret, struct loop *l, struct s3_bucket *b)
{
    const struct s3_settings *s = s3_bucket_settings(b);
    // time for some attempts must be left
    uint64_t stall_ns = MIN(STALL_TIMEOUT_NS, s->retry_timeout_ns / 4);
    struct s3_client *c = xcalloc(1, sizeof(*c));
    int rc = http_client_new(&c->http, l,
                             &(struct http_client_config){
                                 .ca_file = s->ca_file,
                                 .proxy = s->proxy,
                                 .max_connections = s->max_connections,
                                 .connect_timeout_ns = CONNECT_TIMEOUT_NS,
                                 .stall_timeout_ns = stall_ns,
                                 .idle_timeout_ns = IDLE_TIMEOUT_NS,
                             });

    if (rc < 0) {
        free(c);
        return rc;
    }
    c->loop = l;
    c->stall_ns = stall_ns;
    c->bucket = b;
    s3_bucket_ref(b);
    rand_seed_from_system(&c->rand);
    for (int p = 0; p < HTTP_PRIORITIES; p++)
        list_init(&c->queued[p]);
    list_init(&c->unsigned_requests);
    s3_bucket_waiter_init(&c->waiter, b, l, on_wake);
    loop_timer_init(&c->rate_timer, l, on_rate_timer);
    *ret = c;
    return 0;
}

void s3_client_free(struct s3_client *c)
{
    if (!c)
        return;
    assert(list_empty(&c->unsigned_requests));
    for (int p = 0; p < HTTP_PRIORITIES; p++)
        assert(list_empty(&c->queued[p]));
    if (c->wait)
        c->wait->client = NULL;
    loop_timer_stop(&c->rate_timer);
    http_client_free(c->http);
    credentials_unref(c->signed_by);
    credentials_unref(c->refused);
    s3_target_unref(c->target);
    buf_free(&c->path);
    buf_free(&c->authorization);
    c->freed = true;
    if (!s3_bucket_waiter_leave(&c->waiter))
        return;
    s3_bucket_unref(c->bucket);
    free(c);
}

const struct s3_client_stats *s3_client_stats(const struct s3_client *c)
{
    return &c->stats;
}

const struct http_client_stats *s3_client_http_stats(const struct s3_client *c)
{
    return http_client_stats(c->http);
}
