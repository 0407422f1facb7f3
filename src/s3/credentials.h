// SPDX-License-Identifier: Apache-2.0
// Where keys come from, and keeping them fresh.
//
// Two halves, so that the part that needs the user's rights (reading his files, running his
// credential_process) is a short synchronous function that may run in another process, and the
// part that talks to the network (STS, instance and container metadata) runs on a loop of a
// process without privilege:
//
//   credentials_local_resolve()   files, environment, processes -> a JSON text, no network
//   struct credentials_provider   that text (asked for again at each refresh) -> keys
//
// Order of sources, as in the AWS SDKs: explicit keys or files of the configuration, environment,
// web identity, shared credentials and config files (static keys, role with source_profile or
// web identity token file, credential_process), container, instance metadata.
#pragma once

#include "base/buf.h"
#include "loop/loop.h"

#include <stdatomic.h>

// Immutable once published; any thread may hold a reference.
struct credentials {
    atomic_int refs;
    bool anonymous;
    char *access_key, *secret_key;
    char *session_token; // NULL if none
    int64_t expires_s;   // wall clock; 0: never
    char *source;        // for people: "profile train in /home/u/.aws/credentials"
};

struct credentials *credentials_ref(struct credentials *c);
void credentials_unref(struct credentials *c); // NULL is allowed

struct credentials_config {
    bool no_sign_request;
    const char *profile;                                 // NULL: AWS_PROFILE, else "default"
    const char *access_key, *secret_key, *session_token; // explicit, or NULL
    const char *passwd_file;                             // s3fs's KEY:SECRET or BUCKET:KEY:SECRET
    const char *bucket;                                  // to find its line in passwd_file
    const char *region; // for STS; NULL: from profile or environment
    const char *ca_file;
    uint64_t timeout_ns; // for each network step; 0: a default
    bool join_group;     // credential_process runs in our process group, and ends with it
};

// Reads environment and files and runs credential_process, as the calling user. Fills out with
// JSON that credentials_provider understands (also the profile's region and endpoint_url, so that
// s3_settings can use them). 0, or -errno with a sentence for people in *ret_error (caller frees).
// Blocks.
int credentials_local_resolve(const struct credentials_config *c, struct buf *out,
                              char **ret_error);

// How a provider has the local half done: in this process on a thread of libuv's pool
// (credentials_resolver_inline), or by another process (the daemon's broker).
struct credentials_resolver {
    // Calls done(arg, json, error_text) once, on l; json NULL on failure.
    void (*resolve)(struct credentials_resolver *r, struct loop *l,
                    void (*done)(void *arg, const char *json, const char *error_text), void *arg);
};

struct credentials_provider;

// Runs on loop l; starts fetching at once. config strings are copied; resolver stays the caller's
// (NULL: inline). 0 or -errno.
int credentials_provider_new(struct credentials_provider **ret, struct loop *l,
                             const struct credentials_config *c, struct credentials_resolver *r);
// On l's thread, when no client uses it any more. What it was fetching ends a little later on l; a
// resolver of the caller's must stay until the done it still owes was called.
void credentials_provider_free(struct credentials_provider *p);

// Any thread; never blocks: a reference to credentials with at least a minute (or a fifth of
// their lifetime, if less) left, or that never expire; NULL when there are none at hand.
// Refreshes start on their own well before that (refresh.h). When they fail, the old keys go on
// being handed out to their end.
struct credentials *credentials_provider_peek(struct credentials_provider *p);

// Waits for credentials. Embedded in the waiting operation; done is called once on the loop that
// called, never within the call, with a reference (the callee's) or NULL and error (-EACCES: a
// source said no; -ENOENT: no source found; -ETIMEDOUT) and a sentence for people, valid during
// the call.
struct credentials_wait {
    void (*done)(struct credentials_wait *w, struct credentials *c, int error,
                 const char *error_text);
    // private
    struct loop_msg msg;
    struct list link;
    struct loop *loop;
    struct credentials_provider *provider;
    struct credentials *result;
    int error;
    char *error_text;
};
void credentials_provider_wait(struct credentials_provider *p, struct credentials_wait *w);

// The store refused these as expired or unknown: fetch anew from the same source. Any thread;
// ignored when newer ones are already there or being fetched. Waiting then gives what the source
// gives now, which may be the same keys: it is the operation that has to give up at some time.
void credentials_provider_refused(struct credentials_provider *p, const struct credentials *c);
