// SPDX-License-Identifier: Apache-2.0
// The instance's metadata service, version 2: a session token, then the role's name, then its keys.
// Source: "Amazon EC2 User Guide", "Use the Instance Metadata Service".
#include "s3/fetcher.h"

#include "base/clock.h"
#include "base/text.h"
#include "s3/credentials_keys.h"

#include <stdlib.h>
#include <string.h>

#define ROLES "/latest/meta-data/iam/security-credentials/"

enum stage { TOKEN, ROLE, KEYS };

static void imds_start(struct fetcher *f)
{
    f->stage = TOKEN;
    if (fetcher_begin(f, "PUT", "url", "/latest/api/token") &&
        fetcher_header(f, "X-aws-ec2-metadata-token-ttl-seconds", "21600"))
        fetcher_send(f);
}

static void ask(struct fetcher *f, const char *target)
{
    if (fetcher_begin(f, "GET", "url", target) &&
        fetcher_header(f, "X-aws-ec2-metadata-token", f->token))
        fetcher_send(f);
}

// The first line of the answer.
static char *first_line(const struct buf *answer)
{
    return xstrndup(buf_str(answer), strcspn(buf_str(answer), "\r\n"));
}

static void ask_keys(struct fetcher *f)
{
    char *role = first_line(&f->request.answer);
    struct buf target = {0};

    buf_add_str(&target, ROLES);
    text_percent_encode(&target, role, strlen(role), false);
    f->stage = KEYS;
    ask(f, buf_str(&target));
    free(role);
    buf_free(&target);
}

static void take_keys(struct fetcher *f)
{
    const struct buf *answer = &f->request.answer;
    char *error = NULL;
    struct credentials *c = credentials_from_document(CREDENTIALS_METADATA, fetcher_source(f),
                                                      buf_str(answer), answer->len, &error);

    fetcher_step_done(f, c, error);
}

static void imds_answered(struct fetcher *f)
{
    if (f->stage == ROLE && f->request.status == 404) {
        fetcher_step_failed(f, -ENOENT,
                            "this instance has no IAM role to take credentials from: attach one, "
                            "or give keys by environment or profile");
    } else if (f->request.status != 200) {
        fetcher_step_refused(f);
    } else if (f->stage == TOKEN) {
        f->token = first_line(&f->request.answer);
        f->stage = ROLE;
        ask(f, ROLES);
    } else if (f->stage == ROLE) {
        ask_keys(f);
    } else {
        take_keys(f);
    }
}

// Where there is none, mostly nothing answers at all: not long to be waited for.
const struct fetcher_kind fetcher_imds = {
    .name = "imds",
    .direct = true,
    .first = true,
    .timeout_ns = NS_PER_S,
    .tries = 2,
    .start = imds_start,
    .answered = imds_answered,
};
