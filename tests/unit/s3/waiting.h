// SPDX-License-Identifier: Apache-2.0
// A test's thread that waits for what a provider gives on its loop.
#pragma once

#include "s3/credentials.h"

#include "base/clock.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct waiting {
    struct credentials_wait wait;
    struct credentials_provider *provider;
    struct credentials *got;
    int error;
    char *text;
    bool within_call, calling, on_its_loop;
    struct loop *loop;
    struct loop_msg msg;
    sem_t done;
};

static inline void waiting_done(struct credentials_wait *wait, struct credentials *c, int error,
                                const char *error_text)
{
    struct waiting *w = container_of(wait, struct waiting, wait);

    w->got = c;
    w->error = error;
    w->text = error_text ? xstrdup(error_text) : NULL;
    w->within_call = w->calling;
    w->on_its_loop = loop_self() == w->loop;
    sem_post(&w->done);
}

static inline void waiting_ask(struct loop_msg *msg)
{
    struct waiting *w = container_of(msg, struct waiting, msg);

    w->calling = true;
    credentials_provider_wait(w->provider, &w->wait);
    w->calling = false;
}

// From any thread that is not l's.
static inline void waiting_start(struct waiting *w, struct loop *l, struct credentials_provider *p)
{
    *w = (struct waiting){.provider = p, .loop = l, .wait.done = waiting_done};
    sem_init(&w->done, 0, 0);
    loop_post(l, &w->msg, waiting_ask);
}

// false: it took longer than five seconds.
static inline bool waiting_end(struct waiting *w)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    return sem_timedwait(&w->done, &until) == 0;
}

static inline void waiting_free(struct waiting *w)
{
    credentials_unref(w->got);
    free(w->text);
    sem_destroy(&w->done);
    *w = (struct waiting){0};
}
