// SPDX-License-Identifier: Apache-2.0
#include "s3/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One page after the other: where a page begins only the page before it tells.
struct list_all_op {
    struct s3_client *client;
    struct s3_list_all *user;
    struct s3_list page;
    char *continuation;
};

static int on_entry(struct s3_list *l, const struct s3_list_entry *e)
{
    struct list_all_op *o = container_of(l, struct list_all_op, page);

    return o->user->entry(o->user, e);
}

static void finish(struct list_all_op *o, int error)
{
    struct s3_list_all *user = o->user;

    user->op = NULL;
    memcpy(user->error_text, o->page.error_text, sizeof(user->error_text));
    free(o->continuation);
    free(o);
    user->done(user, error);
}

static void on_done(struct s3_list *l, int error, const char *continuation)
{
    struct list_all_op *o = container_of(l, struct list_all_op, page);
    char *next;

    if (error || !continuation) {
        finish(o, error);
        return;
    }
    if (o->continuation && !strcmp(o->continuation, continuation)) {
        snprintf(o->page.error_text, sizeof(o->page.error_text),
                 "LIST %.*s: the store sends the same page again and again",
                 (int)MIN(l->prefix_len, (size_t)100), l->prefix);
        finish(o, -EIO);
        return;
    }
    next = xstrdup(continuation);
    free(o->continuation);
    o->continuation = next;
    o->page.continuation = next;
    s3_list_start(o->client, &o->page);
}

void s3_list_all_start(struct s3_client *c, struct s3_list_all *user)
{
    struct list_all_op *o = xcalloc(1, sizeof(*o));

    o->client = c;
    o->user = user;
    o->page = (struct s3_list){
        .prefix = user->prefix,
        .prefix_len = user->prefix_len,
        .delimiter = user->delimiter,
        .priority = user->priority,
        .entry = on_entry,
        .done = on_done,
    };
    user->op = o;
    s3_list_start(c, &o->page);
}

void s3_list_all_cancel(struct s3_list_all *user)
{
    struct list_all_op *o = user->op;

    if (o)
        s3_list_cancel(&o->page);
}
