// SPDX-License-Identifier: Apache-2.0
#include "daemon/resolver.h"

#include "daemon/broker.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct resolution {
    struct resolver *resolver;
    struct list link; // of resolver->waiting until it is done
    uint64_t number;
    void (*done)(void *arg, const char *json, const char *error_text);
    void *arg;
    struct loop_msg msg;
    int fd;
    struct loop_io *io;
    struct buf answer;
};

static void finish(struct resolution *n, const char *json, const char *error_text)
{
    list_remove(&n->link);
    loop_io_free(n->io);
    if (n->fd >= 0)
        close(n->fd);
    n->done(n->arg, json, error_text);
    buf_free(&n->answer);
    free(n);
}

static void fail(struct loop_msg *msg)
{
    struct resolution *n = container_of(msg, struct resolution, msg);

    finish(n, NULL, buf_str(&n->answer));
}

static void fail_soon(struct resolution *n, const char *error_text)
{
    buf_reset(&n->answer);
    buf_add_str(&n->answer, error_text);
    loop_post(n->resolver->loop, &n->msg, fail);
}

static void hand_out_kept(struct loop_msg *msg)
{
    struct resolution *n = container_of(msg, struct resolution, msg);

    finish(n, buf_str(&n->answer), NULL);
}

static void answered(struct resolution *n)
{
    const char *text = buf_str(&n->answer);

    if (text[0] == '+' && strlen(text) == n->answer.len)
        finish(n, text + 1, NULL);
    else if (text[0] == '-')
        finish(n, NULL, text + 1);
    else
        finish(n, NULL,
               "looking for credentials took too long or was ended: try what "
               "credential_process of the profile says by hand");
}

static void on_pipe(struct loop_io *io, unsigned events, void *arg)
{
    struct resolution *n = arg;
    char piece[4096];
    ssize_t got = read(n->fd, piece, sizeof(piece));

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0) {
        buf_add(&n->answer, piece, (size_t)got);
        if (n->answer.len > BROKER_MAX_BYTES)
            finish(n, NULL, "credentials of more than a megabyte are no credentials");
        return;
    }
    answered(n);
}

void resolver_answer(struct resolver *r, uint64_t number, int fd, const char *text)
{
    struct resolution *n = NULL;

    list_for_each (it, &r->waiting) {
        struct resolution *w = list_entry(it, struct resolution, link);

        if (w->number == number && w->fd < 0)
            n = w;
    }
    if (!n) {
        if (fd >= 0)
            close(fd);
        return;
    }
    if (fd < 0) {
        finish(n, NULL, text);
        return;
    }
    n->fd = fd;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || loop_io_new(&n->io, r->loop, fd, on_pipe, n) < 0) {
        finish(n, NULL, "no room to watch one more descriptor");
        return;
    }
    loop_io_want(n->io, LOOP_READ);
}

static void resolve(struct credentials_resolver *base, struct loop *l,
                    void (*done)(void *arg, const char *json, const char *error_text), void *arg)
{
    struct resolver *r = container_of(base, struct resolver, base);
    struct resolution *n = xcalloc(1, sizeof(*n));
    int rc;

    assert(l == r->loop && loop_self() == l);
    n->resolver = r;
    n->number = ++r->last_number;
    n->done = done;
    n->arg = arg;
    n->fd = -1;
    list_push_back(&r->waiting, &n->link);
    if (r->kept) {
        buf_add_str(&n->answer, r->kept);
        free(r->kept);
        r->kept = NULL;
        loop_post(l, &n->msg, hand_out_kept);
        return;
    }
    rc = channel_send(r->channel, CHANNEL_RESOLVE, n->number, -1, NULL);
    if (rc < 0)
        fail_soon(n, "the supervisor does not listen");
}

void resolver_init(struct resolver *r, struct loop *l, int channel)
{
    *r = (struct resolver){.base = {.resolve = resolve}, .loop = l, .channel = channel};
    list_init(&r->waiting);
}

void resolver_keep(struct resolver *r, const char *json)
{
    free(r->kept);
    r->kept = xstrdup(json);
}
