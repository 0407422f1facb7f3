// SPDX-License-Identifier: Apache-2.0
#include "s3/fetcher.h"

#include "base/clock.h"
#include "s3/credentials_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONNECTIONS 2
#define IDLE_TIMEOUT_NS (2 * NS_PER_S) // the next refresh is minutes away

static void next_step(struct fetcher *f);

const char *fetcher_text(const struct fetcher *f, const char *name)
{
    return json_string_value(json_object_get(f->step, name));
}

const char *fetcher_source(const struct fetcher *f)
{
    const char *source = fetcher_text(f, "source");

    return source ? source : "a source without a name";
}

// --- the end of steps ---

static void forget_step(struct fetcher *f)
{
    free(f->token);
    f->token = NULL;
    f->stage = 0;
}

static void finish(struct fetcher *f, struct credentials *c, int error, const char *text)
{
    bool last_resort = json_is_true(json_object_get(f->step, "last_resort"));
    json_t *root = f->root; // text may be a part of it
    char *longer = NULL;

    if (!c && last_resort && error != -ECANCELED) {
        error = -ENOENT;
        text = longer = xasprintf(
            "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a "
            "profile with --profile, or ask for anonymous access with --no-sign-request (the "
            "last try: %s)",
            text);
    }
    forget_step(f);
    credentials_unref(f->keys);
    f->keys = NULL;
    f->root = NULL;
    f->step = NULL;
    f->done(f, c, error, text);
    free(longer);
    json_decref(root);
}

void fetcher_step_failed(struct fetcher *f, int error, const char *fmt, ...)
{
    va_list args;
    char *text;

    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    va_end(args);
    finish(f, NULL, error, text ? text : "");
    free(text);
}

void fetcher_step_done(struct fetcher *f, struct credentials *c, char *error_text)
{
    if (!c) {
        finish(f, NULL, -EACCES, error_text);
        free(error_text);
        return;
    }
    forget_step(f);
    credentials_unref(f->keys);
    f->keys = c;
    next_step(f);
}

// An answer of a metadata service is shown only as far as it is printable text of one line.
static void copy_printable(const struct buf *answer, char *out, size_t size)
{
    size_t n = 0;

    for (const char *s = buf_str(answer); *s >= ' ' && *s < 0x7f && n + 1 < size; s++)
        out[n++] = *s;
    out[n] = 0;
}

void fetcher_step_refused(struct fetcher *f)
{
    int error = f->request.status == 429 || f->request.status >= 500 ? -ETIMEDOUT : -EACCES;
    char says[160];

    copy_printable(&f->request.answer, says, sizeof(says));
    fetcher_step_failed(f, error, "%s answered with status %d%s%s", fetcher_source(f),
                        f->request.status, says[0] ? ": " : "", says);
}

// --- requests ---

bool fetcher_begin(struct fetcher *f, const char *method, const char *url_name, const char *target)
{
    const char *text = fetcher_text(f, url_name);
    char *error = NULL;
    struct url u;

    if (!text || url_parse(text, &u, &error) < 0) {
        fetcher_step_failed(f, -EINVAL, "%s: %s", fetcher_source(f), error ? error : "no URL");
        free(error);
        return false;
    }
    if (target && (size_t)snprintf(u.target, sizeof(u.target), "%s", target) >= sizeof(u.target)) {
        fetcher_step_failed(f, -EINVAL, "%s: a name in it is too long", fetcher_source(f));
        return false;
    }
    small_request_begin(&f->request, method, &u);
    return true;
}

bool fetcher_header(struct fetcher *f, const char *name, const char *value)
{
    for (const char *s = value; *s; s++) {
        if (*s < ' ' || *s == 0x7f) {
            fetcher_step_failed(f, -EINVAL,
                                "%s: its token holds a line break or another "
                                "character that cannot be sent",
                                fetcher_source(f));
            return false;
        }
    }
    buf_printf(&f->request.headers, "%s: %s\r\n", name, value);
    return true;
}

// To those who wait: has the source said no, or may it answer another time?
static int error_of(int error)
{
    switch (error) {
    case -ECANCELED:
        return error;
    case -EBADMSG:
    case -EFBIG:
    case -EKEYREJECTED:
        return -EACCES;
    default:
        return -ETIMEDOUT;
    }
}

static void on_answer(struct small_request *r, int error)
{
    struct fetcher *f = container_of(r, struct fetcher, request);

    if (error == 0)
        f->kind->answered(f);
    else
        fetcher_step_failed(f, error_of(error), "%s: %s", fetcher_source(f), r->error_text);
}

void fetcher_send(struct fetcher *f)
{
    struct http_client **client = &f->clients[f->kind->direct];
    uint64_t timeout_ns = f->timeout_ns ? f->timeout_ns : f->kind->timeout_ns;

    if (!*client) {
        struct http_client_config config = {.ca_file = f->ca_file,
                                            .proxy = f->kind->direct ? "" : NULL,
                                            .max_connections = MAX_CONNECTIONS,
                                            .connect_timeout_ns = timeout_ns,
                                            .stall_timeout_ns = timeout_ns,
                                            .idle_timeout_ns = IDLE_TIMEOUT_NS};
        int rc = http_client_new(client, f->loop, &config);

        if (rc < 0) {
            fetcher_step_failed(f, rc, "%s: the connection cannot be set up: %s%s%s",
                                fetcher_source(f), strerror(-rc),
                                f->ca_file ? "; look at the CA file " : "",
                                f->ca_file ? f->ca_file : "");
            return;
        }
    }
    small_request_send(&f->request, *client, timeout_ns, f->kind->tries, on_answer);
}

// --- steps without a request ---

static void keys_start(struct fetcher *f)
{
    char *error = NULL;
    struct credentials *c =
        credentials_make(fetcher_source(f), fetcher_text(f, "access_key"),
                         fetcher_text(f, "secret_key"), fetcher_text(f, "session_token"),
                         json_integer_value(json_object_get(f->step, "expires_s")), &error);

    fetcher_step_done(f, c, error);
}

static void anonymous_start(struct fetcher *f)
{
    fetcher_step_done(f, credentials_make_anonymous(fetcher_source(f)), NULL);
}

static const struct fetcher_kind keys_kind = {.name = "keys", .first = true, .start = keys_start};
static const struct fetcher_kind anonymous_kind = {
    .name = "anonymous", .first = true, .start = anonymous_start};

static const struct fetcher_kind *const kinds[] = {
    &keys_kind,   &anonymous_kind,    &fetcher_web_identity, &fetcher_assume_role,
    &fetcher_sso, &fetcher_container, &fetcher_imds};

// --- from step to step ---

static const struct fetcher_kind *kind_of(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

static void next_step(struct fetcher *f)
{
    const json_t *steps = json_object_get(f->root, "steps");

    if (f->keys && f->next == json_array_size(steps)) {
        finish(f, credentials_ref(f->keys), 0, NULL);
        return;
    }
    f->step = json_array_get(steps, f->next++);
    f->kind = kind_of(fetcher_text(f, "kind"));
    if (!f->kind || f->kind->first != !f->keys)
        fetcher_step_failed(f, -EINVAL, "the way to the credentials is not understood");
    else
        f->kind->start(f);
}

void fetcher_start(struct fetcher *f, const char *json)
{
    assert(!f->root);
    f->root = json_loads(json, 0, NULL);
    f->next = 0;
    next_step(f);
}

bool fetcher_cancel(struct fetcher *f)
{
    return small_request_cancel(&f->request);
}

void fetcher_init(struct fetcher *f, struct loop *l, const char *ca_file, uint64_t timeout_ns,
                  void (*done)(struct fetcher *f, struct credentials *c, int error,
                               const char *text))
{
    f->loop = l;
    f->ca_file = ca_file ? xstrdup(ca_file) : NULL;
    f->timeout_ns = timeout_ns;
    f->done = done;
    small_request_init(&f->request, l);
}

void fetcher_fini(struct fetcher *f)
{
    forget_step(f);
    small_request_fini(&f->request);
    for (size_t i = 0; i < ARRAY_LEN(f->clients); i++)
        http_client_free(f->clients[i]);
    json_decref(f->root);
    credentials_unref(f->keys);
    free(f->ca_file);
    *f = (struct fetcher){0};
}
