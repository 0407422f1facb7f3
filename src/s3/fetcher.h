// SPDX-License-Identifier: Apache-2.0
// Takes the steps that the local half wrote down (credentials_steps.h) until there are keys. Used
// within s3/ only.
#pragma once

#include "s3/credentials.h"
#include "s3/small_request.h"

#include <jansson.h>

struct fetcher;

// One way to get keys over the network. start sends the first request (or ends the step);
// answered looks at the answer in f->request and does the same.
struct fetcher_kind {
    const char *name;
    bool direct; // never through a proxy: its address means this machine or its host
    bool first;  // makes keys from nothing; else from those of the step before
    uint64_t timeout_ns;
    unsigned tries;
    void (*start)(struct fetcher *f);
    void (*answered)(struct fetcher *f);
};

extern const struct fetcher_kind fetcher_web_identity, fetcher_assume_role; // sts.c
extern const struct fetcher_kind fetcher_sso;                               // sso.c
extern const struct fetcher_kind fetcher_container;                         // container.c
extern const struct fetcher_kind fetcher_imds;                              // imds.c

// Embedded, zero-initialised.
struct fetcher {
    struct loop *loop;
    char *ca_file;
    uint64_t timeout_ns; // 0: each kind's own
    // With a reference, or NULL with error and a sentence valid during the call. May be called
    // within fetcher_start.
    void (*done)(struct fetcher *f, struct credentials *c, int error, const char *text);

    // --- for the kinds ---
    const json_t *step;
    const struct fetcher_kind *kind;
    struct credentials *keys; // of the step before
    struct small_request request;
    unsigned stage; // of a step with several requests
    char *token;    // of the instance's metadata service

    // --- private ---
    struct http_client *clients[2]; // by way: through a proxy if there is one, directly
    json_t *root;
    size_t next;
};

void fetcher_init(struct fetcher *f, struct loop *l, const char *ca_file, uint64_t timeout_ns,
                  void (*done)(struct fetcher *f, struct credentials *c, int error,
                               const char *text));
void fetcher_start(struct fetcher *f, const char *json);
// true: done(-ECANCELED) follows.
bool fetcher_cancel(struct fetcher *f);
void fetcher_fini(struct fetcher *f); // not while it is fetching, nor within done

// --- for the kinds ---

const char *fetcher_text(const struct fetcher *f, const char *name); // of the step, or NULL
const char *fetcher_source(const struct fetcher *f);
// Begins a request to the URL that the step has under that name; with another target if not NULL.
// When it cannot, the step ends and false comes back.
bool fetcher_begin(struct fetcher *f, const char *method, const char *url_name, const char *target);
// Adds a header; the step ends and false comes back when the value cannot stand in one.
bool fetcher_header(struct fetcher *f, const char *name, const char *value);
void fetcher_send(struct fetcher *f);
// The end of the step: with a reference to keys (or NULL and a sentence that is freed here) …
void fetcher_step_done(struct fetcher *f, struct credentials *c, char *error_text);
// … or without.
void fetcher_step_failed(struct fetcher *f, int error, const char *fmt, ...) PRINTF_LIKE(3, 4);
// For an answer that is no success: its status, and the beginning of what it says.
void fetcher_step_refused(struct fetcher *f);
