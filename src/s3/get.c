// SPDX-License-Identifier: Apache-2.0
// GET of a range. No byte reaches the caller before the answer's head has been found to be just
// what was asked for; a body that breaks off is gone on with at the byte it had reached, under
// If-Match of the first answer's ETag.
//
// A small GET whose first byte is late is sent a second time (hedge.h). Of the two requests the
// first with a good head is the winner and the only one to land bytes; the other is cancelled:
//
//   first ──(late)── first, second ──head── winner ── done
//
// A temporary failure of one of the two is passed over, the other may still win. The operation
// goes on to retry or end when neither is under way.
#include "base/text.h"
#include "s3/answer.h"
#include "s3/op.h"

#include <stdlib.h>
#include <string.h>

struct get_op {
    struct s3_op op;
    struct s3_get *user;
    struct s3_request first;
    struct s3_request *second; // the hedge, NULL: none
    struct s3_request *winner; // whose head was good
    struct s3_request *judge;  // whose outcome counts
    struct s3_outcome outcome;
    struct loop_timer timer; // until the first byte is late; or until bytes may come again

    uint64_t end;  // one past the last byte wanted, UINT64_MAX: whatever there is
    char *etag;    // of the first good answer; NULL before
    uint64_t size; // of the object, once etag is known
    bool whole;    // asked for without a range
};

static struct get_op *op_of(const struct s3_request *r)
{
    return container_of(r->op, struct get_op, op);
}

static uint64_t position(const struct get_op *g)
{
    return g->user->offset + g->user->landed;
}

// --- the head of an answer ---

static int check_answer(struct get_op *g, struct s3_request *r, const struct http_head *head,
                        struct s3_answer *a)
{
    const char *etag = g->etag ? g->etag : g->user->if_match;
    uint64_t body_len;

    if (s3_answer_read(a, head) < 0)
        return s3_request_fail(r, S3_RETRY, -EIO, "a Content-Range that makes no sense");
    if (r->ranged && (head->status != 206 || !a->has_range))
        return s3_request_fail(r, S3_RETRY, -EIO,
                               "%d without a range (does the store know ranges?)", head->status);
    if (!r->ranged && (head->status != 200 || !a->has_size))
        return s3_request_fail(r, S3_RETRY, -EIO, "%d or no size for a whole object", head->status);
    // some stores and proxies tell errors in a 200
    if (!r->ranged && !*a->info.etag && text_starts_with(a->info.content_type, "application/xml"))
        return s3_request_fail(r, S3_RETRY, -EIO, "XML where data was due");

    if (etag && *etag && !*a->info.etag)
        return s3_request_fail(r, S3_RETRY, -EIO, "an answer without ETag");
    if (etag && *etag && !s3_etag_equal(etag, a->info.etag))
        return s3_request_fail(r, S3_FATAL, -ESTALE, "the object has changed");
    if (g->etag && a->info.size != g->size)
        return s3_request_fail(r, S3_FATAL, -ESTALE, "the object's size has changed");

    if (!r->ranged)
        return 0;
    if (a->first != r->first || a->last != MIN(r->last, a->info.size - 1))
        return s3_request_fail(r, S3_RETRY, -EIO, "another range than was asked for");
    body_len = a->last - a->first + 1;
    if (head->content_length < 0 && !head->chunked)
        return s3_request_fail(r, S3_RETRY, -EIO, "a body without a length");
    if (head->content_length >= 0 && (uint64_t)head->content_length != body_len)
        return s3_request_fail(r, S3_RETRY, -EIO, "Content-Length and Content-Range differ");
    return 0;
}

static struct s3_request *other_of(struct get_op *g, const struct s3_request *r)
{
    return r == &g->first ? g->second : &g->first;
}

// Cancels one of the two; true: nothing of it is under way (any more).
static bool drop(struct get_op *g, struct s3_request *r)
{
    if (!s3_request_active(r))
        return true;
    if (!s3_request_cancel(r))
        return false;
    if (r == g->second)
        hedge_give_back(&r->client->hedge); // it was never sent
    return true;
}

static int on_head(struct s3_request *r, const struct http_head *head)
{
    struct get_op *g = op_of(r);
    struct s3_answer a;
    int rc = check_answer(g, r, head, &a);

    if (rc < 0)
        return rc;
    g->winner = r;
    if (!g->user->first_byte_ns)
        g->user->first_byte_ns = r->x.first_byte_ns;
    loop_timer_stop(&g->timer);
    counter_add(&r->client->stats.hedges_won, r == g->second);
    if (g->second)
        drop(g, other_of(g, r));
    if (g->etag)
        return 0;
    g->etag = xstrdup(a.info.etag);
    g->size = a.info.size;
    g->end = MIN(g->end, g->size);
    // an object that was empty a moment ago, and is not any more
    if (g->whole && g->user->len != UINT64_MAX && g->size)
        return s3_request_fail(r, S3_FATAL, -ESTALE, "the object has changed");
    if (!g->user->on_head)
        return 0;
    rc = g->user->on_head(g->user, &a.info, g->end - MIN(g->end, g->user->offset));
    return rc < 0 ? s3_request_fail(r, S3_FATAL, rc, "%s", strerror(-rc)) : 0;
}

// --- the body ---

static int on_room(struct s3_request *r, struct iovec *iov, int max)
{
    struct get_op *g = op_of(r);
    uint64_t left = g->end - position(g), wait;
    int n, kept = 0;

    if (left == 0)
        return s3_request_fail(r, S3_FATAL, -EIO, "a body longer than promised");
    wait = s3_bucket_bytes_wait(r->client->bucket, r->priority == HTTP_DEMAND);
    if (wait) {
        loop_timer_start_ns(&g->timer, wait);
        return 0;
    }
    n = g->user->on_room(g->user, iov, max);
    if (n < 0)
        return s3_request_fail(r, S3_FATAL, n, "%s", strerror(-n));
    // a caller may have more room than the range needs
    while (kept < n && left) {
        iov[kept].iov_len = MIN(iov[kept].iov_len, left);
        left -= iov[kept++].iov_len;
    }
    return kept;
}

static int on_body(struct s3_request *r, size_t n)
{
    struct get_op *g = op_of(r);

    g->user->landed += n;
    retry_progress(&g->op.retry);
    counter_add(&r->client->stats.bytes_in, n);
    s3_bucket_bytes_take(r->client->bucket, n);
    g->user->on_landed(g->user, n);
    return 0;
}

// --- attempts ---

static void on_sent(struct s3_request *r);
static void on_done(struct s3_request *r, struct s3_outcome o);

static void prepare(struct get_op *g, struct s3_request *r)
{
    static const struct s3_request_ops ops = {on_sent, on_head, on_room, on_body, on_done};
    struct s3_get *user = g->user;

    s3_op_prepare(&g->op, r);
    r->ops = &ops;
    r->priority = user->priority;
    r->method = "GET";
    r->key = user->key;
    r->key_len = user->key_len;
    r->query = "";
    r->ranged = !g->whole || user->landed;
    r->first = position(g);
    r->last = g->end == UINT64_MAX ? UINT64_MAX : g->end - 1;
    r->if_match = g->etag ? g->etag : user->if_match;
}

static void attempt(struct s3_op *op)
{
    struct get_op *g = container_of(op, struct get_op, op);

    g->winner = g->judge = NULL;
    if (g->user->landed)
        counter_add(&op->client->stats.resumed_bodies, 1);
    prepare(g, &g->first);
    s3_request_start(&g->first);
}

// --- hedging ---

static bool is_small(const struct get_op *g)
{
    return g->user->len <= HEDGE_MAX_LEN || (g->whole && g->user->hedge);
}

static bool may_hedge(const struct get_op *g)
{
    return g->user->hedge && is_small(g) && !s3_bucket_settings(g->op.client->bucket)->no_hedging;
}

static void on_sent(struct s3_request *r)
{
    struct get_op *g = op_of(r);
    struct hedge *h = &r->client->hedge;
    uint64_t delay;

    if (!g->user->sent_ns)
        g->user->sent_ns = r->sent_ns;
    if (r == g->second)
        counter_add(&r->client->stats.hedges, 1);
    if (r != &g->first || !may_hedge(g))
        return;
    hedge_sent(h);
    delay = hedge_delay_ns(h);
    if (delay)
        loop_timer_start_ns(&g->timer, delay);
}

// It stands in line like any other, but in front.
static void start_hedge(struct get_op *g)
{
    if (g->second || !hedge_take(&g->op.client->hedge))
        return;
    g->second = xcalloc(1, sizeof(*g->second));
    prepare(g, g->second);
    g->second->again = true;
    s3_request_start(g->second);
}

static void check_lateness(struct get_op *g)
{
    const struct s3_request *r = &g->first;
    uint64_t delay = hedge_delay_ns(&g->op.client->hedge), waited = 0;

    if (!s3_request_active(r) || r->x.first_byte_ns)
        return;
    // connecting takes its time, which a second request would need too
    if (r->x.started_ns)
        waited = clock_monotonic_ns() - r->x.started_ns;
    if (waited < delay)
        loop_timer_start_ns(&g->timer, delay - waited);
    else
        start_hedge(g);
}

static void on_timer(struct loop_timer *t)
{
    struct get_op *g = container_of(t, struct get_op, timer);

    if (g->winner)
        http_exchange_resume(&g->winner->x);
    else
        check_lateness(g);
}

// What was seen of the time to the first byte; of a cancelled request, that it took longer.
static void learn_latency(struct get_op *g, const struct s3_request *r)
{
    const struct http_exchange *x = &r->x;

    if (!r->sent_ns || !x->started_ns || !is_small(g))
        return;
    if (x->first_byte_ns)
        hedge_sample(&g->op.client->hedge, x->first_byte_ns - x->started_ns);
    else if (r->cancelled)
        hedge_sample(&g->op.client->hedge, clock_monotonic_ns() - x->started_ns);
}

// Neither request is under way any more.
static void settle(struct get_op *g)
{
    struct s3_outcome o = g->outcome;
    struct s3_request *r = g->judge;

    loop_timer_stop(&g->timer);
    if (o.class == S3_OK && position(g) < g->end) {
        s3_request_fail(r, S3_RETRY, -EIO, "a body shorter than promised");
        o = r->outcome;
    } else if (o.class == S3_RETRY && g->etag && position(g) == g->end &&
               g->end > g->user->offset) {
        // it broke when all had come
        o = (struct s3_outcome){S3_OK, 0};
    } else if (r->status == 416 && r->first == 0 && !g->whole && !g->op.cancelled) {
        // no range begins at 0: the object is empty, which only a GET of all of it can show
        g->whole = true;
        o.class = S3_LEARNED;
    } else if (r->status == 416 && r->if_match && *r->if_match) {
        o.error = -ESTALE;
    }
    // two halves that nothing shows to be of one version are not put together
    if (o.class != S3_OK && g->user->landed && (!g->etag || !*g->etag))
        o.class = S3_FATAL;
    s3_op_settle(&g->op, r, o);
}

static void on_done(struct s3_request *r, struct s3_outcome o)
{
    struct get_op *g = op_of(r);
    struct s3_request *other = other_of(g, r);
    bool alone = !g->second || !s3_request_active(other);
    // the other one may still win
    bool passes = !alone && !g->winner && o.class != S3_OK && o.class != S3_FATAL;

    learn_latency(g, r);
    if ((!g->winner || g->winner == r) && !passes && !g->judge) {
        g->judge = r;
        g->outcome = o;
        alone = !g->second || drop(g, other);
    }
    if (alone)
        settle(g);
}

static void finish(struct s3_op *op, int error)
{
    struct get_op *g = container_of(op, struct get_op, op);
    struct s3_get *user = g->user;

    s3_op_report(op, error, user->key, user->key_len, user->error_text);
    user->op = NULL;
    if (g->second)
        s3_request_fini(g->second);
    free(g->second);
    s3_request_fini(&g->first);
    s3_op_fini(op);
    free(g->etag);
    free(g);
    user->done(user, error);
}

// --- the user's side ---

void s3_get_start(struct s3_client *c, struct s3_get *user)
{
    struct get_op *g = xcalloc(1, sizeof(*g));

    g->user = user;
    user->op = g;
    g->whole = user->offset == 0 && user->len == UINT64_MAX;
    g->end = user->len > UINT64_MAX - user->offset ? UINT64_MAX : user->offset + user->len;
    loop_timer_init(&g->timer, c->loop, on_timer);
    s3_op_init(&g->op, c, S3_GET, 0, attempt, finish);
    attempt(&g->op);
}

void s3_get_cancel(struct s3_get *user)
{
    struct get_op *g = user->op;
    bool first_idle, second_idle;

    if (!g || g->op.cancelled)
        return;
    g->op.cancelled = true;
    loop_timer_stop(&g->timer);
    first_idle = drop(g, &g->first);
    second_idle = !g->second || drop(g, g->second);
    if (first_idle && second_idle)
        s3_op_end_cancelled(&g->op);
}

void s3_get_resume(struct s3_get *user)
{
    struct get_op *g = user->op;

    if (g && g->winner)
        http_exchange_resume(&g->winner->x);
}

void s3_get_raise(struct s3_get *user)
{
    struct get_op *g = user->op;

    user->priority = HTTP_DEMAND;
    if (g)
        s3_request_raise(&g->first);
    if (g && g->second)
        s3_request_raise(g->second);
}
