// SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include "base/clock.h"
#include "base/text.h"
#include "cli/daemon_fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_TIMEOUT_NS (5 * NS_PER_S)

struct opening {
    struct session *session;
    const struct export_options *options;
    const struct credentials_config *credentials;
    char *error_text;
    int rc;
};

static void open_on_loop(void *arg)
{
    struct opening *o = arg;
    struct session *s = o->session;

    o->rc = credentials_provider_new(&s->provider, s->loop, o->credentials, NULL);
    if (o->rc < 0)
        return;
    o->rc = s3_bucket_new(&s->bucket, &o->options->s3, s->provider, &o->error_text);
    if (o->rc < 0)
        return;
    o->rc = s3_client_new(&s->client, s->loop, s->bucket);
}

int session_source(struct export_options *o, const char *source, char **ret_key, char **ret_error)
{
    const char *key;
    char *prefix;
    int rc;

    if (!text_starts_with(source, "s3://")) {
        *ret_error = xasprintf("'%s' is no s3://BUCKET/KEY", source);
        return -EINVAL;
    }
    rc = s3_url_parse(source, &o->s3.bucket, &prefix, ret_error);
    if (rc < 0)
        return rc;
    free(prefix); // it has a '/' added, which a key has not
    key = strchr(source + 5, '/');
    *ret_key = xasprintf("%s%s", o->prefix ? o->prefix : "", key ? key + 1 : "");
    return 0;
}

int session_open(struct session *s, struct export_options *o, char **ret_error)
{
    struct opening opening = {.session = s, .options = o};
    struct credentials_config credentials;
    struct buf json = {0};
    int rc;

    *s = (struct session){0};
    credentials = export_options_credentials(o);
    rc = credentials_local_resolve(&credentials, &json, ret_error);
    // Somebody is waiting at a prompt: a store that is not there is reported soon.
    if (!o->s3.retry_timeout_ns)
        o->s3.first_timeout_ns = FIRST_TIMEOUT_NS;
    if (rc == 0)
        rc = s3_settings_complete(&o->s3, json.data, ret_error);
    buf_free(&json);
    if (rc < 0)
        return rc;
    // the region may have come from the profile
    credentials = export_options_credentials(o);
    opening.credentials = &credentials;

    rc = loop_start(&s->loop, "os2g");
    if (rc < 0) {
        *ret_error = xasprintf("can't start a thread: %s", strerror(-rc));
        return rc;
    }
    session_call(s, open_on_loop, &opening);
    if (opening.rc < 0) {
        *ret_error = opening.error_text
                         ? opening.error_text
                         : xasprintf("can't set up the S3 client: %s", strerror(-opening.rc));
        session_close(s);
    }
    return opening.rc;
}

int session_begin(struct session *s, const struct cli_command *c, struct export_options *o,
                  const char *source, unsigned wishes, char **ret_key)
{
    char *key = NULL, *error = NULL;
    int rc = session_source(o, source, &key, &error);

    if (rc == 0 && (wishes & SESSION_OBJECT) && !*key) {
        rc = -EINVAL;
        error = xstrdup("name one object: s3://BUCKET/KEY");
    }
    if (rc == 0 && (wishes & SESSION_SHARED))
        rc = daemon_open(s, o, key, &error);
    if (rc == 0)
        rc = session_open(s, o, &error);
    if (rc < 0) {
        session_fail(c, error, rc);
        free(key);
    } else {
        rc = 0;
        *ret_key = key;
    }
    free(error);
    return rc;
}

bool session_is_path(const char *key)
{
    while (*key) {
        size_t len = strcspn(key, "/");

        if (len == 0 || len > 255 || (len == 1 && key[0] == '.') ||
            (len == 2 && key[0] == '.' && key[1] == '.'))
            return false;
        key += len + (key[len] == '/');
    }
    return true;
}

static void close_on_loop(void *arg)
{
    struct session *s = arg;

    s3_client_free(s->client);
    s3_bucket_free(s->bucket);
    credentials_provider_free(s->provider);
}

void session_close(struct session *s)
{
    daemon_close(s);
    if (!s->loop)
        return;
    session_call(s, close_on_loop, s);
    loop_stop(s->loop);
    *s = (struct session){0};
}

void session_wait_init(struct session_wait *w)
{
    *w = (struct session_wait){0};
    sem_init(&w->sem, 0, 0);
}

void session_wait_done(struct session_wait *w, int error, const char *text)
{
    w->error = error;
    snprintf(w->text, sizeof(w->text), "%s", text ? text : "");
    sem_post(&w->sem);
}

int session_wait_for(struct session_wait *w)
{
    while (sem_wait(&w->sem) < 0 && errno == EINTR)
        ;
    sem_destroy(&w->sem);
    return w->error;
}

// --- HEAD ---

struct heading {
    struct s3_head head;
    struct s3_client *client;
    struct session_wait wait;
    void (*fn)(void *arg, const struct s3_object_info *info);
    void *arg;
};

static void head_done(struct s3_head *h, int error, const struct s3_object_info *info)
{
    struct heading *x = container_of(h, struct heading, head);

    if (info && x->fn)
        x->fn(x->arg, info);
    session_wait_done(&x->wait, error, h->error_text);
}

static void head_on_loop(void *arg)
{
    struct heading *x = arg;

    s3_head_start(x->client, &x->head);
}

int session_head(struct session *s, const char *key,
                 void (*fn)(void *arg, const struct s3_object_info *info), void *arg, char *text)
{
    struct heading x = {
        .head = {.key = key, .key_len = strlen(key), .done = head_done},
        .client = s->client,
        .fn = fn,
        .arg = arg,
    };
    int rc;

    if (s->daemon)
        return daemon_head(s, key, fn, arg, text);
    session_wait_init(&x.wait);
    session_call(s, head_on_loop, &x);
    rc = session_wait_for(&x.wait);
    if (rc == -ENOENT) // the answer to a HEAD has no body that would say so
        snprintf(text, S3_ERROR_TEXT, "%s: there is no such object", key);
    else
        memcpy(text, x.wait.text, S3_ERROR_TEXT);
    return rc;
}

// --- LIST ---

struct listing {
    struct s3_list_all list;
    struct s3_client *client;
    struct session_wait wait;
    int (*fn)(void *arg, const struct s3_list_entry *e);
    void *arg;
};

static int list_entry_seen(struct s3_list_all *l, const struct s3_list_entry *e)
{
    struct listing *x = container_of(l, struct listing, list);

    return x->fn(x->arg, e);
}

static void list_done(struct s3_list_all *l, int error)
{
    session_wait_done(&container_of(l, struct listing, list)->wait, error, l->error_text);
}

static void list_on_loop(void *arg)
{
    struct listing *x = arg;

    s3_list_all_start(x->client, &x->list);
}

int session_list(struct session *s, const char *prefix, char delimiter,
                 int (*fn)(void *arg, const struct s3_list_entry *e), void *arg, char *text)
{
    struct listing x = {
        .list = {.prefix = prefix,
                 .prefix_len = strlen(prefix),
                 .delimiter = delimiter,
                 .entry = list_entry_seen,
                 .done = list_done},
        .client = s->client,
        .fn = fn,
        .arg = arg,
    };
    int rc;

    if (s->daemon)
        return daemon_list(s, prefix, fn, arg, text);
    session_wait_init(&x.wait);
    session_call(s, list_on_loop, &x);
    rc = session_wait_for(&x.wait);
    memcpy(text, x.wait.text, S3_ERROR_TEXT);
    return rc;
}

int session_fail(const struct cli_command *c, const char *text, int error)
{
    return cli_fail(c, NULL, "%s", text && *text ? text : strerror(error < 0 ? -error : EIO));
}
