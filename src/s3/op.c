// SPDX-License-Identifier: Apache-2.0
#include "s3/op.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[S3_KINDS] = {"GET", "HEAD", "LIST"};

static void on_timer(struct loop_timer *t)
{
    struct s3_op *op = container_of(t, struct s3_op, timer);

    op->attempt(op);
}

static uint64_t default_timeout(const struct s3_client *c)
{
    const struct s3_settings *s = s3_bucket_settings(c->bucket);

    return c->answered || !s->first_timeout_ns ? s->retry_timeout_ns
                                               : MIN(s->first_timeout_ns, s->retry_timeout_ns);
}

void s3_op_init(struct s3_op *op, struct s3_client *c, enum s3_kind kind, uint64_t retry_timeout_ns,
                void (*attempt)(struct s3_op *op), void (*finish)(struct s3_op *op, int error))
{
    op->client = c;
    op->kind = kind;
    op->attempt = attempt;
    op->finish = finish;
    retry_init(&op->retry, retry_timeout_ns ? retry_timeout_ns : default_timeout(c));
    loop_timer_init(&op->timer, c->loop, on_timer);
}

void s3_op_fini(struct s3_op *op)
{
    loop_timer_stop(&op->timer);
    s3_target_unref(op->target);
    free(op->why);
}

void s3_op_prepare(struct s3_op *op, struct s3_request *r)
{
    r->op = op;
    r->client = op->client;
    r->kind = op->kind;
    r->target = op->target;
    r->again = op->retry.failures;
    r->patience_ns = op->client->stall_ns;
    // the clock is asked only when patience has begun to run out
    if (op->retry.failures)
        r->patience_ns = MIN(r->patience_ns, retry_patience_ns(&op->retry, clock_monotonic_ns()));
}

void s3_op_settle(struct s3_op *op, struct s3_request *r, struct s3_outcome o)
{
    struct s3_client *c = op->client;
    uint64_t now, since, wait;

    if (r->status || o.class == S3_OK)
        c->answered = true;
    if (op->cancelled || o.class == S3_OK) {
        op->finish(op, op->cancelled ? -ECANCELED : 0);
        return;
    }
    free(op->why);
    op->why = r->why;
    r->why = NULL;
    s3_target_unref(op->target);
    op->target = r->redirect;
    r->redirect = NULL;

    now = clock_monotonic_ns();
    if (r->queued_ns && r->sent_ns)
        retry_waited(&op->retry, r->sent_ns - r->queued_ns);
    // an attempt that brought some of the body was good until now
    since = r->sent_ns && !r->x.body_len ? r->sent_ns : now;
    wait = retry_failed(&op->retry, o.class, r->retry_after_ns, since, now, &c->rand);
    if (wait == RETRY_STOP) {
        op->finish(op, o.error);
        return;
    }
    counter_add(&c->stats.retries, 1);
    log_debug("s3", "%s %p: %s; again in %.3f s", kind_names[op->kind], (void *)op, op->why,
              (double)wait / 1e9);
    if (wait == 0)
        op->attempt(op);
    else
        loop_timer_start_ns(&op->timer, wait);
}

static void on_end(struct loop_msg *msg)
{
    struct s3_op *op = container_of(msg, struct s3_op, end);

    op->finish(op, -ECANCELED);
}

void s3_op_end_cancelled(struct s3_op *op)
{
    loop_timer_stop(&op->timer);
    loop_post(op->client->loop, &op->end, on_end);
}

void s3_op_cancel(struct s3_op *op, struct s3_request *r)
{
    if (op->cancelled)
        return;
    op->cancelled = true;
    if (s3_request_cancel(r))
        s3_op_end_cancelled(op);
}

void s3_op_report(struct s3_op *op, int error, const char *name, size_t name_len,
                  char text[static S3_ERROR_TEXT])
{
    int shown = (int)MIN(name_len, (size_t)100);
    char what[100];

    text[0] = 0;
    if (error == 0)
        return;
    // a listing's prefix may be empty, and a wrong bucket shows first in a listing
    if (op->kind == S3_LIST)
        snprintf(what, sizeof(what), "LIST s3://%s/",
                 s3_bucket_settings(op->client->bucket)->bucket);
    else
        snprintf(what, sizeof(what), "%s ", kind_names[op->kind]);
    if (error != -ENOENT && error != -ESTALE && error != -ECANCELED && error != -EFBIG &&
        error != -EFAULT)
        counter_add(&op->client->stats.errors[op->kind], 1);
    if (error == -ECANCELED)
        snprintf(text, S3_ERROR_TEXT, "%s%.*s: cancelled", what, shown, name);
    else if (op->retry.failures)
        snprintf(text, S3_ERROR_TEXT, "%s%.*s: %s (given up after %.0f s without progress)", what,
                 shown, name, op->why, (double)op->retry.timeout_ns / 1e9);
    else
        snprintf(text, S3_ERROR_TEXT, "%s%.*s: %s", what, shown, name,
                 op->why ? op->why : strerror(-error));
}
