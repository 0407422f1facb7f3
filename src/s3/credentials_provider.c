// SPDX-License-Identifier: Apache-2.0
// Keeps keys fresh. A fetch is: the local half (files, environment, processes), then the steps over
// the network that it names; one at a time. It begins
//
//   - at once when the provider is made,
//   - ahead of the keys' end (refresh.h), again with growing pauses when that fails; until the old
//     keys end they go on being used,
//   - when the store has refused the keys,
//   - when somebody waits and there are none,
//
// but after two fetches in haste not more often than once a second.
#include "s3/credentials.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "s3/credentials_keys.h"
#include "s3/fetcher.h"
#include "s3/refresh.h"
#include "s3/resolver_inline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_INTERVAL_NS NS_PER_S
#define CALM_NS           (10 * NS_PER_S)
#define MAX_HASTY         2

enum state { IDLE, RESOLVING, FETCHING };

struct credentials_provider {
    struct loop *loop;
    struct credentials_config config; // its strings are ours
    struct resolver_inline inline_resolver;
    struct credentials_resolver *resolver;
    struct fetcher fetcher;
    enum state state;
    bool closing;
    struct loop_msg begin_msg, end_msg;

    struct loop_timer timer;
    uint64_t last_start_ns; // 0: never
    unsigned hasty;         // fetches right after another, since it was calm
    unsigned failures;      // in a row
    struct rand rand;
    struct list waiting;

    pthread_mutex_t lock; // over locked
    struct {
        struct credentials *current; // NULL: none yet
        int64_t usable_until_s;      // INT64_MAX: for ever
        bool refused;                // current, by the store
    } locked;
    struct loop_msg refused_msg;
    atomic_bool refused_posted;
};

// --- the keys, shared with all threads ---

static struct credentials *usable_locked(struct credentials_provider *p)
{
    if (!p->locked.current || p->locked.refused || clock_wall_s() >= p->locked.usable_until_s)
        return NULL;
    return credentials_ref(p->locked.current);
}

struct credentials *credentials_provider_peek(struct credentials_provider *p)
{
    struct credentials *c;

    pthread_mutex_lock(&p->lock);
    c = usable_locked(p);
    pthread_mutex_unlock(&p->lock);
    return c;
}

static void publish(struct credentials_provider *p, struct credentials *c)
{
    int64_t until = INT64_MAX;
    struct credentials *old;

    if (c->expires_s)
        until = refresh_usable_until_s(clock_wall_s(), c->expires_s);
    pthread_mutex_lock(&p->lock);
    old = p->locked.current;
    p->locked.current = c;
    p->locked.usable_until_s = until;
    p->locked.refused = false;
    pthread_mutex_unlock(&p->lock);
    credentials_unref(old);
}

// No new keys could be had: the old ones, if there are any, are handed out to their very end.
static struct credentials *prolong(struct credentials_provider *p, bool *ret_any)
{
    struct credentials *c;

    pthread_mutex_lock(&p->lock);
    *ret_any = p->locked.current;
    if (p->locked.current && p->locked.current->expires_s)
        p->locked.usable_until_s = p->locked.current->expires_s;
    c = usable_locked(p);
    pthread_mutex_unlock(&p->lock);
    return c;
}

// --- those who wait ---

static void on_delivered(struct loop_msg *msg)
{
    struct credentials_wait *w = container_of(msg, struct credentials_wait, msg);
    char *text = w->error_text; // w may be gone after done

    w->done(w, w->result, w->error, text);
    free(text);
}

static void deliver(struct credentials_wait *w, struct credentials *c, int error, const char *text)
{
    w->result = c;
    w->error = error;
    w->error_text = text ? xstrdup(text) : NULL;
    loop_post(w->loop, &w->msg, on_delivered);
}

static void deliver_all(struct credentials_provider *p, struct credentials *c, int error,
                        const char *text)
{
    list_for_each_safe (it, &p->waiting) {
        list_remove(it);
        deliver(list_entry(it, struct credentials_wait, link), c ? credentials_ref(c) : NULL, error,
                text);
    }
}

// --- fetching ---

static void finish_close(struct credentials_provider *p);

static void succeeded(struct credentials_provider *p, struct credentials *c)
{
    log_debug("s3", "credentials from %s", c->source);
    p->failures = 0;
    if (c->expires_s)
        loop_timer_start_ns(&p->timer,
                            refresh_delay_ns(clock_wall_s(), c->expires_s, rand_unit(&p->rand)));
    publish(p, credentials_ref(c));
    deliver_all(p, c, 0, NULL);
    credentials_unref(c);
}

static void failed(struct credentials_provider *p, int error, const char *text)
{
    bool had_keys;
    struct credentials *old = prolong(p, &had_keys);

    p->failures++;
    if (old) {
        log_warning("s3",
                    "credentials could not be refreshed, the old ones are used as long as "
                    "they last: %s",
                    text);
        loop_timer_start_ns(&p->timer, refresh_retry_ns(p->failures, rand_unit(&p->rand)));
        deliver_all(p, old, 0, NULL);
        credentials_unref(old);
        return;
    }
    // where keys came from before there is a source: it only does not answer just now
    if (error == -ENOENT && had_keys)
        error = -ETIMEDOUT;
    deliver_all(p, NULL, error, text);
}

static void end_fetch(struct credentials_provider *p, struct credentials *c, int error,
                      const char *text)
{
    p->state = IDLE;
    if (p->closing) {
        credentials_unref(c);
        finish_close(p);
    } else if (c && c->expires_s && c->expires_s <= clock_wall_s()) {
        char when[25], *why;

        clock_format_iso8601(c->expires_s, when);
        why = xasprintf("the keys from %s had already expired, at %s: get new ones there, or set "
                        "this machine's clock right",
                        c->source, when);
        credentials_unref(c);
        failed(p, -EACCES, why);
        free(why);
    } else if (c) {
        succeeded(p, c);
    } else {
        failed(p, error, text);
    }
}

static void on_fetched(struct fetcher *f, struct credentials *c, int error, const char *text)
{
    end_fetch(container_of(f, struct credentials_provider, fetcher), c, error, text);
}

static void on_resolved(void *arg, const char *json, const char *error_text)
{
    struct credentials_provider *p = arg;

    if (p->closing || !json) {
        // who made us has had it done before: it may be done again in a moment
        end_fetch(p, NULL, -ETIMEDOUT, error_text);
        return;
    }
    p->state = FETCHING;
    fetcher_start(&p->fetcher, json);
}

static void start_fetch(struct credentials_provider *p)
{
    loop_timer_stop(&p->timer);
    p->state = RESOLVING;
    p->last_start_ns = clock_monotonic_ns();
    p->resolver->resolve(p->resolver, p->loop, on_resolved, p);
}

static void fetch_soon(struct credentials_provider *p)
{
    uint64_t since_ns = clock_monotonic_ns() - p->last_start_ns;

    if (p->state != IDLE || p->closing)
        return;
    if (since_ns >= CALM_NS)
        p->hasty = 0;
    if (since_ns >= LEAST_INTERVAL_NS || p->hasty < MAX_HASTY) {
        p->hasty += since_ns < LEAST_INTERVAL_NS;
        start_fetch(p);
    } else {
        loop_timer_start_ns(&p->timer, LEAST_INTERVAL_NS - since_ns);
    }
}

static void on_timer(struct loop_timer *t)
{
    fetch_soon(container_of(t, struct credentials_provider, timer));
}

// --- asked from any thread ---

static void on_wait(struct loop_msg *msg)
{
    struct credentials_wait *w = container_of(msg, struct credentials_wait, msg);
    struct credentials_provider *p = w->provider;
    struct credentials *c = credentials_provider_peek(p);

    if (c) {
        deliver(w, c, 0, NULL);
    } else if (p->closing) {
        deliver(w, NULL, -ECANCELED, "the client is being closed");
    } else {
        list_push_back(&p->waiting, &w->link);
        fetch_soon(p);
    }
}

void credentials_provider_wait(struct credentials_provider *p, struct credentials_wait *w)
{
    w->loop = loop_self();
    w->provider = p;
    assert(w->loop);
    loop_post(p->loop, &w->msg, on_wait);
}

static void on_refused(struct loop_msg *msg)
{
    struct credentials_provider *p = container_of(msg, struct credentials_provider, refused_msg);
    bool refused;

    atomic_store(&p->refused_posted, false);
    pthread_mutex_lock(&p->lock);
    refused = p->locked.refused;
    pthread_mutex_unlock(&p->lock);
    if (refused)
        fetch_soon(p);
}

void credentials_provider_refused(struct credentials_provider *p, const struct credentials *c)
{
    bool current;

    pthread_mutex_lock(&p->lock);
    current = p->locked.current == c && !c->anonymous;
    if (current)
        p->locked.refused = true;
    pthread_mutex_unlock(&p->lock);
    if (current && !atomic_exchange(&p->refused_posted, true))
        loop_post(p->loop, &p->refused_msg, on_refused);
}

// --- life ---

static const char **const *strings_of(struct credentials_config *c, const char **list[static 9])
{
    const char **all[] = {&c->profile,       &c->access_key,  &c->secret_key,
                          &c->session_token, &c->passwd_file, &c->bucket,
                          &c->region,        &c->ca_file,     NULL};

    memcpy(list, all, sizeof(all));
    return list;
}

static void free_provider(struct credentials_provider *p)
{
    const char **list[9];

    fetcher_fini(&p->fetcher);
    for (const char **const *it = strings_of(&p->config, list); *it; it++)
        free((char *)**it);
    credentials_unref(p->locked.current);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static void on_freed(struct loop_msg *msg)
{
    free_provider(container_of(msg, struct credentials_provider, end_msg));
}

// Within the end of an exchange its client cannot be freed yet: one message later.
static void finish_close(struct credentials_provider *p)
{
    if (p->fetcher.loop)
        loop_post(p->loop, &p->end_msg, on_freed);
    else
        free_provider(p);
}

static void on_close(struct loop_msg *msg)
{
    struct credentials_provider *p = container_of(msg, struct credentials_provider, end_msg);

    p->closing = true;
    loop_timer_stop(&p->timer);
    deliver_all(p, NULL, -ECANCELED, "the client is being closed");
    if (p->state == RESOLVING)
        // its end may come when the loop has already stopped: by then no connection may be left
        fetcher_fini(&p->fetcher);
    else if (p->state == IDLE || !fetcher_cancel(&p->fetcher))
        free_provider(p);
}

void credentials_provider_free(struct credentials_provider *p)
{
    if (!p)
        return;
    // as a message, for it comes behind those that are on their way to p
    loop_post(p->loop, &p->end_msg, on_close);
}

static void on_begin(struct loop_msg *msg)
{
    fetch_soon(container_of(msg, struct credentials_provider, begin_msg));
}

int credentials_provider_new(struct credentials_provider **ret, struct loop *l,
                             const struct credentials_config *c, struct credentials_resolver *r)
{
    struct credentials_provider *p = xcalloc(1, sizeof(*p));
    const char **list[9];

    p->loop = l;
    p->config = *c;
    for (const char **const *it = strings_of(&p->config, list); *it; it++)
        if (**it)
            **it = xstrdup(**it);
    resolver_inline_init(&p->inline_resolver, &p->config);
    p->resolver = r ? r : &p->inline_resolver.resolver;
    fetcher_init(&p->fetcher, l, p->config.ca_file, c->timeout_ns, on_fetched);
    loop_timer_init(&p->timer, l, on_timer);
    rand_seed_from_system(&p->rand);
    list_init(&p->waiting);
    pthread_mutex_init(&p->lock, NULL);
    loop_post(l, &p->begin_msg, on_begin);
    *ret = p;
    return 0;
}
