// SPDX-License-Identifier: Apache-2.0
// Keys that a container is served with (ECS tasks, EKS pod identity).
// Source: "AWS SDKs and Tools Reference Guide", "Container credential provider".
#include "s3/fetcher.h"

#include "base/clock.h"
#include "s3/credentials_keys.h"

static void container_start(struct fetcher *f)
{
    const char *authorization = fetcher_text(f, "authorization");

    if (!fetcher_begin(f, "GET", "url", NULL))
        return;
    if (authorization && !fetcher_header(f, "Authorization", authorization))
        return;
    fetcher_send(f);
}

static void container_answered(struct fetcher *f)
{
    const struct buf *answer = &f->request.answer;
    struct credentials *c;
    char *error = NULL;

    if (f->request.status != 200) {
        fetcher_step_refused(f);
        return;
    }
    c = credentials_from_document(CREDENTIALS_METADATA, fetcher_source(f), buf_str(answer),
                                  answer->len, &error);
    fetcher_step_done(f, c, error);
}

const struct fetcher_kind fetcher_container = {
    .name = "container",
    .direct = true,
    .first = true,
    .timeout_ns = 5 * NS_PER_S,
    .tries = 3,
    .start = container_start,
    .answered = container_answered,
};
