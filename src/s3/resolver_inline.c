// SPDX-License-Identifier: Apache-2.0
#include "s3/resolver_inline.h"

#include "s3/file.h"

#include <stdlib.h>
#include <string.h>

struct work {
    uv_work_t uv;
    const struct credentials_config *config;
    struct buf json;
    char *error_text;
    int rc;
    void (*done)(void *arg, const char *json, const char *error_text);
    void *arg;
};

static void on_thread(uv_work_t *uv)
{
    struct work *w = container_of(uv, struct work, uv);

    w->rc = credentials_local_resolve(w->config, &w->json, &w->error_text);
}

static void after(uv_work_t *uv, int status)
{
    struct work *w = container_of(uv, struct work, uv);

    if (status < 0)
        w->done(w->arg, NULL, uv_strerror(status));
    else
        w->done(w->arg, w->rc < 0 ? NULL : buf_str(&w->json), w->error_text);
    file_forget(&w->json);
    free(w->error_text);
    free(w);
}

static void inline_resolve(struct credentials_resolver *r, struct loop *l,
                           void (*done)(void *arg, const char *json, const char *error_text),
                           void *arg)
{
    struct resolver_inline *self = container_of(r, struct resolver_inline, resolver);
    struct work *w = xcalloc(1, sizeof(*w));

    w->config = self->config;
    w->done = done;
    w->arg = arg;
    uv_queue_work(loop_uv(l), &w->uv, on_thread, after);
}

void resolver_inline_init(struct resolver_inline *r, const struct credentials_config *config)
{
    r->resolver.resolve = inline_resolve;
    r->config = config;
}
