// SPDX-License-Identifier: Apache-2.0
// The pool: which exchange gets which connection, and when.
#include "net/http_client.h"

#include "base/clock.h"
#include "net/http_conn.h"

#include <stdlib.h>

enum exchange_state {
    EXCHANGE_NEW,
    EXCHANGE_IN_LINE, // for a connection
    EXCHANGE_ON_CONN,
    EXCHANGE_ENDING, // on_done is on its way
    EXCHANGE_ENDED,
};

struct http_client {
    struct loop *loop;
    struct http_link_env env;
    uint64_t stall_timeout_ns, idle_timeout_ns;
    struct list line[HTTP_PRIORITIES];
    struct list active; // connecting and busy
    struct list idle;   // longest idle first
    unsigned n_active, n_idle, n_waiting, n_exchanges, max;
    struct loop_timer idle_timer;
    struct http_client_stats stats;
};

// --- the end of exchanges ---

static void on_end_later(struct loop_msg *msg)
{
    struct http_exchange *x = container_of(msg, struct http_exchange, msg);

    x->state = EXCHANGE_ENDED;
    x->client->n_exchanges--;
    x->on_done(x, x->error);
}

static void end_later(struct http_exchange *x, int error)
{
    x->state = EXCHANGE_ENDING;
    x->conn = NULL;
    x->error = error;
    loop_post(x->client->loop, &x->msg, on_end_later);
}

// --- giving connections to exchanges ---

static struct http_exchange *first_in_line(struct http_client *cl)
{
    for (int p = 0; p < HTTP_PRIORITIES; p++)
        if (!list_empty(&cl->line[p]))
            return list_first(&cl->line[p], struct http_exchange, link);
    return NULL;
}

static void leave_line(struct http_exchange *x)
{
    list_remove(&x->link);
    x->client->n_waiting--;
}

static void close_longest_idle(struct http_client *cl)
{
    http_conn_close(list_first(&cl->idle, struct http_conn, link));
}

// The one used last: its window and the server's caches are warm, and the others can grow old.
static struct http_conn *find_idle(struct http_client *cl, const struct http_exchange *x)
{
    struct list *it = cl->idle.prev;

    while (it != &cl->idle) {
        struct http_conn *c = list_entry(it, struct http_conn, link);

        it = it->prev;
        if (!http_conn_serves(c, x))
            continue;
        if (http_conn_is_quiet(c))
            return c;
        http_conn_close(c);
    }
    return NULL;
}

static void open_for(struct http_client *cl, struct http_exchange *x)
{
    struct http_conn *c;
    int error;

    c = http_conn_open(cl, &cl->env, x, &error);
    if (!c) {
        counter_add(&cl->stats.connect_failures, 1);
        end_later(x, error);
        return;
    }
    x->state = EXCHANGE_ON_CONN;
    list_push_back(&cl->active, &c->link);
    cl->n_active++;
}

static void pump(struct http_client *cl)
{
    struct http_exchange *x;

    while ((x = first_in_line(cl))) {
        struct http_conn *c = find_idle(cl, x);

        if (!c && cl->n_active + cl->n_idle >= cl->max) {
            if (cl->n_idle == 0)
                return;
            close_longest_idle(cl); // it leads elsewhere
        }
        leave_line(x);
        if (!c) {
            open_for(cl, x);
            continue;
        }
        list_remove(&c->link);
        list_push_back(&cl->active, &c->link);
        cl->n_idle--;
        cl->n_active++;
        x->state = EXCHANGE_ON_CONN;
        http_conn_start(c, x);
    }
}

// --- what connections report ---

void http_client_conn_closed(struct http_client *cl, struct http_conn *c)
{
    list_remove(&c->link);
    if (c->state == CONN_IDLE)
        cl->n_idle--;
    else
        cl->n_active--;
    if (c->state != CONN_CONNECTING)
        counter_add(&cl->stats.connections_closed, 1);
}

void http_client_conn_idle(struct http_client *cl, struct http_conn *c)
{
    list_remove(&c->link);
    list_push_back(&cl->idle, &c->link);
    cl->n_active--;
    cl->n_idle++;
    if (cl->n_active + cl->n_idle > cl->max)
        close_longest_idle(cl);
    else if (!loop_timer_active(&cl->idle_timer))
        loop_timer_start_ns(&cl->idle_timer, cl->idle_timeout_ns);
}

void http_client_exchange_again(struct http_client *cl, struct http_exchange *x)
{
    open_for(cl, x);
}

void http_client_exchange_end(struct http_client *cl, struct http_exchange *x, int error)
{
    x->state = EXCHANGE_ENDED;
    x->conn = NULL;
    cl->n_exchanges--;
    pump(cl);
    x->on_done(x, error); // it may free the client
}

uint64_t http_client_stall_timeout_ns(const struct http_client *cl)
{
    return cl->stall_timeout_ns;
}

struct http_client_stats *http_client_counters(struct http_client *cl)
{
    return &cl->stats;
}

static void on_idle_timer(struct loop_timer *t)
{
    struct http_client *cl = container_of(t, struct http_client, idle_timer);
    uint64_t now = clock_monotonic_ns();

    while (cl->n_idle) {
        struct http_conn *c = list_first(&cl->idle, struct http_conn, link);

        if (now < c->idle_since_ns + cl->idle_timeout_ns) {
            loop_timer_start_ns(t, c->idle_since_ns + cl->idle_timeout_ns - now);
            return;
        }
        http_conn_close(c);
    }
}

// --- exchanges ---

void http_exchange_start(struct http_client *cl, struct http_exchange *x)
{
    assert(x->state == EXCHANGE_NEW || x->state == EXCHANGE_ENDED);
    x->client = cl;
    x->conn = NULL;
    x->resent = false;
    x->started_ns = x->first_byte_ns = x->body_len = 0;
    x->content_length = -1;
    x->peer[0] = x->error_text[0] = 0;
    counter_add(&cl->stats.exchanges, 1);
    cl->n_exchanges++;
    x->state = EXCHANGE_IN_LINE;
    list_push_back(&cl->line[x->priority], &x->link);
    cl->n_waiting++;
    pump(cl);
}

void http_exchange_cancel(struct http_exchange *x)
{
    struct http_client *cl = x->client;

    switch ((enum exchange_state)x->state) {
    case EXCHANGE_NEW:
    case EXCHANGE_ENDING:
    case EXCHANGE_ENDED:
        return;
    case EXCHANGE_IN_LINE:
        leave_line(x);
        break;
    case EXCHANGE_ON_CONN:
        http_conn_close(x->conn);
        break;
    }
    end_later(x, -ECANCELED);
    pump(cl);
}

void http_exchange_resume(struct http_exchange *x)
{
    if (x->state == EXCHANGE_ON_CONN)
        http_conn_resume(x->conn);
}

// --- the client ---

int http_client_new(struct http_client **ret, struct loop *l, const struct http_client_config *c)
{
    struct http_client *cl = xcalloc(1, sizeof(*cl));
    int rc = http_link_env_init(&cl->env, l, c->ca_file, c->proxy, c->connect_timeout_ns);

    if (rc < 0) {
        free(cl);
        return rc;
    }
    cl->loop = l;
    cl->stall_timeout_ns = c->stall_timeout_ns;
    cl->idle_timeout_ns = c->idle_timeout_ns;
    cl->max = MAX(c->max_connections, 1u);
    for (int p = 0; p < HTTP_PRIORITIES; p++)
        list_init(&cl->line[p]);
    list_init(&cl->active);
    list_init(&cl->idle);
    loop_timer_init(&cl->idle_timer, l, on_idle_timer);
    *ret = cl;
    return 0;
}

void http_client_free(struct http_client *cl)
{
    if (!cl)
        return;
    assert(cl->n_exchanges == 0 && cl->n_active == 0);
    while (cl->n_idle)
        close_longest_idle(cl);
    loop_timer_stop(&cl->idle_timer);
    http_link_env_fini(&cl->env);
    free(cl);
}

const struct http_client_stats *http_client_stats(const struct http_client *cl)
{
    return &cl->stats;
}

unsigned http_client_active(const struct http_client *cl)
{
    return cl->n_active;
}

unsigned http_client_idle(const struct http_client *cl)
{
    return cl->n_idle;
}

unsigned http_client_waiting(const struct http_client *cl)
{
    return cl->n_waiting;
}

void http_client_set_max_connections(struct http_client *cl, unsigned n)
{
    cl->max = MAX(n, 1u);
    while (cl->n_idle && cl->n_active + cl->n_idle > cl->max)
        close_longest_idle(cl);
    pump(cl);
}
