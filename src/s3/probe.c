// SPDX-License-Identifier: Apache-2.0
#include "s3/list.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

// Somebody is waiting at a prompt: a store that is down is reported soon.
#define PATIENCE_NS (5 * NS_PER_S)

struct probe_op {
    struct s3_probe *user;
    struct s3_list list;
};

static int on_entry(struct s3_list *l, const struct s3_list_entry *e)
{
    return 0;
}

static void on_done(struct s3_list *l, int error, const char *continuation)
{
    struct probe_op *o = container_of(l, struct probe_op, list);
    struct s3_probe *user = o->user;

    memcpy(user->error_text, l->error_text, sizeof(user->error_text));
    user->op = NULL;
    free(o);
    user->done(user, error);
}

void s3_probe_start(struct s3_client *c, struct s3_probe *user)
{
    struct probe_op *o = xcalloc(1, sizeof(*o));

    o->user = user;
    o->list = (struct s3_list){
        .prefix = user->prefix,
        .prefix_len = strlen(user->prefix),
        .max_keys = 1,
        .entry = on_entry,
        .done = on_done,
    };
    user->op = o;
    s3_list_start_for(c, &o->list, PATIENCE_NS);
}
